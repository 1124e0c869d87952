"""A slice of the attack on convergence, on seeds of its own."""

import pytest
from attacks import convergence


@pytest.mark.parametrize("seed", [1, 2])
def test_no_problem_of_a_slice_is_left_unconverged_or_wrong(seed, capsys):
    assert convergence.main(["--seed", str(seed), "--problems", "60"]) == 0
    assert "unconverged" in capsys.readouterr().out
