"""Reading a participation log, of whatever kind and however large.

The kind of file is told by its first bytes, the kind of log by its columns. What cannot be read is
refused with its line; what can be read in one way alone is read, and a note says how.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedavot._checks import as_amount, as_seed, as_size
from fedavot._files import PathLike
from fedavot.audit.blocks import Report, kind_of, silent
from fedavot.audit.columns import check_named
from fedavot.audit.flower_log import is_flower_log, read_flower_log
from fedavot.audit.intervals import Draw, collect, collect_coverage, read_intervals
from fedavot.audit.json_lines import objects, open_json
from fedavot.audit.parquet import open_parquet
from fedavot.audit.participation import Participation
from fedavot.audit.rows import read_rows
from fedavot.audit.tables import Table, open_csv
from fedavot.errors import OptionError


def read_log(  # noqa: PLR0913
    path: PathLike,
    *,
    columns: Mapping[str, str] | None = None,
    period: float | None = None,
    cohort_size: int | None = None,
    state: str | None = None,
    coverage: PathLike | None = None,
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
        The columns' names where they are not recognised, by what they mean, such as
        ``{"client": "device_id"}``. An empty name keeps a column from being read.
    period : float, optional
        Intervals only, and needed there: seconds from one round to the next.
    cohort_size : int, optional
        Intervals only: how many take part in a round at most, drawn uniformly from the available.
        By default all of them.
    state : str, optional
        Intervals only: the state that means available, where the file has several.
    coverage : path, optional
        Intervals only: a table (client, known_until), or with known_from, of when each client was
        observed. Outside, its state is not known. The names first_event_s, obs_start_s and
        last_event_s are recognised as well.
    seed : int
        Of the draws of who takes part.
    progress : function, optional
        Called with the bytes read so far and the bytes in all.

    Returns
    -------
    Participation
        The cohorts by round, and notes on what was odd.
    """
    source, notes = Path(path), list[str]()
    named = check_named(columns)
    draw = None if period is None else _draw(period, cohort_size, state, seed)
    if draw is None and (cohort_size, state, coverage) != (None, None, None):
        raise OptionError("cohort_size, state and coverage are of intervals, which need a period")
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
            f"{source} has intervals; say how many seconds there are from one round to the next, "
            "as in period=600"
        )
    found = collect(source, table.batches, draw.state, notes)
    covered = None
    if coverage is not None:
        known = _open(Path(coverage), named, ("coverage",), silent, notes)
        covered = collect_coverage(Path(coverage), known.batches, found)
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
            f"{source} has rounds of its own; period, cohort_size, state and coverage are of "
            "intervals: leave them out"
        )
