"""Levels of mixtures, told apart by softening, are those of brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import brute
import fedavot as fa
from fedavot.solve.dual import DualProblem, StoppingRule
from fedavot.solve.softening import by_softening
from strategies import (
    enumerate_cohorts,
    importances,
    infeasible_problems,
    normalised,
    tight_problems,
)

TOL = 1e-9
"""L1; what the solver is asked for."""
BASE = 2e-9
"""The same against brute force: the tolerance, and ratios tied to within rounding."""
RATIO = 1e-8
"""Relative: a level's ratio is read off its coverage and its importance alone."""
STOP = StoppingRule(tol=TOL, max_iter=2_000, method="auto")


def chances(n_clients):
    return st.lists(st.floats(0.05, 0.95), min_size=n_clients, max_size=n_clients)


def parts_over(n_clients):
    """Draw an independent, a uniform or an explicit law over so many clients."""
    cohort = st.lists(st.integers(0, n_clients - 1), min_size=1, max_size=n_clients, unique=True)
    return st.one_of(
        chances(n_clients).map(fa.IndependentClients),
        st.integers(1, n_clients).map(lambda size: fa.UniformCohorts(n_clients, size)),
        st.lists(cohort, min_size=1, max_size=5).map(
            lambda members: fa.Cohorts(members, n_clients=n_clients)
        ),
    )


@st.composite
def mixtures(draw):
    """Draw a mixture of which at least one state is of independent clients."""
    n_clients = draw(st.integers(2, 7))
    first = fa.IndependentClients(draw(chances(n_clients)))
    others = draw(st.lists(parts_over(n_clients), min_size=1, max_size=2))
    return fa.Mixture([first, *others], draw(importances(len(others) + 1, zeros=False)))


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


def test_evaluations_made_before_are_counted():
    law = fa.Mixture([fa.IndependentClients([0.5, 0.4]), fa.UniformCohorts(2, 1)], [0.5, 0.5])
    importance = np.array([0.9, 0.1])
    first, later = (by_softening(importance, law, STOP, spent) for spent in (0, 7))
    assert later.iterate.evaluations == first.iterate.evaluations + 7
