"""Expected weights where most pairs of clients are cohorts, from a dense matrix.

With Q[i,j] = q{i,j} and u = exp(x), m_i = q{i} + Σ_j Q[i,j] u_i/(u_i + u_j). One pass over the
upper half of an N×N matrix is several times faster than one over the list of pairs, and also gives
the Hessian.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from fedavot._checks import Floats
from fedavot._incidence import Incidence, in_parallel, total_by
from fedavot.laws._laplacian import as_laplacian

_Result = TypeVar("_Result")
_MOST_CLIENTS = 2_000
_FILLED = 0.5
"""Share of all pairs from which on the matrix is faster than the list."""
_THREADED_ENTRIES = 250_000
"""Number of entries from which on a pass is worth handing to threads."""
_BLOCK_ENTRIES = 1 << 16
"""Entries of a block of rows: 512 kB, which stays in the cache between its passes."""


class _Block(NamedTuple):
    """Rows of a symmetric matrix from the diagonal on, and their u_i + u_j."""

    pairs: Floats
    total: Floats


def suits(incidence: Incidence) -> bool:
    """Say whether the cohorts are singles and most of all pairs."""
    n_clients = incidence.n_clients
    return (
        n_clients <= _MOST_CLIENTS
        and not incidence.has_larger
        and incidence.pairs.keys.size >= _FILLED * n_clients * (n_clients - 1) / 2
        and n_clients > 1
    )


@dataclass(frozen=True, eq=False)
class PairMatrix:
    """Probabilities of pairs as a symmetric matrix, and of singles as a vector.

    The matrix is held as blocks of rows from the diagonal on, each of shape (n_rows, n_columns):
    its columns are the last n_columns clients, the first n_rows of them its rows.
    """

    blocks: list[Floats]
    singles: Floats

    @staticmethod
    def of(incidence: Incidence, probabilities: Floats) -> "PairMatrix":
        """Return the matrix of listed cohorts."""
        n_clients = incidence.n_clients
        listed = incidence.pairs
        # Cohorts reduced to one level may coincide, so probabilities are added up.
        flat = total_by(listed.keys, probabilities[listed.cohorts], n_clients**2)
        upper = flat.reshape(n_clients, n_clients)
        step = max(1, _BLOCK_ENTRIES // n_clients)
        blocks = [upper[first : first + step, first:].copy() for first in range(0, n_clients, step)]
        for block in blocks:
            square = block[:, : len(block)]
            square += square.T.copy()
        alone = incidence.sizes == 1
        members = incidence.members[incidence.offsets[:-1][alone]]
        return PairMatrix(blocks, total_by(members, probabilities[alone], n_clients))

    @cached_property
    def totals(self) -> Floats:
        """Probability of each client's pairs, shape (n_clients,)."""
        totals = np.zeros_like(self.singles)
        for block in self.blocks:
            _add_by_client(block, totals)
        return totals


def _add_by_client(block: Floats, sums: Floats) -> None:
    """Add the entries of a block of a symmetric matrix to the sums of its rows."""
    across = block.sum(axis=0)
    # The square on the diagonal has each pair twice.
    across[: len(block)] = block.sum(axis=1)
    sums[-across.size :] += across


@dataclass(frozen=True, eq=False)
class PairPoint:
    """Weights and curvature at potentials whose exponentials neither overflow nor underflow."""

    matrix: PairMatrix
    scale: Floats

    def _over_blocks(self, work: Callable[[Iterator[_Block]], _Result]) -> list[_Result]:
        """Hand each half of the blocks to ``work``, in parallel if worthwhile.

        The halves do not depend on the number of cores, so that sums do not either.
        """
        blocks = self.matrix.blocks
        return in_parallel(
            lambda half: work(self._with_totals(half)),
            [blocks[0::2], blocks[1::2]],
            worthwhile=self.scale.size**2 >= _THREADED_ENTRIES,
        )

    def _with_totals(self, blocks: list[Floats]) -> Iterator[_Block]:
        """Yield blocks with their u_i + u_j, which the next overwrites while in the cache."""
        ones = np.ones_like(self.scale)
        # As a matrix product the sums take a third of the time.
        left, right = np.stack((self.scale, ones), axis=1), np.stack((ones, self.scale))
        room = np.empty(max((block.size for block in blocks), default=0))
        for pairs in blocks:
            first = self.scale.size - pairs.shape[1]
            total = room[: pairs.size].reshape(pairs.shape)
            np.matmul(left[first : first + len(pairs)], right[:, first:], out=total)
            yield _Block(pairs, total)

    def _sums(self, count: int, entries: Callable[[_Block], tuple[Floats, ...]]) -> Floats:
        """Return the row sums of symmetric matrices from their blocks, shape (count, n_clients)."""

        def add(blocks: Iterator[_Block]) -> Floats:
            sums = np.zeros((count, self.scale.size))
            for block in blocks:
                for found, total in zip(entries(block), sums, strict=True):
                    _add_by_client(found, total)
            return sums

        first, second = self._over_blocks(add)
        return np.asarray(first + second)

    @cached_property
    def _is_even(self) -> bool:
        return bool(self.scale.min() == self.scale.max())

    @cached_property
    def _marginal(self) -> Floats:
        sums = self._sums(1, lambda block: (np.divide(block.pairs, block.total, out=block.total),))
        return np.asarray(sums[0] * self.scale + self.matrix.singles)

    @cached_property
    def _both(self) -> tuple[Floats, Floats]:
        """The marginal and the squares in one pass; equal weights need none."""
        totals, singles = self.matrix.totals, self.matrix.singles
        if self._is_even:
            return totals / 2 + singles, totals / 4 + singles

        def entries(block: _Block) -> tuple[Floats, Floats]:
            share = block.pairs / block.total
            return share, np.divide(share, block.total, out=block.total)

        first, second = self._sums(2, entries)
        return first * self.scale + singles, second * self.scale**2 + singles

    @property
    def marginal(self) -> Floats:
        return self._both[0] if self._is_even or "_both" in self.__dict__ else self._marginal

    @property
    def squares(self) -> Floats:
        return self._both[1]

    @cached_property
    def _hessian(self) -> Floats:
        size = self.scale.size
        result = np.empty((size, size))

        def fill(blocks: Iterator[_Block]) -> None:
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
