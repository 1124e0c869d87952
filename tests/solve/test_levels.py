"""Levels read off an order are those of brute force, idle and unseen clients included."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import brute
import fedavot as fa
from agreement import close
from fedavot.solve.levels import one_level, partition
from strategies import (
    any_law,
    enumerate_cohorts,
    importances,
    independent_laws,
    normalised,
    permutations,
    uniform_laws,
)

# What ratios tied to within 1e-11 leave open in an attained importance, L1.
BASE = 1e-10
# Relative: a level may cover little, and its coverage is a difference of two probabilities.
RATIO = 1e-9

prefix_laws = uniform_laws() | independent_laws()


def problems(laws):
    return laws.flatmap(lambda law: st.tuples(st.just(law), importances(law.n_clients)))


def read_off(importance, law):
    return partition(importance, law, law.worst_order(importance))


@settings(max_examples=150)
@given(problems(prefix_laws))
def test_levels_of_laws_with_a_worst_order_attain_the_optimal_base(case):
    law, importance = case
    base = brute.lexicographic_base(importance, enumerate_cohorts(law))
    assert np.abs(read_off(importance, law).target - base.attained).sum() <= BASE


@settings(max_examples=100)
@given(problems(prefix_laws))
def test_levels_of_laws_with_a_worst_order_are_those_of_brute_force(case):
    law, importance = case
    parts = read_off(importance, law)
    for clients, ratio in brute.lexicographic_base(importance, enumerate_cohorts(law)).levels:
        found = parts.ratios[parts.levels[list(clients)]]
        # Coverages are exact to about 1e-15, which is all there is of a rare client's.
        slack = RATIO * ratio + 1e-14 / importance[list(clients)].sum()
        assert np.all(np.abs(found - ratio) <= slack)


@settings(max_examples=100)
@given(problems(any_law()), st.data())
def test_along_any_order_ratios_rise_and_the_target_is_a_distribution(case, data):
    law, importance = case
    parts = partition(importance, law, data.draw(permutations(law.n_clients)))
    assert np.all(np.diff(parts.ratios) >= -RATIO * parts.ratios[:-1])
    assert abs(parts.target.sum() - 1.0) <= BASE
    assert parts.target.min() >= 0
    assert set(parts.levels) == set(range(parts.ratios.size))


@settings(max_examples=80)
@given(problems(any_law()), st.data())
def test_no_order_gives_the_worst_sets_more_than_they_can_have(case, data):
    law, importance = case
    parts = partition(importance, law, data.draw(permutations(law.n_clients)))
    cohorts = enumerate_cohorts(law)
    for last in range(parts.ratios.size):
        clients = np.flatnonzero(parts.levels <= last)
        assert abs(parts.target[clients].sum() - brute.coverage(cohorts, clients)) <= BASE


def test_a_feasible_importance_with_slack_everywhere_is_one_level():
    parts = read_off(normalised([4.0, 3.0, 3.0, 3.0]), fa.UniformCohorts(4, 2))
    assert parts.levels.tolist() == [0, 0, 0, 0]
    assert close(parts.ratios, [1.0])


def test_a_tight_set_is_a_level_of_its_own_with_the_same_ratio():
    parts = read_off(np.array([0.5, 1 / 3, 1 / 12, 1 / 12]), fa.UniformCohorts(4, 2))
    assert parts.levels.tolist() == [0, 1, 2, 2]
    assert close(parts.ratios, [1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    "law",
    [
        fa.Cohorts([[0, 1], [2, 3], [1, 2, 3], [3]]),
        fa.UniformCohorts(4, 2),
        fa.IndependentClients([0.5, 0.4, 0.3, 0.6]),
        fa.SuccessiveDraws([1.0, 2.0, 3.0, 4.0], 2),
        fa.Mixture([fa.UniformCohorts(4, 1), fa.Cohorts([[2, 3], [0, 1]])], [0.5, 0.5]),
    ],
    ids=lambda law: type(law).__name__,
)
def test_clients_without_importance_share_what_nobody_else_can_take_equally(law):
    importance = np.array([0.7, 0.3, 0.0, 0.0])
    alignment = fa.align(importance, law)
    wanted = np.zeros(4)
    for cohort, chance in enumerate_cohorts(law).items():
        if cohort <= {2, 3}:
            wanted[list(cohort)] += float(chance) / len(cohort)
    assert close(alignment.attained[2:], wanted[2:])
    assert alignment.weights([2, 3]).tolist() == [0.5, 0.5]
    assert alignment.weights([3, 0, 2])[[0, 2]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "law",
    [
        fa.Cohorts([[0, 1], [1, 2]], n_clients=4),
        fa.IndependentClients([0.5, 0.4, 0.3, 0.0]),
        fa.SuccessiveDraws([1.0, 2.0, 3.0, 0.0], 2),
        fa.Mixture([fa.IndependentClients([0.5, 0.4, 0.3, 0.0])], [1.0]),
    ],
    ids=lambda law: type(law).__name__,
)
def test_a_wanted_client_nobody_ever_sees_is_the_lowest_level_and_attains_nothing(law):
    importance = np.array([0.3, 0.3, 0.2, 0.2])
    alignment = fa.align(importance, law)
    assert alignment.status == "nearest"
    assert alignment.levels[3] == 0
    assert np.all(alignment.levels[:3] > 0)
    assert alignment.attained[3] == 0.0
    assert np.isfinite(alignment.potentials).all()
    assert fa.certify(importance, law).hall_ratio == np.inf


def test_starting_from_one_level_sets_the_unseen_first_and_the_idle_last():
    law = fa.Cohorts([[0, 1], [1, 2], [2]], n_clients=4)
    parts = one_level(np.array([0.4, 0.4, 0.0, 0.2]), law)
    assert parts.levels.tolist() == [1, 1, 2, 0]
    assert parts.ratios[0] == 0.0
    assert close(parts.target, [1 / 3, 1 / 3, 1 / 3, 0.0])
