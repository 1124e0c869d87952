"""Read a participation log of any kind and size.

    file -> table of text columns -> what columns mean -> rows or intervals -> Participation

The first bytes of a file determine its format, and its columns determine the kind of log. A line
that cannot be read is refused, with its number; one that is unusual but unambiguous is read, with a
note.

The log of the Flower strategy has one JSON object per round. Clients that replied took part, with
the weights that were used; clients that the server could have asked were available. If a round
occurs twice, it was run again after a restart: the later line counts. In federations with more than
a hundred available clients, a line has only their number and the names that are in no earlier line:
which clients were available is then not known for any round.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import LARGEST_SIZE, Floats, as_amount, as_seed, as_size, shown
from fedavot._files import PathLike
from fedavot._incidence import Incidence
from fedavot.audit.participation import Participation, ordered
from fedavot.audit.reading.columns import Sought, check_columns, check_where, runs_in, unread
from fedavot.audit.reading.files.blocks import Table, silent
from fedavot.audit.reading.files.folders import files_of
from fedavot.audit.reading.files.json_lines import Objects, first_of, objects, plain
from fedavot.audit.reading.files.tables import open_table, rows_by_name
from fedavot.audit.reading.intervals import Draw, collect, coverage_in, read_intervals
from fedavot.audit.reading.labels import Codes, unlogged
from fedavot.audit.reading.moments import Clock, as_moments
from fedavot.audit.reading.rows import Read, read_rows
from fedavot.audit.reading.statuses import check_statuses
from fedavot.audit.reading.streaming import stream_rows, streams
from fedavot.errors import FileFormatError, Option, OptionError

FORMAT = "fedavot-participation"
VERSION = 2
LARGEST = 1e6
"""Largest weight that is accepted."""


class _Round(NamedTuple):
    replied: NDArray[np.int32]
    available: NDArray[np.int32] | None
    weights: Floats
    time: str
    remembers: bool


def is_flower_log(source: Path) -> bool:
    """Return whether the first line of a file is a line of a Flower strategy's log."""
    blocks = objects(source, lambda done, total: None, [])
    return first_of(blocks, source).found[0].get("format") == FORMAT


def read_flower_log(source: Path, blocks: Iterator[Objects], notes: list[str]) -> Participation:
    """Read the lines of a log that the Flower strategy wrote."""
    codes, rounds, again = Codes(), dict[int, _Round](), 0
    for found, line in (pair for block in blocks for pair in zip(*block, strict=True)):
        try:
            number = _number(found)
            again += number in rounds
            rounds[number] = _round(found, codes)
        except (KeyError, TypeError, ValueError) as cause:
            raise FileFormatError(
                f"{source}, line {line}: not a line of a {FORMAT!r} log ({_said(cause)}); correct "
                "or remove it"
            ) from None
    if not len(codes):
        raise FileFormatError(f"{source} has no clients in its {len(rounds)} rounds")
    if again:
        occur = "round occurs" if again == 1 else "rounds occur"
        notes.append(f"{again} {occur} more than once: the later line counts")
    notes += unlogged(min(rounds), max(rounds), len(rounds))
    return _joined([rounds[number] for number in sorted(rounds)], codes, notes)


def _number(found: dict[str, Any]) -> int:
    if found.get("format") != FORMAT:
        raise ValueError(f"format is {shown(found.get('format'))}")
    if found["version"] not in range(1, VERSION + 1):
        raise ValueError(
            f"version {shown(found['version'])}; this library reads up to {VERSION}: upgrade it"
        )
    number = found["round"]
    if type(number) is not int or abs(number) > LARGEST_SIZE:
        raise ValueError(f"round is {shown(number)}")
    return int(number)


def _round(found: dict[str, Any], codes: Codes) -> _Round:
    given, there = found["weights"], found["available"]
    counted = isinstance(there, dict)
    names = list(given) if counted else found["replied"]
    if not isinstance(given, dict) or given.keys() != set(names):
        raise ValueError("weights do not belong to the clients that replied")
    weights = [float(given[name]) for name in names]
    for name, weight in zip(names, weights, strict=True):
        if not 0 <= weight <= LARGEST:
            raise ValueError(
                f"the weight of {shown(name)} is {shown(given[name])}, not a number from 0 to "
                f"{LARGEST:,.0f}"
            )
    time = found.get("time", "")
    if not isinstance(time, str):
        raise ValueError(f"time is {shown(time)}")
    replied, order = np.unique(_coded(names, codes), return_index=True)
    ordered_weights = np.array(weights, dtype=np.float64)[order]
    if counted:
        _coded(there["new"], codes)
        return _Round(replied, None, ordered_weights, time, "memory" in found)
    everyone = _coded([*there, *names], codes)
    # A client that was asked and did not reply could not have taken part.
    lost = np.setdiff1d(_coded(found.get("asked", []), codes), replied)
    available = np.setdiff1d(everyone, lost)
    return _Round(replied, available, ordered_weights, time, "memory" in found)


def _coded(names: Any, codes: Codes) -> NDArray[np.int32]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("the clients are not a list of names")
    if not all(plainly := [plain(name) for name in names]):
        raise ValueError("a client has no name")
    return np.array([codes.code(name) for name in plainly], dtype=np.int32)


def _joined(rounds: list[_Round], codes: Codes, notes: list[str]) -> Participation:
    names, place = ordered(codes.names)
    orders = [np.argsort(place[found.replied]) for found in rounds]
    cohorts = _compressed([place[found.replied] for found in rounds], len(names))
    weights = [found.weights[order] for found, order in zip(rounds, orders, strict=True)]
    times = as_moments([found.time for found in rounds])
    there = [place[found.available] for found in rounds if found.available is not None]
    known = len(there) == len(rounds)
    if not known:
        notes.append(
            f"{len(rounds) - len(there)} of {len(rounds)} rounds have only the number of clients "
            "that were available: who was available is left out"
        )
    if times is None:
        notes.append("the rounds' times are missing or not dates: left out")
    return Participation(
        clients=names,
        offsets=cohorts.offsets,
        members=cohorts.members,
        times=times,
        available=_compressed(there, len(names)) if known else None,
        applied=np.concatenate(weights),
        remembers=rounds[-1].remembers,
        notes=tuple(notes),
        all_available=known,
    )


def _compressed(rows: list[NDArray[np.int32]], n_clients: int) -> Incidence:
    offsets = np.concatenate([[0], np.cumsum([row.size for row in rows])]).astype(np.int64)
    return Incidence(np.concatenate([np.sort(row) for row in rows]), offsets, n_clients)


def _said(cause: Exception) -> str:
    return f"no {cause.args[0]!r}" if isinstance(cause, KeyError) else str(cause)


def read_log(  # noqa: PLR0913 (an option for each thing that a file may leave open)
    path: PathLike,
    *,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, str | Sequence[str]] | None = None,
    statuses: Mapping[str, str] | None = None,
    dates: str | None = None,
    period: float | None = None,
    cohort_size: int | None = None,
    state: str | None = None,
    observed: PathLike | None = None,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> Participation:
    """Read which clients took part in each round.

    Parameters
    ----------
    path : path
        CSV (separated by commas, semicolons, tabs, vertical bars or spaces), JSON lines, either
        compressed by gzip, or Parquet, or a folder of files of one of these kinds with the same
        columns, which are read as one log. Rows of (round, client), (round, client, status),
        both with or without time; one line per round with all its clients; availability intervals
        (client, start, end), with or without state; or the Flower strategy's participation log.
    columns : mapping of str, optional
        Names of columns that are not recognised, by their meaning, such as
        ``{"client": "device_id"}``. An empty name leaves a column out.
    where : mapping from str to str or to several, optional
        Read only the rows that have one of these values in the named column, such as
        ``{"event": "train_reply"}``.
    statuses : mapping of str, optional
        The meanings of ambiguous statuses, such as ``{"0": "ok", "1": "failed"}``: ``ok``,
        ``failed``, ``not_asked``, ``offline`` or ``unknown``. The status ``*`` stands for all
        others.
    dates : "day-first" or "month-first", optional
        How dates such as 03/04/2024 are written, if the log itself does not show it.
    period : float, optional
        Required for interval logs, and only used there: seconds between rounds.
    cohort_size : int, optional
        For interval logs: the largest number of clients per round, drawn uniformly from those
        available. By default all of them take part.
    state : str, optional
        For interval logs: the state that means available, if the file has several.
    observed : path, optional
        For interval logs: a table with client, known_until and optionally known_from, the time in
        which each client was observed. Outside it, the client's state is unknown. The names
        first_event_s, obs_start_s and last_event_s are recognised as well.
    seed : int
        Seed for sampling cohorts.
    progress : function, optional
        Called with the number of bytes read so far and in total.

    Returns
    -------
    Participation
        The cohort of each round, and notes on what was unusual. For a Parquet log with more than
        10,000,000 rows, these are some of the rounds, with totals over all of them.
    """
    source, notes = Path(path), list[str]()
    named, clock, told = check_columns(columns), Clock(dates), check_statuses(statuses)
    draw = None if period is None else _draw(period, cohort_size, state, seed)
    if draw is None and (cohort_size, state, observed) != (None, None, None):
        given = {"cohort_size": cohort_size, "state": state, "observed": observed}
        first = next(name for name, value in given.items() if value is not None)
        raise OptionError(
            Option(first), " only applies to interval logs; give ", Option("period"), " as well"
        )
    kinds = ("rows", "intervals") if draw is None else ("intervals", "rows")
    sought = Sought(kinds, named, where=check_where(where))
    report = progress or silent
    files = files_of(source, notes)
    if files.kind == "json" and is_flower_log(files.paths[0]):
        _refuse_draw(draw, source)
        if source.is_dir():
            raise FileFormatError(
                f"{source} has logs of the Flower strategy; give one of them, or join those of one "
                "run in one file, in their order"
            )
        return read_flower_log(source, objects(source, report, notes), notes)
    table = open_table(source, files, sought, report, notes)
    notes += unread(table.header, table.layout)
    if table.layout.kind == "rows":
        _refuse_draw(draw, source)
        how = Read(source, _names(table), told, clock, runs_in(table.header, table.layout))
        if table.parts is not None and streams(table):
            streamed = stream_rows(table.parts, how, report, notes)
            if streamed is not None:
                return streamed
        return read_rows(table.batches, how, notes)
    if draw is None:
        raise OptionError(
            f"{source} has availability intervals; give the seconds between rounds, as in ",
            Option("period", 600),
        )
    found = collect(source, table.batches, draw.state, clock, notes)
    covered = None
    if observed is not None:
        covered = coverage_in(rows_by_name(Path(observed), "observed", named), found)
    return read_intervals(found, covered, draw, notes)


def _names(table: Table) -> dict[str, str]:
    """Return the names of the columns read; a column that rows are filtered by has no other."""
    places = table.layout.places
    chosen_by = {place for role, place in places.items() if role.startswith("where ")}
    return {
        role: table.header[place]
        for role, place in places.items()
        if not (role == "event" and place in chosen_by)
    }


def _draw(period: Any, cohort_size: Any, state: str | None, seed: Any) -> Draw:
    return Draw(
        as_amount(period, what="period", positive=True),
        None if cohort_size is None else as_size(cohort_size, what="cohort_size", low=1),
        state,
        as_seed(seed),
    )


def _refuse_draw(draw: Draw | None, source: Path) -> None:
    if draw is not None:
        raise OptionError(
            f"{source} has rounds of its own; leave out ",
            Option("period"),
            ", which only applies to interval logs",
        )
