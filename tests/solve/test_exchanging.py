"""Exchanging clients between levels brings them closer to the levels of all sets, never further."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import fedavot as fa
from fedavot.solve.levels import partition
from fedavot.solve.softening import exchanged, first_levels
from strategies import any_law, importances, normalised, permutations

ROUNDING = 1e-12
"""Absolute: coverages and importances are at most one."""


def excess(importance, law, parts, ratio):
    """Return the least of f − λ p over the unions of first levels, λ given."""
    found = [0.0]
    for level in range(parts.ratios.size):
        inside = np.flatnonzero((parts.levels <= level) & (importance > 0))
        found.append(law.coverage(inside) - ratio * importance[inside].sum())
    return min(found)


@st.composite
def ordered_problems(draw):
    law = draw(any_law(max_clients=7))
    importance = draw(importances(law.n_clients))
    return importance, law, np.array(draw(permutations(law.n_clients)))


@given(ordered_problems(), st.floats(0.01, 10.0))
def test_no_ratio_has_a_worse_set_than_before(problem, ratio):
    importance, law, order = problem
    before = partition(importance, law, order)
    after = exchanged(importance, law, before, np.zeros(law.n_clients))
    left, right = (excess(importance, law, parts, ratio) for parts in (before, after))
    assert right <= left + ROUNDING


@given(ordered_problems())
def test_what_cannot_be_improved_is_left_alone(problem):
    importance, law, _ = problem
    parts = first_levels(importance, law)
    again = exchanged(importance, law, parts, np.zeros(law.n_clients))
    assert np.array_equal(again.levels, parts.levels)


def test_a_client_crosses_many_levels_at_once():
    """Clients of rare ratios all different, and one of them put last by mistake."""
    n_clients = 200
    rng = np.random.default_rng(0)
    states = [fa.IndependentClients(rng.uniform(0.5, 1.0, n_clients) / 1e3) for _ in range(2)]
    law = fa.Mixture(states, [0.5, 0.5])
    importance = normalised(np.exp(-0.1 * np.arange(n_clients)))
    right = first_levels(importance, law)
    assert right.ratios.size > n_clients / 2
    wrong = partition(
        importance, law, np.roll(np.lexsort((np.arange(n_clients), right.levels)), -1)
    )
    assert not np.array_equal(wrong.levels, right.levels)
    found = exchanged(importance, law, wrong, np.zeros(n_clients))
    assert np.array_equal(found.levels, right.levels)


def test_hundreds_of_levels_take_few_evaluations():
    """Clients that gave way one level at a time took hundreds."""
    rng = np.random.default_rng(0)
    n_clients = 500
    day = fa.IndependentClients(0.02 * rng.random(n_clients))
    night = fa.IndependentClients(np.maximum(0.02 * rng.random(n_clients) ** 8, 1e-9))
    alignment = fa.align(normalised(rng.random(n_clients)), fa.Mixture([day, night], [0.5, 0.5]))
    assert alignment.status == "nearest"
    assert alignment.levels.max() > 100
    assert alignment.iterations < 100


def test_levels_of_laws_without_tangents_stay_as_they_are():
    draws = fa.SuccessiveDraws([0.5, 0.3, 0.2], 2)
    law = fa.Mixture([fa.UniformCohorts(3, 1), draws], [0.5, 0.5])
    importance = np.array([0.1, 0.1, 0.8])
    parts = partition(importance, law, np.arange(3))
    assert exchanged(importance, law, parts, np.zeros(3)) is parts


def test_a_client_that_nobody_sees_comes_first_and_one_that_nobody_wants_last():
    law = fa.Mixture(
        [fa.IndependentClients([0.5, 0.2, 0.0, 0.3]), fa.UniformCohorts(4, 4)], [1.0, 0.0]
    )
    parts = first_levels(np.array([0.5, 0.0, 0.2, 0.3]), law)
    assert parts.levels[2] == 0
    assert parts.ratios[0] == 0.0
    assert parts.levels[1] == parts.levels.max()
    assert np.isinf(parts.ratios[-1])
