"""Move every client to the level where it belongs by its own ratio, all clients at once.

Levels come from a chain of sets: for each ratio λ the set I_λ of all levels up to it, which should
minimise f(I) − λ p(I). The tangents of the coverage (`laws.tangents`) bound f(J) − λ p(J) from
above by a sum over clients that is exact at J = I_λ and least for the set of clients whose slope is
below λ p_i. Taking that set never raises f − λ p, at any λ; and as slopes fall along the chain, the
new sets form a chain again. So a client in the wrong level moves to the right one in a single step,
however many levels lie in between. What no single move improves, such as the separation of tight
sets, is left to the potentials.
"""

import numpy as np

from fedavot._checks import Floats
from fedavot.laws._law import SolvableLaw
from fedavot.laws.tangents import Slopes, slopes_along
from fedavot.solve.levels import Partition, partition

_CLEARLY = 1e-9
"""Relative difference of ratios from which on a client counts as being in the wrong level."""
_MOST_STEPS = 30


def first_levels(importance: Floats, law: SolvableLaw) -> Partition:
    """Return levels to start from, by the ratio P(i ∈ A)/p_i that each client has by itself."""
    inclusion = law.inclusion()
    ratios = np.full(importance.size, np.inf)
    with np.errstate(over="ignore"):
        np.divide(inclusion, importance, out=ratios, where=importance > 0)
    return exchanged(
        importance, law, partition(importance, law, np.argsort(ratios)), np.zeros_like(importance)
    )


def exchanged(
    importance: Floats, law: SolvableLaw, split: Partition, potentials: Floats
) -> Partition:
    """Move clients between levels until nobody is clearly in the wrong one.

    Clients of one level are ordered by falling potentials. Levels of laws without tangents are
    returned as they are.
    """
    for _ in range(_MOST_STEPS):
        slopes = slopes_along(law, split.levels)
        places = None if slopes is None else _places(importance, split, slopes)
        if places is None:
            break
        order = np.lexsort((-potentials, split.levels, places))
        split = partition(importance, law, order)
    return split


def _places(importance: Floats, split: Partition, slopes: Slopes) -> Floats | None:
    """Return the ratio at which each client joins the chain, or None if nobody has to move."""
    levels, ratios = split.levels, split.ratios
    wanted = importance > 0
    stays = ~wanted | (
        (slopes(levels + 1) <= split.target * (1.0 + _CLEARLY))
        & (slopes(levels) >= split.target * (1.0 - _CLEARLY))
    )
    if stays.all():
        return None
    mass = np.where(wanted, importance, 1.0)
    above = np.append(ratios, np.inf)
    # The fewest levels after which a client's slope is below the next ratio: slopes fall, ratios
    # rise, so halving finds it.
    low, high = np.zeros_like(levels), np.full_like(levels, ratios.size)
    while np.any(low < high):
        middle = (low + high) // 2
        joins = slopes(middle) < above[middle] * mass
        low, high = np.where(joins, low, middle + 1), np.where(joins, middle, high)
        low = np.minimum(low, high)
    with np.errstate(over="ignore"):
        found = np.maximum(slopes(low) / mass, np.append(0.0, ratios)[low])
    return np.where(stays, ratios[levels], found)
