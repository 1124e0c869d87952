"""Parquet logs larger than memory: everything is counted, and some whole rounds are kept.

All rows are read, one slab of consecutive rounds at a time, whatever the order of the rows. So each
pair of round and client counts once, and the number of rounds, each client's number of rounds and
its mean weight in the plain average are exact. Computations that need whole rounds in order use
those of `STRETCHES` stretches, which begin at equal distances: if the log has r rows, and s pairs
of round and client come before a round, the round is kept if

    s mod ⌈r / STRETCHES⌉  <  MOST_ROWS / STRETCHES.

This depends only on the log, not on its parts or on how memory is divided. A log of at most
`MOST_ROWS` rows is not read in this way, nor is one with columns that cannot be counted like this:
see `streams`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence, total_by
from fedavot.audit.participation import Participation, Totals, keys, ordered
from fedavot.audit.reading.files.blocks import Batch, Report, Table, missing
from fedavot.audit.reading.files.parquet import Child
from fedavot.audit.reading.labels import counted, gathered, lookalikes, unlogged
from fedavot.audit.reading.rows import (
    Read,
    Statuses,
    backwards,
    distinct,
    meanings_of,
    repeated,
)
from fedavot.audit.reading.statuses import FAILED, IDLE, SAID, TOOK_PART, UNKNOWN
from fedavot.errors import FileFormatError

MOST_ROWS = 10_000_000
"""Number of rows kept of a larger log; each stretch may exceed its share by at most one round."""
STRETCHES = 25
SLAB = 1 << 24
"""Approximate number of rows held at a time; exceeded only if a single round has more."""
BINS = 1 << 16
"""Number of ranges of rounds whose rows are counted in order to cut the log into slabs."""
LARGEST_KEY = 1 << 62
DATES = ("Date", "Datetime")
"""Types of times that come in microseconds."""
WHOLE = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32")
NAMES = (*WHOLE, "String", "Boolean", "Categorical", "Enum")
TIMES = (*WHOLE, "Float32", "Float64", *DATES)
TYPES = {"round": WHOLE, "client": NAMES, "status": NAMES, "time": TIMES}
"""Columns that can be streamed, and the types that they may have."""


def streams(table: Table) -> bool:
    """Return whether a log is large enough to be streamed, and has only streamable columns."""
    parts, places = table.parts, table.layout.places
    if parts is None or parts.n_rows <= MOST_ROWS or table.layout.kind != "rows":
        return False
    return all(
        parts.kind_of(table.header[place]) in TYPES.get(role, ()) for role, place in places.items()
    )


def stream_rows(parts: Child, how: Read, report: Report, notes: list[str]) -> Participation | None:
    """Read a log with one row for each round and client, in bounded memory.

    Returns
    -------
    Participation or None
        The rounds that are kept, and the totals over all rounds; the parts are closed. None, with
        the parts left open, if a status means that a client's state is unknown: the shares that
        clients should have then depend on each round and on the importance.
    """
    try:
        found = _streamed(parts, how, report, notes)
    except BaseException:
        parts.close()
        raise
    if found is not None:
        parts.close()
    return found


def _streamed(parts: Child, how: Read, report: Report, notes: list[str]) -> Participation | None:
    meanings = None
    if "status" in how.names:
        words, said = _counts(parts, how, "status"), list[str]()
        told = meanings_of(words, "status", how, said)
        if UNKNOWN in told.values():
            return None
        notes += said
        meanings = np.array([told[word] for word in words], dtype=np.int8)
    names, place = ordered(list(_counts(parts, how, "client")))
    low, high = _bounds(parts, how, "round")
    if "time" in how.names:
        _bounds(parts, how, "time")
    slabs = Slabs(parts, how, place, meanings)
    tally = _Tally(len(names), parts.n_rows, meanings is not None and IDLE in meanings)
    for first, last in list(bounds_of(parts, how.names["round"], low, high)):
        tally.add(slabs.read(first, last))
        report(parts.n_bytes * tally.n_read // parts.n_rows, parts.n_bytes)
    notes += repeated(parts.n_rows - tally.n_pairs)
    notes += [*lookalikes(names), *unlogged(low, high, tally.n_rounds), *how.clock.notes()]
    notes += backwards(tally.n_backwards)
    return tally.finish(names, notes)


def _counts(parts: Child, how: Read, role: str) -> dict[str, int]:
    """Return the number of rows of each value of a column, as text, in the order of the codes."""
    (found,) = parts.ask({"what": "count", "column": how.names[role]})
    values = found["value"].cast(pl.String).fill_null("")
    if role == "client" and missing(values).any():
        raise FileFormatError(
            f"{how.source}: there are rows with no client; fill it in, or remove the rows"
        )
    return dict(zip(values.to_list(), found["len"].to_list(), strict=True))


def _bounds(parts: Child, how: Read, role: str) -> tuple[int, int]:
    """Return the extremes of a column of numbers; a row without one is refused."""
    lows, highs = [], []
    for found in parts.ask({"what": "bounds", "column": how.names[role]}):
        low, high, missing = found.row(0)
        if missing:
            raise FileFormatError(
                f"{parts.part}: {counted(missing, 'row')} with no {role}; fill it in, or remove "
                f"{'it' if missing == 1 else 'them'}"
            )
        lows += [] if low is None else [low]
        highs += [] if high is None else [high]
    return min(lows), max(highs)


def kept(before: Integers, n_rows: int) -> NDArray[np.bool_]:
    """Return which rounds are kept.

    Parameters
    ----------
    before : int array, shape (n_rounds,)
        The number of pairs of round and client before each round.
    n_rows : int
        The number of rows of the log.
    """
    return before % -(-n_rows // STRETCHES) < MOST_ROWS // STRETCHES


@dataclass(frozen=True, eq=False)
class Slab:
    """Consecutive rounds.

    Attributes
    ----------
    n_rows : int
        Number of rows, repeated ones included.
    pairs : Incidence
        The clients that have a row in each round.
    status : int8 array, shape (n_pairs,), or None
        What each pair says about its client; None if all took part.
    times : float array, shape (n_rounds,), or None
        The time of each round in seconds, the earliest of its rows.
    """

    n_rows: int
    pairs: Incidence
    status: Statuses | None
    times: Floats | None

    def sets(self, least: int) -> Incidence:
        """Return the clients of at least this status in each round."""
        if self.status is None:
            return self.pairs
        chosen = self.status >= least
        before = np.concatenate(([0], np.cumsum(chosen)))
        return Incidence(
            self.pairs.members[chosen], before[self.pairs.offsets], self.pairs.n_clients
        )


def bounds_of(parts: Child, column: str, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Cut rounds ``low`` to ``high`` into runs of about `SLAB` rows; yield first and last rounds.

    A range of numbers with more rows than that is cut again, down to single rounds.
    """
    width = -(-(high - low + 1) // BINS)
    request = {"what": "bins", "column": column, "low": low, "high": high, "width": width}
    (found,) = parts.ask(request)
    first, rows = low, 0
    for at, count in found.sort("bin").iter_rows():
        begin, end = low + at * width, min(low + (at + 1) * width - 1, high)
        if rows and rows + count > SLAB:
            yield first, begin - 1
            first, rows = begin, 0
        if count > SLAB and width > 1:
            yield from bounds_of(parts, column, begin, end)
            first = end + 1
        else:
            rows += count
    if rows:
        yield first, high


@dataclass(frozen=True, eq=False)
class Slabs:
    """How slabs are read.

    Attributes
    ----------
    parts : Child
        The log, which has already counted the clients, and the statuses if there are any.
    how : Read
        What columns mean.
    place : int32 array, shape (n_clients,)
        The client that each code stands for.
    meanings : int8 array, shape (n_words,), or None
        The meaning of each status code.
    """

    parts: Child
    how: Read
    place: NDArray[np.int32]
    meanings: Statuses | None

    def read(self, low: int, high: int) -> Slab:
        """Read the rounds from ``low`` to ``high``."""
        names = self.how.names
        roles = ["client"] if self.meanings is None else ["client", "status"]
        request = {
            "what": "rows",
            "column": names["round"],
            "low": low,
            "high": high,
            "coded": [names[role] for role in roles],
            "time": names.get("time"),
        }
        rounds, clients = list[Integers](), list[NDArray[np.int32]]()
        statuses, moments = list[Statuses](), list[NDArray[Any]]()
        for frame in self.parts.ask(request):
            rounds.append(frame["number"].to_numpy() - low)
            clients.append(self.place[frame["code 0"].to_numpy()])
            if self.meanings is not None:
                statuses.append(self.meanings[frame["code 1"].to_numpy()])
            if "time" in names:
                moments.append(frame["time"].to_numpy())
        number, n_clients = gathered(rounds), self.place.size
        if (high - low + 1) * n_clients * len(SAID) > LARGEST_KEY:
            number = np.unique(number, return_inverse=True)[1]
        times = self._earliest(number, gathered(moments)) if moments else None
        key, n_rows = keys(number, gathered(clients), n_clients), number.size
        del number
        key, status, _ = distinct(key, gathered(statuses) if statuses else None)
        of_pair = key // n_clients
        starts = np.flatnonzero(np.diff(of_pair, prepend=-1))
        key -= of_pair * n_clients
        pairs = Incidence(key.astype(np.int32), np.append(starts, key.size), n_clients)
        return Slab(n_rows, pairs, status, times)

    def _earliest(self, rounds: Integers, moments: NDArray[Any]) -> Floats:
        frame = pl.DataFrame({"round": rounds, "time": moments})
        values = frame.group_by("round").min().sort("round")["time"]
        if self.parts.kind_of(self.how.names["time"]) in DATES:
            values = values / 1e6
        text = {"time": values.cast(pl.String)}
        batch = Batch(self.how.source, text, range(1, values.len() + 1), unit="round")
        return self.how.clock.read(batch, "time")


class _Tally:
    """The counts and the rounds kept so far."""

    def __init__(self, n_clients: int, n_rows: int, idle: bool) -> None:
        self._n_rows, self._idle = n_rows, idle
        self.n_read = self.n_pairs = self.n_rounds = self.n_backwards = 0
        self._n_filled, self._n_entries = 0, 0
        self._taken, self._implied = np.zeros(n_clients, dtype=np.int64), np.zeros(n_clients)
        self._cohorts, self._available = list[Incidence](), list[Incidence]()
        self._times: list[Floats] = []
        self._span, self._latest = (np.inf, -np.inf), -np.inf

    def add(self, slab: Slab) -> None:
        """Count the rounds of a slab, and keep some."""
        chosen = kept(self.n_pairs + slab.pairs.offsets[:-1], self._n_rows)
        cohorts = slab.sets(TOOK_PART)
        self._cohorts.append(cohorts.chosen(chosen))
        if slab.status is not None:
            # If the log lists clients not asked, those that failed could not have taken part.
            least = IDLE if self._idle else FAILED
            self._available.append(slab.sets(least).chosen(chosen))
        members, filled = cohorts.members, cohorts.sizes[cohorts.sizes > 0]
        self._taken += cohorts.counts()
        self._implied += total_by(members, np.repeat(1.0 / filled, filled), cohorts.n_clients)
        self._n_filled += filled.size
        self._n_entries += members.size
        self.n_rounds += cohorts.n_cohorts
        self.n_pairs += slab.pairs.members.size
        self.n_read += slab.n_rows
        if slab.times is not None:
            steps = np.diff(slab.times, prepend=self._latest)
            self.n_backwards += int(np.count_nonzero(steps < 0))
            low, high = float(slab.times.min()), float(slab.times.max())
            self._span = min(self._span[0], low), max(self._span[1], high)
            self._latest = float(slab.times[-1])
            self._times.append(slab.times[chosen])

    def finish(self, names: tuple[str, ...], notes: list[str]) -> Participation:
        """Return the rounds that are kept, with the totals over all rounds."""
        cohorts = _joined(self._cohorts)
        note = (
            f"the log has {self._n_rows:,} rows: rounds, clients, their shares in the plain "
            "average and its gap are counted from all of them, and everything else is from "
            f"{cohorts.n_cohorts:,} of {self.n_rounds:,} rounds, in stretches of consecutive "
            "rounds at equal distances"
        )
        return Participation(
            names,
            cohorts.offsets,
            cohorts.members,
            np.concatenate(self._times) if self._times else None,
            _joined(self._available) if self._available else None,
            notes=(*notes, note),
            all_available=self._idle,
            totals=Totals(
                n_rounds=self.n_rounds,
                n_filled=self._n_filled,
                n_entries=self._n_entries,
                taken=self._taken,
                implied=self._implied / max(self._n_filled, 1),
                span=self._span if self._times else None,
            ),
        )


def _joined(parts: list[Incidence]) -> Incidence:
    """Return the rounds of several parts, one part after the other."""
    sizes = np.concatenate([part.sizes for part in parts])
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    return Incidence(np.concatenate([part.members for part in parts]), offsets, parts[0].n_clients)
