"""Text files that people and programs write: UTF-8, CSV, JSON and TOML.

Whatever cannot be read raises a `FileFormatError` that names the file, the line if there is one,
and what to do: ``source`` is that file, and ``line`` the number of the first line of the text. What
columns and keys mean is left to the callers.
"""

import csv
import io
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from fedavot.errors import FileFormatError

MOST_DIGITS = 300
"""Digits of the longest integer read: any such number is also a finite float."""
_TOO_LONG = re.compile(r"[0-9_]{4301,}")
"""Numbers that Python refuses to read, as that takes time quadratic in their digits."""


SEPARATORS = ",;\t| "
"""What may stand between the fields of CSV, the more usual first. Several spaces count as one."""
_SAMPLE = (1 << 16, 20)
"""Characters and rows from which a separator is told."""


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


class Table(NamedTuple):
    """A CSV file: the names of its columns in lower case, and its rows with their lines."""

    header: list[str]
    rows: Iterator[tuple[list[str], int]]


def read_text(path: Path) -> str:
    """Read a UTF-8 file, with or without a byte order mark; line ends stay as they are."""
    return decoded(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), path)


def decoded(data: bytes, source: object, line: int = 1) -> str:
    """Decode whole lines of UTF-8, or name the line of the first byte that is not."""
    try:
        return data.decode()
    except UnicodeDecodeError as cause:
        byte = data[cause.start : cause.start + 1]
        at = line + data.count(b"\n", 0, cause.start)
        raise FileFormatError(
            f"{source}, line {at}: byte 0x{byte.hex()} is not UTF-8; in Latin-1 it would be "
            f"{byte.decode('latin-1')!r}: save the file as UTF-8 (iconv -f LATIN1 -t UTF-8)"
        ) from None


def csv_rows(
    text: str, source: object, *, delimiter: str = ",", line: int = 1
) -> Iterator[tuple[list[str], int]]:
    """Yield the rows of strict CSV that are not empty, with the lines they begin on.

    The text has whole lines, whose ends a name in quotes keeps.
    """
    # Not splitlines, which also ends lines at characters that a name may have.
    reader = _reader(text, delimiter)
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


def csv_header(text: str, source: object, known: Callable[[str], bool]) -> Header:
    """Find the header of CSV and its separator, from text that begins with the header.

    Of the separators with which the header is strict CSV, the best has the most columns whose names
    are ``known``; then rows as wide as the header; then the most columns.
    """
    sample, n_rows = text[: _SAMPLE[0]], _SAMPLE[1]
    found, failure = list[tuple[tuple[int, bool, int], Header]](), ""
    for separator in SEPARATORS:
        reader = _reader(sample, separator)
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
        found.append(((sum(map(known, header.names)), agrees, width), header))
    best = max(found, key=lambda item: item[0], default=((0, False, 0), None))[1]
    if best is None or (failure and len(best.names) == 1):
        raise FileFormatError(f"{source}, line 1: {failure}; correct the header's quotes")
    return best


def csv_table(text: str, source: object, known: Callable[[str], bool]) -> Table:
    """Return the header and the rows of a CSV file, every row as wide as the header.

    ``known`` says whether a name in lower case is a column's, as `csv_header` needs it.
    """
    body = text.lstrip("\r\n")
    if not body:
        raise FileFormatError(f"{source} is empty; it needs a header line and rows")
    header = csv_header(body, source, lambda name: known(name.strip().lower()))
    rows = csv_rows(text, source, delimiter=header.separator)
    names = [name.strip().lower() for name in next(rows)[0]]
    return Table(names, _of_width(rows, len(names), source))


def column(header: list[str], name: str, source: object) -> int | None:
    """Return the position of a column, None if it is missing; refuse a name that occurs twice."""
    places = [place for place, found in enumerate(header) if found == name]
    if len(places) > 1:
        raise FileFormatError(
            f"{source}, line 1: {len(places)} columns are called {name!r}; rename all but one"
        )
    return places[0] if places else None


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


def parse_json(text: bytes | str, *, nan: bool = False) -> Any:
    """Return the content of JSON; refuse repeated keys, NaN and integers of over 300 digits.

    Raises ValueError, or RecursionError if it is nested too deeply.

    Parameters
    ----------
    text : bytes or str
        In UTF-8, if bytes.
    nan : bool
        Whether to read NaN and infinities, which JSON does not have but Python writes.
    """
    return json.loads(
        text.decode() if isinstance(text, bytes) else text,
        object_pairs_hook=_distinct,
        parse_int=_integer,
        parse_constant=None if nan else _constant,
    )


def json_in(text: bytes | str, source: object, line: int = 1) -> Any:
    """Return the content of a whole document as `parse_json` does, or name the file and reason."""
    try:
        return parse_json(text)
    except json.JSONDecodeError as cause:
        why, at = f"{cause.msg}, column {cause.colno}", line + cause.lineno - 1
    except (ValueError, RecursionError) as cause:
        why, at = str(cause), line
    raise FileFormatError(
        f"{source}, line {at}: not valid JSON ({why}); correct it, or write it again"
    )


def toml_in(text: str, source: object) -> dict[str, Any]:
    """Return the content of TOML, or name the file, the line and the reason."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as cause:  # ValueError alone for too many digits
        end = f"at the end, line {text.count(chr(10)) + 1}"
        why = str(cause).replace("at end of document", end)
        if digits := _TOO_LONG.search(text):
            line = text.count("\n", 0, digits.start()) + 1
            why = f"line {line} has a number of {len(digits[0]):,} digits"
    raise FileFormatError(f"{source}: not valid TOML: {why}; correct it")


def _reader(text: str, separator: str) -> Any:
    stream = io.StringIO(text, newline="")
    spaces = separator == " "
    return csv.reader(stream, delimiter=separator, strict=True, skipinitialspace=spaces)


def _of_width(
    rows: Iterator[tuple[list[str], int]], width: int, source: object
) -> Iterator[tuple[list[str], int]]:
    for row, line in rows:
        refuse_width(row, width, source, line)
        yield row, line


def _is_open(text: str, delimiter: str) -> bool:
    """Tell whether it is a missing quote at the end that keeps a text from being CSV."""
    try:
        for _ in _reader(f'{text}"', delimiter):
            pass
    except csv.Error:
        return False
    return True


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {repeated[:60]!r} occurs more than once in one object")
    return content


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"an integer has {len(digits)} digits, more than {MOST_DIGITS}")
    return int(digits)


def _constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")
