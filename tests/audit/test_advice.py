"""From a replay to a recommendation: what may be recommended, and what is best of it."""

from dataclasses import replace

import numpy as np
import pytest

from fedavot.audit.recommending import (
    LEAST_ROUNDS,
    NEEDS,
    Estimate,
    Facts,
    Replay,
    Trained,
    recommend,
)

CLEAR = Facts(Estimate(0.3, 0.28, 0.32), 1.0, 0.05, 1000, 20, 5.0, 1.0)
OPEN = Facts(Estimate(0.1, 0.0, 0.5), 1.0, 0.05, 30, 20, 5.0, 1.0)


def trained(rule, value, high, *, need=None, better=True, softness=0.0):
    """Return a rule whose loss is a share of that of the rule in use."""
    to_use, none = Estimate(value, value / 2, high), Estimate(1.0, 1.0, 1.0)
    curve = np.ones(3)
    return Trained(
        rule, need, 1.0, none, none, none, none, to_use, curve, curve, curve, better, softness
    )


def replay(*rules):
    """Return a replay of these rules, of the plain average and of full participation."""
    always = trained("fedavg", 1.0, 1.0, better=False), trained("full", 0.01, 0.02)
    return Replay((*always, *rules), np.array([1, 2, 3]), 2, 1, 6, 4, 5, 20)


STEADY = trained("fedavot-steady", 0.2, 0.8, need="memory")
SOFT = trained("fedavot-soft", 0.3, 0.7, softness=0.1)
ONLINE = trained("fedavot-online", 0.25, 0.9)
SELECT = trained("fedavot-select", 0.1, 0.5, need="select")


def test_memory_is_judged_by_its_mean_and_weights_by_their_smallest_gain():
    found = recommend(replay(STEADY, SOFT, ONLINE), CLEAR, NEEDS)
    assert (found.action, found.reason) == ("use memory", "trains better")
    assert found.best.rule == "fedavot-steady"
    assert found.best.need == "memory"
    assert tuple(found.best.gain) == pytest.approx((0.8, 0.2, 0.9))
    assert found.second.rule == "fedavot-soft"
    assert found.second.softness == 0.1


@pytest.mark.parametrize(
    ("can", "rule", "action"),
    [
        (["memory"], "fedavot-steady", "use memory"),
        (["select"], "fedavot-select", "change selection"),
        ([], "fedavot-soft", "change the weights"),
    ],
)
def test_what_cannot_be_done_is_not_recommended(can, rule, action):
    found = recommend(replay(STEADY, SOFT, SELECT), CLEAR, can)
    assert (found.action, found.best.rule) == (action, rule)
    assert (found.second is None) == (rule == "fedavot-soft")


def test_a_rule_that_is_not_better_in_every_variant_is_not_recommended():
    worse = trained("fedavot-steady", 0.2, 1.3, need="memory", better=False)
    found = recommend(replay(worse), CLEAR, NEEDS)
    assert (found.action, found.reason, found.best) == ("nothing to do", "within noise", None)


def test_neither_full_participation_nor_weights_that_do_not_sum_to_one_are_recommended():
    wild = trained("horvitz-thompson", 0.01, 0.02)
    assert recommend(replay(wild), CLEAR, NEEDS).best is None
    assert recommend(replay(wild, SOFT), CLEAR, NEEDS).best.rule == "fedavot-soft"


def test_a_log_that_cannot_tell_is_too_short_unless_a_rule_is_better():
    found = recommend(replay(), OPEN, NEEDS)
    assert (found.action, found.reason) == ("collect more rounds", "too short")
    assert found.rounds_needed >= 2 * OPEN.rounds
    assert recommend(replay(STEADY), OPEN, NEEDS).best.rule == "fedavot-steady"


def test_a_handful_of_rounds_recommends_no_rule():
    few = replace(OPEN, rounds=LEAST_ROUNDS - 1)
    assert recommend(replay(STEADY, SOFT), few, NEEDS).reason == "too short"


def test_nothing_is_recommended_if_little_is_observed():
    hidden = Facts(CLEAR.gap, 0.4, 0.05, 1000, 20, 5.0, 1.0)
    assert recommend(replay(STEADY), hidden, NEEDS).reason == "unobserved"


def test_one_client_needs_nothing():
    alone = Facts(CLEAR.gap, 1.0, 0.05, 1000, 1, 1.0, 1.0)
    assert recommend(replay(), alone, NEEDS).reason == "one client"
