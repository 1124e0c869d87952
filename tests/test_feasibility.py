"""Certificates are right either way: against all 2^N sets, under every law."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import brute
import fedavot as fa
from fedavot import feasibility
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

PROBABILITY = 1e-9
"""What a solver's tolerance leaves open in a deficiency, by default."""
RATIO = 1e-8
"""The same in a ratio, relatively: the worst set may have little probability to divide by."""

every_law = pytest.mark.parametrize("law", LAWS)


def same_ratio(found, wanted):
    return found == wanted or math.isclose(found, wanted, rel_tol=RATIO)


PLANNED = {"of a plan": feasible_problems, "tight": tight_problems}


@pytest.mark.parametrize("kind", PLANNED)
@every_law
@settings(max_examples=20, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_a_feasible_importance_is_certified_and_the_certificate_verifies(law, kind, data):
    problem = data.draw(PLANNED[kind](LAWS[law]))
    certificate = fa.certify(problem.importance, problem.law)
    assert certificate.feasible
    assert certificate.verify(problem.importance, problem.law)
    assert (certificate.deficiency, certificate.hall_ratio) == (0.0, 1.0)
    assert certificate.deficient.size == 0


@every_law
@settings(max_examples=25)
@given(data=st.data())
def test_the_deficient_set_violates_halls_inequality_by_more_than_any_other(law, data):
    problem = data.draw(infeasible_problems(LAWS[law]))
    certificate = fa.certify(problem.importance, problem.law)
    worst = brute.hall(problem.importance, problem.cohorts)
    wanted = problem.importance[certificate.deficient].sum()
    violation = wanted - brute.coverage(problem.cohorts, certificate.deficient)
    assert not certificate.feasible
    assert violation > 0
    assert abs(violation - worst.deficiency) <= PROBABILITY
    assert abs(certificate.deficiency - worst.deficiency) <= PROBABILITY
    assert same_ratio(certificate.hall_ratio, worst.ratio)
    assert certificate.verify(problem.importance, problem.law)


@settings(max_examples=80)
@given(st.data())
def test_any_importance_at_all_is_decided_as_all_sets_decide_it(data):
    law = data.draw(any_law(6))
    importance = data.draw(importances(law.n_clients))
    certificate, alignment = fa.certify(importance, law), fa.align(importance, law)
    worst = brute.hall(importance, enumerate_cohorts(law))
    assert abs(certificate.deficiency - worst.deficiency) <= PROBABILITY
    assert same_ratio(certificate.hall_ratio, max(1.0, worst.ratio))
    assert certificate.verify(importance, law)
    assert certificate.feasible == (alignment.status == "exact")
    assert abs(alignment.gap - certificate.deficiency) <= PROBABILITY


of_three = pytest.mark.parametrize(
    "law",
    [
        fa.Cohorts([[0], [0, 2], [0, 1], [1]]),
        fa.UniformCohorts(3, 2),
        fa.IndependentClients([0.5, 0.5, 0.3]),
        fa.Mixture([fa.UniformCohorts(3, 1), fa.UniformCohorts(3, 2)], [0.5, 0.5]),
    ],
    ids=lambda law: type(law).__name__,
)


@pytest.mark.parametrize("hair", [1e-9, 1e-10, 1e-11, 5e-12, 2e-12, 1e-12, 1e-13, 1e-15])
@of_three
def test_an_importance_a_hair_inside_a_facet_is_feasible(law, hair):
    cohorts = enumerate_cohorts(law)
    facet = brute.expected_weights(cohorts, np.zeros(3), [1, 0, 1])
    inside = brute.expected_weights(cohorts, np.zeros(3))
    share = hair / max(np.abs(facet - inside).max(), hair)
    importance = normalised((1.0 - share) * facet + share * inside)
    certificate = fa.certify(importance, law)
    assert certificate.feasible
    assert certificate.verify(importance, law)
    assert fa.align(importance, law).status == "exact"


@pytest.mark.parametrize("hair", [1e-6, 1e-9, 1e-10, 1e-11])
@of_three
def test_an_importance_a_hair_outside_a_facet_is_not(law, hair):
    facet = brute.expected_weights(enumerate_cohorts(law), np.zeros(3), [1, 0, 1])
    importance = facet + hair * np.array([-1.0, 1.0, 0.0])
    certificate = fa.certify(importance, law)
    assert not certificate.feasible
    assert certificate.deficient.tolist() == [1]
    # The difference of two probabilities near one half has their rounding.
    assert certificate.deficiency == pytest.approx(hair, abs=1e-15)
    assert certificate.verify(importance, law)


def test_no_single_client_need_be_overwanted_for_a_set_to_be():
    law = fa.Cohorts([[0, 1], [2]], [0.6, 0.4])
    importance = np.array([0.35, 0.35, 0.3])
    assert np.all(importance <= law.inclusion())
    assert fa.certify(importance, law).deficient.tolist() == [0, 1]


@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_histogram_never_calls_feasible_what_a_scan_does_not(data, monkeypatch):
    n_clients = data.draw(st.integers(2, 30))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    law = fa.IndependentClients(np.clip(rng.random(n_clients) ** 3, 1e-9, 0.999999))
    importance = law.expected_weights(rng.normal(0, 1, n_clients))
    # Push one prefix onto its bound, or a little across it, so that both answers occur.
    prefix = law.worst_order(importance)[: data.draw(st.integers(1, n_clients))]
    push = data.draw(st.sampled_from([0.99, 1.0, 1.0001, 1.2]))
    importance[prefix] *= push * law.coverage(prefix) / importance[prefix].sum()
    importance[rng.random(n_clients) < 0.1 * rng.integers(2)] = 0.0
    importance = normalised(importance + (importance.sum() == 0))
    scanned = fa.certify(importance, law)
    with monkeypatch.context() as patch:
        patch.setattr(feasibility, "_MANY", 0)
        assert fa.certify(importance, law).feasible == scanned.feasible


def test_a_violation_between_two_edges_of_the_histogram_is_seen(monkeypatch):
    monkeypatch.setattr(feasibility, "_MANY", 0)
    law = fa.IndependentClients(np.full(5_000, 2e-4))
    for first in range(1_000, 2_000, 100):
        importance = law.prefix_gains(np.arange(5_000))
        # Four clients take from the next four, within the width of one bucket.
        taken = 0.0005 * importance[first + 4 : first + 8]
        importance[first : first + 4] += taken
        importance[first + 4 : first + 8] -= taken
        assert not fa.certify(importance, law).feasible


def test_many_independent_clients_with_slack_are_certified_without_sorting(monkeypatch):
    rng = np.random.default_rng(0)
    law = fa.IndependentClients(rng.uniform(0.001, 0.003, 2_000))
    importance = law.expected_weights(rng.normal(0, 0.3, 2_000))
    monkeypatch.setattr(feasibility, "_MANY", 1_000)
    monkeypatch.setattr(fa.IndependentClients, "worst_order", None)
    assert fa.certify(importance, law).feasible


@pytest.mark.parametrize("beyond", [-1e-10, -1e-11, 0.0, 1e-11, 1e-10, 1e-9])
@pytest.mark.parametrize("kind", ["cohorts", "mixture"])
def test_a_facet_is_told_from_both_its_sides_below_the_solvers_tolerance(kind, beyond):
    rng = np.random.default_rng(3)
    parts = [fa.IndependentClients(rng.uniform(0.2, 0.8, 6)) for _ in range(2)]
    law: fa.Law = fa.Mixture(parts, [0.4, 0.6])
    if kind == "cohorts":
        cohorts = enumerate_cohorts(law)
        law = fa.Cohorts(
            [sorted(c) for c in cohorts], np.array(list(cohorts.values()), dtype=float)
        )
    level = np.array([0, 0, 1, 1, 1, 1])
    importance = law.expected_weights(rng.normal(0, 1, 6), level)
    inside = level == 0
    importance[inside] *= 1 + beyond / importance[inside].sum()
    importance[~inside] *= 1 - beyond / importance[~inside].sum()
    certificate = fa.certify(importance, law)
    assert certificate.feasible == (beyond <= 0)
    assert certificate.verify(importance, law)
    if beyond > 0:
        assert certificate.deficient.tolist() == [0, 1]
        assert certificate.deficiency == pytest.approx(beyond, abs=1e-12)


def check_proof(importance, law):
    """Certify, and check the evidence as floats and as fractions."""
    certificate = fa.certify(importance, law)
    assert certificate.proven
    assert certificate.verify(importance, law)
    assert certificate.verify(importance, law, exact=True)
    return certificate


def random_list(rng, n_clients, n_cohorts, *, orders):
    """Return ragged cohorts whose probabilities span so many orders of magnitude."""
    largest = rng.choice([2, 3, 10], n_cohorts)
    members = [rng.permutation(n_clients)[: rng.integers(1, most + 1)] for most in largest]
    chances = 10.0 ** rng.uniform(-orders, 0, n_cohorts) if orders else rng.random(n_cohorts)
    return fa.Cohorts(members, normalised(chances), n_clients)


def test_a_proof_holds_where_the_worst_clients_hardly_ever_take_part():
    chances = normalised([0.2, 7.2e-8, 2.4e-5, 9.9e-6, 0.8])
    law = fa.Cohorts([[1], [0, 4], [3, 5], [4], [2]], chances)
    importance = normalised([1.4e-4, 6.1e-4, 5e-9, 0.81, 0.19, 1.9e-8])
    certificate = check_proof(importance, law)
    worst = brute.hall(importance, enumerate_cohorts(law))
    assert not certificate.feasible
    assert certificate.deficiency == pytest.approx(worst.deficiency, abs=PROBABILITY)
    assert same_ratio(certificate.hall_ratio, worst.ratio)


@pytest.mark.parametrize("orders", [0, 10])
@pytest.mark.parametrize("seed", range(15))
def test_a_proof_of_a_shortage_in_a_ragged_log_holds(seed, orders):
    rng = np.random.default_rng([seed, orders])
    law = random_list(rng, 31, 49, orders=orders)
    certificate = check_proof(rng.dirichlet(np.ones(31)), law)
    assert not certificate.feasible
    assert certificate.deficiency > 0.0


@pytest.mark.parametrize("beyond", [0.0, 1e-13, 1e-10, 1e-7, -1e-13, -1e-10, -1e-7])
@pytest.mark.parametrize("seed", range(5))
def test_a_proof_next_to_several_facets_holds(seed, beyond):
    rng = np.random.default_rng(seed)
    law = random_list(rng, 26, 70, orders=0)
    level = rng.integers(0, 5, 26)
    tight = law.expected_weights(rng.normal(size=26), level)
    inside = law.expected_weights(np.zeros(26))
    importance = normalised(np.maximum(tight - beyond * (inside - tight), 0.0))
    certificate = check_proof(importance, law)
    if beyond <= 0.0:
        assert certificate.feasible
        assert fa.align(importance, law).status == "exact"


@pytest.mark.parametrize("seed", range(10))
def test_a_proof_over_many_orders_of_importance_holds(seed):
    rng = np.random.default_rng(seed)
    law = random_list(rng, 20, 40, orders=10)
    check_proof(normalised(10.0 ** rng.uniform(-12, 0, 20)), law)
