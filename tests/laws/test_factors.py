"""Low-rank factors of the curvature: near the Hessian they stand for, in every row."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import fedavot as fa
from agreement import close
from fedavot.laws._factors import product
from fedavot.laws._laplacian import gram
from strategies import independent_probabilities, levels, potentials, uniform_sizes

ROW_ERROR = 0.02
"""Enough for a Newton matrix: the error of a row's entries, relative to the row's sum."""
ROUNDING = 1e-12
"""Rows whose curvature is smaller than this, out of a sum of one, are rounding."""


def joint(factors, n_clients):
    """Add up the factors' outer products, without the diagonal."""
    total = np.zeros((n_clients, n_clients))
    for factor in factors:
        outer = (factor.columns * factor.signs) @ factor.columns.T
        total[np.ix_(factor.clients, factor.clients)] += outer
    np.fill_diagonal(total, 0.0)
    return total


def curvature(law, x, level=None):
    return law.system(level).curvature(x)


def worst_row(law, x, level):
    point = curvature(law, x, level)
    wanted = -point.dense()
    np.fill_diagonal(wanted, 0.0)
    error = np.abs(joint(point.factors(), x.size) - wanted).sum(axis=1)
    return np.max(error / np.maximum(wanted.sum(axis=1), ROUNDING))


def with_point(n_clients):
    return st.tuples(potentials(n_clients), levels(n_clients))


@given(uniform_sizes(30).flatmap(lambda sizes: st.tuples(st.just(sizes), with_point(sizes[0]))))
def test_factors_of_uniform_cohorts_are_near_the_hessian(case):
    sizes, (x, level) = case
    assert worst_row(fa.UniformCohorts(*sizes), x, level) <= ROW_ERROR


@given(
    independent_probabilities(30, 2).flatmap(
        lambda chances: st.tuples(st.just(chances), with_point(chances.size))
    )
)
def test_factors_of_independent_clients_are_near_the_hessian(case):
    chances, (x, level) = case
    assert worst_row(fa.IndependentClients(chances), x, level) <= ROW_ERROR


@pytest.mark.parametrize("leveled", [False, True])
@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0, 20.0])
def test_factors_of_a_mixture_of_many_clients_are_near_the_hessian(spread, leveled):
    rng = np.random.default_rng(8)
    law = fa.Mixture(
        [
            fa.IndependentClients(rng.random(150)),
            fa.IndependentClients(10.0 ** rng.uniform(-9, 0, 150)),
            fa.Mixture([fa.UniformCohorts(150, 2), fa.UniformCohorts(150, 60)], [0.5, 0.5]),
        ],
        [0.3, 0.3, 0.4],
    )
    level = rng.integers(0, 3, 150) if leveled else None
    assert worst_row(law, spread * rng.normal(size=150), level) <= ROW_ERROR


@pytest.mark.parametrize("size", [2, 150], ids=["sparse", "dense"])
def test_a_gram_matrix_is_the_sum_of_outer_products(size):
    rng = np.random.default_rng(12)
    rows = np.zeros((1_200, 200))
    np.put_along_axis(rows, np.argsort(rng.random(rows.shape), axis=1)[:, :size], 0.1, axis=1)
    assert close(gram(sparse.csr_array(rows)), rows.T @ rows)


def test_many_clients_have_few_columns():
    rng = np.random.default_rng(9)
    x = rng.normal(size=2_000)
    for law in (fa.UniformCohorts(2_000, 1_000), fa.IndependentClients(rng.random(2_000))):
        (factor,) = curvature(law, x).factors()
        assert factor.clients.size == 2_000
        assert factor.columns.shape[1] == factor.signs.size <= 12


def test_a_level_of_one_client_has_no_factor():
    point = curvature(fa.UniformCohorts(4, 2), np.zeros(4), np.array([0, 1, 1, 1]))
    assert [factor.clients.tolist() for factor in point.factors()] == [[1, 2, 3]]


def test_cohorts_of_one_have_factors_without_columns():
    (factor,) = curvature(fa.UniformCohorts(5, 1), np.arange(5.0)).factors()
    assert factor.columns.shape == (5, 0)


@pytest.mark.parametrize("leveled", [False, True])
@pytest.mark.parametrize("spread", [0.0, 5.0, 1_000.0])
def test_factors_of_a_mixture_with_a_list_of_cohorts_are_near_the_hessian(spread, leveled):
    rng = np.random.default_rng(10)
    cohorts = [rng.choice(60, rng.integers(1, 9), replace=False) for _ in range(40)]
    log = fa.Cohorts(cohorts, rng.dirichlet(np.ones(40)), 60)
    law = fa.Mixture([fa.IndependentClients(rng.random(60)), log], [0.3, 0.7])
    level = rng.integers(0, 3, 60) if leveled else None
    assert worst_row(law, spread * rng.normal(size=60), level) <= ROW_ERROR


@pytest.mark.parametrize("leveled", [False, True])
def test_products_are_those_of_the_factors_matrix(leveled):
    rng = np.random.default_rng(11)
    law, direction = fa.SuccessiveDraws(rng.random(700), 2), rng.normal(size=700)
    level = rng.integers(0, 3, 700) if leveled else None
    factors = curvature(law, rng.normal(size=700), level).factors()
    matrix = joint(factors, 700)
    wanted = matrix.sum(axis=1) * direction - matrix @ direction
    assert close(product(factors, direction), wanted)


def test_a_mixture_with_a_long_list_of_cohorts_has_products_and_no_factors():
    triples = fa.Cohorts(list(itertools.combinations(range(20), 3)))
    law = fa.Mixture([fa.UniformCohorts(20, 2), triples], [0.5, 0.5])
    point, direction = curvature(law, np.linspace(-1, 1, 20)), np.cos(np.arange(20))
    assert point.factors() is None
    wanted = point.dense() @ direction
    assert np.abs(point.product(direction) - wanted).max() <= ROW_ERROR * np.abs(wanted).max()


def test_a_mixture_of_lists_alone_has_no_factors():
    law = fa.Mixture([fa.Cohorts([[0, 1], [1, 2]]), fa.Cohorts([[0, 1, 2]])], [0.5, 0.5])
    assert curvature(law, np.zeros(3)).factors() is None
