"""Columns of amounts as people and spreadsheets write them: 1234.5, 1,234.5, 1.234,5 or 12.5 %.

A column is written in one way: with a decimal point or a decimal comma, with or without a mark
between thousands, and with a percent sign in all rows or in none. The whole column decides which
way it is. If commas may be decimal or separate thousands in all of its numbers, it is refused.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import shown
from fedavot.errors import ImportanceError

_MARKS = str.maketrans("\u00a0\u2009\u202f\u2019", "   '")
"""No-break and thin spaces, and the typographic apostrophe, with their plain equivalents."""


class _Way(NamedTuple):
    decimal: str
    thousands: str
    percent: bool

    def number(self, text: str) -> float | None:
        """Return the number that a text is in this way, or None."""
        point, mark = re.escape(self.decimal), re.escape(self.thousands)
        grouped = rf"[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{3}})+(?:{point}[0-9]*)?"
        simple = rf"(?:[0-9]+(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"
        end = " *%" if self.percent else ""
        if not re.fullmatch(f"[+-]?(?:{grouped}|{simple}){end}", text):
            return None
        digits = text.rstrip("% ").replace(self.thousands, "").replace(self.decimal, ".")
        return float(digits) / (100.0 if self.percent else 1.0)


_WAYS = [
    _Way(decimal, thousands, percent)
    for decimal, marks in ((".", ", '_"), (",", ". '_"))
    for thousands in marks
    for percent in (False, True)
]


def amounts(values: Sequence[Any], what: Callable[[int], str]) -> list[float]:
    """Return the numbers of a column, which are finite and at least 0.

    Parameters
    ----------
    values : sequence
        Numbers, or text.
    what : function from int to str
        What the value at a position is, for messages.
    """
    numbers = list(map(_plain, values))
    unread = [value for value, number in zip(values, numbers, strict=True) if math.isnan(number)]
    if unread and all(isinstance(value, str) for value in unread):
        texts = [
            value.strip().translate(_MARKS) if isinstance(value, str) else repr(number)
            for value, number in zip(values, numbers, strict=True)
        ]
        numbers = _in_one_way(texts, what)
    for at, number in enumerate(numbers):
        if not 0 <= number < np.inf:
            raise ImportanceError(
                f"{what(at)} is {shown(values[at])}; it must be a finite number, at least 0"
            )
    return numbers


def _plain(value: Any) -> float:
    try:
        return np.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _in_one_way(texts: list[str], what: Callable[[int], str]) -> list[float]:
    """Return the numbers of texts that are written in one way; NaN if one is no number."""
    ways = _WAYS
    for at, text in enumerate(texts):
        fitting = [way for way in _WAYS if way.number(text) is not None]
        if not fitting:
            return [np.nan if place == at else 0.0 for place in range(len(texts))]
        ways = [way for way in ways if way in fitting]
        if not ways:
            unlike = (t for t in texts[:at] if all(way.number(t) is None for way in fitting))
            other = next(unlike, texts[at - 1])
            raise ImportanceError(
                f"{what(at)} is {shown(text)}, and numbers before it are written in another way, "
                f"as in {shown(other)}; write all of them in one way"
            )
    first, *rest = {tuple(way.number(text) or 0.0 for text in texts): None for way in ways}
    # Points are decimal wherever they can be, as in columns of numbers alone.
    if rest and any("," in text for text in texts):
        at = next(at for at in range(len(texts)) if first[at] != rest[0][at])
        either = " or ".join(f"{reading[at]:.15g}" for reading in (first, rest[0]))
        raise ImportanceError(
            f"{what(at)} is {shown(texts[at])}, and no number in the column shows whether commas "
            f"are decimal or separate thousands: is it {either}? Write the numbers with decimal "
            "points, and without separators of thousands"
        )
    return list(first)
