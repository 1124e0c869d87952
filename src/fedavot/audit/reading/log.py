"""Read a participation log of any kind and size.

The first bytes of a file decide which kind of file it is, the columns which kind of log. What
cannot be read is refused with its line; what is unusual but unambiguous is read, with a note.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedavot._checks import as_amount, as_seed, as_size
from fedavot._files import PathLike
from fedavot.audit.participation import Participation
from fedavot.audit.reading.blocks import Report, kind_of, silent
from fedavot.audit.reading.columns import check_named
from fedavot.audit.reading.flower_log import is_flower_log, read_flower_log
from fedavot.audit.reading.intervals import Draw, collect, collect_coverage, read_intervals
from fedavot.audit.reading.json_lines import objects, open_json
from fedavot.audit.reading.parquet import open_parquet
from fedavot.audit.reading.rows import read_rows
from fedavot.audit.reading.tables import Table, open_csv
from fedavot.errors import Option, OptionError


def read_log(
    path: PathLike,
    *,
    columns: Mapping[str, str] | None = None,
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
        CSV (also with semicolons or tabs), JSON lines, either compressed by gzip, or Parquet.
        Rows of (round, client), (round, client, status), both with or without time; availability
        intervals (client, start, end), with or without state; or the Flower strategy's
        participation log.
    columns : mapping of str, optional
        Names of columns that are not recognised, by their meaning, such as
        ``{"client": "device_id"}``. An empty name leaves a column out.
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
    named = check_named(columns)
    draw = None if period is None else _draw(period, cohort_size, state, seed)
    if draw is None and (cohort_size, state, observed) != (None, None, None):
        given = {"cohort_size": cohort_size, "state": state, "observed": observed}
        first = next(name for name, value in given.items() if value is not None)
        raise OptionError(
            Option(first), " only applies to interval logs; give ", Option("period"), " as well"
        )
    report = progress or silent
    if kind_of(source) == "json" and is_flower_log(source):
        _refuse_draw(draw, source)
        return read_flower_log(source, objects(source, report, notes), notes)
    kinds = ("rows", "intervals") if draw is None else ("intervals", "rows")
    table = _open(source, named, kinds, report, notes)
    if table.kind == "rows":
        _refuse_draw(draw, source)
        return read_rows(source, table.batches, notes)
    if draw is None:
        raise OptionError(
            f"{source} has availability intervals; give the seconds between rounds, as in ",
            Option("period", 600),
        )
    found = collect(source, table.batches, draw.state, notes)
    covered = None
    if observed is not None:
        known = _open(Path(observed), named, ("coverage",), silent, notes)
        covered = collect_coverage(Path(observed), known.batches, found)
    return read_intervals(found, covered, draw, notes)


def _draw(period: Any, cohort_size: Any, state: str | None, seed: Any) -> Draw:
    return Draw(
        as_amount(period, what="period", positive=True),
        None if cohort_size is None else as_size(cohort_size, what="cohort_size", low=1),
        state,
        as_seed(seed),
    )


def _open(
    source: Path, named: Mapping[str, str], kinds: Sequence[str], report: Report, notes: list[str]
) -> Table:
    kind = kind_of(source)
    if kind == "parquet":
        return open_parquet(source, named, kinds, report)
    opened = open_json if kind == "json" else open_csv
    return opened(source, named, kinds, report, notes)


def _refuse_draw(draw: Draw | None, source: Path) -> None:
    if draw is not None:
        raise OptionError(
            f"{source} has rounds of its own; leave out ",
            Option("period"),
            ", which only applies to interval logs",
        )
