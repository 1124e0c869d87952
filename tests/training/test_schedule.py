"""Whom rounds ask: cohorts of any size, weights in their places, and what is refused."""

import dataclasses

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st

from fedavot import rules, training
from fedavot.rules import Asked, Rule
from fedavot.rules._rule import add_updates
from fedavot.training import train
from fedavot.training.schedule import schedule

EXACT = 1e-14
"""Room for means of few weights."""


def problem_of(cohorts):
    """Return a problem with the same cohorts for every seed."""

    def availability(rng, rounds):
        return [np.asarray(cohort, dtype=np.int64) for cohort in cohorts]

    return training.Problem(small.TASK, small.P, availability)


some_cohorts = st.lists(
    st.lists(st.integers(0, 3), max_size=4, unique=True), min_size=1, max_size=8
).filter(any)


@given(some_cohorts, st.integers(0, 2**32 - 1), st.integers(0, 9))
def test_a_schedule_holds_every_member_and_weight_in_its_place(cohorts, entropy, rounds):
    rng = np.random.default_rng(entropy)
    weights = [rng.uniform(-1, 2, len(cohort)) for cohort in cohorts]
    rule = small.asking(lambda number, cohort: (cohort, weights[number - 1]))
    plan = schedule(problem_of(cohorts), rule, (1, 2), len(cohorts))
    size = max(map(len, cohorts))
    assert plan.members.shape == plan.weights.shape == (2, len(cohorts), size)
    for seed in range(2):
        for number, cohort in enumerate(cohorts):
            held = len(cohort)
            assert plan.members[seed, number, :held].tolist() == cohort
            assert plan.weights[seed, number, :held].tolist() == weights[number].tolist()
            assert (plan.members[seed, number, held:] == 4).all()
            assert (plan.weights[seed, number, held:] == 0).all()
    assert plan.padded == (len(set(map(len, cohorts))) > 1)
    means = np.zeros(4)
    asked = sum(1 for cohort in cohorts[:rounds] if cohort)
    for cohort, given_weights in zip(cohorts[:rounds], weights[:rounds], strict=True):
        for client, weight in zip(cohort, given_weights, strict=True):
            means[client] += weight / asked
    np.testing.assert_allclose(plan.realised(rounds), [means, means], rtol=0, atol=EXACT)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_rule_may_sort_the_cohorts_it_is_given(order):
    table = np.array([[3, 0], [1, 2], [2, 1]], order=order)
    problem = training.Problem(small.TASK, small.P, lambda rng, rounds: list(table))

    def sort(number, cohort):
        cohort.sort()
        return cohort, cohort / 10

    plan = schedule(problem, small.asking(sort), (0,), 3)
    assert plan.members.tolist() == [[[0, 3], [1, 2], [1, 2]]]
    assert plan.weights.tolist() == [[[0.0, 0.3], [0.1, 0.2], [0.1, 0.2]]]


def test_rules_are_compared_on_the_same_cohorts():
    one, other = (
        schedule(small.PROBLEM, rule, (7,), 10) for rule in (rules.fedavg(), rules.mifa(small.P))
    )
    np.testing.assert_array_equal(one.members, other.members)


COHORTS = [[], [2], [0, 1, 3], [], [3, 1], [0, 1, 2, 3]]


def test_cohorts_of_any_size_train_as_in_a_plain_loop_and_empty_ones_change_nothing():
    run = train(problem_of(COHORTS), small.SHARES, small.options(6))
    small.assert_as_in_a_plain_loop(
        run, small.CLIENTS, lambda seed: COHORTS, batch_size=small.BATCH
    )
    assert run.losses[0, 2] == run.losses[0, 3] != run.losses[0, 4]


@pytest.mark.parametrize("rule", [rules.fedavg(), rules.fedau(small.P), rules.f3ast(small.P)])
def test_cohorts_may_be_lists_and_integers_of_any_type(rule):
    # Client 1 alone in 64 bits has the bytes of clients 1 and 0 in 32.
    given = [[], [2, 3], np.array([1, 0], np.int32), np.array([1], np.int64), []]

    def mixed(rng, rounds):
        return given

    problem = dataclasses.replace(small.PROBLEM, availability=mixed)
    found, expected = (schedule(one, rule, (0,), 5) for one in (problem, problem_of(given)))
    np.testing.assert_array_equal(found.members, expected.members)
    np.testing.assert_array_equal(found.weights, expected.weights)
    assert (found.members[0] < 4).sum(axis=1).tolist() == [0, 2, 2, 1, 0]


def at_once(members, weights):
    """Return a rule that chooses for all rounds at once."""
    return Rule("table", "nothing", "nothing", lambda *_: Asked(members, weights), add_updates)


@pytest.mark.parametrize(
    "cohorts", [[[2, 0], [1, 3], [0, 1]], [[2, 0, 1], [3], [1, 0]], [[0], [1], [2]]]
)
def test_a_rule_may_choose_for_all_rounds_at_once(cohorts):
    members = np.array([[2, 0], [1, 3], [0, 1]])
    weights = np.array([[0.2, 0.8], [1.0, 0.5], [0.0, -1.0]])
    row_by_row = small.asking(lambda number, cohort: (members[number - 1], weights[number - 1]))
    problem = problem_of(cohorts)
    table, rows = (
        schedule(problem, rule, (3, 11), 3) for rule in (at_once(members, weights), row_by_row)
    )
    assert table.members.tolist() == rows.members.tolist() == [members.tolist()] * 2
    assert table.weights.tolist() == rows.weights.tolist() == [weights.tolist()] * 2
