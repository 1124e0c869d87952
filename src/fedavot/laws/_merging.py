"""Merge cohorts that occur more than once, adding their probabilities."""

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence, total_by


def singles_merged(incidence: Incidence, probabilities: Floats) -> tuple[Incidence, Floats]:
    """Merge cohorts of a single client, if there are more of them than clients.

    Cohorts reduced to their lowest level are often of this kind, and then most of the list.
    """
    alone = incidence.sizes == 1
    if np.count_nonzero(alone) <= incidence.n_clients:
        return incidence, probabilities
    clients = incidence.members[incidence.offsets[:-1][alone]]
    mass = total_by(clients, probabilities[alone], incidence.n_clients)
    single = np.flatnonzero(np.bincount(clients))
    rest = incidence.chosen(~alone)
    members = np.concatenate((rest.members, single.astype(np.int32)))
    offsets = np.concatenate((rest.offsets, rest.offsets[-1] + 1 + np.arange(single.size)))
    joined = Incidence(members, offsets, incidence.n_clients)
    return joined, np.concatenate((probabilities[~alone], mass[single]))


def merged(incidence: Incidence, probabilities: Floats) -> tuple[Incidence, Floats]:
    """Add up the probabilities of cohorts that occur more than once.

    Cohorts are compared by a 64-bit sum of random keys, then member by member, so that colliding
    keys cost time but not correctness.
    """
    rng = np.random.default_rng(0x0F3DA507)
    keys = rng.integers(0, 2**64, incidence.n_clients, dtype=np.uint64)
    hashes = np.add.reduceat(keys[incidence.members], incidence.offsets[:-1])
    order = np.argsort(hashes, kind="stable")
    repeated = np.empty(order.size, dtype=bool)
    repeated[0] = False
    repeated[1:] = hashes[order[1:]] == hashes[order[:-1]]
    if not repeated.any():
        return incidence, probabilities
    starts = np.flatnonzero(~repeated)
    head = order[starts][np.cumsum(~repeated) - 1]
    if not _all_equal(incidence, order[repeated], head[repeated]):
        return _merge_exactly(incidence, probabilities)
    # Sorting is stable, so each group's head is its first occurrence: keep the order of the input.
    representative = np.empty(order.size, dtype=np.int64)
    representative[order] = head
    return _keep(incidence, representative, probabilities)


def _all_equal(incidence: Incidence, left: Integers, right: Integers) -> bool:
    """Say whether cohorts left[k] and right[k] have the same members, for every k."""
    sizes = incidence.sizes
    if np.any(sizes[left] != sizes[right]):
        return False
    steps = np.arange(int(sizes[left].sum())) - np.repeat(
        np.cumsum(sizes[left]) - sizes[left], sizes[left]
    )
    of_left = incidence.members[np.repeat(incidence.offsets[left], sizes[left]) + steps]
    of_right = incidence.members[np.repeat(incidence.offsets[right], sizes[left]) + steps]
    return bool(np.array_equal(of_left, of_right))


def _merge_exactly(incidence: Incidence, probabilities: Floats) -> tuple[Incidence, Floats]:
    """Merge by the members themselves, in case two different cohorts have the same key."""
    seen: dict[bytes, int] = {}
    rows = range(incidence.n_cohorts)
    representative = [seen.setdefault(incidence.row(row).tobytes(), row) for row in rows]
    return _keep(incidence, np.array(representative, dtype=np.int64), probabilities)


def _keep(
    incidence: Incidence, representative: Integers, probabilities: Floats
) -> tuple[Incidence, Floats]:
    """Keep the cohorts that represent themselves, with the probability of their group."""
    totals = total_by(representative, probabilities, incidence.n_cohorts)
    kept = representative == np.arange(incidence.n_cohorts)
    return incidence.chosen(kept), totals[kept]
