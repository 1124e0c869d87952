"""Logs with one row per client and round, with or without a status.

If a client has several rows in one round, it took part if any of them says so.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers, enumerated, quoted
from fedavot._incidence import Incidence
from fedavot.audit.participation import Participation
from fedavot.audit.reading.blocks import cut_off
from fedavot.audit.reading.moments import Clock
from fedavot.audit.reading.names import Codes, counted, gathered, keys, lookalikes, ordered
from fedavot.audit.reading.rounds import order_rounds
from fedavot.audit.reading.tables import Batch
from fedavot.errors import FileFormatError, Option

UNKNOWN, ABSENT, FAILED, IDLE, TOOK_PART = range(5)
"""What a row says about its client; of several rows for a round, the largest counts."""

STATUSES = {
    TOOK_PART: (
        *("ok", "okay", "1", "true", "yes", "success", "succeeded", "successful", "replied"),
        *("completed", "complete", "done", "finished", "reported", "participated", "took_part"),
        *("aggregated", "used", "accepted", "trained"),
    ),
    IDLE: (
        *("available", "eligible", "idle", "online", "standby", "waiting", "ready"),
        *("not_asked", "not_selected", "not_sampled", "not_chosen", "unselected"),
    ),
    ABSENT: ("offline", "unavailable", "absent", "unreachable", "not_available"),
    UNKNOWN: ("", "unknown", "n/a", "na", "nan", "null", "none", "?"),
}
"""Any other status means that the client was asked and its update not used. A log with a status for
idle clients is taken to list all clients that could have been asked."""
SAID = {
    TOOK_PART: "took part",
    FAILED: "was asked without taking part",
    IDLE: "was available and not asked",
    ABSENT: "was not available",
    UNKNOWN: "unknown",
}
"""How statuses are read, in words."""
_STATUS_OF = {word: status for status, words in STATUSES.items() for word in words}


def read_rows(source: Path, batches: Iterator[Batch], notes: list[str]) -> Participation:
    """Read a log with one row for each round and client."""
    log = _Rows(source)
    for batch in batches:
        if batch.cut_in is not None and not log.takes(batch):
            notes.append(cut_off(batch.places[0]))
            continue
        log.add(batch)
    return log.finish(notes)


def has_all(batch: Batch, roles: tuple[str, ...]) -> None:
    """Refuse a row with an empty field, and name its line."""
    for role in roles:
        empty = batch.columns[role].str.strip_chars() == ""
        if empty.any():
            place = batch.place(int(empty.arg_max() or 0))
            raise FileFormatError(f"{place}: no {role}; fill it in, or remove the {batch.unit}")


class _Rows:
    def __init__(self, source: Path) -> None:
        self._source = source
        self._clients, self._labels, self._words = Codes(), Codes(), Codes()
        self._client_parts: list[NDArray[np.int32]] = []
        self._round_parts: list[NDArray[np.int32]] = []
        self._status_parts: list[NDArray[np.int8]] = []
        self._counts: Counter[str] = Counter()
        self._clock = Clock()
        self._times = np.empty(0)
        self._has_times = False

    def takes(self, batch: Batch) -> bool:
        """Return whether a last line without a line end seems to be complete."""
        try:
            has_all(batch, ("round", "client"))
            if "time" in batch.columns:
                self._clock.read(batch, "time")
        except FileFormatError:
            return False
        row = {role: column[0] for role, column in batch.columns.items()}
        if batch.cut_in == "client" and row["client"] not in self._clients:
            return not any(name.startswith(row["client"]) for name in self._clients.names)
        if batch.cut_in == "status" and len(self._words):
            return row["status"] in self._words
        return True

    def add(self, batch: Batch) -> None:
        has_all(batch, ("round", "client"))
        times = self._clock.read(batch, "time") if "time" in batch.columns else None
        rounds = self._labels.encode(batch.columns["round"])
        self._round_parts.append(rounds)
        self._client_parts.append(self._clients.encode(batch.columns["client"]))
        if "status" in batch.columns:
            self._status_parts.append(self._statuses(batch.columns["status"]))
        if times is not None:
            self._earliest(rounds, times)

    def _statuses(self, values: pl.Series) -> NDArray[np.int8]:
        codes = self._words.encode(values)
        words = self._words.names
        self._counts.update(
            dict(zip(words, np.bincount(codes, minlength=len(words)).tolist(), strict=True))
        )
        meaning = [_STATUS_OF.get(word.strip().lower(), FAILED) for word in words]
        return np.array(meaning, dtype=np.int8)[codes]

    def _earliest(self, rounds: NDArray[np.int32], times: Floats) -> None:
        self._has_times = True
        more = np.full(len(self._labels) - self._times.size, np.inf)
        self._times = np.concatenate([self._times, more])
        np.minimum.at(self._times, rounds, times)

    def finish(self, notes: list[str]) -> Participation:
        if not len(self._clients):
            raise FileFormatError(f"{self._source} has a header and no rows; a log needs rows")
        order = order_rounds(self._labels.names)
        names, place = ordered(self._clients.names)
        rounds = order.place[gathered(self._round_parts)]
        key = keys(rounds, place[gathered(self._client_parts)], len(names))
        del rounds
        times = self._round_times(order.place, order.n_rounds) if self._has_times else order.times
        cohorts, available, unknown = self._split(key, order.n_rounds, len(names), notes)
        notes += [*lookalikes(names), *order.notes, *self._clock.notes(), *_backwards(times)]
        idle = any(_STATUS_OF.get(word.strip().lower()) == IDLE for word in self._words.names)
        return Participation(
            names,
            cohorts.offsets,
            cohorts.members,
            times,
            available,
            unknown,
            notes=tuple(notes),
            all_available=idle,
        )

    def _split(
        self, key: Integers, n_rounds: int, n_clients: int, notes: list[str]
    ) -> tuple[Incidence, Incidence | None, Incidence | None]:
        """Return who took part, who was available, and whose state is unknown."""
        n_rows = key.size
        if not self._status_parts:
            key = _distinct(key)
            _note_duplicates(n_rows - key.size, notes)
            return Incidence.of_keys(key, n_rounds, n_clients), None, None
        key *= len(SAID)
        key += np.concatenate(self._status_parts)
        key = _distinct(key)
        status, key = key % len(SAID), key // len(SAID)
        last = np.append(key[1:] != key[:-1], True)
        key, status = key[last], status[last]
        _note_duplicates(n_rows - key.size, notes)
        notes.append(self._reading_of_statuses())
        # If the log lists clients that were not asked, those that failed could not have taken part.
        there = status >= (IDLE if np.any(status == IDLE) else FAILED)
        parts = (key[status == TOOK_PART], key[there], key[status == UNKNOWN])
        cohorts, available, unknown = (
            Incidence.of_keys(part, n_rounds, n_clients) for part in parts
        )
        return cohorts, available, unknown if unknown.members.size else None

    def _reading_of_statuses(self) -> str:
        words: dict[int, list[str]] = {}
        for word, count in self._counts.items():
            meaning = _STATUS_OF.get(word.strip().lower(), FAILED)
            words.setdefault(meaning, []).append(f"{quoted(word)} ({counted(count, 'row')})")
        listed = {meaning: enumerated(found, 8) for meaning, found in words.items()}
        if TOOK_PART not in listed:
            raise FileFormatError(
                f"{self._source}: no status means that a client took part; found "
                f"{'; '.join(listed.values())}; rename one of them to 'ok' or 'replied', or leave "
                "the column out with ",
                Option("columns", {"status": ""}),
            )
        return "status: " + "; ".join(
            f"{listed[meaning]} read as '{SAID[meaning]}'" for meaning in SAID if meaning in listed
        )

    def _round_times(self, place: NDArray[np.int32], n_rounds: int) -> Floats:
        times = np.full(n_rounds, np.inf)
        np.minimum.at(times, place, self._times)
        return times


def _distinct(key: Integers) -> Integers:
    """Sort in place and drop repeats."""
    key.sort()
    first = np.append(True, key[1:] != key[:-1])
    return key if first.all() else key[first]


def _note_duplicates(count: int, notes: list[str]) -> None:
    if count:
        repeat = "repeats" if count == 1 else "repeat"
        notes.append(f"{counted(count, 'row')} {repeat} a round and client: dropped")


def _backwards(times: Floats | None) -> list[str]:
    if times is None:
        return []
    count = int(np.count_nonzero(np.diff(times) < 0))
    if count == 1:
        return ["1 round begins before the round that precedes it"]
    return [f"{count} rounds begin before the round that precedes them"] if count else []
