"""A large log as slabs: the rows of consecutive rounds, few enough to be held at once.

Slabs come in the order of the rounds, whatever the order of the rows, and a round lies within one.
So each pair of round and client can be counted once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot.audit.participation import keys
from fedavot.audit.reading.files.blocks import Batch, Parts
from fedavot.audit.reading.labels import gathered
from fedavot.audit.reading.pairs import Statuses, distinct
from fedavot.audit.reading.rows import Read
from fedavot.audit.reading.statuses import SAID

SLAB = 1 << 24
"""Approximate number of rows held at a time; exceeded only if a single round has more."""
BINS = 1 << 16
"""Number of ranges of rounds whose rows are counted in order to cut the log into slabs."""
LARGEST_KEY = 1 << 62
DATES = ("Date", "Datetime")
"""Types of times that come in microseconds."""


@dataclass(frozen=True, eq=False)
class Slab:
    """Consecutive rounds.

    Attributes
    ----------
    n_rows : int
        Number of rows, repeated ones included.
    starts : int array, shape (n_rounds,)
        Where the pairs of each round begin.
    clients : int32 array, shape (n_pairs,)
        The client of each pair, ascending within a round.
    status : int8 array, shape (n_pairs,), or None
        What each pair says about its client; None if all took part.
    times : float array, shape (n_rounds,), or None
        The time of each round in seconds, the earliest of its rows.
    """

    n_rows: int
    starts: Integers
    clients: NDArray[np.int32]
    status: Statuses | None
    times: Floats | None

    def sets(self, least: int) -> tuple[Integers, NDArray[np.int32]]:
        """Return the clients of at least this status in each round: set sizes and members."""
        ends = np.append(self.starts[1:], self.clients.size)
        if self.status is None:
            return ends - self.starts, self.clients
        chosen = self.status >= least
        before = np.concatenate(([0], np.cumsum(chosen)))
        return before[ends] - before[self.starts], self.clients[chosen]


def bounds_of(parts: Parts, column: str, low: int, high: int) -> Iterator[tuple[int, int]]:
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
    parts : Parts
        The log, which has already counted the clients, and the statuses if there are any.
    how : Read
        What columns mean.
    place : int32 array, shape (n_clients,)
        The client that each code stands for.
    meanings : int8 array, shape (n_words,), or None
        The meaning of each status code.
    """

    parts: Parts
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
        return Slab(n_rows, starts, key.astype(np.int32), status, times)

    def _earliest(self, rounds: Integers, moments: NDArray[Any]) -> Floats:
        frame = pl.DataFrame({"round": rounds, "time": moments})
        values = frame.group_by("round").min().sort("round")["time"]
        if self.parts.kind_of(self.how.names["time"]) in DATES:
            values = values / 1e6
        text = {"time": values.cast(pl.String)}
        batch = Batch(self.how.source, text, range(1, values.len() + 1), unit="round")
        return self.how.clock.read(batch, "time")
