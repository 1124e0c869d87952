"""Weights that sum to one: maps from potentials to weights, and the distance between two."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers


def total_variation(left: Floats, right: Floats) -> Floats:
    """Return ½ Σ |left_i − right_i| over the last axis: 0 if equal, 1 if nothing is shared."""
    return np.asarray(np.abs(left - right).sum(axis=-1) / 2)


def softmax(values: Floats, offsets: Integers | None = None) -> Floats:
    """Return exp(x) over its sum, for one row or for rows starting at ``offsets``."""
    if offsets is None:
        # For a cohort these are faster than `max` and `sum`, which pass through Python.
        odds = np.exp(values - values[values.argmax()])
        return np.asarray(odds / np.add.reduce(odds))
    starts, sizes = offsets[:-1], np.diff(offsets)
    scaled = np.exp(values - np.repeat(np.maximum.reduceat(values, starts), sizes))
    return np.asarray(scaled / np.repeat(np.add.reduceat(scaled, starts), sizes))


def level_weights(
    values: Floats,
    levels: NDArray[Any],
    offsets: Integers | None = None,
    *,
    share: Callable[[Floats, Integers | None], Floats] = softmax,
) -> Floats:
    """Share each row's weight among its entries of the lowest level; the others get zero.

    The potentials and levels, shape (n_entries,), are those of one row, or of many, one after the
    other, which start at ``offsets``, shape (n_rows + 1,). They are shared by softmax or sparsemax.
    """
    if offsets is None:
        kept, rows = levels == levels.min(), None
    else:
        kept = levels == np.repeat(np.minimum.reduceat(levels, offsets[:-1]), np.diff(offsets))
        rows = np.append(0, np.cumsum(kept))[offsets]
    if kept.all():
        return share(values, rows)
    weights = np.zeros(values.size)
    weights[kept] = share(values[kept], rows)
    return weights


def sparsemax(values: Floats, offsets: Integers | None = None) -> Floats:
    """Return the projection onto the simplex, for one row or for rows starting at ``offsets``."""
    rows = np.array([0, values.size]) if offsets is None else offsets
    # Centre each row at its maximum: projections do not change, and large potentials stay exact.
    sizes = np.diff(rows)
    centred = values - np.repeat(np.maximum.reduceat(values, rows[:-1]), sizes)
    return excess(centred, rows, np.full(sizes.size, -1.0))


def excess(values: Floats, offsets: Integers, guess: Floats) -> Floats:
    """Return max(x − t, 0) with each row's threshold t such that its excess sums to one.

    Newton's method on the row's sum, a convex and piecewise linear function of t: from any guess
    the first step ends at or below the threshold, and every further one rises and drops members
    until none is left to drop (Michelot 1986 starts below all of them). A good guess saves most
    of the passes.

    Parameters
    ----------
    values : float array, shape (n_entries,)
        The rows, one after the other.
    offsets : int array, shape (n_rows + 1,)
        Where each row starts.
    guess : float array, shape (n_rows,)
        A guess at each row's threshold, below its maximum.
    """
    starts, sizes = offsets[:-1], np.diff(offsets)
    threshold, count = guess, np.zeros(sizes.size, dtype=np.int64)
    first = True
    while True:
        above = np.maximum(values - np.repeat(threshold, sizes), 0.0)
        left = np.add.reduceat(above > 0, starts, dtype=np.int64)
        if not first and np.array_equal(left, count):
            return above
        step = (np.add.reduceat(above, starts) - 1.0) / left
        # Only rounding could take a later step downwards, and then for ever up and down.
        threshold = threshold + (step if first else np.maximum(step, 0.0))
        first, count = False, left
