"""Text in the cells of CSV files, so that no spreadsheet takes it for a formula.

Spreadsheets run a cell that begins with = + - @, a tab or a line end as a formula, whoever wrote
it. As OWASP recommends, such a cell is written with an apostrophe before it; `unguarded` takes the
apostrophe off again, so that names come back as they were. Numbers are left as they are.
"""

import csv
import io
import re
from collections.abc import Iterable

_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")  # the wide ones are run as well
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def guarded(text: str) -> str:
    """Return text for a cell: with an apostrophe before what a spreadsheet would run."""
    return f"'{text}" if _is_formula(text) else text


def unguarded(cell: str) -> str:
    """Return the text of a cell that `guarded` gave."""
    return cell[1:] if cell.startswith("'") and _is_formula(cell[1:]) else cell


def line(cells: Iterable[object]) -> str:
    """Return a line of CSV, text guarded, with quotes around whatever needs them.

    Python's writer puts them around what has a character of its line end: a name may have either.
    """
    text = io.StringIO(newline="")
    row = [guarded(cell) if isinstance(cell, str) else cell for cell in cells]
    csv.writer(text, lineterminator="\r\n").writerow(row)
    return text.getvalue().removesuffix("\r\n") + "\n"


def _is_formula(text: str) -> bool:
    """Tell what needs an apostrophe, including what has some already: none is taken off twice."""
    return bool(_FORMULA.match(text)) and not _NUMBER.fullmatch(text)
