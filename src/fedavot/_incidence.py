"""Cohorts in compressed form: the sparse incidence S[A,i] = 1{i ∈ A}, and its two products.

Laws use it for their lists of cohorts, and the audit for the rounds of a log. Nothing here checks
its input; callers do.
"""

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedavot._checks import Floats, Integers

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
# Entries of a block of cohorts, of which two or more are worth handing to threads.
_BLOCK_ENTRIES = 1 << 19
# Least entries of a block per client, so that adding up the blocks' results costs little.
_BLOCK_DEGREE = 8
# Cohorts processed at a time, so that intermediate results stay in the cache.
_BLOCK_COHORTS = 1 << 14


def total_by(labels: NDArray[Any], values: Floats, count: int) -> Floats:
    """Sum values by label, shape (count,)."""
    return np.bincount(labels, values, minlength=count).astype(np.float64, copy=False)


class Pairs(NamedTuple):
    """Cohorts of two: their row numbers, members, and positions in a flat N×N matrix."""

    cohorts: Integers
    first: NDArray[np.int32]
    second: NDArray[np.int32]
    keys: Integers


@dataclass(frozen=True, eq=False)
class Incidence:
    """Cohorts as rows of a 0/1 matrix in compressed form.

    Rows may be empty, but `minimum`, `maximum` and `within` need a member in each.

    Attributes
    ----------
    members : int32 array, shape (n_entries,)
        Members of one cohort after the other, ascending within each.
    offsets : int64 array, shape (n_cohorts + 1,)
        Position in ``members`` where each cohort starts.
    n_clients : int
        Number of clients, which is the number of columns.
    """

    members: NDArray[np.int32]
    offsets: Integers
    n_clients: int

    @classmethod
    def of_keys(cls, keys: Integers, n_cohorts: int, n_clients: int) -> "Incidence":
        """Return cohorts from ascending, distinct keys ``cohort * n_clients + client``."""
        edges = np.arange(n_cohorts + 1, dtype=np.int64) * n_clients
        members = (keys % max(n_clients, 1)).astype(np.int32)
        return cls(members, np.searchsorted(keys, edges).astype(np.int64), n_clients)

    @property
    def n_cohorts(self) -> int:
        """Number of cohorts."""
        return self.offsets.size - 1

    @cached_property
    def sizes(self) -> Integers:
        """Number of members of each cohort, shape (n_cohorts,)."""
        return np.diff(self.offsets)

    @cached_property
    def _blocks(self) -> "list[_Block]":
        return self._cut(np.float64)

    @cached_property
    def _single_blocks(self) -> "list[_Block]":
        """The blocks with entries of one in single precision."""
        return self._cut(np.float32)

    def _cut(self, precision: type[np.floating[Any]]) -> "list[_Block]":
        """Return blocks of cohorts with about equally many entries, without copying their members.

        They do not depend on the number of cores, so that sums do not either; but there is an even
        number of them, because there mostly is of cores.
        """
        size = max(_BLOCK_ENTRIES, _BLOCK_DEGREE * self.n_clients)
        count = (self.members.size + size // 2) // size // 2 * 2
        shares = np.arange(1, count) * self.members.size // max(count, 1)
        edges = [0, *np.searchsorted(self.offsets, shares).tolist(), self.n_cohorts]
        # All blocks share their entries of one, which then stay in the cache.
        ones = np.ones(int(np.diff(self.offsets[edges]).max(initial=0)), dtype=precision)
        blocks = []
        for first, last in itertools.pairwise(edges):
            cohorts = self.between(first, last)
            matrix = cohorts.matrix(ones[: cohorts.members.size])
            # A transposed view is as fast as a second, sorted copy would be.
            blocks.append(_Block(slice(first, last), matrix, matrix.T))
        return blocks

    @property
    def is_large(self) -> bool:
        """Whether there is work for several threads."""
        return len(self._blocks) > 1

    def row(self, cohort: int) -> NDArray[np.int32]:
        """Return the members of one cohort."""
        return self.members[self.offsets[cohort] : self.offsets[cohort + 1]]

    def counts(self) -> Integers:
        """Return the number of cohorts of each client, shape (n_clients,)."""
        return np.bincount(self.members, minlength=self.n_clients)

    def between(self, first: int, last: int) -> "Incidence":
        """Return the cohorts from ``first`` up to but not including ``last``, without copying."""
        low, high = self.offsets[first], self.offsets[last]
        offsets = self.offsets[first : last + 1] - low
        return Incidence(self.members[low:high], offsets, self.n_clients)

    def rows(self, cohorts: Integers) -> "Incidence":
        """Return some of the cohorts, by ascending position."""
        if cohorts.size and cohorts[-1] - cohorts[0] + 1 == cohorts.size:
            return self.between(int(cohorts[0]), int(cohorts[-1]) + 1)
        mask = np.zeros(self.n_cohorts, dtype=bool)
        mask[cohorts] = True
        return self.chosen(mask)

    def matrix(self, entries: NDArray[Any]) -> Any:
        """Return the SciPy matrix with these entries, shape (n_cohorts, n_clients)."""
        index = np.int32 if self.members.size < np.iinfo(np.int32).max else np.int64
        return sparse.csr_array(
            (entries, self.members.astype(index, copy=False), self.offsets.astype(index)),
            shape=(self.n_cohorts, self.n_clients),
        )

    def sum_by_cohort(self, values: Floats) -> Floats:
        """Return Σ_{i∈A} values_i for each cohort, shape (n_cohorts,)."""
        sums = np.empty(self.n_cohorts)

        def fill(block: _Block) -> None:
            sums[block.cohorts] = block.matrix @ values

        in_parallel(fill, self._blocks)
        return sums

    def sum_by_client(self, values: Floats) -> Floats:
        """Return Σ_{A∋i} values_A for each client, shape (n_clients,)."""

        def product(block: _Block) -> NDArray[Any]:
            return np.asarray(block.transposed @ values[block.cohorts])

        return np.asarray(sum(in_parallel(product, self._blocks)))

    def sum_of_shares(self, values: NDArray[Any], parts: NDArray[Any]) -> NDArray[Any]:
        """Return Σ_{A∋i} values_A / Σ_{k∈A} parts_k for each client, shape (n_clients,).

        Each block takes both products in turn, while its members are in the cache. In single
        precision, if that is what is given, they take two thirds of the time.
        """

        def product(block: _Block) -> NDArray[Any]:
            total = block.matrix @ parts
            np.divide(values[block.cohorts], total, out=total)
            return np.asarray(block.transposed @ total)

        blocks = self._single_blocks if parts.dtype == np.float32 else self._blocks
        return np.asarray(sum(in_parallel(product, blocks)))

    def minimum(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the least value among each cohort's members, shape (n_cohorts,)."""
        return self._reduced(np.minimum, values)

    def maximum(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the largest value among each cohort's members, shape (n_cohorts,)."""
        return self._reduced(np.maximum, values)

    def _reduced(self, extreme: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        members, offsets = self.members, self.offsets
        if not self.has_larger:
            # The first and the last of one or two members are all members.
            firsts, lasts = members.take(offsets[:-1]), members.take(offsets[1:] - 1)
            return np.asarray(extreme(values.take(firsts), values.take(lasts)))
        result = np.empty(self.n_cohorts, dtype=values.dtype)
        for first in range(0, self.n_cohorts, _BLOCK_COHORTS):
            ends = offsets[first : first + _BLOCK_COHORTS + 1]
            entries = values.take(members[ends[0] : ends[-1]])
            result[first : ends.size - 1 + first] = extreme.reduceat(entries, ends[:-1] - ends[0])
        return result

    def spread_over_members(self, values: NDArray[Any]) -> NDArray[Any]:
        """Repeat one value per cohort for each of its members, shape (n_entries,)."""
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

        # The clients of a cohort are linked to its first.
        firsts = self.members[self.spread_over_members(self.offsets[:-1])]
        links = (np.ones(firsts.size, dtype=np.int8), (firsts, self.members))
        graph = sparse.coo_array(links, shape=(self.n_clients, self.n_clients))
        return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)

    def within(self, levels: Integers) -> "Incidence":
        """Return the incidence that keeps only each cohort's members of its lowest level."""
        keep = levels.take(self.members) == self.spread_over_members(self.minimum(levels))
        kept_before = np.concatenate(([0], np.cumsum(keep)))
        return Incidence(self.members[keep], kept_before[self.offsets], self.n_clients)

    def chosen(self, cohorts: NDArray[np.bool_]) -> "Incidence":
        """Return the cohorts with this mask."""
        members = self.members[self.spread_over_members(cohorts)]
        offsets = np.concatenate(([0], np.cumsum(self.sizes[cohorts])))
        return Incidence(members, offsets, self.n_clients)


class _Block(NamedTuple):
    """Consecutive cohorts."""

    cohorts: slice
    matrix: Any
    transposed: Any


def in_parallel(
    function: Callable[[_Item], _Result], items: Sequence[_Item], *, worthwhile: bool = True
) -> list[_Result]:
    """Map a function that releases the interpreter lock, on all cores if that is worthwhile."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if not worthwhile or len(items) == 1 or cores == 1:
        return [*map(function, items)]
    return list(_pool(cores).map(function, items))


@functools.cache
def _pool(count: int) -> ThreadPoolExecutor:
    """Return a pool of threads, cached because starting them takes as long as a small product."""
    return ThreadPoolExecutor(count, thread_name_prefix="fedavot")
