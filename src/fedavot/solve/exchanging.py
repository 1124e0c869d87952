"""Move every client to the level where it belongs by its own ratio, all clients at once.

Levels come from a chain of sets: for each ratio λ the set I_λ of all levels up to it, which should
minimise f(I) − λ p(I). A law's tangents (`mixture_tangents`) bound f(J) − λ p(J) from above by a
sum over clients that is exact at J = I_λ and least for the set of clients whose own slope is below
λ p_i. Taking that set never raises f − λ p, at any λ; and as slopes fall along the chain, the new
sets form a chain again. So a client in the wrong level goes to the right one in a single step,
however many levels lie in between. What no client can improve on its own, such as the parting of
tight sets, is left to the potentials.
"""

import numpy as np

from fedavot._checks import Floats
from fedavot.laws._law import SolvableLaw
from fedavot.laws.mixture_tangents import Slopes, slopes_along
from fedavot.solve.levels import Partition, partition

_CLEARLY = 1e-9
"""Relative; ratios that are closer do not show that a client is in the wrong level."""
_MOST_STEPS = 30


def first_levels(importance: Floats, law: SolvableLaw) -> Partition:
    """Return levels to begin with, from each client's ratio if it had the law to itself."""
    inclusion = law.inclusion()
    ratios = np.full(importance.size, np.inf)
    with np.errstate(over="ignore"):
        np.divide(inclusion, importance, out=ratios, where=importance > 0)
    return exchanged(
        importance, law, partition(importance, law, np.argsort(ratios)), np.zeros_like(importance)
    )


def exchanged(
    importance: Floats, law: SolvableLaw, parts: Partition, potentials: Floats
) -> Partition:
    """Move clients between levels until nobody is clearly in the wrong one.

    The order within a level is that of the potentials. Levels of laws without tangents are returned
    as they are.
    """
    for _ in range(_MOST_STEPS):
        slopes = slopes_along(law, parts.levels)
        places = None if slopes is None else _places(importance, parts, slopes)
        if places is None:
            break
        order = np.lexsort((-potentials, parts.levels, places))
        parts = partition(importance, law, order)
    return parts


def _places(importance: Floats, parts: Partition, slopes: Slopes) -> Floats | None:
    """Return the ratio at which each client joins the chain, or None if nobody has to move."""
    levels, ratios = parts.levels, parts.ratios
    wanted = importance > 0
    stays = ~wanted | (
        (slopes(levels + 1) <= parts.target * (1.0 + _CLEARLY))
        & (slopes(levels) >= parts.target * (1.0 - _CLEARLY))
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
