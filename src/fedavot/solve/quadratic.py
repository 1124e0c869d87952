"""Expected weights that are projections onto the simplex, their derivative, and its linear systems.

m(x) = Σ_A q_A proj(x_A) is piecewise linear. With S_A the support, the n_A members of A of positive
weight, its derivative is H = Σ_A q_A (diag(1_S) − 1_S 1_Sᵀ/n_A), the Laplacian of the pairs that
share a support. Supports are often far smaller than the cohorts, so H is built from them alone.
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
from fedavot.solve._numeric import CG_STEPS, conjugate_gradients, solve_dense, solve_sparse

_AT_ONCE = 300
"""Number of clients up to which a dense factorisation costs less than a few dozen products."""
_MOST_DENSE = 5_000
"""Number of clients up to which it fits in memory, where conjugate gradients fail."""
_SPARSE_PAIRS = 10
"""Pairs per client up to which a sparse factorisation is cheaper."""
_CG_AIM = 1e-3


@dataclass(frozen=True, eq=False)
class Projections:
    """Cohorts, of two members or more, whose members' potentials are projected."""

    incidence: Incidence
    probabilities: Floats

    @cached_property
    def inclusion(self) -> Floats:
        """Σ_{A∋i} q(A) for each client, which bounds H from above."""
        spread = np.repeat(self.probabilities, self.incidence.sizes)
        return total_by(self.incidence.members, spread, self.incidence.n_clients)

    def at(self, potentials: Floats, near: "Point | None" = None) -> "Point":
        """Project all cohorts, starting from the thresholds of a nearby point if one is given."""
        incidence = self.incidence
        starts, sizes = incidence.offsets[:-1], incidence.sizes
        values = potentials[incidence.members]
        highest = np.maximum.reduceat(values, starts)
        values -= np.repeat(highest, sizes)
        guess = np.full(sizes.size, -1.0)
        if near is not None:
            # The largest weight is at least 1/n and at most one.
            guess = np.clip(near.thresholds - highest, -1.0, -1.0 / sizes)
        weights = excess(values, incidence.offsets, guess)
        thresholds = highest - np.maximum.reduceat(weights, starts)
        return Point(self, potentials, weights, thresholds)


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
        incidence = self.projections.incidence
        mass = self.weights * np.repeat(self.projections.probabilities, incidence.sizes)
        return total_by(incidence.members, mass, incidence.n_clients)

    @cached_property
    def support_sizes(self) -> Integers:
        """Number of members of each cohort with positive weight, shape (n_cohorts,)."""
        starts = self.projections.incidence.offsets[:-1]
        return np.add.reduceat(self.weights > 0, starts, dtype=np.int64)

    @cached_property
    def _supports(self) -> "_Supports":
        incidence = self.projections.incidence
        several = self.support_sizes > 1
        inside = (self.weights > 0) & np.repeat(several, incidence.sizes)
        count = self.support_sizes[several]
        rows = sparse.csr_array(
            (
                np.ones(int(count.sum())),
                incidence.members[inside],
                np.concatenate(([0], np.cumsum(count))).astype(np.int32),
            ),
            shape=(count.size, incidence.n_clients),
        )
        return _Supports(rows, count, self.projections.probabilities[several])

    def product(self, direction: Floats) -> Floats:
        """Return H times a direction."""
        return self._supports.product(direction)

    def solve(self, ridge: Floats, right: Floats) -> Floats:
        """Solve (H + diag(ridge)) d = right by the cheapest method that is accurate enough."""
        supports, width = self._supports, right.size
        if width <= _AT_ONCE:
            return _solve_dense(supports, ridge, right)
        if supports.pairs <= _SPARSE_PAIRS * width:
            return _solve_sparse(supports, ridge, right)
        dense = width <= _MOST_DENSE
        found, good = conjugate_gradients(
            lambda vector: supports.product(vector) + ridge * vector,
            right,
            supports.diagonal + ridge,
            _CG_AIM,
            CG_STEPS if dense else 10 * CG_STEPS,
        )
        return _solve_dense(supports, ridge, right) if dense and not good else found


def linked(first: Point, second: Point) -> Integers:
    """Return a label for each client, equal for clients linked by supports of either point."""
    incidence = first.projections.incidence
    inside = (first.weights > 0) | (second.weights > 0)
    count = np.add.reduceat(inside, incidence.offsets[:-1], dtype=np.int64)
    offsets = np.concatenate(([0], np.cumsum(count)))
    return Incidence(incidence.members[inside], offsets, incidence.n_clients).components()


class _Supports:
    """Supports of two members or more; those of one member do not contribute to H.

    ``rows`` is the sparse 0/1 matrix of supports and clients, ``count`` the supports' sizes.
    """

    def __init__(self, rows: Any, count: Integers, probabilities: Floats) -> None:
        self.rows, self.across = rows, rows.T
        self.count = count
        self.share = probabilities / count
        self.whole = self.across @ probabilities
        # A sum of positive terms: subtracting q/n from q would lose the little a rare cohort adds.
        self.diagonal = self.across @ (probabilities * (1.0 - 1.0 / count))

    @property
    def pairs(self) -> float:
        """Number of ordered pairs within supports, counted once per support."""
        return float(np.square(self.count, dtype=np.float64).sum())

    def product(self, direction: Floats) -> Floats:
        """Return H times a direction."""
        mean = self.share * (self.rows @ direction)
        return np.asarray(self.whole * direction - self.across @ mean)

    def roots(self) -> Any:
        """Return the rows √(q/n) 1_S, whose outer products sum to H off its diagonal."""
        scaled = self.rows.copy()
        scaled.data = np.repeat(np.sqrt(self.share), self.count)
        return scaled


def _solve_sparse(supports: _Supports, ridge: Floats, right: Floats) -> Floats:
    roots = supports.roots()
    matrix = (roots.T @ roots).tocsr()
    matrix.setdiag(0.0)
    return solve_sparse(sparse.diags_array(supports.diagonal + ridge) - matrix, right)


def _solve_dense(supports: _Supports, ridge: Floats, right: Floats) -> Floats:
    matrix = np.negative(gram(supports.roots()))
    np.fill_diagonal(matrix, supports.diagonal + ridge)
    return solve_dense(matrix, right)
