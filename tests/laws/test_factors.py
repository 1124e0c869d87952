"""Low-rank factors of the curvature: near the Hessian they stand for, in every row."""

import itertools

import numpy as np
import pytest

import fedavot as fa

ROW_ERROR = 0.02
"""Enough for a Newton matrix: the error of a row's entries, relative to the row's sum."""
ROUNDING = 1e-12
"""Rows whose curvature is smaller than this, out of a sum of one, are rounding."""
RNG = np.random.default_rng(8)
MANY = {
    "independent": fa.IndependentClients(RNG.random(150)),
    "rare": fa.IndependentClients(10.0 ** RNG.uniform(-9, 0, 150)),
    "threes": fa.UniformCohorts(150, 3),
    "half": fa.UniformCohorts(150, 75),
    "single": fa.UniformCohorts(150, 1),
    "mixture": fa.Mixture(
        [
            fa.IndependentClients(10.0 ** RNG.uniform(-9, 0, 150)),
            fa.Mixture([fa.UniformCohorts(150, 3), fa.UniformCohorts(150, 60)], [0.5, 0.5]),
        ],
        [0.3, 0.7],
    ),
}


def point_of(law, x, level=None):
    return law.system(level).curvature(x)


def check(law, x, level):
    point = point_of(law, x, level)
    wanted, found = -point.dense(), np.zeros((x.size, x.size))
    np.fill_diagonal(wanted, 0.0)
    for clients, columns, signs in point.factors():
        found[np.ix_(clients, clients)] += (columns * signs) @ columns.T
    np.fill_diagonal(found, 0.0)
    error = np.abs(found - wanted).sum(axis=1)
    assert np.all(error <= ROW_ERROR * np.maximum(wanted.sum(axis=1), ROUNDING))


@pytest.mark.parametrize("law", MANY.values(), ids=MANY)
@pytest.mark.parametrize("n_levels", [None, 3, 40])
@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0, 20.0, 1_000.0])
def test_factors_of_many_clients_are_near_the_hessian(law, spread, n_levels):
    rng = np.random.default_rng(11)
    level = None if n_levels is None else rng.integers(0, n_levels, 150)
    check(law, spread * rng.normal(size=150), level)


def test_a_mixture_with_a_long_list_of_cohorts_has_products_and_no_factors():
    triples = fa.Cohorts(list(itertools.combinations(range(20), 3)))
    law = fa.Mixture([fa.UniformCohorts(20, 4), triples], [0.5, 0.5])
    point, direction = point_of(law, np.linspace(-1, 1, 20)), np.cos(np.arange(20))
    assert point.factors() is None
    wanted = point.dense() @ direction
    assert np.abs(point.product(direction) - wanted).max() <= ROW_ERROR * np.abs(wanted).max()
