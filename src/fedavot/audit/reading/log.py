"""Read a participation log of any kind and size.

    file -> table of text columns -> what columns mean -> rows or intervals -> Participation

The first bytes of a file decide which kind of file it is, the columns which kind of log. What
cannot be read is refused with its line; what is unusual but unambiguous is read, with a note.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedavot._checks import as_amount, as_seed, as_size
from fedavot._files import PathLike
from fedavot.audit.participation import Participation
from fedavot.audit.reading.blocks import Table, kind_of, silent
from fedavot.audit.reading.columns import Sought, check_columns, check_where, unread
from fedavot.audit.reading.flower_log import is_flower_log, read_flower_log
from fedavot.audit.reading.intervals import Draw, collect, coverage_in, read_intervals
from fedavot.audit.reading.json_lines import objects
from fedavot.audit.reading.moments import Clock
from fedavot.audit.reading.rows import Read, read_rows
from fedavot.audit.reading.statuses import check_statuses
from fedavot.audit.reading.tables import open_table, rows_by_name
from fedavot.errors import Option, OptionError


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
    """Read who took part in which round.

    Parameters
    ----------
    path : path
        CSV (separated by commas, semicolons, tabs, vertical bars or spaces), JSON lines, either
        compressed by gzip, or Parquet. Rows of (round, client), (round, client, status), both with
        or without time; one line per round with all its clients; availability intervals (client,
        start, end), with or without state; or the Flower strategy's participation log.
    columns : mapping of str, optional
        Names of columns that are not recognised, by their meaning, such as
        ``{"client": "device_id"}``. An empty name leaves a column out.
    where : mapping from str to str or to several, optional
        Read only the rows that have one of these values in the column of this name, such as
        ``{"event": "train_reply"}``.
    statuses : mapping of str, optional
        What statuses mean that are not certain, such as ``{"0": "ok", "1": "failed"}``: ``ok``,
        ``failed``, ``not_asked``, ``offline`` or ``unknown``. The status ``*`` is all others.
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
        The cohort of each round, and notes on what was unusual.
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
    if kind_of(source) == "json" and is_flower_log(source):
        _refuse_draw(draw, source)
        return read_flower_log(source, objects(source, report, notes), notes)
    table = open_table(source, sought, report, notes)
    notes += unread(table.header, table.layout)
    if table.layout.kind == "rows":
        _refuse_draw(draw, source)
        return read_rows(table.batches, Read(source, _names(table), told, clock), notes)
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
    """Return the names of the columns that are read; one that rows are chosen by has no other."""
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
