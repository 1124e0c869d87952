"""Levels of mixtures, found by softening or by the base of least norm, are those of brute force."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import brute
import fedavot as fa
from fedavot.solve import softening
from strategies import (
    enumerate_cohorts,
    importances,
    infeasible_problems,
    mixtures,
    normalised,
    tight_problems,
)

# L1; what the solver is asked for.
TOL = 1e-9
# The same against brute force: the tolerance, and ratios tied to within rounding.
BASE = 2e-9


@pytest.fixture(params=["softening", "least norm"])
def way(request, monkeypatch):
    """Leave the levels to softening, or to the base of least norm alone."""
    if request.param == "least norm":
        monkeypatch.setattr(softening, "_FIRST_SOFTNESS", 0.0)


def check(importance, law, cohorts):
    """Compare the attained importance with that of all sets, and the order of the levels."""
    base = brute.lexicographic_base(importance, cohorts)
    found = fa.align(importance, law, tol=TOL)
    assert found.status in {"exact", "nearest"}
    attained = brute.expected_weights(cohorts, found.potentials, found.levels)
    assert np.abs(attained - base.attained)[importance > 0].sum() <= BASE
    last = -1
    for clients, _ in base.levels:
        levels = found.levels[list(clients)]
        # Tight sets may split a level of brute force, but none reaches into another.
        assert levels.min() > last
        last = levels.max()


PROBLEMS = {
    "any": mixtures(6).flatmap(lambda law: st.tuples(importances(law.n_clients), st.just(law))),
    "infeasible": infeasible_problems(mixtures(6)).map(lambda problem: problem[:2]),
    "tight": tight_problems(mixtures(6)).map(lambda problem: problem[:2]),
}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", PROBLEMS)
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_levels_are_those_of_brute_force(kind, data):
    importance, law = data.draw(PROBLEMS[kind])
    check(importance, law, enumerate_cohorts(law))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("second", ["independent", "uniform", "cohorts"])
def test_importance_over_fifteen_orders_has_the_levels_of_brute_force(second, seed):
    rng = np.random.default_rng(seed)
    other = {
        "independent": fa.IndependentClients(rng.choice([1e-9, 0.5, 1.0, 1e-6], 6)),
        "uniform": fa.UniformCohorts(6, int(rng.integers(1, 4))),
        "cohorts": fa.Cohorts([[0, 1], [1, 2, 3], [4], [3, 5], [5]], rng.dirichlet(np.ones(5))),
    }[second]
    law = fa.Mixture([fa.IndependentClients(rng.uniform(0.05, 0.9, 6)), other], [0.4, 0.6])
    check(normalised(10.0 ** rng.uniform(-15, 0, 6)), law, enumerate_cohorts(law))


@pytest.mark.usefixtures("way")
def test_states_that_never_meet_are_levels_of_their_own_and_the_unseen_are_the_lowest():
    """Some clients only the rare state has, others only the other, and one neither."""
    law = fa.Mixture(
        [
            fa.IndependentClients([0.5, 0.4, 0.0, 0.0, 0.0]),
            fa.IndependentClients([0.0, 0.0, 0.6, 0.3, 0.0]),
        ],
        [0.1, 0.9],
    )
    check(np.full(5, 0.2), law, enumerate_cohorts(law))


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
