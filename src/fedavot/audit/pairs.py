"""Two columns of a small CSV file, such as clients and their groups: every row with its line.

A participation log is a record, and is read as far as it goes; these tables are what somebody
wrote, so that whatever is odd in them is refused, with its line and what to do.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedavot._cells import unguarded
from fedavot._files import PathLike
from fedavot.audit.blocks import GZIP, kind_of, silent, text_blocks
from fedavot.errors import FileFormatError


class Pair(NamedTuple):
    """One row: what it is of, what it says, and the line it is on."""

    key: str
    value: str
    line: int


def read_pairs(path: PathLike, key: str, value: str) -> list[Pair]:
    """Read two columns of a CSV file.

    Parameters
    ----------
    path : path
        UTF-8, with or without a byte order mark, plain or compressed by gzip.
    key, value : str
        Names of the columns; capitals do not matter, and other columns are ignored. No key
        comes twice, and none is empty. An apostrophe before what a spreadsheet would take for a
        formula is taken off.
    """
    source = Path(path)
    read = _Csv(source)
    places = [read.place(name) for name in (key, value)]
    for name, place in zip((key, value), places, strict=True):
        if place is None:
            raise FileFormatError(
                f"{source}, line 1: the columns are {named(read.header)}; it must have {key} and "
                f"{value}, separated by a comma: there is no {name}; rename the columns"
            )
    found = [
        Pair(unguarded(row[places[0] or 0]), unguarded(row[places[1] or 0]), line)
        for row, line in read.rows()
    ]
    if not found:
        raise FileFormatError(f"{source} has a header and no rows; add a line for each {key}")
    seen: dict[str, int] = {}
    for pair in found:
        where = f"{source}, line {pair.line}"
        if not pair.key.strip():
            raise FileFormatError(f"{where}: no {key}; fill it in, or remove the line")
        if pair.key in seen:
            raise FileFormatError(
                f"{where}: {key} {pair.key!r} a second time, after line {seen[pair.key]}; keep one"
            )
        seen[pair.key] = pair.line
    return found


def columns_of(path: PathLike) -> tuple[str, ...]:
    """Return the names of a CSV file's columns, in small letters."""
    return tuple(_Csv(Path(path)).header)


def refuse_packed(path: PathLike) -> None:
    """Refuse what is not plain text, by its first bytes: for readers of plain text."""
    source = Path(path)
    if kind_of(source) == "parquet":
        raise FileFormatError(f"{source} is Parquet; write the table as CSV")
    with source.open("rb") as stream:
        if stream.read(len(GZIP)) == GZIP:
            raise FileFormatError(f"{source} is compressed by gzip; unpack it first")


def named(names: Iterable[str], most: int = 5) -> str:
    """List names for a message: the first few, shortened, and how many more there are."""
    every = list(names)
    if not every:
        return "none"
    shown = ", ".join(repr(name if len(name) <= 60 else f"{name[:59]}…") for name in every[:most])
    return shown if len(every) <= most else f"{shown} and {len(every) - most} more"


class _Csv:
    def __init__(self, source: Path) -> None:
        self._source = source
        text = _text(source)
        # Not splitlines, which also ends lines at characters that a name may have.
        self._reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        self._records = self._numbered()
        first, _ = next(self._records, ([], 0))
        self.header = [column.strip().lower() for column in first]
        if not self.header:
            raise FileFormatError(f"{source} is empty; it needs a header line and rows")

    def place(self, name: str) -> int | None:
        """Return where a column is; None if there is none."""
        places = [place for place, column in enumerate(self.header) if column == name]
        if len(places) > 1:
            raise FileFormatError(
                f"{self._source}, line 1: {len(places)} columns are called {name!r}; rename all "
                "but one"
            )
        return places[0] if places else None

    def rows(self) -> Iterator[tuple[Sequence[str], int]]:
        """Yield the rows after the header, and their lines."""
        for row, line in self._records:
            if len(row) != len(self.header):
                raise FileFormatError(
                    f"{self._source}, line {line}: {len(row)} fields where the header has "
                    f"{len(self.header)}; put quotes around a field that has a comma in it"
                )
            yield row, line

    def _numbered(self) -> Iterator[tuple[list[str], int]]:
        """Yield what is not empty, with the line it begins on."""
        while True:
            line = self._reader.line_num + 1
            try:
                row = next(self._reader, None)
            except csv.Error as cause:
                raise FileFormatError(
                    f"{self._source}, line {line}: {cause}; mend the line's quotes"
                ) from None
            if row is None:
                return
            if row:
                yield row, line


def _text(source: Path) -> str:
    kind, notes = kind_of(source), list[str]()
    if kind != "csv":
        shown = {"json": "JSON", "parquet": "Parquet"}[kind]
        raise FileFormatError(f"{source} is {shown}; write the table as CSV")
    text = b"".join(block.data for block in text_blocks(source, silent, notes)).decode()
    if notes:
        raise FileFormatError(f"{source}: {notes[0]}; write the file again")
    return text
