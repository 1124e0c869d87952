"""Cells, columns and tables as data, which the page and the terminal show each in their own way.

A cell has its text and what it sorts by, so that shares sort as numbers however they are written.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

import numpy as np

from fedavot._checks import Floats
from fedavot.audit.recommended import Estimate
from fedavot.audit.report.numerals import (
    ABSENT,
    MOST_TIMES,
    NARROW,
    digits_of,
    number,
    share,
    size,
    times,
)


class Cell(NamedTuple):
    """A cell: its text, what it sorts by, a note behind it, and the length of a bar, −1 to 1."""

    text: str
    value: float | str
    note: str = ""
    bar: float | None = None

    @property
    def sorts_by(self) -> str:
        """What it sorts by, as text; empty, which sorts last, if it has no number."""
        return "" if isinstance(self.value, float) and np.isnan(self.value) else str(self.value)


@dataclass(frozen=True)
class Column:
    """A table's column: a heading, what it means, one cell per row, and whether they are names."""

    heading: str
    cells: Sequence[Cell]
    means: str = ""
    names: bool = False

    @property
    def numeric(self) -> bool:
        """Whether it sorts by numbers."""
        return all(isinstance(cell.value, (int, float)) for cell in self.cells)


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    key : str
        An id that no other table has.
    caption : str
    columns : sequence of Column
        The first one names the rows.
    badges : mapping from int to tuple of str
        What some rows are: in use, or recommended.
    find : str
        What to find rows by, where there are many; empty for no search.
    explained : mapping from str to str
        Further terms in the table, and what they mean.
    """

    key: str
    caption: str
    columns: Sequence[Column]
    badges: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    find: str = ""
    explained: Mapping[str, str] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0].cells)

    @property
    def terms(self) -> dict[str, str]:
        """The terms of the table and what they mean."""
        headings = {one.heading: one.means for one in self.columns if one.means}
        return {**headings, **self.explained}


def percents(values: Floats | Sequence[float], digits: int | None = None) -> list[Cell]:
    """Return shares with the same number of decimals."""
    digits = max(digits_of(values), 1) if digits is None else digits
    return [Cell(share(value, digits), float(value)) for value in values]


def sizes(values: Sequence[float]) -> list[Cell]:
    """Return numbers of clients that need not be whole."""
    return [Cell(size(value), float(value)) for value in values]


def named(heading: str, names: Iterable[str]) -> Column:
    """Return a column of names, which come from a log."""
    return Column(heading, [Cell(one, one) for one in names], names=True)


def estimates(values: Sequence[Estimate]) -> list[Cell]:
    """Return shares with their intervals."""
    digits = max(digits_of([one.value for one in values]), 1)
    return [
        Cell(share(one.value, digits), one.value, _range(one, digits))
        if isfinite(one.value)
        else Cell(ABSENT, float("nan"))
        for one in values
    ]


def ratios(values: Sequence[Estimate]) -> list[Cell]:
    """Return one loss relative to another in per cent, if it is not many times as large."""
    return [
        Cell(
            times(one.value),
            float(np.nan_to_num(one.value, nan=1e9, posinf=1e9)),
            _range(one) if one.high <= MOST_TIMES else "",
        )
        for one in values
    ]


def multiples(values: Sequence[Estimate]) -> list[Cell]:
    """Return how many times another loss a loss is."""
    return [
        Cell(
            number(one.value),
            one.value,
            f"{number(one.low)}–{number(one.high)}" if one.low < one.high else "",
        )
        for one in values
    ]


def _range(estimate: Estimate, digits: int | None = None) -> str:
    if estimate.low == estimate.high:
        return ""
    low = share(estimate.low, digits)
    if not isfinite(estimate.high):
        return f"{low} upwards"
    return f"{low.removesuffix(f'{NARROW}%')}–{share(estimate.high, digits)}"
