"""Levels: the exact answer when the importance is out of reach, or only just within it.

The attainable importance is the lexicographically optimal base p̃ of the coverage f with weights p
(Fujishige 1980): levels B_1, B_2, … with rising ratios λ_b, p̃ = λ_b p on B_b. Along an order of
the clients in which every level is a run, the levels are the segments of the greatest convex
minorant of the points (p(prefix), f(prefix)), and λ its slopes. Laws with a known worst order need
nothing more. For the others the potentials give the order, and the answer is checked: the ratios
rise, and within each level p̃ is attained. By Fujishige's theorem these two facts are a proof, so a
wrong order cannot pass; a level that fails the check is ordered again by its own potentials.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot.laws._law import SolvableLaw

# Relative slack below which a set counts as tight: far below any tolerance of a solver.
_TIGHT = 1e-11
# The same for what lies between two tight sets, whose own slack adds to it.
_ALONE = 1e-10
# Distance from the median of its level at which a potential is clipped by `gathered`.
_FARTHEST = 20.0


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition of the clients into levels, and the importance that those levels attain.

    ``levels`` has the level of each client, 0 being the most deficient; ``ratios`` the attained
    over the wanted importance of each level, rising, infinite where none is wanted; and ``target``
    the attained importance p̃ of each client.
    """

    levels: Integers
    ratios: Floats
    target: Floats


def partition(importance: Floats, law: SolvableLaw, order: Integers) -> Partition:
    """Read the levels off an order: the segments of the minorant, split where it is touched.

    Clients without importance come last whatever the order: they get weight only in cohorts in
    which nobody has importance, shared equally.
    """
    order = np.concatenate((order[importance[order] > 0], order[importance[order] == 0]))
    count = np.count_nonzero(importance)
    rest = order[count:]
    # Importance along the order, and the coverage that each client adds to those before it. Both
    # may span many orders of magnitude, so sums over a run of clients are always added up afresh,
    # never taken as differences of cumulative sums.
    along, gains = importance[order[:count]], law.prefix_gains(order)[:count]
    segments = _segments(along, gains)
    mass = np.add.reduceat(along, segments[:-1])
    covered = np.add.reduceat(gains, segments[:-1])
    # Pieces of one segment keep its ratio: where they touch is known only to rounding.
    segment = np.repeat(np.arange(mass.size), np.diff(segments))
    edges = _edges(along / mass[segment], gains, covered, segments, segment)
    ratios = (covered / mass)[segment[edges[:-1]]]
    levels, target = np.empty(order.size, dtype=np.int64), np.empty(order.size)
    levels[order[:count]] = np.repeat(np.arange(ratios.size), np.diff(edges))
    target[order[:count]] = along / mass[segment] * covered[segment]
    if rest.size:
        levels[rest] = ratios.size
        ratios = np.append(ratios, np.inf)
        target[rest] = law.expected_weights(np.zeros(order.size), levels)[rest]
    return Partition(levels, ratios, target)


def one_level(importance: Floats, law: SolvableLaw) -> Partition:
    """Put every client into one level, except those whose level is known beforehand.

    Clients that no cohort contains come first, with ratio 0; clients without importance last.
    """
    unreachable = (law.inclusion() <= 0) & (importance > 0)
    idle = importance == 0
    kinds = np.where(unreachable, 0, np.where(idle, 2, 1))
    present = np.flatnonzero(np.bincount(kinds))
    levels = np.searchsorted(present, np.arange(3))[kinds]
    target = np.where(unreachable, 0.0, importance)
    if idle.any():
        target[idle] = law.expected_weights(np.zeros(idle.size), levels)[idle]
    middle = kinds == 1
    scale = (1.0 - target[idle].sum()) / max(importance[middle].sum(), 1e-300)
    target[middle] *= scale
    ratios = np.array([0.0, scale, np.inf])[present]
    return Partition(levels, ratios, target)


def reread(importance: Floats, law: SolvableLaw, levels: Integers, potentials: Floats) -> Partition:
    """Read the levels off the order of falling potentials within the present levels."""
    return partition(importance, law, np.lexsort((-potentials, levels)))


def gathered(potentials: Floats, levels: Integers) -> Floats:
    """Centre each level's potentials at their median, and clip those that are far from it.

    The potential of a client in the wrong level diverges; in its new level it would take many
    steps to come back.
    """
    order = np.lexsort((potentials, levels))
    sizes = np.bincount(levels)
    middle = potentials[order[np.cumsum(sizes) - sizes + sizes // 2]]
    return np.asarray(np.clip(potentials - middle[levels], -_FARTHEST, _FARTHEST))


def _segments(along: Floats, gains: Floats) -> Integers:
    """Return the positions where segments of the minorant begin and end, both ends included."""
    slack = np.cumsum(gains) - np.cumsum(along)
    # How far apart rounding may put cumulative sums of this length.
    noise = 2e-15 * (1.0 + np.sqrt(slack.size))
    if slack.min() >= -noise and abs(slack[-1]) <= noise:
        # Nothing is violated: one ratio, 1, and no minorant to compute.
        return np.array([0, slack.size])
    from scipy.optimize import isotonic_regression

    # The slopes of the greatest convex minorant are the isotonic regression of those of the points.
    fit = isotonic_regression(gains / along, weights=along)
    return np.asarray(fit.blocks, dtype=np.int64)


def _edges(
    demand: Floats, gains: Floats, covered: Floats, segments: Integers, segment: Integers
) -> Integers:
    """Return where levels begin and end: segments, split after prefixes that touch the minorant.

    Such a prefix is tight: no weight can cross its end. ``demand`` has each client's share of its
    segment's importance; what is never covered needs no parting.
    """
    share = np.divide(gains, covered[segment], out=demand.copy(), where=covered[segment] > 0)
    above = np.cumsum(share - demand)
    near = above <= 1e-13 + 2e-15 * (1.0 + np.sqrt(above.size) + segment)
    near[segments[1:] - 1] = False
    near &= covered[segment] > 0
    cuts = [segments]
    for number in np.unique(segment[near]):
        inside = slice(segments[number], segments[number + 1])
        tight = _tight_prefixes(demand[inside], share[inside])
        cuts.append(
            segments[number]
            + 1
            + _exact_cuts(np.flatnonzero(near[inside] & tight), demand[inside], share[inside])
        )
    return np.sort(np.concatenate(cuts))


def _tight_prefixes(demand: Floats, supply: Floats) -> NDArray[np.bool_]:
    """Say after which clients of a segment the prefix's coverage equals its importance.

    This is judged on the smaller side of the cut, relative to what that side is wanted for, so
    that a share of 1e-16 does not drown in the rounding of the rest.
    """
    left, right = np.cumsum(demand), np.append(np.cumsum(demand[::-1])[::-1][1:], 0.0)
    before = np.cumsum(supply - demand)
    after = np.append(np.cumsum((supply - demand)[::-1])[::-1][1:], 0.0)
    return np.where(left <= right, np.abs(before) <= _TIGHT * left, np.abs(after) <= _TIGHT * right)


def _exact_cuts(cuts: Integers, demand: Floats, supply: Floats) -> Integers:
    """Keep the cuts whose pieces are each covered exactly.

    A piece of 1e-24 between two others is below the rounding of either side; and a piece that
    begins with a client that has less than it is wanted for belongs to the piece before.
    """

    def exact(first: int, last: int | None) -> bool:
        piece = slice(first, last)
        return bool(abs((supply - demand)[piece].sum()) <= _ALONE * demand[piece].sum())

    chosen = [-1]
    for cut in cuts[supply[cuts + 1] >= demand[cuts + 1] * (1.0 - _ALONE)].tolist():
        if exact(chosen[-1] + 1, cut + 1):
            chosen.append(cut)
    while len(chosen) > 1 and not exact(chosen[-1] + 1, None):
        chosen.pop()
    return np.array(chosen[1:], dtype=np.int64)
