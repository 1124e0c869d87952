"""Expected weights of an explicit list of cohorts.

With the incidence S, u = exp(x) and s = S u, the expected weights are m = u ∘ Sᵀ(q/s): all sums of
positive numbers, so plain exponentials are exact up to rounding as long as they neither overflow
nor underflow. Potentials too far apart for that take a slower path, which subtracts the maximum of
each cohort.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence, total_by
from fedavot._simplex import softmax
from fedavot.laws._laplacian import Roots
from fedavot.laws._pairs import PairMatrix, PairPoint, suits

_SPARSE_ENTRIES = 8
"""Entries per client up to which a factorisation of the Hessian is taken to stay sparse."""
_SPARSE_CLIENTS = 5_000
"""Number of clients up to which even a full factor is cheap; beyond, the bandwidth decides."""
_BANDED_ENTRIES = 20_000_000
_SAFE_SPREAD = 600.0
"""Range of potentials, ±300 about the centre, that keeps exp(x) and q/s within float64."""
_SINGLE_SPREAD, _SINGLE_RATIO = 40.0, 1e-9
"""Range of potentials, and least ratio of two probabilities, for single precision: what is summed
then is within a factor of 1e20 of one, far from 1e38."""


@dataclass(frozen=True, eq=False)
class ExplicitSystem:
    """Expected weights of explicit cohorts, each reduced to the members of its lowest level.

    The levels of the clients are only used to centre the potentials of each level.
    """

    incidence: Incidence
    probabilities: Floats
    levels: Integers | None

    def marginal(self, potentials: Floats) -> Floats:
        point = self.curvature(potentials)
        if type(point) is not _Point:
            return point.marginal
        return np.asarray(
            point.scale * self.incidence.sum_of_shares(self.probabilities, point.scale)
        )

    def rough_marginal(self, potentials: Floats) -> Floats | None:
        """Return the expected weights in single precision, if that is faster and safe, or None."""
        if not self._suits_single:
            return None
        centred, spread = centre(potentials, self.levels)
        if not 0.0 < spread <= _SINGLE_SPREAD:
            return None
        scale = np.exp(centred)
        sums = self.incidence.sum_of_shares(self._single_ratios, scale.astype(np.float32))
        return np.asarray(self.probabilities.max() * scale * sums)

    @cached_property
    def _suits_single(self) -> bool:
        """Whether there are many cohorts, whose probabilities differ little enough."""
        # Matrices of pairs have a faster way of their own.
        if self._pairs is not None or not self.incidence.is_large:
            return False
        return bool(self.probabilities.min() > _SINGLE_RATIO * self.probabilities.max())

    @cached_property
    def _single_ratios(self) -> NDArray[np.float32]:
        return np.asarray(self.probabilities / self.probabilities.max(), dtype=np.float32)

    def curvature(self, potentials: Floats) -> "_Point | _WidePoint | PairPoint":
        centred, spread = centre(potentials, self.levels)
        if spread > _SAFE_SPREAD:
            return _WidePoint(self.incidence, self.probabilities, potentials)
        if self._pairs is not None:
            return PairPoint(self._pairs, np.exp(centred))
        if spread == 0.0 and self.incidence.sizes.min() == self.incidence.sizes.max():
            return _EvenPoint(self.incidence, self.probabilities, np.exp(centred), self.inclusion)
        return _Point(self.incidence, self.probabilities, np.exp(centred))

    @cached_property
    def inclusion(self) -> Floats:
        """The total probability of each client's cohorts, shape (n_clients,)."""
        if self._pairs is not None:
            return self._pairs.totals + self._pairs.singles
        return self.incidence.sum_by_client(self.probabilities)

    @property
    def has_most_pairs(self) -> bool:
        """Whether the cohorts are singles and most of all pairs of clients."""
        return self._pairs is not None

    @cached_property
    def _pairs(self) -> PairMatrix | None:
        return PairMatrix.of(self.incidence, self.probabilities) if suits(self.incidence) else None

    def ranges(self, values: Floats) -> tuple[Integers, Floats]:
        """Return a member of each cohort, and the range of the values within the cohort."""
        firsts = self.incidence.members[self.incidence.offsets[:-1]]
        spread = self.incidence.maximum(values) - self.incidence.minimum(values)
        return firsts.astype(np.int64), np.asarray(spread)

    @cached_property
    def is_sparse(self) -> bool:
        """Whether the Hessian has few enough entries for a sparse factorisation."""
        entries = float(np.square(self.incidence.sizes, dtype=np.float64).sum())
        n_clients = self.incidence.n_clients
        if entries > _SPARSE_ENTRIES * n_clients:
            return False
        return n_clients <= _SPARSE_CLIENTS or self._bandwidth * n_clients <= _BANDED_ENTRIES

    @cached_property
    def _bandwidth(self) -> int:
        """Bandwidth of the Hessian after reordering the clients (reverse Cuthill–McKee)."""
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        rows = self.incidence.matrix(np.ones(self.incidence.members.size))
        graph = (rows.T @ rows).tocsr()
        rank = np.empty(graph.shape[0], dtype=np.int64)
        rank[reverse_cuthill_mckee(graph, symmetric_mode=True)] = np.arange(graph.shape[0])
        graph = graph.tocoo()
        return int(np.abs(rank[graph.row] - rank[graph.col]).max(initial=0))


def centre(potentials: Floats, levels: Integers | None) -> tuple[Floats, float]:
    """Centre the potentials of each level at zero; return them and the largest range."""
    if levels is None:
        high, low = potentials.max(), potentials.min()
        return potentials - (high + low) / 2, float(high - low)
    count = int(levels.max()) + 1
    high, low = np.full(count, -np.inf), np.full(count, np.inf)
    np.maximum.at(high, levels, potentials)
    np.minimum.at(low, levels, potentials)
    # A number that is no client's level counts as a level of width zero.
    empty = high < low
    high[empty] = low[empty] = 0.0
    return potentials - ((high + low) / 2)[levels], float(np.max(high - low))


@runtime_checkable
class Listed(Protocol):
    """A point that knows the weight of every member of every cohort of a list."""

    def roots(self) -> Roots:
        """Return √q(A) Y_i for every member i of every cohort A."""


@dataclass(frozen=True, eq=False)
class _Point:
    """Weights and curvature at potentials whose exponentials u neither overflow nor underflow."""

    incidence: Incidence
    probabilities: Floats
    scale: Floats

    @cached_property
    def _normaliser(self) -> Floats:
        return self.incidence.sum_by_cohort(self.scale)

    @cached_property
    def _share(self) -> Floats:
        return self.probabilities / self._normaliser

    @cached_property
    def marginal(self) -> Floats:
        return self.scale * self.incidence.sum_by_client(self._share)

    @cached_property
    def squares(self) -> Floats:
        return self.scale**2 * self.incidence.sum_by_client(self._share / self._normaliser)

    def product(self, direction: Floats) -> Floats:
        mean = self.incidence.sum_by_cohort(self.scale * direction) / self._normaliser
        return self.marginal * direction - self.scale * self.incidence.sum_by_client(
            self._share * mean
        )

    def roots(self) -> Roots:
        factors = self.incidence.spread_over_members(np.sqrt(self.probabilities) / self._normaliser)
        return Roots(self.incidence, factors * self.scale.take(self.incidence.members))

    def dense(self) -> Floats:
        return self.roots().laplacian()


@dataclass(frozen=True, eq=False)
class _EvenPoint(_Point):
    """Weights and curvature at equal potentials in cohorts of one size, where all are equal."""

    inclusion: Floats

    @cached_property
    def marginal(self) -> Floats:
        return np.asarray(self.inclusion / self.incidence.sizes[0])

    @cached_property
    def squares(self) -> Floats:
        return np.asarray(self.marginal / self.incidence.sizes[0])


@dataclass(frozen=True, eq=False)
class _WidePoint:
    """Weights and curvature at potentials of any range, member by member."""

    incidence: Incidence
    probabilities: Floats
    potentials: Floats

    @cached_property
    def _weights(self) -> Floats:
        """Softmax weights, one per entry of the incidence."""
        return softmax(self.potentials[self.incidence.members], self.incidence.offsets)

    def _by_client(self, entries: Floats) -> Floats:
        return total_by(self.incidence.members, entries, self.incidence.n_clients)

    @cached_property
    def _mass(self) -> Floats:
        return self._weights * np.repeat(self.probabilities, self.incidence.sizes)

    @cached_property
    def marginal(self) -> Floats:
        return self._by_client(self._mass)

    @cached_property
    def squares(self) -> Floats:
        return self._by_client(self._mass * self._weights)

    def product(self, direction: Floats) -> Floats:
        entries = direction[self.incidence.members]
        mean = np.add.reduceat(self._weights * entries, self.incidence.offsets[:-1])
        return self._by_client(self._mass * (entries - self.incidence.spread_over_members(mean)))

    def roots(self) -> Roots:
        factors = self.incidence.spread_over_members(np.sqrt(self.probabilities))
        return Roots(self.incidence, self._weights * factors)

    def dense(self) -> Floats:
        return self.roots().laplacian()
