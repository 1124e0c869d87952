"""Splitting by max-flow ends at the levels that the search finds, and at those of brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import brute
import fedavot as fa
from fedavot.laws.successive import listed
from fedavot.solve import decompose
from fedavot.solve.climbing import one_level
from fedavot.solve.maxflow import split_by_flow
from strategies import enumerate_cohorts, explicit_laws, importances, normalised, successive_laws

ATTAINED = 1e-9
"""L1; flows are whole multiples of 2^-50, and alignments are solved to this tolerance."""
BASE = 1e-10
"""L1; levels are read off exactly, so only ratios tied to within rounding are left open."""

sizes = pytest.mark.parametrize(
    ("n_clients", "n_cohorts"), [(30, 100), (40, 150), (50, 250), (60, 400)]
)
skews = pytest.mark.parametrize("skew", [0.3, 1.0, 2.5])


def random_problem(n_clients, n_cohorts, skew):
    """Return ragged cohorts of mostly popular clients, and an importance skewed by e^±skew."""
    rng = np.random.default_rng([n_clients, n_cohorts, int(10 * skew)])
    popularity = rng.gumbel(size=n_clients) * 0.5
    noise = rng.gumbel(size=(n_cohorts, n_clients))
    order = np.argsort(-(popularity + noise), axis=1)
    members = [row[: rng.integers(1, 5)].tolist() for row in order]
    importance = np.exp(skew * rng.normal(size=n_clients))
    law = fa.Cohorts(members, rng.dirichlet(np.ones(n_cohorts)), n_clients)
    return importance / importance.sum(), law


def by_flow(importance, law):
    return split_by_flow(
        importance, listed(law), one_level(importance, law), np.zeros(importance.size)
    )


@sizes
@skews
def test_flow_and_search_attain_the_same(n_clients, n_cohorts, skew):
    importance, law = random_problem(n_clients, n_cohorts, skew)
    alignment = fa.align(importance, law, tol=ATTAINED / 2)
    assert alignment.status == "nearest"
    assert np.abs(by_flow(importance, law).target - alignment.attained).sum() <= ATTAINED


@sizes
def test_a_search_that_gives_up_sorting_ends_at_the_same_answer(monkeypatch, n_clients, n_cohorts):
    importance, law = random_problem(n_clients, n_cohorts, 1.0)
    patient = fa.align(importance, law, tol=ATTAINED / 2)
    monkeypatch.setattr(decompose, "_SORTS", 0)
    hasty = fa.align(importance, law, tol=ATTAINED / 2)
    assert hasty.status == patient.status == "nearest"
    assert np.abs(hasty.attained - patient.attained).sum() <= ATTAINED


def test_a_tight_search_that_gives_up_climbing_ends_at_the_same_answer(monkeypatch):
    law = fa.Cohorts([[0, 1], [1, 2], [0, 2, 3], [2, 3]], [0.4, 0.3, 0.2, 0.1])
    x, level = np.array([0.5, 0.0, 1.0, 0.2]), np.array([0, 0, 1, 1])
    importance = brute.expected_weights(enumerate_cohorts(law), x, level)
    monkeypatch.setattr(decompose, "_SORTS", 0)
    monkeypatch.setattr(decompose, "CLIMBS", (10,))
    alignment = fa.align(importance, law)
    assert alignment.status == "exact"
    assert np.abs(alignment.attained - importance).sum() <= 2 * ATTAINED


@pytest.mark.parametrize("tiny", [1e-10, 1e-11, 1e-12])
def test_flow_after_a_sweep_that_met_its_target_still_ends_at_potentials_that_do(tiny):
    """Clients of next to no importance leave the residual small while levels still change."""
    members = [[0, 2], [0, 1, 2, 3, 4, 5], [1], [2, 3, 4, 5], [0, 1, 2, 4, 5]]
    law = fa.Cohorts(members)
    importance = normalised([6 * tiny, 0.001156, 0.245958, 4 * tiny, 0.604567, 0.148319])
    alignment = fa.align(importance, law, tol=ATTAINED)
    cohorts = enumerate_cohorts(law)
    attained = brute.expected_weights(cohorts, alignment.potentials, alignment.levels)
    base = brute.lexicographic_base(importance, cohorts)
    assert np.abs(attained - base.attained).sum() <= 2 * ATTAINED


@settings(max_examples=80)
@given(explicit_laws(8) | successive_laws(), st.data())
def test_flow_attains_the_lexicographically_optimal_base(law, data):
    importance = data.draw(importances(law.n_clients))
    base = brute.lexicographic_base(importance, enumerate_cohorts(law))
    assert np.abs(by_flow(importance, law).target - base.attained).sum() <= BASE


@settings(max_examples=40)
@given(explicit_laws(8), st.data())
def test_splitting_what_is_split_changes_nothing(law, data):
    importance = data.draw(importances(law.n_clients))
    once = by_flow(importance, law)
    again = split_by_flow(importance, listed(law), once, np.zeros(importance.size))
    assert np.array_equal(once.levels, again.levels)
    assert np.array_equal(once.target, again.target)
