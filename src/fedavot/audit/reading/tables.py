"""A table in a file, as batches of text columns: CSV; others are in `json_lines` and `parquet`.

Every value comes as text, the empty one for what is missing, and every row knows its line. A block
of CSV without quotes, all of whose rows have the header's width, goes to Polars. Any other is read
row by row by Python's strict parser, whose word on a bad line is the one the caller sees.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from fedavot._checks import Integers
from fedavot._reading import OpenQuoteError, after_lines, csv_rows, refuse_width
from fedavot.audit.reading.blocks import Block, Report, cut_off, text_blocks
from fedavot.audit.reading.columns import Layout, called, find_layout, unread
from fedavot.errors import FileFormatError

DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class Batch:
    """Some rows of a table.

    Attributes
    ----------
    source : path
        The file.
    columns : dict of polars Series
        Text, by what it means.
    places : sequence of int
        The rows' numbers in the file.
    unit : str
        What the numbers count: ``line`` or ``row``.
    cut_in : str or None
        For a last line without a line end: the column it may be cut off in.
    """

    source: Path
    columns: dict[str, pl.Series]
    places: Sequence[int]
    unit: str = "line"
    cut_in: str | None = None

    def place(self, row: int) -> str:
        """Return where a row of the batch is, for messages."""
        return f"{self.source}, {self.unit} {self.places[row]}"


class Table(NamedTuple):
    """The kind of a table and its rows."""

    kind: str
    batches: Iterator[Batch]


def open_csv(
    source: Path, named: Mapping[str, str], kinds: Sequence[str], report: Report, notes: list[str]
) -> Table:
    """Read the header of a CSV file, and its rows as they are asked for."""
    before = len(notes)
    blocks = text_blocks(source, report, notes)
    for block in blocks:
        text = block.data.lstrip(b"\r\n")
        if not text:
            continue
        line = block.line + block.data.count(b"\n") - text.count(b"\n")
        first, _, rest = text.partition(b"\n")
        delimiter, header = _header(first.decode(), named, kinds, source)
        layout = find_layout(header, named, kinds, source)
        body = chain([Block(rest, line + 1, True)] if rest else [], blocks)
        notes += unread(header, layout)
        csv_file = _Csv(source, delimiter, header, layout, notes)
        return Table(layout.kind, csv_file.batches(body))
    if len(notes) > before:
        raise FileFormatError(f"{source} is cut off before its first line ends; compress it again")
    raise FileFormatError(f"{source} is empty; {called(kinds)} needs a header line and rows")


def _header(
    line: str, named: Mapping[str, str], kinds: Sequence[str], source: Path
) -> tuple[str, list[str]]:
    """Return the delimiter that makes a header of the line, and the header."""
    headers, failure = {}, None
    for delimiter in DELIMITERS:
        try:
            headers[delimiter] = next(csv.reader([line], delimiter=delimiter, strict=True))
            find_layout(headers[delimiter], named, kinds, source)
        except csv.Error as cause:
            failure = FileFormatError(f"{source}, line 1: {cause}; correct the header's quotes")
        except FileFormatError:
            continue
        else:
            return delimiter, headers[delimiter]
    if failure is not None:
        raise failure
    return max(headers.items(), key=lambda item: len(item[1]))


@dataclass(frozen=True)
class _Csv:
    source: Path
    delimiter: str
    header: list[str]
    layout: Layout
    notes: list[str]

    def batches(self, blocks: Iterator[Block]) -> Iterator[Batch]:
        """Yield the rows, but those that repeat the header, as where files were joined."""
        headers = 0
        for batch in self._all_batches(blocks):
            kept = self._rows_of(batch)
            if kept is None:
                yield batch
                continue
            headers += len(batch.places) - kept.size
            if kept.size:
                columns = {role: column[kept] for role, column in batch.columns.items()}
                yield replace(batch, columns=columns, places=[batch.places[i] for i in kept])
        if headers:
            words = "1 line repeats" if headers == 1 else f"{headers} lines repeat"
            self.notes.append(f"{words} the header: dropped")

    def _rows_of(self, batch: Batch) -> Integers | None:
        """Return which rows of a batch are no header; None if all are."""
        same = None
        for role, at in self.layout.places.items():
            here = batch.columns[role] == self.header[at]
            same = here if same is None else same & here
            if not same.any():
                return None
        return None if same is None else np.flatnonzero(~same.to_numpy())

    def _all_batches(self, blocks: Iterator[Block]) -> Iterator[Batch]:
        pending, since = b"", 0
        for block in blocks:
            line = since if pending else block.line
            data = pending + block.data
            frame = self._regular(data) if block.ended else None
            if frame is not None:
                pending = b""
                yield Batch(self.source, frame, range(line, line + data.count(b"\n")))
                continue
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
            cut_in = None if block.ended else self._last_column()
            if rows:
                yield Batch(self.source, self._columns(rows), lines, cut_in=cut_in)
        if pending:
            raise OpenQuoteError(self.source, since)

    def _regular(self, data: bytes) -> dict[str, pl.Series] | None:
        """Return the columns of a block that is a plain grid of fields, or None."""
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        if b'"' in data or b"\r" in data:
            return None
        letters = np.frombuffer(data, dtype=np.uint8)
        ends = letters[(letters == ord(self.delimiter)) | (letters == ord("\n"))]
        width = len(self.header)
        if ends.size % width or np.any(ends[width - 1 :: width] != ord("\n")):
            return None
        if np.count_nonzero(ends == ord("\n")) != ends.size // width:
            return None
        places = self.layout.places
        read = sorted(set(places.values()))
        frame = pl.read_csv(
            data,
            has_header=False,
            infer_schema=False,
            separator=self.delimiter,
            quote_char=None,
            columns=read,
        )
        return {role: frame.to_series(read.index(at)).fill_null("") for role, at in places.items()}

    def _row_by_row(
        self, text: str, line: int, ended: bool
    ) -> tuple[list[list[str]], list[int], int | None]:
        """Return rows, their lines, and the line on which a quote is opened and not closed."""
        rows: list[list[str]] = []
        lines: list[int] = []
        try:
            for row, at in csv_rows(text, self.source, delimiter=self.delimiter, line=line):
                refuse_width(row, len(self.header), self.source, at)
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

    def _last_column(self) -> str | None:
        last = len(self.header) - 1
        return next((role for role, at in self.layout.places.items() if at == last), "")
