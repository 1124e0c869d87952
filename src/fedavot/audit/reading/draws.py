"""Some of each round's clients, drawn uniformly without replacement, all rounds at once.

Every entry gets a random number, and the smallest of a round are drawn. Numbers are used up entry
by entry, so that a draw does not depend on the rounds after it.
"""

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Integers
from fedavot._incidence import Incidence

ONE_BY_ONE = 10_000
"""Rounds that are drawn one by one at the start of a log, as they always were, so that logs of
this length keep their draws; those after them are drawn all at once."""
SLAB = 1 << 20
"""About how many entries are sorted at a time, to save memory."""


def some_of(available: Incidence, sizes: Integers, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw so many of each round's clients.

    Parameters
    ----------
    available : Incidence
        Those to draw from.
    sizes : int array, shape (n_rounds,)
        How many to draw in each round, at most as many as there are.
    rng : Generator

    Returns
    -------
    int32 array, shape (n_drawn,)
        Those drawn, one round after the other, ascending within each.
    """
    offsets, n_rounds = available.offsets, sizes.size
    parts, low = [np.empty(0, dtype=np.int32)], 0
    while low < n_rounds:
        high = int(np.searchsorted(offsets, offsets[low] + SLAB, side="right")) - 1
        high = min(max(high, low + 1), n_rounds)
        part = available.between(low, high)
        counts = part.sizes
        order = np.lexsort(
            (rng.random(part.members.size), np.repeat(np.arange(high - low), counts))
        )
        rank = np.arange(order.size) - np.repeat(part.offsets[:-1], counts)
        taken = np.zeros(order.size, dtype=bool)
        taken[order[rank < np.repeat(sizes[low:high], counts)]] = True
        parts.append(part.members[taken])
        low = high
    return np.concatenate(parts)
