"""Raise the potentials of clients that have no weight in any cohort.

A client whose potential is below the thresholds t_A of all its cohorts has no weight, and the
expected weights have no curvature in its potential: Newton's method would send it anywhere, and
shorten the steps of all clients linked to it. By itself it is easily served: at the potential x it
gets

    Σ_A q_A n_A/(n_A + 1) max(x − t_A, 0),

with n_A the number of members of A that have weight, or less where it displaces some of them. So
raising x until this equals the target never overshoots, not even if many clients rise at once, and
always increases the concave objective.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats
from fedavot._incidence import total_by
from fedavot.solve.quadratic import Point


class _Entries(NamedTuple):
    """Memberships: the client, the threshold less the client's least one, and q n/(n + 1)."""

    clients: NDArray[np.int32]
    above: Floats
    slopes: Floats


def admit(point: Point, target: Floats, ridge: Floats, centre: Floats) -> Point:
    """Raise clients without weight to where they get the target less ridge ∘ (x − centre).

    Returns the same point if nobody has to rise.
    """
    idle = (point.marginal <= 0) & (target > 0)
    if not idle.any():
        return point
    incidence = point.projections.incidence
    places = np.flatnonzero(idle[incidence.members])
    cohorts = np.searchsorted(incidence.offsets, places, side="right") - 1
    clients, thresholds = incidence.members[places], point.thresholds[cohorts]
    least = np.where(idle, np.inf, centre)
    np.minimum.at(least, clients, thresholds)
    wanted = target - ridge * (least - centre)
    idle &= wanted > 0
    if not idle.any():
        return point
    inside = point.support_sizes[cohorts]
    slopes = point.projections.probabilities[cohorts] * (inside / (inside + 1.0))
    # A probability below the normal floats may underflow to zero; a steeper slope is safe.
    slopes = np.maximum(slopes, np.finfo(float).tiny)
    entries = _Entries(clients, thresholds - least[clients], slopes)
    rise = _rise(entries, np.where(idle, wanted, 0.0), ridge)
    return point.projections.at(np.where(idle, least + rise, point.potentials), point)


def _rise(entries: _Entries, wanted: Floats, ridge: Floats) -> Floats:
    """Solve Σ slopes max(x − above, 0) + ridge x = wanted for each client with wanted > 0.

    The left side is convex in x, so Newton's method from above descends to the solution, dropping
    cohorts whose threshold is above x until none is left to drop.
    """
    idle, rise = wanted > 0, np.full(wanted.size, np.inf)
    below, falling = entries.above <= 0, True
    while falling:
        clients, slopes = entries.clients[below], entries.slopes[below]
        bend = ridge + total_by(clients, slopes, wanted.size)
        given = total_by(clients, slopes * entries.above[below], wanted.size)
        found = np.divide(wanted + given, bend, out=rise.copy(), where=idle)
        falling, rise = bool(np.any(found < rise)), found
        below = entries.above < rise[entries.clients]
    return rise
