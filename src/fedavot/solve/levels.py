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
    """Cumulated importance and coverage along an order, from (0, 0)."""

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
    scan = _Scan(
        np.concatenate(([0.0], np.cumsum(along[:count]))),
        np.concatenate(([0.0], law.prefix_coverage(order)[:count])),
    )
    edges = _edges(scan)
    mass = np.diff(scan.importance[edges])
    ratios = np.diff(scan.coverage[edges]) / mass
    levels = np.empty(order.size, dtype=np.int64)
    levels[wanted] = np.repeat(np.arange(ratios.size), np.diff(edges))
    target = np.empty(order.size)
    target[wanted] = importance[wanted] * ratios[levels[wanted]]
    if rest.size:
        levels[rest] = ratios.size
        ratios = np.append(ratios, np.inf)
        target[rest] = law.expected_weights(np.zeros(order.size), levels)[rest]
    return Partition(levels, ratios, target)


def _edges(scan: _Scan) -> Integers:
    """Return where levels begin and end along the order, 0 and the end included."""
    slack = scan.coverage - scan.importance
    noise = 2e-15 * (1.0 + np.sqrt(scan.importance.size))
    if slack.min() >= -noise and abs(slack[-1]) <= noise:
        # Nothing is violated: one ratio, 1, and no minorant to compute.
        blocks = np.array([0, scan.importance.size - 1])
    else:
        blocks = _minorant(scan)
    slopes = np.diff(scan.coverage[blocks]) / np.diff(scan.importance[blocks])
    block = np.repeat(np.arange(slopes.size), np.diff(blocks))
    # Where a prefix touches its segment it is tight: no weight can cross, so split there too.
    inside = scan.importance[1:] - scan.importance[blocks[block]]
    left = scan.importance[blocks[block + 1]] - scan.importance[1:]
    above = scan.coverage[1:] - scan.coverage[blocks[block]] - slopes[block] * inside
    touches = above <= 1e-11 * slopes[block] * np.minimum(inside, left) + noise
    touches[blocks[1:] - 1] = True
    return np.concatenate(([0], np.flatnonzero(touches) + 1))


def _minorant(scan: _Scan) -> Integers:
    """Return the vertices of the greatest convex minorant, by isotonic regression of slopes."""
    from scipy.optimize import isotonic_regression

    weights = np.diff(scan.importance)
    fit = isotonic_regression(np.diff(scan.coverage) / weights, weights=weights)
    return np.asarray(fit.blocks, dtype=np.int64)
