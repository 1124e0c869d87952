"""Pieces of a page: escaped text, names in any script, and tables that sort.

A table is whole without any script; a script makes its headings buttons. What a cell sorts by
stands in ``data-value``, so that shares sort as numbers however they are written.
"""

import html
import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_UNPRINTED = {"Cc", "Cs"}
_SPACES = "\t\n\r"


class Cell(NamedTuple):
    """Markup of a cell, and what it sorts by: a number, or text."""

    markup: str
    value: float | str


@dataclass(frozen=True)
class Column:
    """A table's column.

    Attributes
    ----------
    heading : str
        In words.
    cells : sequence of Cell
        One a row.
    note : str
        What the heading means, where that needs a sentence.
    """

    heading: str
    cells: Sequence[Cell]
    note: str = ""

    @property
    def numeric(self) -> bool:
        """Whether it sorts by numbers."""
        return all(isinstance(cell.value, (int, float)) for cell in self.cells)


def text(value: str) -> str:
    """Return text with nothing in it that is markup or that a page cannot hold."""
    printed = (
        "\ufffd" if unicodedata.category(letter) in _UNPRINTED and letter not in _SPACES else letter
        for letter in value
    )
    return html.escape("".join(printed))


def name(value: str) -> str:
    """Return a name, set apart so that its direction of writing does not spill over."""
    return f'<bdi class="name">{text(value) if value.strip() else "(no name)"}</bdi>'


def words(value: str) -> Cell:
    """Return a cell of text."""
    return Cell(text(value), value)


def figures(values: Iterable[float], written: Iterable[str]) -> list[Cell]:
    """Return cells of numbers, as they are written."""
    return [Cell(text(one), float(value)) for value, one in zip(values, written, strict=True)]


def table(
    caption: str, columns: Sequence[Column], *, key: str, marked: int | None = None, find: str = ""
) -> str:
    """Return a table in a box of its own that scrolls where it is too wide.

    Parameters
    ----------
    caption : str
        What the table is of.
    columns : sequence of Column
        The first one names the rows.
    key : str
        An id no other element has.
    marked : int or None
        A row that stands out.
    find : str
        What to find rows by, where there are many; empty for no search.
    """
    heads = "".join(_head(column) for column in columns)
    rows = "".join(
        ('<tr class="marked">' if row == marked else "<tr>")
        + "".join(_cell(column, row, first=at == 0) for at, column in enumerate(columns))
        + "</tr>"
        for row in range(len(columns[0].cells))
    )
    search = f' data-find="{text(find)}"' if find else ""
    return (
        f'<div class="scroll" role="region" aria-labelledby="{key}" tabindex="0"{search}><table>'
        f'<caption id="{key}">{text(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def paragraphs(sentences: Sequence[str]) -> str:
    """Return the first sentence as a lead, and the others as a list."""
    lead = f'<p class="lead">{text(sentences[0])}</p>' if sentences else ""
    rest = "".join(f"<li>{text(sentence)}</li>" for sentence in sentences[1:])
    return lead + (f'<ul class="told">{rest}</ul>' if rest else "")


def _head(column: Column) -> str:
    kind = "number" if column.numeric else "text"
    note = f' title="{text(column.note)}"' if column.note else ""
    return f'<th scope="col" data-sort="{kind}"{note}>{text(column.heading)}</th>'


def _cell(column: Column, row: int, *, first: bool) -> str:
    cell = column.cells[row]
    value = cell.value
    # What has no number sorts last, whichever way.
    empty = isinstance(value, float) and math.isnan(value)
    shown = "" if empty else text(str(value))
    sorts = f' data-value="{shown}"'
    kind = ' class="number"' if column.numeric else ""
    if first:
        return f'<th scope="row"{kind}{sorts}>{cell.markup}</th>'
    return f"<td{kind}{sorts}>{cell.markup}</td>"
