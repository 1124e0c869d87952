"""Cohorts as rows of a sparse matrix, against loops over the cohorts."""

import numpy as np
import pytest

from fedavot import _incidence
from fedavot._incidence import Incidence


def _drawn(rng, n_clients, n_cohorts, largest):
    """Draw cohorts that never leave the third of the clients that they begin in."""
    thirds = np.array_split(np.arange(n_clients), 3)
    cohorts = []
    for _ in range(n_cohorts):
        third = thirds[rng.integers(3)]
        size = rng.integers(1, min(largest, third.size) + 1)
        cohorts.append(np.sort(rng.choice(third, size, replace=False)))
    return cohorts


def _compressed(cohorts, n_clients):
    offsets = np.concatenate(([0], np.cumsum([len(cohort) for cohort in cohorts])))
    return Incidence(np.concatenate(cohorts).astype(np.int32), offsets, n_clients)


def _linked(cohorts, n_clients):
    """Say of any two clients whether a chain of cohorts links them, by closing the relation."""
    together = np.eye(n_clients, dtype=bool)
    for cohort in cohorts:
        together[np.ix_(cohort, cohort)] = True
    for through in range(n_clients):
        together |= np.outer(together[:, through], together[through])
    return together


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("n_cohorts", [3, 20, 900])
@pytest.mark.parametrize("largest", [2, 4])
def test_components_are_the_clients_that_chains_of_cohorts_link(seed, n_cohorts, largest):
    rng = np.random.default_rng(seed)
    n_clients = 24
    cohorts = _drawn(rng, n_clients, n_cohorts, largest)
    labels = _compressed(cohorts, n_clients).components()
    assert np.array_equal(labels[:, None] == labels, _linked(cohorts, n_clients))
    assert np.array_equal(np.unique(labels), np.arange(labels.max() + 1))


def test_a_link_that_only_the_last_of_many_cohorts_makes_is_found():
    cohorts = [[2 * (row % 5), 2 * (row % 5) + 1] for row in range(500)]
    assert np.unique(_compressed(cohorts, 10).components()).size == 5
    assert np.unique(_compressed([*cohorts, [1, 2]], 10).components()).size == 4


@pytest.mark.parametrize("largest", [1, 2, 5])
@pytest.mark.parametrize("block", [7, 1_000])
def test_extremes_and_lowest_levels_are_those_of_each_cohort(largest, block, monkeypatch):
    monkeypatch.setattr(_incidence, "_BLOCK_COHORTS", block)
    rng = np.random.default_rng(largest)
    cohorts = _drawn(rng, 18, 40, largest)
    incidence = _compressed(cohorts, 18)
    values = rng.integers(0, 4, 18)
    assert incidence.minimum(values).tolist() == [values[cohort].min() for cohort in cohorts]
    assert incidence.maximum(values).tolist() == [values[cohort].max() for cohort in cohorts]
    kept = incidence.within(values)
    rows = np.split(kept.members, kept.offsets[1:-1])
    for row, cohort in zip(rows, cohorts, strict=True):
        assert row.tolist() == [i for i in cohort if values[i] == values[cohort].min()]
