"""Advice, followed: rules trained afterwards, on a task that the audit has not seen.

`examples/audit/advice.py` prints the whole table; here are two of its federations, for fewer rounds
and with fewer rules.
"""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from fedavot.audit import audit

FOLDER = Path(__file__).parents[2] / "examples" / "audit"
ROUNDS = 120


@pytest.fixture(scope="module")
def script():
    """Return the script as a module, with few seeds."""
    pytest.importorskip("mlxtend")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        module = importlib.import_module("advice")
        patch.setattr(module, "SEEDS", (0, 1))
        yield module
    for name in ("advice", "federations"):
        del sys.modules[name]


@pytest.mark.parametrize("name", ["day_and_night", pytest.param("scarce", marks=pytest.mark.slow)])
def test_what_is_advised_trains_better_than_the_plain_average(script, name):
    make = next(one for one in script.CHOSEN_ON if one.__name__ == name)
    case = make(np.random.default_rng(1), 2 * ROUNDS)
    seen = case.federation(0, ROUNDS)
    findings = audit(seen)
    advised = [script.advised(findings), script.advised(audit(seen, can=()))]
    assert advised[0] == "fedavot-steady"
    losses = script.train(case, findings, names={"fedavg", *advised})
    for rule in advised:
        assert losses[rule].mean() < losses["fedavg"].mean()
