"""Two ways from numbers to weights that sum to one, for one row or for many at once."""

import numpy as np

from fedavot._checks import Floats, Integers


def softmax(values: Floats, offsets: Integers | None = None) -> Floats:
    """Return exp(x) over its sum, for one row or for rows starting at ``offsets``."""
    starts = np.array([0]) if offsets is None else offsets[:-1]
    sizes = np.array([values.size]) if offsets is None else np.diff(offsets)
    scaled = np.exp(values - np.repeat(np.maximum.reduceat(values, starts), sizes))
    return np.asarray(scaled / np.repeat(np.add.reduceat(scaled, starts), sizes))


def sparsemax(values: Floats, offsets: Integers | None = None) -> Floats:
    """Return the Euclidean projection onto the simplex, for one row or for each.

    Each row's threshold comes from dropping what it excludes until nothing more is (Michelot 1986).
    """
    starts = np.array([0]) if offsets is None else offsets[:-1]
    sizes = np.array([values.size]) if offsets is None else np.diff(offsets)
    # Centre each row at its maximum: projections do not change, and large potentials stay exact.
    centred = values - np.repeat(np.maximum.reduceat(values, starts), sizes)
    kept = centred > -1.0
    while True:
        total = np.add.reduceat(np.where(kept, centred, 0.0), starts)
        count = np.add.reduceat(kept, starts, dtype=np.int64)
        above = centred - np.repeat((total - 1.0) / count, sizes)
        still = kept & (above > 0)
        if np.array_equal(still, kept):
            return np.where(kept, above, 0.0)
        kept = still
