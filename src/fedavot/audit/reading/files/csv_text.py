"""CSV as the audit reads it: its separator and header, and its rows with their lines.

Whatever cannot be read raises a `FileFormatError` that names the file and the line: ``source`` is
that file, and ``line`` the number of the first line of the text.
"""

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from fedavot._reading import SEPARATORS, csv_reader
from fedavot.errors import FileFormatError

_SAMPLE = (1 << 16, 20)
"""Characters and rows from which a separator is chosen."""


class OpenQuoteError(FileFormatError):
    """A quote is opened on ``line`` and not closed by the end of the text."""

    def __init__(self, source: object, line: int) -> None:
        super().__init__(
            f"{source}, line {line}: a quote is opened and not closed; close it, or write a quote "
            "that belongs to a name twice, within quotes"
        )
        self.line = line


class Header(NamedTuple):
    """The first row of CSV: the columns' names, what separates them, and the lines it takes."""

    names: list[str]
    separator: str
    lines: int


def csv_rows(
    text: str, source: object, *, delimiter: str = ",", line: int = 1
) -> Iterator[tuple[list[str], int]]:
    """Yield the rows of strict CSV that are not empty, with the lines they begin on.

    The text has whole lines, whose ends a name in quotes keeps.
    """
    # Not splitlines, which also ends lines at characters that a name may have.
    reader = csv_reader(text, delimiter)
    while True:
        used = reader.line_num
        try:
            row = next(reader, None)
        except csv.Error as cause:
            if _is_open(after_lines(text, used), delimiter):
                raise OpenQuoteError(source, line + used) from None
            raise FileFormatError(
                f"{source}, line {line + used}: {cause}; correct the quotes in this line"
            ) from None
        if row is None:
            return
        if row:
            yield row, line + used


def csv_header(text: str, source: object, is_column: Callable[[str], bool]) -> Header:
    """Find the header of CSV and its separator, from text that begins with the header.

    Of the separators with which the header is strict CSV, the best has the most columns whose names
    satisfy ``is_column``; then rows as wide as the header; then the most columns.
    """
    sample, n_rows = text[: _SAMPLE[0]], _SAMPLE[1]
    candidates, failure = list[tuple[tuple[int, bool, int], Header]](), ""
    for separator in SEPARATORS:
        reader = csv_reader(sample, separator)
        try:
            header = Header(next(reader), separator, reader.line_num)
        except csv.Error as cause:
            failure = failure or str(cause)
            continue
        widths = []
        with suppress(csv.Error):  # a bad row, or one cut off; rows are checked as they are read
            widths = [len(row) for row in islice(reader, n_rows) if row]
        width = len(header.names)
        agrees = width > 1 and all(other == width for other in widths)
        candidates.append(((sum(map(is_column, header.names)), agrees, width), header))
    best = max(candidates, key=lambda item: item[0], default=((0, False, 0), None))[1]
    if best is None or (failure and len(best.names) == 1):
        raise FileFormatError(f"{source}, line 1: {failure}; correct the header's quotes")
    return best


def refuse_width(row: list[str], width: int, source: object, line: int) -> None:
    """Refuse a row that does not have as many fields as the header."""
    if len(row) != width:
        raise FileFormatError(
            f"{source}, line {line}: {len(row)} fields, but the header has {width}; put quotes "
            "around a field that contains a delimiter"
        )


def after_lines(text: str, count: int) -> str:
    """Return what follows the first lines, as a CSV reader counts them."""
    stream = io.StringIO(text, newline="")
    for _ in range(count):
        stream.readline()
    return stream.read()


def _is_open(text: str, delimiter: str) -> bool:
    """Tell whether it is a missing quote at the end that keeps a text from being CSV."""
    try:
        for _ in csv_reader(f'{text}"', delimiter):
            pass
    except csv.Error:
        return False
    return True
