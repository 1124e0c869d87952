"""Levels of mixtures, found by softening, exchange or least norm, are those of brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import brute
import fedavot as fa
from fedavot.solve.dual import DualProblem, Iterate, StoppingRule
from fedavot.solve.levels import partition
from fedavot.solve.newton import climb_until
from fedavot.solve.softening import by_softening, exchanged, least_norm_order
from strategies import (
    any_law,
    enumerate_cohorts,
    importances,
    infeasible_problems,
    mixtures,
    normalised,
    permutations,
    tight_problems,
)

# L1; what the solver is asked for.
TOL = 1e-9
# The same against brute force: the tolerance, and ratios tied to within rounding.
BASE = 2e-9
# Relative: a level's ratio is read off its coverage and its importance alone.
RATIO = 1e-8
# Absolute: coverages and importances are at most one.
ROUNDING = 1e-12
# L1: levels that are read off, with ratios tied within 1e-9.
READ_OFF = 1e-10
STOP = StoppingRule(tol=TOL, max_iter=2_000, method="auto")


def is_met(importance, law, solution):
    return DualProblem.within(importance, law, solution.partition).met(solution.iterate, STOP)


def check(importance, law, cohorts):
    """Compare levels, ratios and attained importance with those of all sets."""
    base = brute.lexicographic_base(importance, cohorts)
    found = by_softening(importance, law, STOP, 0)
    assert is_met(importance, law, found)
    assert found.iterate.evaluations <= STOP.max_iter
    assert np.abs(found.partition.target - base.attained).sum() <= BASE
    attained = brute.expected_weights(cohorts, found.iterate.potentials, found.partition.levels)
    wanted = importance > 0
    assert np.abs(attained - base.attained)[wanted].sum() <= BASE
    last = -1
    for clients, ratio in base.levels:
        levels = found.partition.levels[list(clients)]
        # Tight sets may split a level of brute force, but none reaches into another.
        assert levels.min() > last
        last = levels.max()
        assert np.allclose(found.partition.ratios[levels], ratio, rtol=RATIO, atol=1e-14)


@settings(max_examples=40)
@given(mixtures(), st.data())
def test_levels_of_any_importance_are_those_of_brute_force(law, data):
    check(data.draw(importances(law.n_clients)), law, enumerate_cohorts(law))


@settings(max_examples=30)
@given(infeasible_problems(mixtures()))
def test_levels_of_a_planted_deficient_set_are_those_of_brute_force(problem):
    check(problem.importance, problem.law, problem.cohorts)


@settings(max_examples=30)
@given(tight_problems(mixtures()))
def test_a_tight_set_is_met_without_potentials_that_run_away(problem):
    found = by_softening(problem.importance, problem.law, STOP, 0)
    assert is_met(problem.importance, problem.law, found)
    attained = brute.expected_weights(
        problem.cohorts, found.iterate.potentials, found.partition.levels
    )
    assert np.abs(attained - problem.importance).sum() <= BASE
    assert fa.align(problem.importance, problem.law).status == "exact"


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("second", ["independent", "uniform", "cohorts"])
def test_importance_over_fifteen_orders_has_the_levels_of_brute_force(second, seed):
    rng = np.random.default_rng(seed)
    n_clients = 6
    other = {
        "independent": fa.IndependentClients(rng.uniform(0.05, 0.9, n_clients)),
        "uniform": fa.UniformCohorts(n_clients, int(rng.integers(1, 4))),
        "cohorts": fa.Cohorts([[0, 1], [1, 2, 3], [4], [3, 5], [5]], rng.dirichlet(np.ones(5))),
    }[second]
    law = fa.Mixture([fa.IndependentClients(rng.uniform(0.05, 0.9, n_clients)), other], [0.4, 0.6])
    importance = normalised(10.0 ** rng.uniform(-15, 0, n_clients))
    check(importance, law, enumerate_cohorts(law))


def test_a_client_that_no_state_has_attains_nothing_and_is_the_lowest_level():
    law = fa.Mixture(
        [fa.IndependentClients([0.5, 0.2, 0.0, 0.3]), fa.IndependentClients([0.1, 0.9, 0.0, 0.3])],
        [0.5, 0.5],
    )
    importance = np.array([0.4, 0.3, 0.1, 0.2])
    found = by_softening(importance, law, STOP, 0)
    assert found.partition.levels[2] == 0
    assert found.partition.target[2] == 0.0
    check(importance, law, enumerate_cohorts(law))


def test_states_that_never_meet_are_levels_of_their_own():
    """A client that only the rare state has, and one that only the other has."""
    law = fa.Mixture(
        [fa.IndependentClients([0.5, 0.4, 0.0, 0.0]), fa.IndependentClients([0.0, 0.0, 0.6, 0.3])],
        [0.1, 0.9],
    )
    importance = np.array([0.25, 0.25, 0.25, 0.25])
    found = by_softening(importance, law, STOP, 0)
    assert found.partition.levels[[0, 1]].max() < found.partition.levels[[2, 3]].min()
    check(importance, law, enumerate_cohorts(law))


def excess(importance, law, parts, ratio):
    """Return the least of f − λ p over the unions of first levels, λ given."""
    found = [0.0]
    for level in range(parts.ratios.size):
        inside = np.flatnonzero((parts.levels <= level) & (importance > 0))
        found.append(law.coverage(inside) - ratio * importance[inside].sum())
    return min(found)


@st.composite
def ordered_problems(draw):
    law = draw(any_law(max_clients=7))
    importance = draw(importances(law.n_clients))
    return importance, law, np.array(draw(permutations(law.n_clients)))


@given(ordered_problems(), st.floats(0.01, 10.0))
def test_no_ratio_has_a_worse_set_than_before(problem, ratio):
    importance, law, order = problem
    before = partition(importance, law, order)
    after = exchanged(importance, law, before, np.zeros(law.n_clients))
    left, right = (excess(importance, law, parts, ratio) for parts in (before, after))
    assert right <= left + ROUNDING


def test_hundreds_of_levels_take_few_evaluations():
    """Clients that gave way one level at a time took hundreds."""
    rng = np.random.default_rng(0)
    n_clients = 500
    day = fa.IndependentClients(0.02 * rng.random(n_clients))
    night = fa.IndependentClients(np.maximum(0.02 * rng.random(n_clients) ** 8, 1e-9))
    alignment = fa.align(normalised(rng.random(n_clients)), fa.Mixture([day, night], [0.5, 0.5]))
    assert alignment.status == "nearest"
    assert alignment.levels.max() > 100
    assert alignment.iterations < 100


def check_order(importance, law, start):
    """Compare the levels with brute force, and see that the target is met within them."""
    base = brute.lexicographic_base(importance, enumerate_cohorts(law))
    order = least_norm_order(importance, law, np.asarray(start))
    assert sorted(order.tolist()) == list(range(law.n_clients))
    split = partition(importance, law, order)
    assert np.abs(split.target - base.attained).sum() <= READ_OFF
    problem = DualProblem.within(importance, law, split)
    start = Iterate.start(np.zeros(law.n_clients))
    assert problem.met(climb_until(problem, start, STOP), STOP)


@settings(max_examples=60)
@given(any_law(max_clients=7), st.data())
def test_levels_are_those_of_brute_force_from_any_start(law, data):
    importance = data.draw(importances(law.n_clients))
    check_order(importance, law, data.draw(permutations(law.n_clients)))


@pytest.mark.parametrize("seed", range(20))
def test_levels_of_mixtures_are_those_of_brute_force_over_twelve_orders(seed):
    rng = np.random.default_rng(seed)
    kinds = [rng.uniform(0.0, 1.0, 8), 10 ** rng.uniform(-6, 0, 8), rng.choice([0.0, 0.5, 1.0], 8)]
    kinds[2][0] = 0.5
    law = fa.Mixture([fa.IndependentClients(kind) for kind in kinds], rng.dirichlet(np.ones(3)))
    check_order(normalised(10.0 ** rng.uniform(-12, 0, 8)), law, rng.permutation(8))


@settings(max_examples=30)
@given(tight_problems(mixtures(max_clients=6)), st.data())
def test_the_target_is_met_where_a_set_is_tight(problem, data):
    start = data.draw(permutations(problem.law.n_clients))
    check_order(problem.importance, problem.law, start)
