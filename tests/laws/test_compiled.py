"""Independent clients in great number: the compiled sums of JAX equal NumPy's."""

import jax
import numpy as np
import pytest

import agreement
import fedavot as fa
from fedavot.laws import independent as module

COMPILED = 1e-13
"""What separates two orders of summation over 30,000 clients, relatively."""


def many_clients():
    rng = np.random.default_rng(3)
    chances = rng.uniform(0.0, 4e-4, 30_000)
    chances[:3] = 0.0, 1e-12, 0.5
    return fa.IndependentClients(chances), rng.normal(0.0, 2.0, 30_000)


@pytest.mark.parametrize("sure", [False, True], ids=["nobody is sure", "one client is sure"])
def test_the_compiled_sums_equal_the_plain_ones(monkeypatch, sure):
    law, x = many_clients()
    if sure:
        law = fa.IndependentClients(np.append(law.probabilities[1:], 1.0))
    compiled = law.system().curvature(x)
    compiled_squares = compiled.squares
    monkeypatch.setattr(module, "can_compile", lambda: False)
    plain = law.system().curvature(x)
    assert not np.array_equal(compiled.marginal, plain.marginal), "the order of summation differs"
    assert np.array_equal(compiled.marginal > 0, plain.marginal > 0)
    for ours, theirs in ((compiled.marginal, plain.marginal), (compiled_squares, plain.squares)):
        positive = theirs > 0
        assert np.max(np.abs(ours[positive] / theirs[positive] - 1.0)) <= COMPILED


def test_compiled_sums_leave_the_precision_of_jax_as_it_was():
    law, x = many_clients()
    weights = law.expected_weights(x)
    assert weights.dtype == np.float64
    assert jax.numpy.ones(1).dtype == np.float32


def test_potentials_too_far_apart_for_the_compiled_sums_still_sum_to_one():
    law, x = many_clients()
    x[0], x[-1] = 400.0, -400.0
    wanted = law.expected_weights(np.clip(x, -60.0, None))
    assert agreement.close(law.expected_weights(x), wanted)
