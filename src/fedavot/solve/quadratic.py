"""Expected weights that are projections onto the simplex, their derivative, and its linear systems.

m(x) = Σ_A q_A proj(x_A) is piecewise linear. With S_A the support, the n_A members of A of positive
weight, its derivative is H = Σ_A q_A (diag(1_S) − 1_S 1_Sᵀ/n_A), the Laplacian of the pairs that
share a support. Supports are often far smaller than the cohorts, so H is built from them alone.

A client whose potential is below the thresholds t_A of all its cohorts has no weight, and the
expected weights have no curvature in its potential: Newton's method would send it anywhere, and
shorten the steps of all clients linked to it. By itself it is easily served: at the potential x it
gets

    Σ_A q_A n_A/(n_A + 1) max(x − t_A, 0),

or less where it displaces some members that have weight. So raising x until this equals the target
never overshoots, not even if many clients rise at once, and always increases the concave objective.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence, total_by
from fedavot._simplex import excess
from fedavot.laws._laplacian import gram
from fedavot.solve.direction import CG_STEPS, conjugate_gradients, solve_dense, solve_sparse

# Number of clients up to which a dense factorisation costs less than a few dozen products, and up
# to which it fits in memory, where conjugate gradients fail.
_AT_ONCE, _MOST_DENSE = 300, 5_000
# Pairs per client up to which a sparse factorisation is cheaper.
_SPARSE_PAIRS = 10
_CG_AIM = 1e-3


@dataclass(frozen=True, eq=False)
class Projections:
    """Cohorts, of two members or more, whose members' potentials are projected."""

    incidence: Incidence
    probabilities: Floats

    def by_client(self, entries: Floats) -> Floats:
        """Sum numbers, one per member of each cohort, over the cohorts of each client."""
        return total_by(self.incidence.members, entries, self.incidence.n_clients)

    @cached_property
    def inclusion(self) -> Floats:
        """Σ_{A∋i} q(A) for each client, which bounds H from above."""
        return self.by_client(self.incidence.spread_over_members(self.probabilities))

    def at(self, potentials: Floats, near: "Point | None" = None) -> "Point":
        """Project all cohorts, starting from the thresholds of a nearby point if one is given."""
        starts, sizes = self.incidence.offsets[:-1], self.incidence.sizes
        values = potentials[self.incidence.members]
        highest = np.maximum.reduceat(values, starts)
        values -= np.repeat(highest, sizes)
        guess = np.full(sizes.size, -1.0)
        if near is not None:
            # The largest weight is at least 1/n and at most one.
            guess = np.clip(near.thresholds - highest, -1.0, -1.0 / sizes)
        weights = excess(values, self.incidence.offsets, guess)
        return Point(self, potentials, weights, highest - np.maximum.reduceat(weights, starts))


@dataclass(frozen=True, eq=False)
class Point:
    """The projections at one vector of potentials.

    ``weights`` has one number per member of each cohort, ``thresholds`` the potential of each
    cohort up to which a member has no weight.
    """

    projections: Projections
    potentials: Floats
    weights: Floats
    thresholds: Floats

    @cached_property
    def marginal(self) -> Floats:
        """Expected weights, shape (n_clients,)."""
        chances = self.projections.probabilities
        return self.projections.by_client(
            self.weights * self.projections.incidence.spread_over_members(chances)
        )

    @cached_property
    def support_sizes(self) -> Integers:
        """Number of members of each cohort with positive weight, shape (n_cohorts,)."""
        starts = self.projections.incidence.offsets[:-1]
        return np.add.reduceat(self.weights > 0, starts, dtype=np.int64)

    @cached_property
    def _roots(self) -> Any:
        """The rows √(q/n) 1_S, whose outer products sum to H off its diagonal.

        Supports of one member do not contribute to H.
        """
        incidence, several = self.projections.incidence, self.support_sizes > 1
        inside = (self.weights > 0) & incidence.spread_over_members(several)
        count = self.support_sizes[several]
        share = np.sqrt(self.projections.probabilities[several] / count)
        ends = np.concatenate(([0], np.cumsum(count))).astype(np.int32)
        entries = (np.repeat(share, count), incidence.members[inside], ends)
        return sparse.csr_array(entries, shape=(count.size, incidence.n_clients))

    @cached_property
    def _diagonals(self) -> tuple[Floats, Floats]:
        """The diagonal of H, and that of its first term.

        The former is a sum of positive terms: subtracting q/n from q would lose the little that a
        rare cohort adds.
        """
        several, members = self.support_sizes > 1, self.projections.incidence.members
        chances = np.where(several, self.projections.probabilities, 0.0)
        inside, sizes = self.weights > 0, self.projections.incidence.sizes
        less = np.repeat(chances * (1.0 - 1.0 / self.support_sizes), sizes)
        count = self.projections.incidence.n_clients
        return (
            total_by(members[inside], less[inside], count),
            total_by(members[inside], np.repeat(chances, sizes)[inside], count),
        )

    def product(self, direction: Floats) -> Floats:
        """Return H times a direction."""
        roots = self._roots
        return np.asarray(self._diagonals[1] * direction - roots.T @ (roots @ direction))

    def solve(self, ridge: Floats, right: Floats) -> Floats:
        """Solve (H + diag(ridge)) d = right by the cheapest method that is accurate enough."""
        width, diagonal, roots = right.size, self._diagonals[0] + ridge, self._roots
        pairs = np.square(np.diff(roots.indptr), dtype=np.float64).sum()
        if width > _AT_ONCE and pairs <= _SPARSE_PAIRS * width:
            matrix = (roots.T @ roots).tocsr()
            matrix.setdiag(0.0)
            return solve_sparse(sparse.diags_array(diagonal) - matrix, right)
        if width > _AT_ONCE:
            steps = CG_STEPS if width <= _MOST_DENSE else 10 * CG_STEPS
            solution, solved = conjugate_gradients(
                lambda vector: self.product(vector) + ridge * vector,
                right,
                diagonal,
                _CG_AIM,
                steps,
            )
            if solved or width > _MOST_DENSE:
                return solution
        dense = np.negative(gram(roots))
        np.fill_diagonal(dense, diagonal)
        return solve_dense(dense, right)


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
    lacking = target - ridge * (least - centre)
    idle &= lacking > 0
    if not idle.any():
        return point
    inside = point.support_sizes[cohorts]
    slopes = point.projections.probabilities[cohorts] * (inside / (inside + 1.0))
    # A probability below the normal floats may underflow to zero; a steeper slope is safe.
    slopes = np.maximum(slopes, np.finfo(float).tiny)
    # Solve Σ slopes max(rise − above, 0) + ridge rise = lacking for each of them. The left side is
    # convex, so Newton's method from above descends to the solution, dropping cohorts whose
    # threshold is above until none is left to drop.
    above, rise = thresholds - least[clients], np.full(idle.size, np.inf)
    below, falling = above <= 0, True
    while falling:
        bend = ridge + total_by(clients[below], slopes[below], idle.size)
        served = total_by(clients[below], (slopes * above)[below], idle.size)
        lower = np.divide(lacking + served, bend, out=rise.copy(), where=idle)
        falling, rise = bool(np.any(lower < rise)), lower
        below = above < rise[clients]
    return point.projections.at(np.where(idle, least + rise, point.potentials), point)
