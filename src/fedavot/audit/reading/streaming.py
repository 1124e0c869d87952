"""Parquet logs larger than memory: everything is counted, and some whole rounds are kept.

All rows are read, one slab of consecutive rounds at a time. So the number of rounds, each client's
number of rounds and its mean weight in the plain average are exact. Computations that need whole
rounds in order use those of `STRETCHES` stretches, which begin at equal distances: if the log has r
rows, and s pairs of round and client come before a round, the round is kept if

    s mod ⌈r / STRETCHES⌉  <  MOST_ROWS / STRETCHES.

This depends only on the log, not on its parts or on how memory is divided. A log of at most
`MOST_ROWS` rows is not read in this way, nor is one with columns that cannot be counted like this:
see `streams`.
"""

from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence, total_by
from fedavot.audit.participation import Participation, Totals, ordered
from fedavot.audit.reading.files.blocks import Parts, Report, Table
from fedavot.audit.reading.labels import counted, lookalikes, unlogged
from fedavot.audit.reading.pairs import repeated
from fedavot.audit.reading.rows import Read, backwards, meanings_of
from fedavot.audit.reading.slabs import DATES, Slab, Slabs, bounds_of
from fedavot.audit.reading.statuses import FAILED, IDLE, TOOK_PART, UNKNOWN
from fedavot.errors import FileFormatError

MOST_ROWS = 10_000_000
"""Number of rows kept of a larger log; each stretch may exceed its share by at most one round."""
STRETCHES = 25
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


def stream_rows(parts: Parts, how: Read, report: Report, notes: list[str]) -> Participation | None:
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


def _streamed(parts: Parts, how: Read, report: Report, notes: list[str]) -> Participation | None:
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


def _counts(parts: Parts, how: Read, role: str) -> dict[str, int]:
    """Return the number of rows of each value of a column, as text, in the order of the codes."""
    (found,) = parts.ask({"what": "count", "column": how.names[role]})
    values = found["value"].cast(pl.String).fill_null("")
    if role == "client" and (values.str.strip_chars() == "").any():
        raise FileFormatError(
            f"{how.source}: there are rows with no client; fill it in, or remove the rows"
        )
    return dict(zip(values.to_list(), found["len"].to_list(), strict=True))


def _bounds(parts: Parts, how: Read, role: str) -> tuple[int, int]:
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


@dataclass(eq=False)
class _Kept:
    """Sets of clients in the rounds that are kept."""

    sizes: list[Integers] = field(default_factory=list)
    members: list[NDArray[np.int32]] = field(default_factory=list)

    def add(self, sizes: Integers, members: NDArray[np.int32], chosen: NDArray[np.bool_]) -> None:
        self.sizes.append(sizes[chosen])
        self.members.append(members[np.repeat(chosen, sizes)])

    def incidence(self, n_clients: int) -> Incidence:
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(self.sizes))]).astype(np.int64)
        return Incidence(np.concatenate(self.members), offsets, n_clients)


class _Tally:
    """The counts and the rounds kept so far."""

    def __init__(self, n_clients: int, n_rows: int, idle: bool) -> None:
        self._n_rows, self._idle = n_rows, idle
        self.n_read = self.n_pairs = self.n_rounds = self.n_backwards = 0
        self._n_filled, self._n_entries = 0, 0
        self._taken, self._implied = np.zeros(n_clients, dtype=np.int64), np.zeros(n_clients)
        self._cohorts, self._available = _Kept(), _Kept()
        self._times: list[Floats] = []
        self._span, self._latest = (np.inf, -np.inf), -np.inf

    def add(self, slab: Slab) -> None:
        """Count the rounds of a slab, and keep some."""
        chosen = kept(self.n_pairs + slab.starts, self._n_rows)
        sizes, members = slab.sets(TOOK_PART)
        self._cohorts.add(sizes, members, chosen)
        if slab.status is not None:
            # If the log lists clients not asked, those that failed could not have taken part.
            self._available.add(*slab.sets(IDLE if self._idle else FAILED), chosen)
        n_clients = self._taken.size
        filled = sizes[sizes > 0]
        self._taken += np.bincount(members, minlength=n_clients)
        self._implied += total_by(members, np.repeat(1.0 / filled, filled), n_clients)
        self._n_filled += filled.size
        self._n_entries += members.size
        self.n_rounds += slab.starts.size
        self.n_pairs += slab.clients.size
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
        cohorts = self._cohorts.incidence(len(names))
        available = self._available.incidence(len(names)) if self._available.sizes else None
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
            available,
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
