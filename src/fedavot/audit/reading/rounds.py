"""The order of rounds, from the labels that a log gives them.

Whole numbers are ordered by size, and 07 is 7; other numbers likewise; dates by time; any other
labels as they first appear. A round that no row names was not logged: it is no round, and nobody
was absent from it.
"""

import math
import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, shown
from fedavot.audit.reading.moments import as_moments

_WHOLE = re.compile(r"\s*([+-]?[0-9]{1,4000})(\.0*)?\s*")
_INT64 = 1 << 63


class Order(NamedTuple):
    """How labels become rounds.

    Attributes
    ----------
    place : int32 array, shape (n_labels,)
        The round of each label.
    n_rounds : int
        How many rounds there are.
    times : float array, shape (n_rounds,), or None
        The rounds' times, where the labels are dates.
    notes : list of str
        What was odd.
    """

    place: NDArray[np.int32]
    n_rounds: int
    times: Floats | None
    notes: list[str]


def order_rounds(labels: list[str]) -> Order:
    """Order the rounds with these labels, which come in order of first appearance."""
    whole = [_WHOLE.fullmatch(label) for label in labels]
    if all(whole):
        integers = [int(match[1]) for match in whole if match]
        large = any(not -_INT64 <= integer < _INT64 for integer in integers)
        labelled = np.array(integers, dtype=object if large else np.int64)
        numbers, place = np.unique(labelled, return_inverse=True)
        return Order(place.astype(np.int32), numbers.size, None, unlogged(numbers.tolist()))
    decimals = _decimals(labels)
    if decimals is not None:
        values, place = np.unique(decimals, return_inverse=True)
        return Order(place.astype(np.int32), values.size, None, [])
    moments = as_moments(labels)
    if moments is not None:
        values, place = np.unique(moments, return_inverse=True)
        return Order(place.astype(np.int32), values.size, values, [])
    first: dict[str, int] = {}
    spelt = [
        str(int(match[1])) if match else label for label, match in zip(labels, whole, strict=True)
    ]
    codes = np.array([first.setdefault(label, len(first)) for label in spelt], dtype=np.int32)
    return Order(codes, len(first), None, _mixed(labels, [match is not None for match in whole]))


def _decimals(labels: list[str]) -> Floats | None:
    if any("_" in label for label in labels):
        return None
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        return None
    return np.array(numbers) if all(map(math.isfinite, numbers)) else None


def unlogged(values: list[int]) -> list[str]:
    """Return a note on whole numbers, ascending and distinct, that no round has."""
    missing = values[-1] - values[0] + 1 - len(values)
    if not missing:
        return []
    words = "number" if missing == 1 else "numbers"
    return [
        f"{shown(missing)} round {words} between {shown(values[0])} and {shown(values[-1])} "
        f"{'does' if missing == 1 else 'do'} not appear: taken as not logged, not as rounds in "
        "which nobody took part"
    ]


def _mixed(labels: list[str], whole: list[bool]) -> list[str]:
    if not any(whole):
        return []
    other = labels[whole.index(False)]
    return [
        f"not all round labels are numbers ({other[:60]!r} is not): rounds are in the order in "
        "which they first appear"
    ]
