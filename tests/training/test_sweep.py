"""Many steps in one program give what one run after another gives."""

import dataclasses

import numpy as np
import pytest
import small

from fedavot import rules, training
from fedavot.errors import OptionError, RuleError
from fedavot.rules import with_server
from fedavot.training import constant, cosine
from fedavot.training import sweep as module
from fedavot.training.sweep import Steps, sweep

AGREE = 1e-6
"""Programs of other shapes add in another order; losses are of order one, in single precision."""
CHOICES = (Steps(constant(0.05)), Steps(cosine(0.1), 2.0, 0.9), Steps(constant(0.02), 0.5))
OPTIONS = small.options(rounds=6, record_every=2)
STEADY = rules.steady(small.P)


def one_by_one(rule, choices, problem=small.PROBLEM):
    runs = [
        training.train(
            problem,
            with_server(rule, step=choice.server, momentum=choice.momentum) if rule.moves else rule,
            dataclasses.replace(OPTIONS, step=choice.local),
        )
        for choice in choices
    ]
    return np.stack([run.losses for run in runs])


@pytest.mark.parametrize("rule", [small.SHARES, STEADY], ids=lambda rule: str(rule.name))
def test_every_choice_has_the_losses_of_a_run_of_its_own(rule):
    found = sweep(small.PROBLEM, rule, OPTIONS, CHOICES)
    assert found.shape == (3, len(small.SEEDS), 3)
    np.testing.assert_allclose(found, one_by_one(rule, CHOICES), rtol=AGREE, atol=AGREE)


def test_a_rule_that_has_no_server_step_is_swept_over_local_steps():
    rule = dataclasses.replace(small.SHARES, moves=False)
    choices = [choice._replace(server=1.0, momentum=0.0) for choice in CHOICES]
    found = sweep(small.PROBLEM, rule, OPTIONS, choices)
    np.testing.assert_allclose(found, one_by_one(rule, choices), rtol=AGREE, atol=AGREE)
    for more in ({"server": 2.0}, {"momentum": 0.9}):
        with pytest.raises(RuleError, match="server step"):
            sweep(small.PROBLEM, rule, OPTIONS, [CHOICES[0]._replace(**more)])


def test_seeds_that_are_alike_have_the_same_losses():
    problem = training.Problem(
        dataclasses.replace(small.TASK, init=small.zero_model), small.P, small.everybody
    )
    options = dataclasses.replace(OPTIONS, batch_size=None)
    found = sweep(problem, small.SHARES, options, CHOICES)
    assert found.shape == (3, len(small.SEEDS), 3)
    np.testing.assert_array_equal(found[:, 0], found[:, 1])


def test_a_choice_that_diverges_leaves_the_others_as_they_are():
    far = Steps(constant(1e30))
    found = sweep(small.PROBLEM, small.SHARES, OPTIONS, [CHOICES[0], far, CHOICES[1]])
    assert not np.isfinite(found[1]).all()
    alone = one_by_one(small.SHARES, CHOICES[:2])
    np.testing.assert_allclose(found[[0, 2]], alone, rtol=AGREE, atol=AGREE)


def test_choices_beyond_the_memory_are_trained_in_turn(monkeypatch):
    together = sweep(small.PROBLEM, STEADY, OPTIONS, CHOICES)
    monkeypatch.setattr(module, "MEMORY", 1)
    in_turn = sweep(small.PROBLEM, STEADY, OPTIONS, CHOICES)
    np.testing.assert_allclose(together, in_turn, rtol=AGREE, atol=AGREE)


def test_a_sweep_of_nothing_or_of_records_that_end_amid_rounds_is_refused():
    with pytest.raises(OptionError, match="0 choices"):
        sweep(small.PROBLEM, small.SHARES, OPTIONS, [])
    with pytest.raises(OptionError, match="every 4"):
        sweep(small.PROBLEM, small.SHARES, small.options(rounds=6, record_every=4), CHOICES)
