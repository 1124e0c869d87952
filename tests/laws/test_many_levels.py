"""Independent clients in many small levels: together they are what each is by itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agreement
import fedavot as fa
from fedavot.laws import independent as module
from fedavot.laws._quadrature import ProductPoint, groups
from strategies import enumerate_cohorts, independent_probabilities, potentials

SAME = 1e-13
"""Two sets of nodes for one integral, each exact to rounding, relative to the level's weight."""
ROW_ERROR = 0.02
"""Enough for a Newton matrix: the error of a row's entries, relative to the row's sum."""


def many(n_clients, n_levels, spread, seed=0):
    """Return a law with clients that are never and always there, levels and potentials."""
    rng = np.random.default_rng([n_clients, n_levels, int(spread), seed])
    chances = rng.uniform(0.001, 0.15, n_clients)
    chances[rng.permutation(n_clients)[: n_clients // 5]] = 0.0
    rare = rng.permutation(n_clients)[: n_clients // 5]
    chances[rare] = 10.0 ** rng.uniform(-12, -2, rare.size)
    level = rng.integers(0, n_levels, n_clients)
    level[:n_levels] = np.arange(n_levels)
    return chances, level, spread * rng.normal(size=n_clients)


def both(chances, level, x):
    """Return the point of all levels together, and that of one after the other."""
    law = fa.IndependentClients(chances)
    point = law.system(level).curvature(x)
    return point, ProductPoint(law, tuple(groups(x, level)), x)


def check(point, single, level):
    assert isinstance(point, module._LeveledPoint)
    weight = np.bincount(level, single.marginal)[level]
    assert np.all(np.abs(point.marginal - single.marginal) <= SAME * weight)
    assert np.all(np.abs(point.squares - single.squares) <= SAME * weight)


@pytest.mark.parametrize("spread", [0.0, 1.0, 10.0, 60.0, 1e4])
@pytest.mark.parametrize(("n_clients", "n_levels"), [(40, 8), (120, 40), (300, 290)])
def test_small_levels_together_are_what_each_is_by_itself(n_clients, n_levels, spread):
    chances, level, x = many(n_clients, n_levels, spread)
    point, single = both(chances, level, x)
    check(point, single, level)


def test_a_client_always_there_leaves_nothing_to_later_levels():
    chances, level, x = many(60, 20, 1.0)
    sure = np.flatnonzero(level == 7)[0]
    chances[sure] = 1.0
    point, single = both(chances, level, x)
    check(point, single, level)
    assert not point.marginal[level > 7].any()
    assert abs(point.marginal.sum() - 1.0) <= agreement.EXACT


def test_several_clients_always_there_share_their_level():
    chances, level, x = many(60, 20, 3.0)
    chances[level == 7] = 1.0
    point, single = both(chances, level, x)
    check(point, single, level)


def test_a_level_of_clients_never_there_has_no_weight():
    chances, level, x = many(60, 20, 1.0)
    chances[level == 3] = 0.0
    point, single = both(chances, level, x)
    check(point, single, level)
    assert not point.marginal[level == 3].any()
    assert not point.squares[level == 3].any()


def test_large_levels_are_evaluated_one_by_one_beside_the_small_ones(monkeypatch):
    chances, level, x = many(120, 12, 2.0)
    level[level >= 10] = 10
    monkeypatch.setattr(module, "_SMALL_LEVEL", int(np.bincount(level)[:10].max()))
    point, single = both(chances, level, x)
    assert point._large.groups
    check(point, single, level)


def test_fewer_levels_are_evaluated_one_by_one():
    chances, level, x = many(40, 5, 1.0)
    point, _ = both(chances, level, x)
    assert isinstance(point, ProductPoint)


def test_gaps_between_potentials_within_a_level_act_as_levels():
    chances, level, _ = many(60, 10, 1.0)
    x = np.where(np.arange(60) % 2, 0.0, -1_000.0)
    together, single = both(chances, level, x)
    finer, _ = both(chances, 2 * level + (x < 0), np.zeros(60))
    check(together, single, level)
    assert agreement.close(together.marginal, finer.marginal)


def test_types_of_several_copies_are_summed_alike():
    chances, level, x = many(40, 10, 1.0)
    law = fa.IndependentClients.of_types(chances, np.random.default_rng(1).integers(1, 9, 40) * 1.0)
    point = law.system(level).curvature(x)
    check(point, ProductPoint(law, tuple(groups(x, level)), x), level)


def test_rounds_that_are_almost_always_empty_lose_no_digits():
    chances, level, x = many(40, 10, 1.0)
    point, single = both(1e-170 * chances, level, x)
    check(point, single, level)
    # Almost no two clients meet, so each gets what it takes part in.
    assert agreement.close(point.marginal, chances / chances.sum())


@settings(max_examples=12)
@given(independent_probabilities(10, 10), potentials(10), st.integers(0, 99))
def test_ten_clients_in_eight_levels_equal_enumeration(chances, x, seed):
    level = np.random.default_rng(seed).permutation([0, 0, 0, 1, 2, 3, 4, 5, 6, 7])
    law = fa.IndependentClients(chances)
    agreement.check_curvature(law, enumerate_cohorts(law), x, level)


@pytest.mark.parametrize("spread", [0.0, 1.0, 10.0, 60.0])
@pytest.mark.parametrize(("n_clients", "n_levels"), [(40, 8), (120, 40)])
def test_factors_of_small_levels_are_near_the_hessian(n_clients, n_levels, spread):
    chances, level, x = many(n_clients, n_levels, spread)
    chances[np.flatnonzero(level == n_levels - 1)[0]] = 1.0
    point, single = both(chances, level, x)
    wanted = -single.dense()
    np.fill_diagonal(wanted, 0.0)
    joint = np.zeros_like(wanted)
    for factor in point.factors():
        assert np.unique(level[factor.clients]).size == 1
        assert factor.clients.size > 1
        product = (factor.columns * factor.signs) @ factor.columns.T
        joint[np.ix_(factor.clients, factor.clients)] += product
    np.fill_diagonal(joint, 0.0)
    error, scale = np.abs(joint - wanted).sum(axis=1), wanted.sum(axis=1)
    # A client that meets nobody but with probability 1e-15 has no curvature to speak of.
    assert np.all(error <= ROW_ERROR * np.maximum(scale, 1e-12))


def test_the_hessian_is_that_of_each_level():
    chances, level, x = many(60, 20, 2.0)
    point, single = both(chances, level, x)
    assert np.array_equal(point.dense(), single.dense())
