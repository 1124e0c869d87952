"""Levels: the exact answer when the importance is out of reach, or only just within it.

The attainable importance is the lexicographically optimal base p̃ of the coverage f with weights p
(Fujishige 1980): levels B_1, B_2, … with rising ratios λ_b, p̃ = λ_b p on B_b. Along an order of
the clients in which every level is a run, the levels are the segments of the greatest convex
minorant of the points (p(prefix), f(prefix)), and λ its slopes. Laws with a known worst order need
nothing more. For the others the potentials give the order, and the answer is checked: the ratios
rise, and within each level p̃ is attained. By Fujishige's theorem those two facts are a proof, so a
wrong order cannot pass; a level whose check fails is ordered again by its own potentials.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot.laws._law import SolvableLaw

_TIGHT = 1e-11
"""Relative slack below which a set counts as tight: far below any tolerance of a solver."""
_ALONE = 1e-10
"""The same for what lies between two tight sets, whose own slack adds to it."""


@dataclass(frozen=True, eq=False)
class Partition:
    """Clients in levels, and the importance those levels attain.

    Attributes
    ----------
    levels : int array, shape (n_clients,)
        Level of each client, 0 the most deficient.
    ratios : float array, shape (n_levels,)
        Attained over wanted importance in each level, rising; infinite where none is wanted.
    target : float array, shape (n_clients,)
        The attained importance p̃.
    """

    levels: Integers
    ratios: Floats
    target: Floats


class _Scan(NamedTuple):
    """Along an order: each client's importance, and the coverage it adds to those before it.

    Both may be spread over many orders of magnitude, so a run's is always added up afresh and never
    taken as a difference of cumulated sums.
    """

    importance: Floats
    gains: Floats


def partition(importance: Floats, law: SolvableLaw, order: Integers) -> Partition:
    """Read the levels off one order: the minorant's segments, split where they touch it.

    Clients without importance come last whatever the order says: they get weight only in cohorts
    where nobody else has any, shared equally.
    """
    along = importance[order]
    if not along.all():
        order = np.concatenate((order[along > 0], order[along == 0]))
        along = importance[order]
    count = np.count_nonzero(along)
    wanted, rest = order[:count], order[count:]
    scan = _Scan(along[:count], law.prefix_gains(order)[:count])
    segments = _segments(scan)
    edges = _edges(scan, segments)
    mass, covered = _totals(scan, segments)
    # Pieces of one segment keep its ratio: where they touch is known only to rounding.
    segment = np.searchsorted(segments, edges[:-1], side="right") - 1
    ratios = (covered / mass)[segment]
    level = np.repeat(np.arange(ratios.size), np.diff(edges))
    levels = np.empty(order.size, dtype=np.int64)
    levels[wanted] = level
    target = np.empty(order.size)
    target[wanted] = scan.importance / mass[segment[level]] * covered[segment[level]]
    if rest.size:
        levels[rest] = ratios.size
        ratios = np.append(ratios, np.inf)
        target[rest] = law.expected_weights(np.zeros(order.size), levels)[rest]
    return Partition(levels, ratios, target)


def _totals(scan: _Scan, cuts: Integers) -> tuple[Floats, Floats]:
    """Return importance and coverage of each run between two cuts."""
    return np.add.reduceat(scan.importance, cuts[:-1]), np.add.reduceat(scan.gains, cuts[:-1])


def _segments(scan: _Scan) -> Integers:
    """Return where segments of the minorant begin and end, 0 and the end included."""
    slack = np.cumsum(scan.gains) - np.cumsum(scan.importance)
    # How far rounding may put cumulated sums of this length apart.
    noise = 2e-15 * (1.0 + np.sqrt(slack.size))
    if slack.min() >= -noise and abs(slack[-1]) <= noise:
        # Nothing is violated: one ratio, 1, and no minorant to compute.
        return np.array([0, slack.size])
    return _minorant(scan)


def _edges(scan: _Scan, segments: Integers) -> Integers:
    """Return where levels begin and end: the segments, split where a prefix touches its own.

    Such a prefix is tight: no weight can cross it.
    """
    mass, covered = _totals(scan, segments)
    segment = np.repeat(np.arange(mass.size), np.diff(segments))
    # Shares of the segment's importance and coverage; what is never covered needs no parting.
    wanted = scan.importance / mass[segment]
    had = np.divide(scan.gains, covered[segment], out=wanted.copy(), where=covered[segment] > 0)
    above = np.cumsum(had - wanted)
    near = above <= 1e-13 + 2e-15 * (1.0 + np.sqrt(above.size) + segment)
    near[segments[1:] - 1] = False
    near &= covered[segment] > 0
    cuts = [segments]
    for number in np.unique(segment[near]):
        inside = slice(segments[number], segments[number + 1])
        tight = np.flatnonzero(near[inside] & _touches(wanted[inside], had[inside]))
        cuts.append(segments[number] + 1 + _sound(tight, wanted[inside], had[inside]))
    return np.sort(np.concatenate(cuts))


def _touches(wanted: Floats, had: Floats) -> NDArray[np.bool_]:
    """Say after which clients of a segment a prefix has just what it is wanted for.

    Judged on the smaller side of the cut, relative to what that side is wanted for: a share of
    1e-16 is either tight or not, whatever the rounding of the rest.
    """
    left, right = np.cumsum(wanted), np.append(np.cumsum(wanted[::-1])[::-1][1:], 0.0)
    before = np.cumsum(had - wanted)
    after = np.append(np.cumsum((had - wanted)[::-1])[::-1][1:], 0.0)
    return np.where(left <= right, np.abs(before) <= _TIGHT * left, np.abs(after) <= _TIGHT * right)


def _sound(cuts: Integers, wanted: Floats, had: Floats) -> Integers:
    """Keep those cuts between which every piece by itself has what it is wanted for.

    A piece of 1e-24 between two others is beyond the rounding of either side; and one that begins
    with a client who has less than it is wanted for belongs to what comes before.
    """
    enough = had[cuts + 1] >= wanted[cuts + 1] * (1.0 - _ALONE)
    kept: list[int] = []
    for cut in cuts[enough]:
        piece = slice(kept[-1] + 1 if kept else 0, cut + 1)
        if abs((had[piece] - wanted[piece]).sum()) <= _ALONE * wanted[piece].sum():
            kept.append(int(cut))
    while (
        kept and abs((had - wanted)[kept[-1] + 1 :].sum()) > _ALONE * wanted[kept[-1] + 1 :].sum()
    ):
        kept.pop()
    return np.array(kept, dtype=np.int64)


def _minorant(scan: _Scan) -> Integers:
    """Return the vertices of the greatest convex minorant, by isotonic regression of slopes."""
    from scipy.optimize import isotonic_regression

    fit = isotonic_regression(scan.gains / scan.importance, weights=scan.importance)
    return np.asarray(fit.blocks, dtype=np.int64)
