"""Newton's method: dense and Hessian-free agree, few evaluations suffice, singular is survived."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solving import newton

import brute
import fedavot as fa
from agreement import close
from fedavot.solve.dual import DualProblem, Pull
from strategies import explicit_laws, feasible_problems, normalised

# Tighter than the default, so that two routes to the answer can be compared at 1e-9.
TOL = 1e-10
# Ten times the tolerance both are solved to, entry by entry.
SAME_WEIGHTS = 1e-9


def free_of_levels(importance, law):
    free = (importance > 0) & (law.inclusion() > 0)
    levels = (importance == 0).astype(np.int64)
    system = law.system(levels if levels.any() else None)
    return DualProblem(system, importance, free, importance == 0, levels)


def solved(importance, law, softness=0.0, **options):
    problem = free_of_levels(importance, law)
    pull = Pull(softness, importance, problem.parts) if softness else None
    return newton(problem, np.zeros(importance.size), tol=TOL, max_iter=200, pull=pull, **options)


def mild_problem(law, seed):
    """Return an importance attained by potentials of unit spread."""
    return law.expected_weights(np.random.default_rng(seed).normal(size=law.n_clients))


@pytest.mark.parametrize("softness", [0.0, 0.3])
@settings(max_examples=25)
@given(problem=feasible_problems(explicit_laws(8)), seed=st.integers(0, 1000))
def test_conjugate_gradients_reach_what_a_dense_factorisation_does(softness, problem, seed):
    importance = mild_problem(problem.law, seed)
    dense = solved(importance, problem.law, softness=softness)
    free = solved(importance, problem.law, softness=softness, dense=0)
    assert dense.residual <= TOL
    assert free.residual <= TOL
    assert close(free.marginal, dense.marginal, SAME_WEIGHTS)


def test_more_clients_than_are_factorised_are_aligned_alike_by_both_methods():
    rng = np.random.default_rng(11)
    law = fa.Cohorts(np.argsort(rng.random((12_000, 2_000)), axis=1)[:, :6], n_clients=2_000)
    importance = law.expected_weights(rng.normal(0.0, 0.5, 2_000))
    by_newton = fa.align(importance, law, method="newton", tol=TOL)
    by_sweeps = fa.align(importance, law, method="auto", tol=TOL)
    assert by_newton.status == by_sweeps.status == "exact"
    # An L1 error of 1e-10 over weights of 5e-4 each.
    assert np.ptp(by_newton.potentials - by_sweeps.potentials) <= 1e-6


def test_linear_importance_over_uniform_pairs_takes_a_dozen_evaluations():
    importance = normalised(np.arange(100.0, 0.0, -1))
    alignment = fa.align(importance, fa.UniformCohorts(100, 2), method="newton", tol=1e-9)
    assert alignment.status == "exact"
    assert alignment.iterations <= 12


@settings(max_examples=40)
@given(feasible_problems(explicit_laws(8)), st.integers(1, 30))
def test_newton_reports_the_residual_of_the_point_it_returns(problem, budget):
    target = free_of_levels(problem.importance, problem.law)
    run = newton(target, np.zeros(problem.importance.size), tol=TOL, max_iter=budget)
    levels = (problem.importance == 0).astype(np.int64)
    marginal = brute.expected_weights(problem.cohorts, run.potentials, levels)
    assert close(run.marginal, marginal)
    wanted = problem.importance > 0
    error = np.abs(problem.importance - marginal)[wanted].sum()
    assert abs(run.residual - error) <= 1e-12
    assert run.evaluations <= budget


def test_clients_that_never_meet_are_aligned_group_by_group():
    law = fa.Cohorts([[0, 1], [2, 3], [4]], [0.5, 0.3, 0.2])
    importance = np.array([0.4, 0.1, 0.05, 0.25, 0.2])
    alignment = fa.align(importance, law, method="newton")
    assert alignment.status == "exact"
    assert close(alignment.weights([0, 1]), [0.8, 0.2], 1e-8)
    assert close(alignment.weights([3, 2]), [5 / 6, 1 / 6], 1e-8)
