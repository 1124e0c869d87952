"""Independent clients: the closed form equals the sum over all 2^N cohorts."""

import numpy as np
import pytest

import agreement
import fedavot as fa

LEVEL_BY_ITSELF = 1e-12
"""Two sets of nodes for one integral, and a product of 1 − P(A ≠ ∅), relative to the level's."""


def test_equal_potentials_of_many_clients_agree_with_the_count_of_the_others():
    chances = np.random.default_rng(2).uniform(0.0, 0.2, 400)
    counts = np.zeros((400, 400))
    for client in range(400):
        law = np.array([1.0])
        for chance in np.delete(chances, client):
            law = np.append(law, 0.0) * (1.0 - chance) + np.append(0.0, law) * chance
        counts[client] = law
    wanted = chances * (counts / np.arange(1, 401)).sum(axis=1) / (1.0 - np.prod(1.0 - chances))
    found = fa.IndependentClients(chances).expected_weights(np.full(400, -3.0))
    assert agreement.close(found, wanted)


def test_rounds_empty_beyond_the_range_of_floats_still_have_one_member():
    law = fa.IndependentClients([2.0**-1070, 2.0**-1069, 0.0])
    assert agreement.close(law.expected_weights([5.0, -5.0, 0.0]), [1 / 3, 2 / 3, 0.0])
    point = law.system().curvature(np.zeros(3))
    assert agreement.close(point.squares, [1 / 3, 2 / 3, 0.0])
    assert agreement.close(point.dense(), np.zeros((3, 3)))
    assert law.worst_order(np.array([0.5, 0.5, 0.0])).tolist() == [0, 1, 2]


@pytest.mark.parametrize("spread", [0.0, 1.0, 10.0, 60.0, 1e4])
@pytest.mark.parametrize(("n_clients", "n_levels"), [(40, 3), (120, 40), (900, 290), (9_000, 3)])
def test_a_level_is_a_law_by_itself_where_earlier_levels_are_absent(n_clients, n_levels, spread):
    rng = np.random.default_rng([n_clients, int(spread)])
    chances = rng.uniform(0.001, 0.15, n_clients)
    chances[rng.random(n_clients) < 0.2] = 0.0
    rare = rng.random(n_clients) < 0.2
    chances[rare] = 10.0 ** rng.uniform(-12, -2, np.count_nonzero(rare))
    level = rng.permutation(np.arange(n_clients) % n_levels)
    chances[np.flatnonzero(level == n_levels - 2)[:2]] = 1.0
    x = spread * rng.normal(size=n_clients)
    law, wanted, absent = fa.IndependentClients(chances), np.zeros(n_clients), 1.0
    for number in range(n_levels):
        own = level == number
        if chances[own].any():
            alone = fa.IndependentClients(chances[own])
            wanted[own] = alone.expected_weights(x[own]) * absent * alone.nonempty / law.nonempty
            absent *= np.prod(1.0 - chances[own])
    found = law.expected_weights(x, level)
    weight = np.bincount(level, wanted)[level]
    assert np.all(np.abs(found - wanted) <= LEVEL_BY_ITSELF * weight)
    assert abs(found.sum() - 1.0) <= agreement.EXACT


def test_rounds_that_are_almost_always_empty_lose_no_digits():
    rng = np.random.default_rng(4)
    chances = rng.uniform(0.001, 0.15, 40)
    found = fa.IndependentClients(1e-170 * chances).expected_weights(
        rng.normal(size=40), np.arange(40) % 10
    )
    # Almost no two clients meet, so each gets what it takes part in.
    assert agreement.close(found, chances / chances.sum())
