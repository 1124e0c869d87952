"""Text files that people and programs write: UTF-8, CSV and JSON, and the cells of spreadsheets.

Whatever cannot be read raises a `FileFormatError` that names the file, the line if there is one,
and what to do: ``source`` is that file, and ``line`` the number of the first line of the text. What
columns and keys mean is left to the callers.

Spreadsheets run a cell that begins with = + - @, a tab or a line end as a formula. As OWASP
recommends, such a cell is written with an apostrophe before it; `unguarded` removes the apostrophe,
so that names are read back as they were. Numbers are not changed.
"""

import csv
import io
import json
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedavot.errors import FileFormatError

MOST_DIGITS = 300
"""Digits of the longest integer read: any such number is also a finite float."""
SEPARATORS = ",;\t| "
"""What may stand between the fields of CSV, the more usual first. Several spaces count as one."""
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")  # the wide ones are run as well
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


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


def csv_reader(text: str, separator: str) -> Any:
    """Return a strict reader of CSV; unlike text that is split into lines, it keeps line ends."""
    stream = io.StringIO(text, newline="")
    spaces = separator == " "
    return csv.reader(stream, delimiter=separator, strict=True, skipinitialspace=spaces)


def csv_table(text: str, source: object, columns: Collection[str]) -> list[tuple[list[str], int]]:
    """Return the rows of CSV that are not empty, all of one width, with the lines they begin on.

    The first row is the header, in lower case; the separator is that with which it has most of the
    ``columns``.
    """
    first, headers = text.lstrip("\r\n"), {one: list[str]() for one in SEPARATORS}
    for separator in SEPARATORS:
        with suppress(csv.Error, StopIteration):
            names = next(csv_reader(first, separator))
            headers[separator] = [name.strip().lower() for name in names]
    separator = max(SEPARATORS, key=lambda one: len({*columns} & {*headers[one]}))
    reader, rows, line = csv_reader(text, separator), list[tuple[list[str], int]](), 1
    try:
        for row in reader:
            if row and rows and len(row) != len(rows[0][0]):
                raise FileFormatError(
                    f"{source}, line {line}: {len(row)} fields, but the header has "
                    f"{len(rows[0][0])}; put quotes around a field that contains a delimiter"
                )
            rows += [(row, line)] if row else []
            line = reader.line_num + 1
    except csv.Error as cause:
        raise FileFormatError(f"{source}, line {line}: {cause}; correct its quotes") from None
    if not rows:
        raise FileFormatError(f"{source} is empty; it needs a header line and rows")
    return [(headers[separator], rows[0][1]), *rows[1:]]


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
    except (ValueError, RecursionError) as cause:
        at = line + getattr(cause, "lineno", 1) - 1
        why = getattr(cause, "msg", cause)
    raise FileFormatError(
        f"{source}, line {at}: not valid JSON ({why}); correct it, or write it again"
    )


def guarded(text: str) -> str:
    """Return text for a cell, with an apostrophe in front if a spreadsheet would run it."""
    return f"'{text}" if _is_formula(text) else text


def unguarded(cell: str) -> str:
    """Return the text of a cell that `guarded` returned."""
    return cell[1:] if cell.startswith("'") and _is_formula(cell[1:]) else cell


def csv_line(cells: Iterable[object]) -> str:
    """Return a line of CSV, with text guarded and quoted where necessary.

    Python's writer quotes text that contains a character of its line end, and a name may contain
    either, so the line is written with both.
    """
    text = io.StringIO(newline="")
    row = [guarded(cell) if isinstance(cell, str) else cell for cell in cells]
    csv.writer(text, lineterminator="\r\n").writerow(row)
    return text.getvalue().removesuffix("\r\n") + "\n"


def _is_formula(text: str) -> bool:
    """Say whether text needs an apostrophe; text that has one needs another, to be read back."""
    return bool(_FORMULA.match(text)) and not _NUMBER.fullmatch(text)


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
