"""A file as batches of text columns, by their meaning: the audit reads every table this way.

Every value is text, empty if it is missing, and every row has its line number. CSV is read here,
JSON lines in `json_lines`, and Parquet by the process that `parquet` starts. A block of CSV that is
a plain grid of fields, quoted or not, goes to Polars. Any other block is read row by row by
Python's strict parser, whose error message for a bad line is the one the caller sees.
"""

import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from fedavot._checks import enumerated, quoted
from fedavot._reading import unguarded
from fedavot.audit.reading.columns import (
    KINDS,
    LISTS,
    WHERE,
    Layout,
    Sought,
    called,
    plain,
    sought_in,
)
from fedavot.audit.reading.files.blocks import (
    NULLS,
    PARQUET,
    Batch,
    Block,
    Report,
    Table,
    cut_off,
    silent,
    text_blocks,
)
from fedavot.audit.reading.files.csv_text import (
    Header,
    OpenQuoteError,
    after_lines,
    csv_header,
    csv_rows,
    refuse_width,
)
from fedavot.audit.reading.files.folders import Files, files_of, joined
from fedavot.audit.reading.files.json_lines import open_json
from fedavot.audit.reading.files.parquet import Child
from fedavot.errors import FileFormatError, Option, OptionError

TIMES = ("time", "start", "end", "known_from", "known_until")
"""Meanings that a column of times may have; other columns are names or numbers."""
EXACT = 2.0**53
"""Up to this value, every integer is exactly representable as a float."""
_LIST = re.compile(r"[;,|]")


def open_table(
    source: Path, files: Files, sought: Sought, report: Report, notes: list[str]
) -> Table:
    """Find the columns of a file or of the files of a folder, and read their rows on demand."""
    kind, paths = files
    if kind == "parquet":
        table = _open_parquet(source, paths, sought, report)
    else:
        opened = open_json if kind == "json" else open_csv
        table = joined(paths, lambda part, *more: opened(part, sought, *more), report, notes)
    if sought.where:
        table = table._replace(batches=_chosen(source, table, sought, notes))
    if kind != "json" and "client" in table.layout.places:
        listed = plain(table.header[table.layout.places["client"]]) in LISTS
        table = table._replace(batches=_listed(table.batches, named=listed))
    return table


def _listed(batches: Iterator[Batch], *, named: bool) -> Iterator[Batch]:
    """Yield one row per client where cells list several.

    Cells are lists if their column is called so (``named``), or if all of them have brackets.
    """
    lists = named
    for number, batch in enumerate(batches):
        if number == 0 and not named:
            cells = batch.columns["client"].str.strip_chars()
            lists = bool((cells.str.starts_with("[") & cells.str.ends_with("]")).all())
        yield _spread(batch) if lists else batch


def rows_by_name(source: Path, kind: str, columns: Mapping[str, str]) -> Batch:
    """Return all rows of a table that accompanies a log; no name is empty or occurs twice.

    A log is a machine's record and is read as far as possible; these tables are written by people,
    so anything unusual in them is refused. In CSV, an apostrophe before text that a spreadsheet
    would take for a formula is removed.
    """
    if source.is_dir():
        raise FileFormatError(f"{source} is a folder; give {called(kind)} as one file")
    notes: list[str] = []
    files = files_of(source, notes)
    table = open_table(source, files, sought_in(kind, columns), silent, notes)
    key, batches = KINDS[kind][0][0], list(table.batches)
    if notes:
        raise FileFormatError(f"{source}: {notes[0]}; write the file again")
    if not batches:
        raise FileFormatError(f"{source} has a header and no rows; add a line for each {key}")
    cells = {
        role: [cell for batch in batches for cell in batch.columns[role].to_list()]
        for role in batches[0].columns
    }
    if files.kind == "csv":
        cells = {role: list(map(unguarded, held)) for role, held in cells.items()}
    joined = {role: pl.Series(held, dtype=pl.String) for role, held in cells.items()}
    found = replace(batches[0], columns=joined, places=[p for b in batches for p in b.places])
    first: dict[str, int] = {}
    for at, name in enumerate(cells[key]):
        if name.strip() in NULLS:
            raise FileFormatError(
                f"{found.place(at)}: no {key}; fill it in, or remove the {found.unit}"
            )
        if first.setdefault(name, at) != at:
            raise FileFormatError(
                f"{found.place(at)}: {key} {name!r} a second time, after {found.unit} "
                f"{found.places[first[name]]}; keep one"
            )
    return found


def _chosen(source: Path, table: Table, sought: Sought, notes: list[str]) -> Iterator[Batch]:
    """Yield the rows that match ``where``, and refuse a table that has none."""
    seen = {name: Counter[str]() for name in sought.where}
    n_rows, n_kept = 0, 0
    for batch in table.batches:
        keep = np.ones(len(batch.places), dtype=bool)
        for name, values in sought.where.items():
            column = batch.columns.pop(f"{WHERE}{name}").str.strip_chars()
            seen[name].update(column.to_list())
            keep &= column.is_in(values).to_numpy()
        n_rows, n_kept = n_rows + keep.size, n_kept + int(keep.sum())
        if keep.all():
            yield batch
        elif keep.any():
            yield batch.rows(keep)
    asked = [f"{name} {' or '.join(map(quoted, values))}" for name, values in sought.where.items()]
    if n_rows and not n_kept:
        found = "; ".join(
            f"{name} is {enumerated([quoted(value) for value, _ in values.most_common()], 8)}"
            for name, values in seen.items()
        )
        raise OptionError(
            f"{source}: no row has {' and '.join(asked)}; {found}: give ",
            Option("where"),
            " one of these",
        )
    notes.append(f"{n_kept:,} of {n_rows:,} rows read: those with {' and '.join(asked)}")


def _open_parquet(source: Path, parts: list[Path], sought: Sought, report: Report) -> Table:
    """Read the schema of a Parquet file or folder now, and its rows on demand."""
    for part in parts:
        _refuse_cut_off(part)
    child = Child(source, parts)
    try:
        child.start()
        layout = sought.layout(child.schema.names, source)
    except BaseException:
        child.close()
        raise
    names = {role: child.schema.names[at] for role, at in layout.places.items()}
    return Table(child.schema.names, layout, _batches(child, names, report), child)


def _refuse_cut_off(part: Path) -> None:
    with part.open("rb") as stream:
        stream.seek(-min(4, part.stat().st_size), io.SEEK_END)
        if stream.read() != PARQUET or part.stat().st_size < 12:
            raise FileFormatError(
                f"{part} is cut off: the end of a Parquet file is missing; write it again"
            )


def _batches(child: Child, names: Mapping[str, str], report: Report) -> Iterator[Batch]:
    part, done, before = child.part, 0, 0
    try:
        for frame in child.ask(sorted(set(names.values()))):
            if child.part != part:
                part, before = child.part, done
            columns = {role: _as_text(frame[name], role, part) for role, name in names.items()}
            first = done - before + 1
            yield Batch(part, columns, range(first, first + frame.height), unit="row")
            done += frame.height
            report(child.n_bytes * done // max(child.n_rows, 1), child.n_bytes)
    finally:
        child.close()


def _as_text(values: pl.Series, role: str, source: Path) -> pl.Series:
    """Return a column as text: times in seconds, but dates that serve as names as dates."""
    kind = values.dtype
    if kind.is_nested() or kind == pl.Binary:
        raise FileFormatError(
            f"{source}: column {values.name!r} holds {kind}; write it as text or numbers"
        )
    if isinstance(kind, pl.Datetime | pl.Date):
        moments = values.cast(pl.Datetime("us"))
        if role in TIMES:
            values = moments.dt.epoch("us") / 1e6
        elif isinstance(kind, pl.Datetime):
            values = moments.dt.replace_time_zone(None).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
    elif kind == pl.Duration:
        values = values.dt.total_microseconds() / 1e6
    elif kind.is_float():
        values = values.fill_nan(None)
        if role not in TIMES and ((values % 1 == 0) & (values.abs() < EXACT)).all():
            values = values.cast(pl.Int64)
    return values.cast(pl.String).fill_null("")


def open_csv(source: Path, sought: Sought, report: Report, notes: list[str]) -> Table:
    """Read the header of a CSV file now, and its rows on demand."""
    before = len(notes)
    blocks = text_blocks(source, report, notes)
    for block in blocks:
        text = block.data.lstrip(b"\r\n").decode()
        if not text:
            continue
        line = block.line + block.data.count(b"\n") - text.count("\n")
        header = csv_header(text, source, sought.knows)
        layout = sought.layout(header.names, source)
        rest = after_lines(text, header.lines).encode()
        first = Block(rest, line + header.lines, block.ended)
        csv_file = _Csv(source, header, layout, notes)
        return Table(header.names, layout, csv_file.batches(first, blocks))
    if len(notes) > before:
        raise FileFormatError(f"{source} is cut off before its first line ends; compress it again")
    raise FileFormatError(
        f"{source} is empty; {called(sought.kinds[0])} needs a header line and rows"
    )


@dataclass(frozen=True)
class _Csv:
    source: Path
    header: Header
    layout: Layout
    notes: list[str]

    def batches(self, first: Block, blocks: Iterator[Block]) -> Iterator[Batch]:
        """Yield the rows, except those that repeat the header, as concatenated files have."""
        headers = 0
        for batch in self._all_batches(first, blocks):
            same = np.logical_and.reduce(
                [
                    (batch.columns[role] == self.header.names[place]).to_numpy()
                    for role, place in self.layout.places.items()
                ]
            )
            headers += int(same.sum())
            kept = batch.rows(~same) if same.any() else batch
            if kept.places:
                yield kept
        if headers:
            words = "1 line repeats" if headers == 1 else f"{headers} lines repeat"
            self.notes.append(f"{words} the header: dropped")

    def _all_batches(self, first: Block, blocks: Iterator[Block]) -> Iterator[Batch]:
        pending, since = b"", 0
        for block in itertools.chain((first,), blocks):
            line = since if pending else block.line
            data = pending + block.data
            columns = self._grid(data) if block.ended and data else None
            if columns is not None:
                pending = b""
                yield Batch(self.source, columns, range(line, line + data.count(b"\n")))
            elif data:
                try:
                    text = data.decode()
                    rows, lines, opened = self._row_by_row(text, line, block.ended)
                except FileFormatError:
                    if block.ended or pending:
                        raise
                    self.notes.append(cut_off(line))
                    return
                pending = b""
                if opened is not None:
                    since, pending = opened, after_lines(text, opened - line).encode()
                if rows:
                    cut_in = None if block.ended else self._last_column()
                    yield Batch(self.source, self._columns(rows), lines, cut_in=cut_in)
        if pending:
            raise OpenQuoteError(self.source, since)

    def _grid(self, data: bytes) -> dict[str, pl.Series] | None:
        """Return the columns of a block that is a plain grid of fields, or None."""
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        unquoted = _without_quotes(data, self.header.separator) if b'"' in data else data
        if unquoted is None or b"\r" in unquoted:
            return None
        letters = np.frombuffer(unquoted, dtype=np.uint8)
        ends = letters[(letters == ord(self.header.separator)) | (letters == ord("\n"))]
        width = len(self.header.names)
        if ends.size % width or np.any(ends[width - 1 :: width] != ord("\n")):
            return None
        if np.count_nonzero(ends == ord("\n")) != ends.size // width:
            return None
        places = self.layout.places
        read = sorted(set(places.values()))
        frame = pl.read_csv(
            unquoted,
            has_header=False,
            infer_schema=False,
            separator=self.header.separator,
            quote_char=None,
            columns=read,
        )
        return {role: frame.to_series(read.index(at)).fill_null("") for role, at in places.items()}

    def _row_by_row(
        self, text: str, line: int, ended: bool
    ) -> tuple[list[list[str]], list[int], int | None]:
        """Return the rows, their lines, and the line of a quote that is opened but not closed."""
        rows: list[list[str]] = []
        lines: list[int] = []
        separator = self.header.separator
        try:
            for row, at in csv_rows(text, self.source, delimiter=separator, line=line):
                refuse_width(row, len(self.header.names), self.source, at)
                rows.append(row)
                lines.append(at)
        except OpenQuoteError as found:
            if not ended:
                raise
            return rows, lines, found.line
        return rows, lines, None

    def _columns(self, rows: list[list[str]]) -> dict[str, pl.Series]:
        return {
            role: pl.Series([row[at] for row in rows], dtype=pl.String)
            for role, at in self.layout.places.items()
        }

    def _last_column(self) -> str:
        last = len(self.header.names) - 1
        return next((role for role, at in self.layout.places.items() if at == last), "")


def _without_quotes(data: bytes, separator: str) -> bytes | None:
    """Return CSV with its quotes removed if all of them enclose whole, plain fields, or None."""
    letters = np.frombuffer(data, dtype=np.uint8)
    quotes = np.flatnonzero(letters == ord('"'))
    ends = np.flatnonzero((letters == ord(separator)) | (letters == ord("\n")))
    opens, closes = quotes[::2], quotes[1::2]
    if opens.size != closes.size or np.any(np.searchsorted(quotes, ends) % 2):
        return None
    edge = np.zeros(letters.size + 1, dtype=bool)
    edge[ends] = True
    if not (np.all(edge[opens - 1] | (opens == 0)) and np.all(edge[closes + 1])):
        return None
    return data.replace(b'"', b"")


def _spread(batch: Batch) -> Batch:
    """Return one row per client where a cell lists several, as in ``a; b`` or ``['a', 'b']``."""
    cells = [_members(cell) for cell in batch.columns["client"].to_list()]
    names = [name.strip(" '\"") for cell in cells for name in cell]
    wide = batch.rows(np.repeat(np.arange(len(cells)), [len(cell) for cell in cells]))
    columns = {**wide.columns, "client": pl.Series(names, dtype=pl.String)}
    return replace(wide, columns=columns, whole=True)


def _members(cell: str) -> list[str]:
    """Return the names in a list; within brackets, spaces may separate them, as NumPy prints."""
    inside = cell.strip(" []{}()")
    bare = cell.strip().startswith("[") and not _LIST.search(inside) and "'" not in inside
    return inside.split() or [""] if bare else _LIST.split(inside)
