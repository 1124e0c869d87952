"""Names as numbers: each distinct text is held once, and rows hold its code."""

import re
import unicodedata
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedavot._checks import Integers

_Number = TypeVar("_Number", bound=np.generic)
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")


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
        """Return a name's number, a new one if it has none."""
        return self._code_of.setdefault(name, len(self._code_of))

    def encode(self, values: pl.Series) -> NDArray[np.int32]:
        """Return the numbers of a column of names, shape (n_rows,)."""
        distinct = values.unique(maintain_order=True)
        codes = pl.Series([self.code(name) for name in distinct.to_list()], dtype=pl.Int32)
        return np.asarray(
            values.replace_strict(distinct, codes, return_dtype=pl.Int32).to_numpy(),
            dtype=np.int32,
        )


def ordered(names: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Put clients in an order that does not depend on the rows' order.

    Parameters
    ----------
    names : sequence of str
        Distinct names. If all are whole numbers as one writes them (7, not 007), they are ordered
        by size, else by their characters.

    Returns
    -------
    tuple of str
        The names in order.
    int32 array, shape (n_names,)
        The new place of each name.
    """
    numbers = all(_INTEGER.fullmatch(name) for name in names)
    order = sorted(
        range(len(names)), key=(lambda i: int(names[i])) if numbers else names.__getitem__
    )
    place = np.empty(len(names), dtype=np.int32)
    place[order] = np.arange(len(names), dtype=np.int32)
    return tuple(names[i] for i in order), place


def counted(number: int, what: str) -> str:
    """Return how many there are of what, in the singular or the plural.

    >>> counted(1, "row"), counted(2, "row")
    ('1 row', '2 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def lookalikes(names: Sequence[str]) -> list[str]:
    """Return a note on clients whose names only spaces or accents' spelling tell from others'."""
    odd = [name for name in names if _spelling(name) != name]
    if not odd:
        return []
    seen = set(names)
    alike = [name for name in odd if _spelling(name) in seen]
    if not alike:
        return []
    return [
        f"{counted(len(alike), 'client')} called like another but for spaces around the name, or "
        f"for how its accents are encoded, such as {alike[0]!r}: taken as clients of their own"
    ]


def _spelling(name: str) -> str:
    return name.strip() if name.isascii() else unicodedata.normalize("NFC", name.strip())


def gathered(parts: list[NDArray[_Number]]) -> NDArray[_Number]:
    """Join arrays, of which there is at least one, and let go of the parts."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def keys(rounds: NDArray[np.int32], clients: NDArray[np.int32], n_clients: int) -> Integers:
    """Return ``round * n_clients + client`` for each row, shape (n_rows,)."""
    key = rounds.astype(np.int64)
    key *= n_clients
    key += clients
    return key
