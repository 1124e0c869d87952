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

from fedavot._checks import Floats, Integers
from fedavot.laws._law import Law


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
    """Along an order: each client's importance, and the coverage of what comes before it.

    Importance may be spread over many orders of magnitude, so a run's is always added up afresh
    and never taken as a difference of cumulated sums.
    """

    importance: Floats
    coverage: Floats


def partition(importance: Floats, law: Law, order: Integers) -> Partition:
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
    scan = _Scan(along[:count], np.concatenate(([0.0], law.prefix_coverage(order)[:count])))
    edges = _edges(scan)
    mass = np.add.reduceat(scan.importance, edges[:-1])
    covered = np.maximum(np.diff(scan.coverage[edges]), 0.0)
    ratios = covered / mass
    level = np.repeat(np.arange(ratios.size), np.diff(edges))
    levels = np.empty(order.size, dtype=np.int64)
    levels[wanted] = level
    target = np.empty(order.size)
    target[wanted] = scan.importance / mass[level] * covered[level]
    if rest.size:
        levels[rest] = ratios.size
        ratios = np.append(ratios, np.inf)
        target[rest] = law.expected_weights(np.zeros(order.size), levels)[rest]
    return Partition(levels, ratios, target)


def _edges(scan: _Scan) -> Integers:
    """Return where levels begin and end along the order, 0 and the end included."""
    noise = 2e-15 * (1.0 + np.sqrt(scan.importance.size))
    slack = scan.coverage[1:] - np.cumsum(scan.importance)
    if slack.min() >= -noise and abs(slack[-1]) <= noise:
        # Nothing is violated: one ratio, 1, and no minorant to compute.
        blocks = np.array([0, scan.importance.size])
    else:
        blocks = _minorant(scan)
    covered = np.diff(scan.coverage[blocks])
    block = np.repeat(np.arange(covered.size), np.diff(blocks))
    # Each client's place in its block as a share of the block's importance, 0 to 1.
    mass = np.add.reduceat(scan.importance, blocks[:-1])
    place = np.cumsum(scan.importance / mass[block]) - block
    above = scan.coverage[1:] - scan.coverage[blocks[block]] - covered[block] * place
    # Where a prefix touches its segment it is tight: no weight can cross, so split there too.
    touches = above <= 1e-11 * covered[block] * np.minimum(place, 1.0 - place) + noise
    touches[blocks[1:] - 1] = True
    return np.concatenate(([0], np.flatnonzero(touches) + 1))


def _minorant(scan: _Scan) -> Integers:
    """Return the vertices of the greatest convex minorant, by isotonic regression of slopes."""
    from scipy.optimize import isotonic_regression

    slopes = np.diff(scan.coverage) / scan.importance
    fit = isotonic_regression(slopes, weights=scan.importance)
    return np.asarray(fit.blocks, dtype=np.int64)
