"""Labels as numbers: each distinct text is held once, and rows hold its code.

The order of clients is that of `participation.ordered`. Rounds whose labels are whole numbers are
ordered by size, and 07 is 7; other numbers likewise; dates by time; labels that differ only in one
whole number, such as ``round_10``, by that number; any other labels in order of first appearance,
with a note. A round that no row names was not logged: it does not count as a round, and no client
counts as absent from it.
"""

import math
import os
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedavot._checks import Floats, shown
from fedavot.audit.reading.moments import as_moments

_Number = TypeVar("_Number", bound=np.generic)
_WHOLE = re.compile(r"\s*([+-]?[0-9]{1,4000})(\.0*)?\s*")
_DIGITS = re.compile(r"([0-9]{1,4000})")
_IN_NUMBER = re.compile(r"[0-9][.,]$")
_INT64 = 1 << 63


class Codes:
    """Numbers for names, in order of first appearance."""

    def __init__(self) -> None:
        self._code_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._code_of)

    def __contains__(self, name: str) -> bool:
        return name in self._code_of

    @property
    def names(self) -> list[str]:
        """The names, in order of first appearance."""
        return list(self._code_of)

    def code(self, name: str) -> int:
        """Return a name's number, assigning a new one if it has none."""
        return self._code_of.setdefault(name, len(self._code_of))

    def encode(self, values: pl.Series) -> NDArray[np.int32]:
        """Return the numbers of a column of names, shape (n_rows,)."""
        distinct = values.unique(maintain_order=True)
        code_of = self._code_of
        numbers = [code_of.setdefault(name, len(code_of)) for name in distinct.to_list()]
        codes = pl.Series(numbers, dtype=pl.Int32)
        return np.asarray(
            values.replace_strict(distinct, codes, return_dtype=pl.Int32).to_numpy(),
            dtype=np.int32,
        )


class Order(NamedTuple):
    """How labels become rounds.

    Attributes
    ----------
    place : int32 array, shape (n_labels,)
        The round of each label.
    n_rounds : int
        Number of rounds.
    times : float array, shape (n_rounds,), or None
        The rounds' times, if the labels are dates.
    notes : list of str
        What was unusual.
    """

    place: NDArray[np.int32]
    n_rounds: int
    times: Floats | None
    notes: list[str]


def order_rounds(labels: list[str]) -> Order:
    """Order the rounds with these labels, which come in order of first appearance."""
    whole = [_WHOLE.fullmatch(label) for label in labels]
    if all(whole):
        return _by_number(whole)
    for read, timed in ((_decimals, False), (as_moments, True)):
        values = read(labels)
        if values is not None:
            distinct, place = np.unique(values, return_inverse=True)
            return Order(place.astype(np.int32), distinct.size, distinct if timed else None, [])
    inner = [_DIGITS.fullmatch(label) for label in _without_ends(labels)]
    if all(inner):
        return _by_number(inner)
    first: dict[str, int] = {}
    spelt = [
        str(int(match[1])) if match else label for label, match in zip(labels, whole, strict=True)
    ]
    codes = np.array([first.setdefault(label, len(first)) for label in spelt], dtype=np.int32)
    other = labels[whole.index(None)]
    note = (
        f"not all round labels are numbers ({other[:60]!r} is not): rounds are in the order in "
        "which they first appear"
    )
    return Order(codes, len(first), None, [note] if len(first) > 1 else [])


def _by_number(found: Sequence[re.Match[str] | None]) -> Order:
    integers = [int(match[1]) for match in found if match]
    large = any(not -_INT64 <= integer < _INT64 for integer in integers)
    labelled = np.array(integers, dtype=object if large else np.int64)
    numbers, place = np.unique(labelled, return_inverse=True)
    notes = unlogged(int(numbers[0]), int(numbers[-1]), numbers.size)
    return Order(place.astype(np.int32), numbers.size, None, notes)


def _without_ends(labels: list[str]) -> list[str]:
    """Return what is left of labels without the text that all begin with and all end with.

    >>> _without_ends(["round_12 of 20", "round_1 of 20"])
    ['12', '1']
    """
    rest = [label.strip() for label in labels]
    for _ in range(2):  # the beginning, then the end as the beginning of the reversed text
        shared = os.path.commonprefix(rest).rstrip("0123456789")  # noqa: RUF071 (no paths)
        if _IN_NUMBER.search(shared):
            return labels  # what differs are digits of a decimal number
        rest = [label[len(shared) :][::-1] for label in rest]
    return rest


def unlogged(low: int, high: int, n_rounds: int) -> list[str]:
    """Return a note on the whole numbers from ``low`` to ``high`` that are not rounds."""
    missing = high - low + 1 - n_rounds
    if not missing:
        return []
    words = "number" if missing == 1 else "numbers"
    return [
        f"{shown(missing)} round {words} between {shown(low)} and {shown(high)} "
        f"{'does' if missing == 1 else 'do'} not appear: taken as not logged, not as rounds in "
        "which nobody took part"
    ]


def counted(number: int, what: str) -> str:
    """Return a number with its noun, in the singular or the plural.

    >>> counted(1, "row"), counted(2, "row")
    ('1 row', '2 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def lookalikes(names: Sequence[str]) -> list[str]:
    """Return a note on clients whose names differ only in spaces or in how accents are encoded."""
    seen = set(names)
    alike = [name for name in names if (other := _spelling(name)) != name and other in seen]
    if not alike:
        return []
    return [
        f"{counted(len(alike), 'client')} called like another but for spaces around the name, or "
        f"for how its accents are encoded, such as {alike[0]!r}: taken as clients of their own"
    ]


def gathered(parts: list[NDArray[_Number]]) -> NDArray[_Number]:
    """Join arrays, of which there is at least one, and release the parts."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def _decimals(labels: list[str]) -> Floats | None:
    if any("_" in label for label in labels):
        return None
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        return None
    return np.array(numbers) if all(map(math.isfinite, numbers)) else None


def _spelling(name: str) -> str:
    return name.strip() if name.isascii() else unicodedata.normalize("NFC", name.strip())
