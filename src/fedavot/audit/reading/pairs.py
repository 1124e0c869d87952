"""Each pair of round and client once, however many rows repeat it."""

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Integers
from fedavot.audit.reading.labels import counted
from fedavot.audit.reading.statuses import SAID

Statuses = NDArray[np.int8]


def distinct(
    key: Integers, status: Statuses | None, *, rows: bool = False
) -> tuple[Integers, Statuses | None, Integers | None]:
    """Return each pair once, in ascending order, with its status and, if asked for, its row.

    If a pair has several rows, the one with the largest status counts.

    Parameters
    ----------
    key : int array, shape (n_rows,)
        ``round * n_clients + client`` for each row; it is overwritten.
    status : int8 array, shape (n_rows,), or None
        What each row says about its client.
    rows : bool
        Whether to return the row that each pair comes from.
    """
    if status is not None:
        key *= len(SAID)
        key += status
    at = None
    if rows:
        at = np.argsort(key, kind="stable")
        key = key[at]
    else:
        key.sort()
    both = key
    if status is not None:
        key = both // len(SAID)
    last = np.append(key[1:] != key[:-1], True)
    if not last.all():
        key, both, at = key[last], both[last], None if at is None else at[last]
    found = None if status is None else (both % len(SAID)).astype(np.int8)
    return key, found, at


def repeated(count: int, runs: str = "") -> list[str]:
    """Return a note on rows that were dropped, if there are any.

    ``runs`` is the name of a column that may distinguish several runs in one log.
    """
    words = "repeats" if count == 1 else "repeat"
    several = (
        f"; if column {runs!r} distinguishes several runs, their rounds have been merged: read one "
        f"run with --where '{runs}=...', or where={{{runs!r}: ...}} in Python"
    )
    note = f"{counted(count, 'row')} {words} a round and client: dropped{several if runs else ''}"
    return [note] if count else []
