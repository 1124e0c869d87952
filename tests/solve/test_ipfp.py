"""Plain scaling is the paper's Algorithm 1 to the letter; accelerated, it ends at the same."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solving import accelerated, ipfp, newton

import fedavot as fa
from agreement import EXACT, close
from fedavot import _incidence
from fedavot.solve import search
from fedavot.solve.dual import DualProblem
from strategies import explicit_laws, importances, normalised

SWEEPS = 6
# A tolerance no marginal meets by chance, so that the number of sweeps decides.
NEVER = 1e-300
# Two solvers at 1e-11 in L1 differ by this in potentials: clients have about 5e-4 of weight.
SAME_POTENTIALS = 1e-8

# L1 error of expected weights, sums of some fifty numbers of seven digits.
SINGLE_PRECISION = 1e-6


def mask_of(law):
    """Return who is in which cohort, shape (n_clients, n_cohorts)."""
    ends = law.incidence.offsets
    mask = np.zeros((law.n_clients, law.n_cohorts), dtype=bool)
    for column, (start, end) in enumerate(itertools.pairwise(ends)):
        mask[law.incidence.members[start:end], column] = True
    return mask


def ratio(wanted, found):
    """Return wanted / found, one where nothing is found: a row or column without entries."""
    return np.divide(wanted, found, out=np.ones_like(wanted), where=found > 0)


def algorithm_1(importance, law):
    """Yield the paper's T after each sweep: T⁰[i,A] = q(A)/|A|, then rows, then columns."""
    mask, q = mask_of(law), law.probabilities
    plan = mask * (q / mask.sum(axis=0))
    while True:
        plan = plan * ratio(importance, plan.sum(axis=1))[:, None]
        plan = plan * ratio(q, plan.sum(axis=0))
        yield plan


def problems():
    """Draw explicit cohorts and an importance, attainable or not, everybody's positive."""
    return explicit_laws(8).flatmap(
        lambda law: st.tuples(importances(law.n_clients, zeros=False), st.just(law))
    )


def everyone(importance, law):
    """Return the plain problem, for calling a solver on."""
    free = np.ones(importance.size, dtype=bool)
    parts = np.zeros(importance.size, dtype=np.int64)
    return DualProblem(law.system(), importance, free, ~free, parts)


@settings(max_examples=60)
@given(problems())
def test_every_iterate_is_that_of_the_dense_algorithm(case):
    importance, law = case
    dense = algorithm_1(importance, law)
    for sweep in range(1, SWEEPS + 1):
        alignment = fa.align(importance, law, method="ipfp", tol=NEVER, max_iter=sweep)
        assert close(alignment.plan().toarray(), next(dense), EXACT)


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize(
    "importance", [[0.25, 0.25, 0.25, 0.25], [0.4, 0.25, 0.2, 0.15], [0.2, 0.25, 0.35, 0.2]]
)
def test_it_stops_at_the_first_sweep_with_both_marginals_within_the_tolerance(importance, tol):
    law = fa.Cohorts([[0, 1], [1, 2], [0, 2, 3], [2, 3]], [0.4, 0.3, 0.2, 0.1])
    importance = np.array(importance)

    def unmet(plan):
        rows = np.abs(plan.sum(axis=1) - importance).sum()
        columns = np.abs(plan.sum(axis=0) - law.probabilities).sum()
        return max(rows, columns) > tol

    iterates = enumerate(algorithm_1(importance, law), start=1)
    sweep, plan = next(iterate for iterate in iterates if not unmet(iterate[1]))
    alignment = fa.align(importance, law, method="ipfp", tol=tol)
    # The marginal is computed once before the first sweep.
    assert alignment.iterations == sweep + 1
    assert close(alignment.plan().toarray(), plan, EXACT)
    assert alignment.status == "exact"


def test_linear_importance_over_all_pairs_takes_the_published_number_of_sweeps():
    importance = normalised(np.arange(100.0, 0.0, -1))
    pairs = fa.Cohorts(np.array(list(itertools.combinations(range(100), 2))))
    alignment = fa.align(importance, pairs, method="ipfp", tol=1e-9)
    assert alignment.status == "exact"
    # Beside the sweeps, the marginal is computed once before the first.
    assert abs(alignment.iterations - 1 - 4_152) <= 1


def test_out_of_reach_plain_scaling_says_that_it_has_not_converged():
    alignment = fa.align([0.8, 0.1, 0.1], fa.UniformCohorts(3, 2), method="ipfp", max_iter=300)
    assert alignment.status == "unconverged"
    # Client 0 can have two thirds; the rest of 0.8 goes to others who do not want it.
    assert alignment.residual >= 2 * (0.8 - 2 / 3) - EXACT


def test_out_of_reach_plain_scaling_drifts_and_still_tends_to_the_nearest():
    importance, law = [0.8, 0.15, 0.05], fa.UniformCohorts(3, 2)
    early, late = (
        fa.align(importance, law, method="ipfp", max_iter=sweeps) for sweeps in (100, 1_000)
    )
    assert np.ptp(late.potentials) > np.ptp(early.potentials) > 10
    assert close(late.attained, fa.align(importance, law).attained, 1e-9)


@pytest.fixture(scope="module")
def large():
    """2,000 clients in 20,000 cohorts of five, wanted as a softmax of mild potentials has it."""
    rng = np.random.default_rng(7)
    law = fa.Cohorts(np.argsort(rng.random((20_000, 2_000)), axis=1)[:, :5], n_clients=2_000)
    return law.expected_weights(rng.normal(0.0, 0.5, 2_000)), law


def test_accelerated_scaling_finds_the_potentials_that_newton_finds(large):
    importance, law = large
    problem, start = everyone(importance, law), np.zeros(importance.size)
    swept = accelerated(problem, start, tol=1e-11, max_iter=200)
    climbed = newton(problem, start, tol=1e-11, max_iter=50)
    assert max(swept.residual, climbed.residual) <= 1e-11
    assert np.ptp(swept.potentials - climbed.potentials) <= SAME_POTENTIALS


def test_accelerated_scaling_needs_fewer_evaluations_than_plain(large):
    importance, law = large
    problem, start = everyone(importance, law), np.zeros(importance.size)
    swept = accelerated(problem, start, tol=1e-9, max_iter=200)
    assert swept.evaluations < ipfp(problem, start, tol=1e-9, max_iter=200).evaluations


@settings(max_examples=40)
@given(problems(), st.integers(1, 40))
def test_accelerated_scaling_reports_the_residual_of_the_point_it_returns(case, budget):
    importance, law = case
    problem = everyone(importance, law)
    run = accelerated(problem, np.zeros(importance.size), tol=1e-9, max_iter=budget)
    marginal = law.expected_weights(run.potentials)
    assert close(run.marginal, marginal)
    assert abs(run.residual - np.abs(importance - marginal).sum()) <= EXACT
    assert run.evaluations <= budget


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 40])
def test_rough_weights_on_the_way_leave_the_result_exact(large, budget, monkeypatch):
    importance, law = large
    start = np.zeros(importance.size)
    plain = accelerated(everyone(importance, law), start, tol=1e-9, max_iter=budget)
    monkeypatch.setattr(_incidence, "_BLOCK_ENTRIES", 20_000)
    many_blocks = fa.Cohorts(
        law.incidence.members.reshape(-1, 5), law.probabilities, n_clients=law.n_clients
    )
    problem = everyone(importance, many_blocks)
    rough, exact = problem.system.rough_marginal(np.log(importance)), law.expected_weights
    assert 0 < np.abs(rough - exact(np.log(importance))).sum() <= SINGLE_PRECISION
    run = accelerated(problem, start, tol=1e-9, max_iter=budget)
    marginal = exact(run.potentials)
    assert close(run.marginal, marginal)
    assert abs(run.residual - np.abs(importance - marginal).sum()) <= EXACT
    assert run.evaluations == plain.evaluations
    assert run.residual <= max(2.0 * plain.residual, 1e-9)


def test_a_guess_from_types_reaches_the_same_answer_in_fewer_evaluations(monkeypatch):
    rng = np.random.default_rng(3)
    law = fa.IndependentClients(rng.uniform(5e-4, 4e-3, 3_000))
    importance = law.expected_weights(rng.normal(0.0, 1.0, 3_000))
    from_zero = fa.align(importance, law)
    monkeypatch.setattr(search, "_MANY", 500)
    guessed = fa.align(importance, law)
    assert guessed.status == from_zero.status == "exact"
    assert guessed.iterations < from_zero.iterations
    assert np.abs(guessed.attained - from_zero.attained).sum() <= 2e-9
