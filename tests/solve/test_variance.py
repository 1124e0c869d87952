"""Both plans have the marginals they promise, and none has less variance than the second."""

import numpy as np
import pytest
from attacks.convergence import least_square
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import brute
import fedavot as fa
from agreement import EXACT, close
from fedavot.solve import quadratic
from strategies import (
    enumerate_cohorts,
    explicit_laws,
    feasible_problems,
    importances,
    infeasible_problems,
    normalised,
    successive_laws,
    tight_problems,
)

# The tolerance plans are solved to, in L1.
TOL = 1e-9
# The same against brute force, with rounding's share.
ATTAINED = 2e-9
# How well an interior-point method at 1e-10 knows an expected square between 0 and 1.
OPTIMUM = 1e-7

# Evaluations, three times what any of hundreds of random problems took.
BUDGET = 300


LISTED = explicit_laws(7) | successive_laws(6)
PROBLEMS = {
    "feasible": feasible_problems(LISTED),
    "tight": tight_problems(LISTED),
    "infeasible": infeasible_problems(LISTED),
}

every_problem = pytest.mark.parametrize("kind", PROBLEMS)
plain = settings(max_examples=25, suppress_health_check=[HealthCheck.filter_too_much])


def aligned(importance, law, objective="variance"):
    return fa.align(importance, law, objective=objective, tol=TOL, max_iter=BUDGET)


def listed(law):
    return law.cohorts if isinstance(law, fa.SuccessiveDraws) else law


def expected_square(plan, probabilities):
    """Return E‖Y_A‖² of a plan, summing over the cohorts that occur."""
    occurs = probabilities > 0
    weights = plan[:, occurs] / probabilities[occurs]
    return float(probabilities[occurs] @ (weights**2).sum(axis=0))


def least_square_by_clarabel(cohorts, attained):
    """Minimise Σ q(A) ‖Y_A‖² over weights with this expectation, by a cone solver."""
    members = [np.array(sorted(cohort)) for cohort in cohorts]
    chances = np.array([float(chance) for chance in cohorts.values()])
    least, status = least_square(members, chances, attained)
    assert "Solved" in status
    return least


@every_problem
@pytest.mark.parametrize("objective", ["entropy", "variance"])
@plain
@given(data=st.data())
def test_a_plan_has_the_attained_importance_and_the_law_as_marginals(objective, kind, data):
    problem = data.draw(PROBLEMS[kind])
    law = listed(problem.law)
    alignment = aligned(problem.importance, problem.law, objective)
    base = brute.lexicographic_base(problem.importance, problem.cohorts)
    plan = alignment.plan().toarray()
    assert alignment.status == ("nearest" if kind == "infeasible" else "exact")
    assert plan.min() >= 0
    assert close(plan.sum(axis=0), law.probabilities)
    assert close(plan.sum(axis=1), alignment.attained)
    assert np.abs(plan.sum(axis=1) - base.attained).sum() <= ATTAINED


@every_problem
@plain
@given(data=st.data())
def test_the_least_variance_is_that_of_a_quadratic_program(kind, data):
    problem = data.draw(PROBLEMS[kind])
    alignment = aligned(problem.importance, problem.law)
    base = brute.lexicographic_base(problem.importance, problem.cohorts)
    found = expected_square(alignment.plan().toarray(), listed(problem.law).probabilities)
    wanted = least_square_by_clarabel(problem.cohorts, base.attained)
    assert abs(found - wanted) <= OPTIMUM


@settings(max_examples=40)
@given(explicit_laws(7), st.data())
def test_any_importance_at_all_has_a_plan_of_least_variance(law, data):
    importance = data.draw(importances(law.n_clients))
    alignment = aligned(importance, law)
    base = brute.lexicographic_base(importance, enumerate_cohorts(law))
    assert alignment.status != "unconverged"
    assert np.abs(alignment.attained - base.attained).sum() <= ATTAINED


@pytest.mark.parametrize(
    "limits",
    [
        {"_AT_ONCE": 0, "_SPARSE_PAIRS": np.inf},
        {"_AT_ONCE": 0, "_SPARSE_PAIRS": 0},
        {"_AT_ONCE": 0, "_SPARSE_PAIRS": 0, "CG_STEPS": 1},
        {"_AT_ONCE": 0, "_SPARSE_PAIRS": 0, "_MOST_DENSE": 0},
    ],
    ids=["sparse", "iterative", "iterative, then dense", "iterative only"],
)
def test_every_way_to_solve_a_linear_system_reaches_the_same_plan(limits, monkeypatch):
    rng = np.random.default_rng(5)
    law = fa.Cohorts(np.argsort(rng.random((300, 40)), axis=1)[:, :4], n_clients=40)
    importance = law.expected_weights(rng.normal(size=40))
    dense = aligned(importance, law)
    for name, limit in limits.items():
        monkeypatch.setattr(quadratic, name, limit)
    other = aligned(importance, law)
    assert dense.status == other.status == "exact"
    squares = [expected_square(plan.plan().toarray(), law.probabilities) for plan in (dense, other)]
    assert abs(squares[0] - squares[1]) <= 10 * TOL


def test_along_a_chain_the_first_client_of_each_pair_gives_way_evenly():
    count = 400
    first = np.arange(count - 1)
    law = fa.Cohorts(np.stack([first, first + 1], axis=1))
    alignment = fa.align(np.full(count, 1 / count), law, objective="variance")
    # Each pair passes on what the clients before it leave: (count − 1 − i)/count stays with i.
    found = [alignment.weights([client, client + 1])[0] for client in first]
    assert alignment.status == "exact"
    assert np.abs(found - (count - 1 - first) / count).max() <= count * TOL


FAR_APART = {
    "a rare cohort": (
        fa.Cohorts([[0, 1], [0, 1, 2, 3, 4]], [0.9975, 0.0025]),
        normalised([0.372, 0.6263, 7.5e-4, 8e-4, 1.5e-4]),
    ),
    "many orders of probability": (
        fa.Cohorts(
            [[3], [5], [1, 3], [5, 7], [2, 3, 5, 6], [1, 3, 5], [0, 4, 8]],
            normalised([1.4e-3, 1.8e-2, 9.8e-6, 1.9e-6, 0.206, 0.774, 5.3e-5]),
        ),
        np.array([-4.5, 8.6, 4.5, 2.4, 13.0, -6.2, 1.7, 0.9, 0.1]),
    ),
    "far potentials": (
        fa.Cohorts([[0, 1, 2], [1, 2, 3], [0, 3], [1, 3]], [0.4, 0.3, 0.2, 0.1]),
        np.array([9.0, -8.0, 1.0, -4.0]),
    ),
}


@pytest.mark.parametrize("case", FAR_APART)
def test_an_importance_that_softmaxes_hardly_meet_has_its_plan_too(case):
    law, wanted = FAR_APART[case]
    cohorts = enumerate_cohorts(law)
    # Numbers below zero are potentials, of which it is the expected softmax.
    importance = normalised(brute.expected_weights(cohorts, wanted) if wanted.min() < 0 else wanted)
    alignment = aligned(importance, law)
    assert alignment.status == "exact"
    found = expected_square(alignment.plan().toarray(), law.probabilities)
    assert abs(found - least_square_by_clarabel(cohorts, importance)) <= OPTIMUM


def test_a_cohort_that_never_occurs_leaves_the_effective_size_alone():
    members, importance = [[0, 1], [1, 2], [0, 1, 2]], [0.5, 0.3, 0.2]
    with_it = fa.Cohorts([*members, [0, 2]], [0.3, 0.3, 0.4, 0.0])
    without = fa.Cohorts(members, [0.3, 0.3, 0.4])
    sizes = [
        fa.align(importance, law, objective="variance").effective_cohort_size
        for law in (with_it, without)
    ]
    assert sizes[0] == pytest.approx(sizes[1], abs=EXACT)


def test_a_log_whose_clients_are_mostly_without_weight_has_its_plan():
    rng = np.random.default_rng(0)
    law = fa.Cohorts(np.argsort(rng.random((300, 500)), axis=1)[:, :20], n_clients=500)
    importance = brute.expected_weights(enumerate_cohorts(law), 8.0 * rng.normal(size=500))
    alignment = aligned(importance / importance.sum(), law)
    assert alignment.status == "exact"
    assert np.count_nonzero(alignment.plan().toarray()) < law.incidence.members.size / 3


@pytest.mark.parametrize(
    "law",
    [
        fa.Cohorts([[0, 1], [0, 2], [1, 3], [2, 3]], [0.3, 0.1, 0.1, 0.5]),
        fa.SuccessiveDraws(np.full(4, 0.25), 2),
    ],
    ids=["cohorts", "draws of pairs"],
)
@pytest.mark.parametrize("lacking", [1e-4, 1e-6])
def test_a_set_that_lacks_too_little_for_a_rough_plan_is_found_all_the_same(law, lacking):
    # Clients 0 and 1 are each within reach, but not together.
    together = law.coverage([0, 1]) + lacking
    importance = np.array([together, together, 1 - together, 1 - together]) / 2
    alignment = aligned(importance, law)
    base = brute.lexicographic_base(importance, enumerate_cohorts(law))
    assert alignment.status == "nearest"
    assert np.abs(alignment.attained - base.attained).sum() <= ATTAINED
