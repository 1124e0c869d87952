"""Alignment attains what it says, exactly or as nearly as can be, under every law."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import brute
import fedavot as fa
from strategies import (
    LAWS,
    any_law,
    enumerate_cohorts,
    feasible_problems,
    importances,
    infeasible_problems,
    normalised,
    tight_problems,
)

# The tolerance every alignment here is solved to, in L1.
TOL = 1e-9
# L1 distance of an attained importance from brute force: the tolerance, and rounding's share.
ATTAINED = 2e-9
# A gap is half an L1 distance, so the tolerance moves it by half of itself.
GAP = 1e-9

every_law = pytest.mark.parametrize("law", LAWS)
every_method = pytest.mark.parametrize("method", ["auto", "newton"])


def recomputed(problem, alignment):
    """Return what the alignment's potentials and levels attain, summed over all cohorts."""
    return brute.expected_weights(problem.cohorts, alignment.potentials, alignment.levels)


def distance(found, wanted):
    return float(np.abs(found - wanted).sum())


def ratio_of_each_client(base, n_clients):
    """Return the ratio of the level each client is in; clients without importance have inf."""
    ratios = np.full(n_clients, np.inf)
    for clients, ratio in base.levels:
        ratios[list(clients)] = ratio
    return ratios


@every_method
@every_law
@settings(max_examples=25)
@given(data=st.data())
def test_a_feasible_importance_is_attained_to_the_tolerance(law, method, data):
    problem = data.draw(feasible_problems(LAWS[law]))
    alignment = fa.align(problem.importance, problem.law, method=method, tol=TOL)
    assert alignment.status == "exact"
    assert alignment.residual <= TOL
    assert distance(recomputed(problem, alignment), problem.importance) <= ATTAINED


@every_method
@every_law
@settings(max_examples=25)
@given(data=st.data())
def test_out_of_reach_the_lexicographically_optimal_base_is_attained(law, method, data):
    problem = data.draw(infeasible_problems(LAWS[law]))
    alignment = fa.align(problem.importance, problem.law, method=method, tol=TOL)
    assert alignment.status == "nearest"
    assert alignment.residual <= TOL
    base = brute.lexicographic_base(problem.importance, problem.cohorts)
    assert distance(recomputed(problem, alignment), base.attained) <= ATTAINED
    assert distance(alignment.attained, base.attained) <= ATTAINED


@every_law
@settings(max_examples=25)
@given(data=st.data())
def test_levels_out_of_reach_rise_with_the_ratio_and_all_weight_goes_to_the_lowest(law, data):
    problem = data.draw(infeasible_problems(LAWS[law]))
    alignment = fa.align(problem.importance, problem.law, tol=TOL)
    levels = alignment.levels
    base = brute.lexicographic_base(problem.importance, problem.cohorts)
    ratios = ratio_of_each_client(base, levels.size)
    by_level = [set(ratios[levels == level]) for level in range(levels.max() + 1)]
    assert all(len(values) == 1 for values in by_level)
    assert all(max(low) <= min(high) for low, high in itertools.pairwise(by_level))
    for cohort in problem.cohorts:
        members = np.array(sorted(cohort))
        weights = alignment.weights(members)
        assert not weights[ratios[members] > ratios[members].min()].any()
    worst = brute.hall(problem.importance, problem.cohorts)
    assert abs(alignment.gap - worst.deficiency) <= GAP


@every_method
@every_law
@settings(max_examples=20, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_a_tight_importance_is_attained_without_crawling(law, method, data):
    problem = data.draw(tight_problems(LAWS[law]))
    alignment = fa.align(problem.importance, problem.law, method=method, tol=TOL)
    assert alignment.status == "exact"
    assert alignment.iterations <= 100
    assert distance(recomputed(problem, alignment), problem.importance) <= ATTAINED


@pytest.mark.parametrize(
    "law",
    [
        fa.Cohorts([[0, 1], [1, 2], [0, 2, 3], [2, 3]], [0.4, 0.3, 0.2, 0.1]),
        fa.UniformCohorts(4, 2),
        fa.IndependentClients([0.5, 0.4, 0.3, 0.6]),
        fa.SuccessiveDraws([1.0, 2.0, 3.0, 4.0], 2),
        fa.Mixture(
            [fa.IndependentClients([0.5, 0.4, 0.3, 0.6]), fa.Cohorts([[0, 1], [2, 3]])], [0.6, 0.4]
        ),
    ],
    ids=lambda law: type(law).__name__,
)
def test_a_tight_importance_takes_plain_scaling_past_ten_thousand_sweeps(law):
    x, level = np.array([0.5, 0.0, 1.0, 0.2]), np.array([0, 0, 1, 1])
    cohorts = enumerate_cohorts(law)
    importance = brute.expected_weights(cohorts, x, level)
    # Sweeps over a list are the same as over the law, and quicker.
    listed = fa.Cohorts([sorted(cohort) for cohort in cohorts], [*cohorts.values()], 4)
    plain = fa.align(importance, listed, method="ipfp", tol=TOL, max_iter=10_000)
    assert plain.status == "unconverged"
    assert plain.residual > 1_000 * TOL
    assert plain.iterations > 10_000
    alignment = fa.align(importance, law, tol=TOL)
    assert alignment.status == "exact"
    assert alignment.iterations <= 100


@settings(max_examples=60)
@given(st.data())
def test_any_importance_at_all_is_attained_as_nearly_as_can_be(data):
    law = data.draw(any_law(6))
    importance = data.draw(importances(law.n_clients))
    alignment = fa.align(importance, law, tol=TOL)
    base = brute.lexicographic_base(importance, enumerate_cohorts(law))
    assert alignment.status in {"exact", "nearest"}
    assert distance(alignment.attained, base.attained) <= ATTAINED


@every_method
def test_stopping_short_is_said_and_never_passed_off_as_an_answer(method):
    law = fa.UniformCohorts(12, 3)
    alignment = fa.align(normalised(np.arange(12.0, 0.0, -1)), law, method=method, max_iter=2)
    assert alignment.status == "unconverged"
    assert alignment.residual > TOL
    assert "raise max_iter" in alignment.status.message
    assert alignment.iterations <= 2


@settings(max_examples=20)
@given(st.data(), st.integers(1, 6))
def test_whatever_the_budget_the_residual_says_how_far_the_marginal_is_off(data, budget):
    law = data.draw(any_law(6))
    importance = data.draw(importances(law.n_clients))
    alignment = fa.align(importance, law, tol=TOL, max_iter=budget)
    cohorts = enumerate_cohorts(law)
    attained = brute.expected_weights(cohorts, alignment.potentials, alignment.levels)
    assert distance(alignment.attained, attained) <= TOL
    if alignment.status != "unconverged":
        base = brute.lexicographic_base(importance, cohorts)
        assert distance(attained, base.attained) <= ATTAINED


def test_a_looser_tolerance_stops_earlier():
    law, importance = fa.UniformCohorts(30, 2), normalised(np.arange(30.0, 0.0, -1))
    loose = fa.align(importance, law, tol=1e-2)
    assert TOL < loose.residual <= 1e-2
    assert loose.iterations < fa.align(importance, law, tol=TOL).iterations


def test_a_list_of_all_pairs_is_aligned_as_uniform_pairs_are():
    importance = normalised(np.arange(100.0, 0.0, -1))
    listed = fa.Cohorts(np.array(list(itertools.combinations(range(100), 2))))
    by_list = fa.align(importance, listed, tol=1e-12)
    closed = fa.align(importance, fa.UniformCohorts(100, 2), tol=1e-12)
    assert distance(by_list.attained, closed.attained) <= TOL
    # Both are centred; weights of a few per cent make potentials less sharp than marginals.
    assert np.ptp(by_list.potentials - closed.potentials) <= 1e-8


def over_twelve_orders(n_clients, seed):
    """Return laws of every kind over so many clients."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(n_clients)[: rng.integers(1, 6)] for _ in range(3 * n_clients)]
    listed = fa.Cohorts(rows, normalised(10.0 ** rng.uniform(-12, 0, len(rows))), n_clients)
    independent = fa.IndependentClients(10.0 ** rng.uniform(-6, -0.1, n_clients))
    uniform = fa.UniformCohorts(n_clients, 3)
    mixed = fa.Mixture([independent, uniform], [0.3, 0.7])
    successive = fa.SuccessiveDraws(rng.uniform(0.1, 1.0, n_clients), 2)
    return listed, independent, uniform, mixed, successive


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("place", range(5), ids=["list", "independent", "uniform", "mix", "draws"])
def test_importance_over_twelve_orders_of_magnitude_is_attained_or_approached(place, seed):
    n_clients = 40
    law = over_twelve_orders(n_clients, seed)[place]
    rng = np.random.default_rng(seed)
    skewed = normalised(10.0 ** rng.uniform(-12, 0, n_clients))
    reached = normalised(law.expected_weights(np.log(10.0) * rng.uniform(-12, 0, n_clients)))
    for importance in (skewed, reached):
        found = fa.align(importance, law, tol=TOL)
        certificate = fa.certify(importance, law)
        assert certificate.verify(importance, law)
        assert found.status == ("exact" if certificate.feasible else "nearest")
        again = law.expected_weights(found.potentials, found.levels)
        # A gap at the certified deficiency is the least that any weights have.
        assert distance(again, importance) / 2 <= certificate.deficiency + GAP
