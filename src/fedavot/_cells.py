"""Text in the cells of CSV files, written so that no spreadsheet runs it as a formula.

Spreadsheets run a cell that begins with = + - @, a tab or a line end as a formula. As OWASP
recommends, such a cell is written with an apostrophe before it; `unguarded` removes the apostrophe,
so that names are read back as they were. Numbers are not changed.
"""

import csv
import io
import re
from collections.abc import Iterable

_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")  # the wide ones are run as well
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def guarded(text: str) -> str:
    """Return text for a cell, with an apostrophe in front if a spreadsheet would run it."""
    return f"'{text}" if _is_formula(text) else text


def unguarded(cell: str) -> str:
    """Return the text of a cell that `guarded` returned."""
    return cell[1:] if cell.startswith("'") and _is_formula(cell[1:]) else cell


def line(cells: Iterable[object]) -> str:
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
