"""How availability behaves: by hour, from round to round, and between clients.

A client is present in a round if it could be asked, provided the log records that; otherwise, and
always for the second ratio, if it took part. With x_it ∈ {0, 1} for the presence of client i in
round t, K_t for the clients whose state is known then, and π_i for the share of its known rounds in
which i is present,

    dispersion             = Σ_t (Σ_{i∈K_t} (x_it − π_i))²  /  Σ_t Σ_{i∈K_t} π_i (1 − π_i)
    rounds per observation = Σ_ib (Σ_{t∈b, i∈K_t} (x_it − π_i))²
                             /  Σ_i π_i (1 − π_i) (k_i − Σ_b k_ib² / k_i)

for blocks b of consecutive rounds, with k_ib for the number of rounds of b in which the state of i
is known and k_i for their total. Both are 1 on average if presence is independent: between clients
for the first, between rounds for the second. Without unknown states and with B blocks of equal
length, the bracket is (1 − 1/B) times the length of the log: the usual correction for an estimated
mean.

Blocks, drift and the plain average's shares are computed elsewhere.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence, total_by
from fedavot.audit.federation import Federation
from fedavot.audit.findings import Behaviour
from fedavot.audit.recommending import Estimate
from fedavot.audit.statistics.persistence import group_returns, joint_persistence
from fedavot.audit.statistics.window import Window

HOUR = 3600.0
DAY_HOURS = 24
WEEK_HOURS = 7 * DAY_HOURS
FIRST_HOUR = 3 * DAY_HOURS
"""Hours from Monday to the beginning of 1970, which was a Thursday."""
DATED = (1e8, 1e11)
"""Seconds since 1970 lie in this range from 1973 to 5138: other numbers are on the log's own clock,
or were not seconds."""
SLAB = 1 << 21
"""Approximate number of entries processed at a time, to save memory."""


def behave(
    federation: Federation,
    window: Window,
    *,
    drift: Estimate,
    halves: tuple[Floats, Floats],
    block: Integers,
) -> Behaviour:
    """Describe when clients are present, and whether they tend to appear together.

    Means by hour and weekday are over all rounds of the log, including empty ones. Clients whose
    state is not known are assumed to be present as often as the others, or as the others of their
    group for means by group.

    Parameters
    ----------
    federation : Federation
        The log, and the clients' groups.
    window : Window
        The rounds with participants, from which the persistence of presence is estimated.
    drift : Estimate
        How far the two halves of the log are apart.
    halves : two float arrays, shape (n_clients,)
        The plain average's shares in either half.
    block : int array, shape (n_rounds,)
        The block of each round of the window, ascending from 0.

    Returns
    -------
    Behaviour
        Hours are None for a log without times, weekdays for one without dates.
    """
    log = federation.participation
    present = log.eligible or log.cohorts
    by_hour = by_weekday = groups_by_hour = after = without = None
    dated = log.times is not None and is_dated(log.times)
    if log.times is not None:
        hour = ((log.times // HOUR + FIRST_HOUR * dated) % WEEK_HOURS).astype(np.int64)
        of_day = hour % DAY_HOURS
        by_hour = _means(present, log.unknown, of_day, DAY_HOURS)
        if dated:
            by_weekday = _means(present, log.unknown, hour // DAY_HOURS, 7)
        if federation.group_of is not None:
            groups_by_hour = _group_means(federation, present, of_day)
    if federation.group_of is not None:
        n_groups = len(federation.groups)
        after, without = group_returns(present, log.unknown, federation.group_of, n_groups)
    return Behaviour(
        of_available=log.eligible is not None,
        by_hour=by_hour,
        by_weekday=by_weekday,
        groups_by_hour=groups_by_hour,
        dated=dated,
        rounds_per_observation=rounds_per_observation(window, block),
        group_after_presence=after,
        group_after_absence=without,
        joint_persistence=joint_persistence(present, log.unknown),
        dispersion=dispersion(present, log.unknown),
        drift=drift,
        implied_first_half=halves[0],
        implied_last_half=halves[1],
    )


def is_dated(times: Floats) -> bool:
    """Return whether a log's times are seconds since 1970, judging by their size."""
    return bool(times.size and times.min() > DATED[0] and times.max() < DATED[1])


def rounds_per_observation(window: Window, block: Integers) -> float:
    """Return the number of rounds per effectively independent observation of a client.

    Parameters
    ----------
    window : Window
    block : int array, shape (n_rounds,)
        The block of each round, ascending from 0.

    Returns
    -------
    float
        At least 1; also 1 if it cannot be estimated, as from a single block.
    """
    n_clients = window.n_clients
    lengths = np.bincount(block).astype(np.float64)
    if lengths.size < 2:
        return 1.0
    present = window.incidence
    share, known = _shares(present, window.unknown)
    squared = share @ share * (lengths @ lengths)
    known_squared = np.full(n_clients, lengths @ lengths)
    starts = np.searchsorted(block, np.arange(lengths.size + 1))
    for first, last in _slabs(starts, present, window.unknown):
        edges, length = starts[first : last + 1], lengths[first:last]
        counts = _count_by_block(present, edges)
        if window.unknown is not None:
            unknown = _count_by_block(window.unknown, edges)
            known_squared += unknown.power(2).sum(axis=0) - 2 * (unknown.T @ length)
            # A round in which a client is not known counts as π_i: neither above nor below.
            counts = counts + unknown * share
        # Σ (count − length π)² without the cells in which the count is 0, which are most.
        squared += counts.data @ counts.data - 2 * (counts.T @ length) @ share
    free = known - known_squared / np.maximum(known, 1.0)
    expected = float(share * (1 - share) @ free)
    return max(1.0, float(squared) / expected) if expected > 0 else 1.0


def dispersion(present: Incidence, unknown: Incidence | None) -> float:
    """Return the variance of the number of clients relative to that of independent clients.

    Parameters
    ----------
    present, unknown : Incidence
        The clients that are present, and those whose state is not known, round by round.

    Returns
    -------
    float
        1 if it cannot be estimated, as from a single round.
    """
    share, _ = _shares(present, unknown)
    spread = share * (1 - share)
    sizes = present.sizes
    expected = np.full(sizes.size, share.sum())
    variance = spread.sum() * sizes.size
    if unknown is not None:
        variance -= float(spread @ unknown.counts())
        for first, last in _slabs(np.arange(sizes.size + 1), unknown):
            part = unknown.between(first, last)
            row = np.repeat(np.arange(last - first), part.sizes)
            expected[first:last] -= total_by(row, share[part.members], last - first)
    found = float(np.square(sizes - expected).sum())
    return found / float(variance) if variance > 0 else 1.0


def _shares(present: Incidence, unknown: Incidence | None) -> tuple[Floats, Floats]:
    """Return each client's share of its known rounds, 0 if there are none, and their number."""
    known = np.full(present.n_clients, float(present.n_cohorts))
    if unknown is not None:
        known -= unknown.counts()
    return present.counts() / np.maximum(known, 1.0), known


def _means(present: Incidence, unknown: Incidence | None, slot: Integers, n_slots: int) -> Floats:
    """Return the mean number of clients by slot of a round; NaN where no state is known."""
    n_clients = present.n_clients
    there = total_by(slot, present.sizes.astype(np.float64), n_slots)
    known = n_clients * total_by(slot, np.ones(slot.size), n_slots)
    if unknown is not None:
        known -= total_by(slot, unknown.sizes.astype(np.float64), n_slots)
    return _of_known(n_clients * there, known)


def _group_means(federation: Federation, present: Incidence, hour: Integers) -> Floats:
    """Return the mean number of each group's clients by hour of day, shape (n_groups, 24)."""
    group_of, unknown = federation.group_of, federation.participation.unknown
    assert group_of is not None
    shape = (len(federation.groups), DAY_HOURS)
    sizes = np.bincount(group_of, minlength=shape[0]).astype(np.float64)[:, None]
    known = sizes * np.bincount(hour, minlength=DAY_HOURS)
    if unknown is not None:
        known -= _count_by_group(unknown, group_of, hour, shape)
    return _of_known(sizes * _count_by_group(present, group_of, hour, shape), known)


def _of_known(counts: Floats, known: Floats) -> Floats:
    means = np.full(counts.shape, np.nan)
    np.divide(counts, known, out=means, where=known > 0.5)
    return means


def _count_by_group(
    sets: Incidence, group_of: Integers, hour: Integers, shape: tuple[int, int]
) -> Integers:
    counts = np.zeros(shape[0] * shape[1], dtype=np.int64)
    for first, last in _slabs(np.arange(hour.size + 1), sets):
        part = sets.between(first, last)
        key = group_of[part.members] * shape[1]
        key += np.repeat(hour[first:last], part.sizes)
        counts += np.bincount(key, minlength=counts.size)
    return counts.reshape(shape)


def _count_by_block(sets: Incidence, edges: Integers) -> Any:
    """Count the rounds between two edges that have each client, as a sparse matrix.

    Parameters
    ----------
    sets : Incidence
    edges : int array, shape (n_blocks + 1,)
        The first round of each block, and the one after the last.
    """
    starts = sets.offsets[edges]
    members = sets.members[starts[0] : starts[-1]]
    blocks = np.repeat(np.arange(edges.size - 1, dtype=np.int32), np.diff(starts))
    # Converting triples to columns adds up entries at the same place.
    return sparse.coo_array(
        (np.ones(members.size), (blocks, members)), shape=(edges.size - 1, sets.n_clients)
    ).tocsc()


def _slabs(starts: Integers, *sets: Incidence | None) -> Iterator[tuple[int, int]]:
    """Cut blocks of rounds, by their first rounds, into runs of about `SLAB` entries."""
    entries = np.sum([some.offsets[starts] for some in sets if some is not None], axis=0)
    first, last = 0, starts.size - 1
    while first < last:
        beyond = int(np.searchsorted(entries, entries[first] + SLAB, side="right")) - 1
        following = min(max(beyond, first + 1), last)
        yield first, following
        first = following
