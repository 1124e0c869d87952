"""The sample-to-model inequality, summed over every cohort of generated feasible problems.

    E‖θ̂ − θ*‖² ≤ Σ p_i ‖θ_i − θ*‖²,   θ̂ = Σ_{i∈A} Y[i, A] θ_i

It follows from Jensen and E Y = p; nothing here depends on how the weights were found.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import brute
import fedavot as fa
import strategies

TOL = 1e-9
"""To which alignments are solved; in L1, so that it bounds the change of any average."""
ROUNDING = 1e-12

SMALL = st.one_of(
    strategies.explicit_laws(6), strategies.uniform_laws(6), strategies.independent_laws(6)
)


def weights_of_every_cohort(alignment, table):
    """Return Y, shape (n_cohorts, n_clients), zero for the absent."""
    weights = np.zeros(table.members.shape)
    for row, members in enumerate(table.members):
        cohort = np.flatnonzero(members)
        weights[row, cohort] = alignment.weights(cohort)
    return weights


def plain_weights(table):
    return table.members / table.members.sum(axis=1, keepdims=True)


def both_sides(weights, table, importance, models, best):
    """Return E‖θ̂ − θ*‖² and Σ p_i ‖θ_i − θ*‖²."""
    chances = table.chances.astype(np.float64)
    left = chances @ np.sum((weights @ models - best) ** 2, axis=1)
    return left, importance @ np.sum((models - best) ** 2, axis=1)


def drawn_models(seed, n_clients):
    rng = np.random.default_rng(seed)
    scales = np.exp(rng.normal(size=(n_clients, 1)))
    return scales * rng.normal(size=(n_clients, 3)), rng.normal(size=3)


@given(
    st.one_of(
        st.tuples(strategies.feasible_problems(SMALL), st.just("entropy")),
        st.tuples(strategies.feasible_problems(strategies.explicit_laws(6)), st.just("variance")),
    ),
    st.integers(0, 2**32 - 1),
)
def test_the_aggregate_is_no_farther_than_the_models_on_average(case, seed):
    problem, objective = case
    alignment = fa.align(problem.importance, problem.law, objective=objective, tol=TOL)
    table = brute.as_table(problem.cohorts, problem.law.n_clients)
    weights = weights_of_every_cohort(alignment, table)
    expected = table.chances.astype(np.float64) @ weights
    assert np.abs(expected - problem.importance).sum() <= 10 * TOL
    models, best = drawn_models(seed, problem.law.n_clients)
    left, right = both_sides(weights, table, problem.importance, models, best)
    room = 10 * TOL * np.max(np.sum((models - best) ** 2, axis=1)) + ROUNDING * right
    assert left <= right + room


@given(strategies.feasible_problems(SMALL), st.integers(0, 2**32 - 1))
def test_the_bound_is_met_where_all_models_are_one(problem, seed):
    alignment = fa.align(problem.importance, problem.law, tol=TOL)
    table = brute.as_table(problem.cohorts, problem.law.n_clients)
    one, best = drawn_models(seed, 1)
    models = np.repeat(one, problem.law.n_clients, axis=0)
    weights = weights_of_every_cohort(alignment, table)
    left, right = both_sides(weights, table, problem.importance, models, best)
    np.testing.assert_allclose(left, right, rtol=1e-9)


def test_plain_averages_break_the_bound_where_importance_is_uneven():
    importance, law = np.array([0.6, 0.25, 0.15]), fa.UniformCohorts(3, 2)
    table = brute.as_table(strategies.enumerate_cohorts(law), 3)
    models, best = np.array([[0.0], [1.0], [1.0]]), np.zeros(1)
    aligned = weights_of_every_cohort(fa.align(importance, law), table)
    left, right = both_sides(aligned, table, importance, models, best)
    assert left <= right + ROUNDING
    left, right = both_sides(plain_weights(table), table, importance, models, best)
    assert left > right + 0.05
