"""Expected weights of an explicit list of cohorts.

With the incidence S, u = exp(x) and s = S u, the expected weights are m = u ∘ Sᵀ(q/s): all sums of
positive numbers, so plain exponentials are exact up to rounding as long as they neither overflow
nor underflow. Potentials too far apart for that take a slower path, which subtracts the maximum of
each cohort.

Where most pairs of clients are cohorts, m_i = q{i} + Σ_j Q[i,j] u_i/(u_i + u_j) for the matrix of
Q[i,j] = q{i,j}. One pass over its upper half is several times faster than one over the list of
pairs, and also gives the Hessian.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence, in_parallel, total_by
from fedavot._simplex import softmax
from fedavot.laws._laplacian import Roots, as_laplacian

_Result = TypeVar("_Result")
_Blocks = Iterator[tuple[Floats, Floats]]

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
_MOST_CLIENTS = 2_000
_FILLED = 0.5
"""Share of all pairs from which on the matrix is faster than the list."""
_THREADED_ENTRIES = 250_000
"""Number of entries from which on a pass is worth handing to threads."""
_BLOCK_ENTRIES = 1 << 16
"""Entries of a block of rows: 512 kB, which stays in the cache between its passes."""


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
        if not isinstance(point, _Point) or point.inclusion is not None:
            return point.marginal
        shares = self.incidence.sum_of_shares(self.probabilities, point.scale)
        return np.asarray(point.scale * shares)

    def rough_marginal(self, potentials: Floats) -> Floats | None:
        """Return the expected weights in single precision, if that is faster and safe, or None."""
        if self._single_ratios is None:
            return None
        centred, spread = _centre(potentials, self.levels)
        if not 0.0 < spread <= _SINGLE_SPREAD:
            return None
        scale = np.exp(centred)
        sums = self.incidence.sum_of_shares(self._single_ratios, scale.astype(np.float32))
        return np.asarray(self.probabilities.max() * scale * sums)

    @cached_property
    def _single_ratios(self) -> NDArray[np.float32] | None:
        """Ratios of many probabilities that differ little enough, or None."""
        # Matrices of pairs have a faster way of their own.
        if self._pairs is not None or not self.incidence.is_large:
            return None
        ratios = self.probabilities / self.probabilities.max()
        return ratios.astype(np.float32) if ratios.min() > _SINGLE_RATIO else None

    def curvature(self, potentials: Floats) -> "_Point | _WidePoint | _PairPoint":
        centred, spread = _centre(potentials, self.levels)
        if spread > _SAFE_SPREAD:
            return _WidePoint(self.incidence, self.probabilities, potentials)
        if self._pairs is not None:
            return _PairPoint(self._pairs, np.exp(centred))
        even = spread == 0.0 and self.incidence.sizes.min() == self.incidence.sizes.max()
        inclusion = self.inclusion if even else None
        return _Point(self.incidence, self.probabilities, np.exp(centred), inclusion)

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
    def _pairs(self) -> "_PairMatrix | None":
        """The probabilities as a matrix, if the cohorts are singles and most of all pairs."""
        n_clients = self.incidence.n_clients
        if not 1 < n_clients <= _MOST_CLIENTS or self.incidence.has_larger:
            return None
        if self.incidence.pairs.keys.size < _FILLED * n_clients * (n_clients - 1) / 2:
            return None
        return _pair_matrix(self.incidence, self.probabilities)

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
        if n_clients <= _SPARSE_CLIENTS:
            return True
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        rows = self.incidence.matrix(np.ones(self.incidence.members.size))
        graph = (rows.T @ rows).tocsr()
        rank = np.empty(n_clients, dtype=np.int64)
        rank[reverse_cuthill_mckee(graph, symmetric_mode=True)] = np.arange(n_clients)
        graph = graph.tocoo()
        bandwidth = int(np.abs(rank[graph.row] - rank[graph.col]).max(initial=0))
        return bandwidth * n_clients <= _BANDED_ENTRIES


def _centre(potentials: Floats, levels: Integers | None) -> tuple[Floats, float]:
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


@dataclass(frozen=True, eq=False)
class Listed(ABC):
    """Weights and curvature at a point, where the weight of each member of each cohort is known."""

    incidence: Incidence
    probabilities: Floats

    @abstractmethod
    def roots(self) -> Roots:
        """Return √q(A) Y_i for every member i of every cohort A."""

    def dense(self) -> Floats:
        return self.roots().laplacian()


@dataclass(frozen=True, eq=False)
class _Point(Listed):
    """Potentials whose exponentials u, the scale, neither overflow nor underflow.

    With equal potentials in cohorts of one size all weights are equal, and the inclusion
    probabilities are all that is needed of the cohorts.
    """

    scale: Floats
    inclusion: Floats | None

    @cached_property
    def _normaliser(self) -> Floats:
        return self.incidence.sum_by_cohort(self.scale)

    @cached_property
    def _share(self) -> Floats:
        return self.probabilities / self._normaliser

    @cached_property
    def marginal(self) -> Floats:
        if self.inclusion is not None:
            return np.asarray(self.inclusion / self.incidence.sizes[0])
        return self.scale * self.incidence.sum_by_client(self._share)

    @cached_property
    def squares(self) -> Floats:
        if self.inclusion is not None:
            return np.asarray(self.marginal / self.incidence.sizes[0])
        return self.scale**2 * self.incidence.sum_by_client(self._share / self._normaliser)

    def product(self, direction: Floats) -> Floats:
        mean = self.incidence.sum_by_cohort(self.scale * direction) / self._normaliser
        moved = self.scale * self.incidence.sum_by_client(self._share * mean)
        return self.marginal * direction - moved

    def roots(self) -> Roots:
        factors = self.incidence.spread_over_members(np.sqrt(self.probabilities) / self._normaliser)
        return Roots(self.incidence, factors * self.scale.take(self.incidence.members))


@dataclass(frozen=True, eq=False)
class _WidePoint(Listed):
    """Potentials of any range, member by member."""

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


class _PairMatrix(NamedTuple):
    """Probabilities of pairs as a symmetric matrix, and of singles as a vector.

    The matrix is in blocks of rows from the diagonal on, each of shape (n_rows, n_columns): its
    columns are the last n_columns clients, the first n_rows of them its rows. ``totals`` are the
    probabilities of each client's pairs, shape (n_clients,).
    """

    blocks: list[Floats]
    singles: Floats
    totals: Floats


def _pair_matrix(incidence: Incidence, probabilities: Floats) -> _PairMatrix:
    n_clients, pairs = incidence.n_clients, incidence.pairs
    # Cohorts reduced to one level may coincide, so probabilities are added up.
    flat = total_by(pairs.keys, probabilities[pairs.cohorts], n_clients**2)
    upper, totals = flat.reshape(n_clients, n_clients), np.zeros(n_clients)
    step = max(1, _BLOCK_ENTRIES // n_clients)
    blocks = [upper[first : first + step, first:].copy() for first in range(0, n_clients, step)]
    for block in blocks:
        square = block[:, : len(block)]
        square += square.T.copy()
        _add_by_client(block, totals)
    alone = incidence.sizes == 1
    members = incidence.members[incidence.offsets[:-1][alone]]
    return _PairMatrix(blocks, total_by(members, probabilities[alone], n_clients), totals)


def _add_by_client(block: Floats, sums: Floats) -> None:
    """Add the entries of a block of a symmetric matrix to the sums of its rows."""
    across = block.sum(axis=0)
    # The square on the diagonal has each pair twice.
    across[: len(block)] = block.sum(axis=1)
    sums[-across.size :] += across


@dataclass(frozen=True, eq=False)
class _PairPoint:
    """Weights and curvature at potentials whose exponentials neither overflow nor underflow."""

    matrix: _PairMatrix
    scale: Floats

    def _over_blocks(self, work: Callable[[_Blocks], _Result]) -> list[_Result]:
        """Hand each half of the blocks to ``work``, in parallel if worthwhile.

        The halves do not depend on the number of cores, so that sums do not either.
        """
        blocks = self.matrix.blocks
        return in_parallel(
            lambda half: work(self._with_totals(half)),
            [blocks[0::2], blocks[1::2]],
            worthwhile=self.scale.size**2 >= _THREADED_ENTRIES,
        )

    def _with_totals(self, blocks: list[Floats]) -> _Blocks:
        """Yield blocks with their u_i + u_j, which the next overwrites while in the cache."""
        ones = np.ones_like(self.scale)
        # As a matrix product the sums take a third of the time.
        left, right = np.stack((self.scale, ones), axis=1), np.stack((ones, self.scale))
        room = np.empty(max((block.size for block in blocks), default=0))
        for pairs in blocks:
            first = self.scale.size - pairs.shape[1]
            total = room[: pairs.size].reshape(pairs.shape)
            np.matmul(left[first : first + len(pairs)], right[:, first:], out=total)
            yield pairs, total

    @cached_property
    def marginal(self) -> Floats:
        totals, singles = self.matrix.totals, self.matrix.singles
        if self.scale.min() == self.scale.max():
            return np.asarray(totals / 2 + singles)

        def add(blocks: _Blocks) -> Floats:
            sums = np.zeros_like(self.scale)
            for pairs, total in blocks:
                _add_by_client(np.divide(pairs, total, out=total), sums)
            return sums

        return np.asarray(sum(self._over_blocks(add)) * self.scale + singles)

    @property
    def squares(self) -> Floats:
        return np.maximum(self.marginal - self._hessian.diagonal(), 0.0)

    @cached_property
    def _hessian(self) -> Floats:
        size = self.scale.size
        result = np.empty((size, size))

        def fill(blocks: _Blocks) -> None:
            for pairs, total in blocks:
                first, last = size - pairs.shape[1], size - pairs.shape[1] + len(pairs)
                entries = result[first:last, first:]
                np.multiply.outer(self.scale[first:last], self.scale[first:], out=entries)
                entries *= np.divide(pairs, np.square(total, out=total), out=total)
                result[last:, first:last] = entries[:, len(pairs) :].T

        self._over_blocks(fill)
        return as_laplacian(result)

    def dense(self) -> Floats:
        return self._hessian.copy()

    def product(self, direction: Floats) -> Floats:
        return self._hessian @ direction
