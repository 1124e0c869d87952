"""Limits on the influence of one client, and the fingerprint of an alignment."""

import hashlib

import numpy as np

from fedavot._checks import Floats
from fedavot.alignment import Alignment

DWARFS = 100.0
"""Multiple of the median count above which a count is compared with all others."""


def fingerprint(alignment: Alignment | None) -> str | None:
    """Return a digest of an alignment; None without one."""
    if alignment is None:
        return None
    content = alignment.potentials.tobytes() + alignment.levels.tobytes()
    return hashlib.sha256(content + alignment.objective.encode()).hexdigest()


def plausible(counts: Floats) -> Floats:
    """Return example counts limited so that none dwarfs all others.

    A count of more than a hundred times the median is replaced by the sum of all smaller counts, if
    that is less; if there are several such counts, by an equal part of the sum. So a client whose
    count is wrong, by mistake or on purpose, has at most half of the total. Other counts are not
    changed. Counts are above 0, of shape (n_clients,).

    Examples
    --------
    >>> plausible(np.array([120.0, 80.0, 100.0, 1e12])).tolist()
    [120.0, 80.0, 100.0, 300.0]
    """
    if counts.size < 2:
        return counts
    middle = (counts.size - 1) // 2  # the lower of two medians: one of two counts may be false
    over = counts > DWARFS * np.partition(counts, middle)[middle]
    if not over.any():
        return counts
    return np.where(over, np.minimum(counts, counts[~over].sum() / over.sum()), counts)


def limited(weights: Floats, plain: Floats, limit: float) -> Floats:
    """Return weights whose odds are at most ``limit`` times the odds of the plain shares.

    Weight beyond a client's limit, w ≤ c s / (1 + (c − 1) s) for the plain share s, goes to the
    others in proportion to their weights. Among K clients of equal importance the limit is
    c / (K − 1 + c): .91 of a pair and .092 of a hundred for c = 10.

    Weights and plain shares, which are the importance of each member divided by that of the cohort,
    have shape (n_members,) and sum to one; the limit c is at least 1.
    """
    most = limit * plain / (1.0 + (limit - 1.0) * plain)
    full = np.zeros(weights.size, dtype=bool)
    while (more := ~full & (weights > most)).any():
        full |= more
        left = 1.0 - most[full].sum()
        free = np.where(full, 0.0, weights)
        if not free.sum() > 0.0:
            free = np.where(full, 0.0, plain)  # all of the weight was beyond limits
        if not free.sum() > 0.0 or left <= 0.0:
            return np.asarray(most / most.sum())
        weights = np.where(full, most, free * (left / free.sum()))
    return weights
