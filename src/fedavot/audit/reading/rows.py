"""Logs with one row per client and round, with or without a status.

If a client has several rows in one round, it took part if any of them says so.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence, total_by
from fedavot.audit.participation import Participation, keys, ordered
from fedavot.audit.reading.files.blocks import Batch, cut_off, missing
from fedavot.audit.reading.labels import Codes, Order, counted, gathered, lookalikes, order_rounds
from fedavot.audit.reading.moments import Clock
from fedavot.audit.reading.statuses import (
    FAILED,
    IDLE,
    SAID,
    TOOK_PART,
    UNKNOWN,
    is_status,
    note_on,
    read_statuses,
    tallied,
)
from fedavot.errors import FedavotError, FileFormatError, Option, OptionError

AMOUNTS = {"weight": "the weights that were used", "examples": "the numbers of examples"}
"""Columns of numbers that describe a client's participation in a round."""
LARGEST = 1e15
"""Largest number that is accepted in them."""
SUM_SLACK = 1e-3
"""Tolerance within which weights written with few digits sum to one."""
LIKELY = ("train_reply", "fit_reply", "reply", "result", "update", "complete", "finish", "fit")
"""Parts of names of events that may mean that a client took part, the likeliest first."""

NOTHING = pl.Series([""])
Statuses = NDArray[np.int8]


class Read(NamedTuple):
    """How rows are to be read.

    Attributes
    ----------
    source : path
        The file.
    names : mapping from str to str
        The columns' names in the file, by what they mean.
    statuses : mapping from str to int
        The meanings of statuses that the caller gave.
    clock : Clock
        How times are written.
    runs : str
        Name of an unread column that may distinguish several runs; "" if there is none.
    """

    source: Path
    names: Mapping[str, str]
    statuses: Mapping[str, int]
    clock: Clock
    runs: str = ""


def read_rows(batches: Iterator[Batch], how: Read, notes: list[str]) -> Participation:
    """Read a log with one row for each round and client."""
    log = _Rows(how)
    for batch in batches:
        if batch.cut_in is not None and not log.takes(batch):
            where = f"{batch.source.name}: " if batch.source != how.source else ""
            notes.append(f"{where}{cut_off(batch.places[0])}")
            continue
        log.add(batch)
    return log.finish(notes)


def has_all(batch: Batch, roles: tuple[str, ...], event: str = "") -> None:
    """Refuse a row with an empty field, and name its line.

    ``event`` is the name of a column that distinguishes kinds of rows, if there is one.
    """
    for role in roles:
        empty = missing(batch.columns[role])
        if not empty.any():
            continue
        remedy: list[object] = [f"remove the {batch.unit}"]
        if event:
            events = batch.columns["event"].str.strip_chars()
            for name in roles:
                events = events.zip_with(~missing(batch.columns[name]), NOTHING)
            if likely := _likely(events.unique(maintain_order=True).to_list()):
                some = Option("where", {event: likely})
                remedy = ["read only the rows of some events, as in ", some]
        row = int(empty.arg_max() or 0)
        cell = batch.columns[role][row].strip()
        found = f"no {role}" + f", which is what {cell!r} means" * bool(cell)
        raise FileFormatError(f"{batch.place(row)}: {found}; fill it in, or ", *remedy)


def _refuse_nulls_among(batch: Batch, there: NDArray[np.bool_]) -> None:
    """Refuse a word for a missing value among the clients of a line; alone it says: nobody."""
    named = (batch.columns["client"].str.strip_chars() != "").to_numpy()
    null, places = named & ~there, np.asarray(batch.places)
    among = np.flatnonzero(null & np.isin(places, places[there])) if null.any() else null[:0]
    if among.size:
        row = int(among[0])
        cell = batch.columns["client"][row].strip()
        raise FileFormatError(
            f"{batch.place(row)}: no client, which is what {cell!r} means; rename it, or remove it "
            "from the list"
        )


def meanings_of(
    counts: Mapping[str, int], role: str, how: Read, notes: list[str]
) -> dict[str, int]:
    """Return the meanings of the words in a column, and add a note on how they were read."""
    meanings = read_statuses(counts, how.names[role], how.statuses, how.source)
    notes.append(note_on(meanings, counts))
    return meanings


class _Rows:
    def __init__(self, how: Read) -> None:
        self._how = how
        self._clients, self._labels = Codes(), Codes()
        self._client_parts: list[NDArray[np.int32]] = []
        self._round_parts: list[NDArray[np.int32]] = []
        self._words = {role: Codes() for role in ("status", "event") if role in how.names}
        self._word_parts: dict[str, list[NDArray[np.int32]]] = {role: [] for role in self._words}
        self._amounts: dict[str, list[pl.Series]] = {
            role: [] for role in AMOUNTS if role in how.names
        }
        self._times = np.empty(0)

    def takes(self, batch: Batch) -> bool:
        """Return whether a last line without a line end seems to be complete."""
        try:
            has_all(batch, ("round", "client"))
            if "time" in batch.columns:
                self._how.clock.read(batch, "time")
        except FedavotError:
            return False
        row = {role: column[0] for role, column in batch.columns.items()}
        if batch.cut_in == "client" and row["client"] not in self._clients:
            return not any(name.startswith(row["client"]) for name in self._clients.names)
        if batch.cut_in in self._words and len(self._words[batch.cut_in]):
            return row[batch.cut_in] in self._words[batch.cut_in]
        return True

    def add(self, batch: Batch) -> None:
        event = self._how.names.get("event", "")
        has_all(batch, ("round",) if batch.whole else ("round", "client"), event)
        rounds = self._labels.encode(batch.columns["round"])
        if "time" in batch.columns:
            times = self._how.clock.read(batch, "time")
            more = np.full(len(self._labels) - self._times.size, np.inf)
            self._times = np.concatenate([self._times, more])
            np.minimum.at(self._times, rounds, times)
        if batch.whole:
            there = (~missing(batch.columns["client"])).to_numpy()
            _refuse_nulls_among(batch, there)
            batch, rounds = batch.rows(there), rounds[there]
        self._round_parts.append(rounds)
        self._client_parts.append(self._clients.encode(batch.columns["client"]))
        for role, words in self._words.items():
            self._word_parts[role].append(words.encode(batch.columns[role]))
        for role, parts in self._amounts.items():
            parts.append(batch.columns[role].str.strip_chars().cast(pl.Float64, strict=False))

    def finish(self, notes: list[str]) -> Participation:
        if not len(self._clients):
            raise FileFormatError(f"{self._how.source} has a header and no rows; a log needs rows")
        status = self._statuses(notes)
        order = order_rounds(self._labels.names)
        names, place = ordered(self._clients.names)
        key = keys(
            order.place[gathered(self._round_parts)],
            place[gathered(self._client_parts)],
            len(names),
        )
        idle = status is not None and bool(np.any(status == IDLE))
        n_rows = key.size
        key, status, at = distinct(key, status, rows=bool(self._amounts))
        notes += repeated(n_rows - key.size, self._how.runs)
        n_rounds, n_clients = order.n_rounds, len(names)
        available, unknown = None, None
        if status is not None:
            # If the log lists clients not asked, those that failed could not have taken part.
            there = status >= (IDLE if np.any(status == IDLE) else FAILED)
            available = Incidence.of_keys(key[there], n_rounds, n_clients)
            unknown = Incidence.of_keys(key[status == UNKNOWN], n_rounds, n_clients)
            took_part = status == TOOK_PART
            key, at = key[took_part], None if at is None else at[took_part]
        cohorts = Incidence.of_keys(key, n_rounds, n_clients)
        amounts = {} if at is None else self._amounts_of(cohorts, at, notes)
        times = self._round_times(order)
        notes += [*lookalikes(names), *order.notes, *self._how.clock.notes()]
        notes += [] if times is None else backwards(int(np.count_nonzero(np.diff(times) < 0)))
        return Participation(
            names,
            cohorts.offsets,
            cohorts.members,
            times,
            available,
            unknown if unknown is not None and unknown.members.size else None,
            applied=amounts.get("weight"),
            examples=amounts.get("examples"),
            notes=tuple(notes),
            all_available=idle,
        )

    def _statuses(self, notes: list[str]) -> Statuses | None:
        """Return what each row says about its client; None if all took part."""
        counts = {role: self._counts(role) for role in self._words}
        events, role = counts.get("event", {}), "status"
        if len(events) > 1:
            if "status" not in counts and all(map(is_status, events)):
                role = "event"
            else:
                raise self._which_events(events)
        if role not in counts:
            return None
        meanings = meanings_of(counts[role], role, self._how, notes)
        codes = gathered(self._word_parts[role])
        return np.array([meanings[word] for word in self._words[role].names], dtype=np.int8)[codes]

    def _counts(self, role: str) -> dict[str, int]:
        words = self._words[role].names
        counts = np.zeros(len(words), dtype=np.int64)
        for part in self._word_parts[role]:
            counts += np.bincount(part, minlength=len(words))
        return dict(zip(words, counts.tolist(), strict=True))

    def _which_events(self, events: Mapping[str, int]) -> OptionError:
        name = self._how.names["event"]
        return OptionError(
            f"{self._how.source}: column {name!r} has {tallied(events)}; say which rows mean "
            "that a client took part or failed to, as in ",
            Option("where", {name: _likely(list(events)) or next(iter(events))}),
            ", or read all with ",
            Option("columns", {"event": ""}),
        )

    def _amounts_of(
        self, cohorts: Incidence, rows: Integers, notes: list[str]
    ) -> dict[str, Floats]:
        """Return the numbers for each entry of the cohorts, if none of them is missing."""
        found = {}
        for role, parts in self._amounts.items():
            values = pl.concat(parts).fill_null(np.nan).to_numpy()[rows]
            bad = ~((values >= 0) & (values <= LARGEST))
            if bad.any():
                notes.append(
                    f"column {self._how.names[role]!r} is not read as {AMOUNTS[role]}: "
                    f"{bad.sum():,} of {values.size:,} are missing or no numbers from 0 on"
                )
                continue
            found[role] = values
        if "weight" in found:
            found["weight"] = _shares(found["weight"], cohorts, notes)
        return found

    def _round_times(self, order: Order) -> Floats | None:
        if "time" not in self._how.names:
            return order.times
        times = np.full(order.n_rounds, np.inf)
        np.minimum.at(times, order.place[: self._times.size], self._times)
        return times


def _shares(weights: Floats, cohorts: Incidence, notes: list[str]) -> Floats:
    """Return weights that sum to one in each round, equal ones where all are 0."""
    rounds = cohorts.spread_over_members(np.arange(cohorts.n_cohorts))
    sums = total_by(rounds, weights, cohorts.n_cohorts)[rounds]
    if np.all(np.abs(sums - 1.0) <= SUM_SLACK):
        return weights
    notes.append("the weights that were used are divided by their sum in each round")
    return np.where(sums > 0, weights / np.where(sums > 0, sums, 1.0), 1.0 / cohorts.sizes[rounds])


def _likely(events: list[str]) -> str:
    """Return the event that most likely means that a client took part, or "" if there is none."""
    named = [event for event in events if event]
    by_name = (event for part in LIKELY for event in named if part in event.lower())
    return next(by_name, named[0] if named else "")


def backwards(count: int) -> list[str]:
    """Return a note on rounds that begin before the preceding round, if there are any."""
    if count == 1:
        return ["1 round begins before the round that precedes it"]
    return [f"{count} rounds begin before the round that precedes them"] if count else []


def distinct(
    key: Integers, status: Statuses | None, *, rows: bool = False
) -> tuple[Integers, Statuses | None, Integers | None]:
    """Return each pair once, in ascending order, with its status and, if asked for, its row.

    If a pair has several rows, the one with the largest status counts.

    Parameters
    ----------
    key : int array, shape (n_rows,)
        ``round * n_clients + client`` for each row; it is overwritten.
    status : int8 array, shape (n_rows,), or None
        What each row says about its client.
    rows : bool
        Whether to return the row that each pair comes from.
    """
    if status is not None:
        key *= len(SAID)
        key += status
    at = None
    if rows:
        at = np.argsort(key, kind="stable")
        key = key[at]
    else:
        key.sort()
    both = key
    if status is not None:
        key = both // len(SAID)
    last = np.append(key[1:] != key[:-1], True)
    if not last.all():
        key, both, at = key[last], both[last], None if at is None else at[last]
    found = None if status is None else (both % len(SAID)).astype(np.int8)
    return key, found, at


def repeated(count: int, runs: str = "") -> list[str]:
    """Return a note on rows that were dropped, if there are any.

    ``runs`` is the name of a column that may distinguish several runs in one log.
    """
    words = "repeats" if count == 1 else "repeat"
    several = (
        f"; if column {runs!r} distinguishes several runs, their rounds have been merged: read one "
        f"run with --where '{runs}=...', or where={{{runs!r}: ...}} in Python"
    )
    note = f"{counted(count, 'row')} {words} a round and client: dropped{several if runs else ''}"
    return [note] if count else []
