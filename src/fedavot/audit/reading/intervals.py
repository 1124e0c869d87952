"""Logs of when each client was available, turned into rounds.

There is a round every ``period`` seconds, at t_k = first + k·period < last, where first and last
are the ends of the observation. A client with the interval [start, end) is available in round k if
start ≤ t_k < end. Outside the time in which a client was observed, its state is unknown: an
interval that ends with the observation says nothing about what came after.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers, refuse_if_too_large
from fedavot._incidence import Incidence
from fedavot.audit.participation import Participation, drawn, ordered
from fedavot.audit.reading.files.blocks import Batch, cut_off
from fedavot.audit.reading.labels import Codes, counted, gathered, lookalikes
from fedavot.audit.reading.moments import Clock
from fedavot.audit.reading.rows import has_all
from fedavot.audit.reading.statuses import tallied
from fedavot.errors import FileFormatError, Option, OptionError

MOST_ROUNDS = 5_000_000
"""Largest number of rounds made from intervals: with more, an audit would take many minutes."""
SLAB = 1 << 20
"""Approximate number of intervals that are sorted at a time, to save memory."""


class Draw(NamedTuple):
    """How intervals are turned into rounds.

    Attributes
    ----------
    period : float
        Seconds between rounds.
    cohort_size : int or None
        Largest number of the available clients that take part; None for all of them.
    state : str or None
        The state that means available, if a file has several.
    seed : int
        Seed for sampling cohorts.
    """

    period: float
    cohort_size: int | None
    state: str | None
    seed: int


class Spans(NamedTuple):
    """Half-open intervals of clients, each array of shape (n_intervals,)."""

    clients: NDArray[np.int32]
    starts: Floats
    ends: Floats


class Found(NamedTuple):
    """The intervals of a file, the clients' names, and how times are written."""

    spans: Spans
    codes: Codes
    clock: Clock


def read_intervals(
    found: Found, coverage: Spans | None, draw: Draw, notes: list[str]
) -> Participation:
    """Turn intervals into rounds, given the time in which each client was observed."""
    names, place = ordered(found.codes.names)
    spans = _merged(_placed(found.spans, place), notes)
    told = None if coverage is None else _placed(coverage, place)
    windows = _windows(spans, told, len(names), notes)
    first, last = windows.starts.min(), windows.ends.max()
    times = _instants(first, last, draw.period)
    available = _rounds_in(spans, times, len(names))
    unknown = _rounds_in(_outside(windows, first, last), times, len(names))
    size = draw.cohort_size
    cohorts = available if size is None else drawn(available, size, draw.seed)
    notes += [*lookalikes(names), *found.clock.notes()]
    return Participation(
        clients=names,
        offsets=cohorts.offsets,
        members=cohorts.members,
        times=times,
        available=available,
        all_available=True,
        unknown=unknown if unknown.members.size else None,
        notes=tuple(notes),
    )


def collect(
    source: Path, batches: Iterator[Batch], state: str | None, clock: Clock, notes: list[str]
) -> Found:
    """Read the intervals of a file; only those of ``state`` if the file has several states."""
    codes = Codes()
    parts: list[NDArray[np.int32]] = []
    starts, ends, states = [np.empty(0)], [np.empty(0)], Counter[str]()
    for batch in batches:
        try:
            has_all(batch, ("client",))
            start, end = clock.read(batch, "start"), clock.read(batch, "end")
            _refuse_backwards(batch, start, end)
        except FileFormatError:
            if batch.cut_in is None:
                raise
            notes.append(cut_off(batch.places[0]))
            continue
        clients = codes.encode(batch.columns["client"])
        if "state" in batch.columns:
            states.update(batch.columns["state"].to_list())
            if state is not None:
                chosen = (batch.columns["state"] == state).to_numpy()
                clients, start, end = clients[chosen], start[chosen], end[chosen]
        parts.append(clients)
        starts.append(start)
        ends.append(end)
    if not len(codes):
        raise FileFormatError(f"{source} has a header and no rows; a log needs rows")
    _refuse_states(states, state, source)
    spans = Spans(gathered(parts), gathered(starts), gathered(ends))
    if not np.any(spans.ends > spans.starts):
        raise FileFormatError(
            f"{source} has no interval longer than 0, so nobody was ever available; check that "
            "start and end are the right columns"
        )
    return Found(spans, codes, clock)


def coverage_in(table: Batch, found: Found) -> Spans:
    """Return the time in which each client was observed; its start is NaN if there is none."""
    end = found.clock.read(table, "known_until")
    start = np.full(end.size, np.nan)
    if "known_from" in table.columns:
        start = found.clock.read(table, "known_from")
        _refuse_backwards(table, start, end)
    names, logged = table.columns["client"], set(found.codes.names)
    if logged.isdisjoint(names.to_list()):
        raise FileFormatError(
            f"{table.source} has no client of the log: it has {names.min()!r}, the log "
            f"{min(logged)!r}; use the same names in both"
        )
    return Spans(found.codes.encode(names), start, end)


def _refuse_backwards(batch: Batch, start: Floats, end: Floats) -> None:
    bad = np.flatnonzero(end < start)
    if bad.size:
        row = int(bad[0])
        raise FileFormatError(
            f"{batch.place(row)}: the end, {end[row]:.15g}, is before the start, "
            f"{start[row]:.15g}; swap them or remove the {batch.unit}"
        )


def _refuse_states(states: Counter[str], state: str | None, source: Path) -> None:
    listed = tallied(dict(states.most_common()))
    if state is None and len(states) > 1:
        raise OptionError(
            f"{source} has intervals of {len(states)} states: {listed}; give the state that means "
            "available, as in ",
            Option("state", states.most_common(1)[0][0]),
        )
    if state is not None and not states:
        raise OptionError(f"{source} has no column of states; leave out ", Option("state"))
    if state is not None and state not in states:
        raise OptionError(f"{source} has no state {state!r}; it has {listed}")


def _placed(spans: Spans, place: NDArray[np.int32]) -> Spans:
    return Spans(place[spans.clients], spans.starts, spans.ends)


def _merged(spans: Spans, notes: list[str]) -> Spans:
    """Return the union of each client's intervals, in order."""
    order = np.argsort(spans.clients, kind="stable")
    clients = spans.clients[order]
    edges = np.searchsorted(clients, clients[::SLAB])  # no client's intervals are split
    parts, counts = [], np.zeros(3, dtype=np.int64)
    for low, high in pairwise(np.unique(np.append(edges, clients.size)).tolist()):
        slab = order[low:high]
        part, found = _union(Spans(clients[low:high], spans.starts[slab], spans.ends[slab]))
        parts.append(part)
        counts += found
    words = (
        ("row repeats", "rows repeat", "an interval: dropped"),
        ("interval has", "intervals have", "no length: dropped"),
        ("interval overlaps", "intervals overlap", "an earlier one of the same client: merged"),
    )
    notes += [
        f"{count} {one if count == 1 else several} {said}"
        for count, (one, several, said) in zip(counts.tolist(), words, strict=True)
        if count
    ]
    return Spans(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _union(spans: Spans) -> tuple[Spans, tuple[int, int, int]]:
    """Return the merged intervals, and how many were repeated, empty and overlapping."""
    order = np.lexsort((spans.ends, spans.starts, spans.clients))
    clients, starts, ends = (part[order] for part in spans)
    same = np.append(False, clients[1:] == clients[:-1])
    twin = same & np.append(False, (starts[1:] == starts[:-1]) & (ends[1:] == ends[:-1]))
    empty = (ends == starts) & ~twin
    keep = ~empty & ~twin
    clients, starts, ends = clients[keep], starts[keep], ends[keep]
    same = np.append(False, clients[1:] == clients[:-1])[: clients.size]
    # The latest end so far of the same client: ranks of ends, where each client's ranks are above
    # those of the client before.
    values, rank = np.unique(ends, return_inverse=True)
    base = clients.astype(np.int64) * values.size
    so_far = values[np.maximum.accumulate(base + rank) - base]
    before = np.append(-np.inf, so_far[:-1])[: clients.size]
    overlaps = int(np.count_nonzero(same & (starts < before)))
    opens = np.flatnonzero(~same | (starts > before))
    closes = np.append(opens[1:], clients.size)[: opens.size] - 1
    merged = Spans(clients[opens], starts[opens], so_far[closes])
    return merged, (int(twin.sum()), int(empty.sum()), overlaps)


def _windows(spans: Spans, coverage: Spans | None, n_clients: int, notes: list[str]) -> Spans:
    """Return the time in which each client's state is known, one interval per client."""
    first, last = spans.starts.min(), spans.ends.max()
    clients = np.arange(n_clients, dtype=np.int32)
    if coverage is None:
        notes.append(
            "no coverage was given: every client's state is taken to be known from the log's first "
            "time to its last, and the client to be unavailable outside its intervals"
        )
        return Spans(clients, np.full(n_clients, first), np.full(n_clients, last))
    starts, ends = np.full(n_clients, np.inf), np.full(n_clients, -np.inf)
    first, last = min(first, coverage.ends.min()), max(last, coverage.ends.max())
    starts[coverage.clients] = np.where(np.isnan(coverage.starts), first, coverage.starts)
    ends[coverage.clients] = coverage.ends
    reaches = (spans.starts < starts[spans.clients]) | (spans.ends > ends[spans.clients])
    beyond = np.count_nonzero(reaches & np.isfinite(starts[spans.clients]))
    untold = n_clients - coverage.clients.size
    np.minimum.at(starts, spans.clients, spans.starts)
    np.maximum.at(ends, spans.clients, spans.ends)
    if untold:
        notes.append(
            f"{counted(untold, 'client')} without coverage: taken to be observed from its first "
            "interval to its last"
        )
    if beyond:
        words = "interval reaches" if beyond == 1 else "intervals reach"
        notes.append(f"{beyond} {words} beyond the client's coverage: coverage extended")
    never = np.isinf(starts)
    starts[never], ends[never] = last, last
    return Spans(clients, starts, ends)


def _instants(first: float, last: float, period: float) -> Floats:
    with np.errstate(over="ignore"):
        count = np.ceil((last - first) / period) + 1
    if not count <= MOST_ROUNDS:
        raise OptionError(
            f"a round every {period:g} s makes {count:,.0f} rounds in {last - first:,.0f} s, and "
            f"an audit takes at most {MOST_ROUNDS:,}; use ",
            Option("period", float(f"{1.001 * (last - first) / MOST_ROUNDS:.4g}")),
        )
    times = first + np.arange(int(count), dtype=np.float64) * period
    return times[times < last]


def _outside(windows: Spans, first: float, last: float) -> Spans:
    size = windows.clients.size
    return Spans(
        np.concatenate([windows.clients, windows.clients]),
        np.concatenate([np.full(size, first), windows.ends]),
        np.concatenate([windows.starts, np.full(size, np.nextafter(last, np.inf))]),
    )


def _rounds_in(spans: Spans, times: Floats, n_clients: int) -> Incidence:
    """Return the clients with an interval around each time; a client's intervals are disjoint."""
    low = np.searchsorted(times, spans.starts)
    counts = np.maximum(np.searchsorted(times, spans.ends) - low, 0)
    total = int(counts.sum())
    refuse_if_too_large(
        32.0 * total,
        what=f"{total:,} entries for {n_clients:,} clients in {times.size:,} rounds",
        remedy="raise the period",
    )
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    key: Integers = (np.repeat(low, counts) + within) * n_clients
    key += np.repeat(spans.clients, counts)
    key.sort()
    return Incidence.of_keys(key, times.size, n_clients)
