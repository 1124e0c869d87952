"""The sparse incidence of an explicit list of cohorts, and the two products that align it.

With S[A,i] = 1{i ∈ A}, u = exp(x) and s = S u, the expected weights are m = u ∘ Sᵀ(q/s): all
sums of positive numbers, so plain exponentials are exact to rounding as long as they neither
overflow nor underflow. Potentials too far apart for that take a slower path with each cohort's
maximum subtracted. Nothing here checks its input; `cohorts` does.
"""

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedavot._checks import Floats, Integers

_SAFE_SPREAD = 600.0
"""Potentials within ±300 of their centre keep exp(x) and q/s far from the ends of float64."""
_THREADED_ENTRIES = 1_000_000
"""Below this many entries a product takes less time than handing it to a thread."""


def total_by(labels: NDArray[Any], values: Floats, count: int) -> Floats:
    """Add up values by label, shape (count,)."""
    return np.bincount(labels, values, minlength=count).astype(np.float64, copy=False)


class Pairs(NamedTuple):
    """Cohorts of two: their row numbers, members, and places in a flat N×N matrix."""

    cohorts: Integers
    first: NDArray[np.int32]
    second: NDArray[np.int32]
    keys: Integers


@dataclass(frozen=True, eq=False)
class Incidence:
    """Cohorts as rows of a 0/1 matrix in compressed form.

    Attributes
    ----------
    members : int32 array, shape (n_entries,)
        The cohorts' members, one cohort after the other, ascending within each.
    offsets : int64 array, shape (n_cohorts + 1,)
        Where each cohort starts in ``members``.
    n_clients : int
        The number of columns.
    """

    members: NDArray[np.int32]
    offsets: Integers
    n_clients: int

    @property
    def n_cohorts(self) -> int:
        """How many cohorts there are."""
        return self.offsets.size - 1

    @cached_property
    def sizes(self) -> Integers:
        """The cohorts' sizes, shape (n_cohorts,)."""
        return np.diff(self.offsets)

    @cached_property
    def _blocks(self) -> "tuple[_Block, ...]":
        return _split(self.matrix(np.ones(self.members.size)))

    def matrix(self, entries: Floats) -> Any:
        """Return the scipy matrix with these entries, shape (n_cohorts, n_clients)."""
        index = np.int32 if self.members.size < np.iinfo(np.int32).max else np.int64
        return sparse.csr_array(
            (entries, self.members.astype(index, copy=False), self.offsets.astype(index)),
            shape=(self.n_cohorts, self.n_clients),
        )

    def sum_by_cohort(self, values: Floats) -> Floats:
        """Return Σ_{i∈A} values_i for each cohort, shape (n_cohorts,)."""
        return np.concatenate(_each(self._blocks, lambda block: block.matrix @ values))

    def sum_by_client(self, values: Floats) -> Floats:
        """Return Σ_{A∋i} values_A for each client, shape (n_clients,)."""
        parts = _each(self._blocks, lambda block: block.transposed @ values[block.cohorts])
        return np.asarray(sum(parts[1:], start=parts[0]))

    def minimum(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the least value among each cohort's members, shape (n_cohorts,)."""
        return np.asarray(np.minimum.reduceat(values[self.members], self.offsets[:-1]))

    def spread_over_members(self, values: NDArray[Any]) -> NDArray[Any]:
        """Repeat one value a cohort over its members, shape (n_entries,)."""
        return np.repeat(values, self.sizes)

    @cached_property
    def pairs(self) -> "Pairs":
        """The cohorts of two."""
        cohorts = np.flatnonzero(self.sizes == 2)
        starts = self.offsets[:-1][cohorts]
        first, second = self.members[starts], self.members[starts + 1]
        return Pairs(cohorts, first, second, first.astype(np.int64) * self.n_clients + second)

    @cached_property
    def has_larger(self) -> bool:
        """Whether any cohort has three members or more."""
        return bool(self.sizes.max(initial=0) > 2)

    def components(self) -> Integers:
        """Return a label for each client, equal for clients linked by a chain of cohorts."""
        from scipy.sparse.csgraph import connected_components

        count = self.n_cohorts + self.n_clients
        pad = np.full(self.n_clients, self.members.size)
        graph = sparse.csr_array(
            (
                np.ones(self.members.size, dtype=np.int8),
                self.members + self.n_cohorts,
                np.concatenate((self.offsets, pad)),
            ),
            shape=(count, count),
        )
        labels = connected_components(graph, directed=False)[1][self.n_cohorts :]
        return np.unique(labels, return_inverse=True)[1].astype(np.int64)

    def within(self, levels: Integers) -> "Incidence":
        """Return the incidence that keeps only each cohort's members of its lowest level."""
        keep = levels[self.members] == self.spread_over_members(self.minimum(levels))
        kept = np.add.reduceat(keep, self.offsets[:-1], dtype=np.int64)
        return Incidence(self.members[keep], np.concatenate(([0], np.cumsum(kept))), self.n_clients)


class _Block(NamedTuple):
    """Consecutive cohorts, one block a processor core."""

    cohorts: slice
    matrix: Any
    transposed: Any


def _split(matrix: Any) -> tuple[_Block, ...]:
    """Cut a CSR matrix into row blocks of about equally many entries, without copying."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    count = cores if matrix.nnz >= _THREADED_ENTRIES else 1
    cuts = np.searchsorted(matrix.indptr, np.linspace(0, matrix.nnz, count + 1)[1:-1])
    edges = [0, *(int(cut) for cut in cuts), matrix.shape[0]]
    blocks = []
    for first, last in itertools.pairwise(edges):
        start, stop = matrix.indptr[first], matrix.indptr[last]
        rows = sparse.csr_array(
            (
                matrix.data[start:stop],
                matrix.indices[start:stop],
                matrix.indptr[first : last + 1] - start,
            ),
            shape=(last - first, matrix.shape[1]),
        )
        # A transposed view: scattering by rows is as fast as a second, sorted copy would be.
        blocks.append(_Block(slice(first, last), rows, rows.T))
    return tuple(blocks)


def _each(blocks: tuple[_Block, ...], product: Callable[[_Block], Floats]) -> list[Floats]:
    """Apply a product to every block, side by side: scipy's releases the interpreter lock."""
    if len(blocks) == 1:
        return [product(blocks[0])]
    with ThreadPoolExecutor(len(blocks)) as pool:
        return list(pool.map(product, blocks))


@dataclass(frozen=True, eq=False)
class ExplicitSystem:
    """Expected weights of explicit cohorts; the incidence holds one level a cohort.

    Attributes
    ----------
    incidence : Incidence
        Already reduced to each cohort's lowest level.
    probabilities : float array, shape (n_cohorts,)
        Of each cohort.
    levels : int array, shape (n_clients,), or None
        Only so that each level's potentials can be centred by themselves.
    """

    incidence: Incidence
    probabilities: Floats
    levels: Integers | None

    def marginal(self, potentials: Floats) -> Floats:
        """Return the expected weights, shape (n_clients,)."""
        return self._point(potentials).marginal

    def curvature(self, potentials: Floats) -> "_Point | _WidePoint":
        """Return the expected weights and what is needed of their derivative."""
        return self._point(potentials)

    def _point(self, potentials: Floats) -> "_Point | _WidePoint":
        centred, spread = centre(potentials, self.levels)
        if spread <= _SAFE_SPREAD:
            return _Point(self.incidence, self.probabilities, np.exp(centred))
        return _WidePoint(self.incidence, self.probabilities, potentials)


def centre(potentials: Floats, levels: Integers | None) -> tuple[Floats, float]:
    """Shift each level's potentials to be symmetric about zero; return them and their spread."""
    if levels is None:
        high, low = potentials.max(), potentials.min()
        return potentials - (high + low) / 2, float(high - low)
    count = int(levels.max()) + 1
    high, low = np.full(count, -np.inf), np.full(count, np.inf)
    np.maximum.at(high, levels, potentials)
    np.minimum.at(low, levels, potentials)
    # A number that no client has as its level counts as a level of width zero.
    empty = high < low
    high[empty] = low[empty] = 0.0
    return potentials - ((high + low) / 2)[levels], float(np.max(high - low))


@dataclass(frozen=True, eq=False)
class _Point:
    """Everything at one vector of potentials whose exponentials are safe."""

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

    def dense(self) -> Floats:
        def outer_weights() -> Floats:
            return self.incidence.spread_over_members(
                np.sqrt(self.probabilities) / self._normaliser
            ) * self.scale.take(self.incidence.members)

        pairs = self.incidence.pairs
        products = self.scale.take(pairs.first) * self.scale.take(pairs.second)
        products *= (self._share / self._normaliser)[pairs.cohorts]
        return laplacian(self.incidence, products, outer_weights)


@dataclass(frozen=True, eq=False)
class _WidePoint:
    """Everything at one vector of potentials of any spread, entry by entry."""

    incidence: Incidence
    probabilities: Floats
    potentials: Floats

    @cached_property
    def _weights(self) -> Floats:
        """Softmax weights, one an entry of the incidence."""
        incidence = self.incidence
        values = self.potentials[incidence.members]
        top = np.maximum.reduceat(values, incidence.offsets[:-1])
        values = np.exp(values - incidence.spread_over_members(top))
        total = np.add.reduceat(values, incidence.offsets[:-1])
        return np.asarray(values / incidence.spread_over_members(total))

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

    def dense(self) -> Floats:
        root = self.incidence.spread_over_members(np.sqrt(self.probabilities))
        pairs = self.incidence.pairs
        starts = self.incidence.offsets[:-1][pairs.cohorts]
        products = self._mass[starts] * self._weights[starts + 1]
        return laplacian(self.incidence, products, lambda: self._weights * root)


def laplacian(
    incidence: Incidence, pair_products: Floats, outer_weights: Callable[[], Floats]
) -> Floats:
    """Assemble E[diag(Y) − Y Yᵀ] from the cohorts of two and from the larger ones.

    Parameters
    ----------
    incidence : Incidence
        The cohorts.
    pair_products : float array, shape (n_pairs,)
        q(A) Y_i Y_j of each cohort {i, j}.
    outer_weights : callable
        Gives √q(A) Y_i for each entry, shape (n_entries,); called only if cohorts of three or
        more exist, because their sparse product is the expensive part.
    """
    n_clients = incidence.n_clients
    flat = total_by(incidence.pairs.keys, pair_products, n_clients * n_clients)
    joint = flat.reshape(n_clients, n_clients)
    joint = joint + joint.T
    if incidence.has_larger:
        rows = incidence.matrix(outer_weights())[incidence.sizes > 2]
        joint += (rows.T @ rows).toarray()
    np.fill_diagonal(joint, 0.0)
    np.negative(joint, out=joint)
    np.fill_diagonal(joint, -joint.sum(axis=1))
    return joint
