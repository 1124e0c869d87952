"""Expected weights where most pairs of clients are cohorts, from a dense matrix.

With Q[i,j] = q{i,j} and u = exp(x), m_i = q{i} + Σ_j Q[i,j] u_i/(u_i + u_j). One pass over an N×N
matrix is two to three times faster than one over the list of pairs, and also gives the Hessian.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedavot._checks import Floats
from fedavot._incidence import Incidence, in_parallel, total_by
from fedavot.laws._laplacian import as_laplacian

_MOST_CLIENTS = 2_000
_FILLED = 0.5
"""Share of all pairs from which on the matrix is faster than the list."""
_THREADED_ENTRIES = 250_000
"""Number of entries from which on a pass is worth handing to threads."""
_BLOCK_ENTRIES = 1 << 16
"""Entries of a block of rows: 512 kB, which stays in the cache between its passes."""


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
    """Probabilities of pairs as a symmetric matrix, and of singles as a vector."""

    pairs: Floats
    singles: Floats

    @staticmethod
    def of(incidence: Incidence, probabilities: Floats) -> "PairMatrix":
        """Return the matrix of listed cohorts."""
        n_clients = incidence.n_clients
        listed = incidence.pairs
        # Cohorts reduced to one level may coincide, so probabilities are added up.
        flat = total_by(listed.keys, probabilities[listed.cohorts], n_clients**2)
        matrix = flat.reshape(n_clients, n_clients)
        alone = incidence.sizes == 1
        members = incidence.members[incidence.offsets[:-1][alone]]
        return PairMatrix(matrix + matrix.T, total_by(members, probabilities[alone], n_clients))


@dataclass(frozen=True, eq=False)
class PairPoint:
    """Weights and curvature at potentials whose exponentials neither overflow nor underflow."""

    matrix: PairMatrix
    scale: Floats

    def _by_rows(self, fill: Callable[[slice, Floats], None]) -> None:
        """Call ``fill`` with blocks of rows and their u_i + u_j, in parallel if worthwhile."""
        size = self.scale.size
        step = max(1, _BLOCK_ENTRIES // size)
        blocks = [slice(first, min(first + step, size)) for first in range(0, size, step)]

        def run(share: list[slice]) -> None:
            for rows in share:
                fill(rows, np.add.outer(self.scale[rows], self.scale))

        in_parallel(run, [blocks[0::2], blocks[1::2]], worthwhile=size**2 >= _THREADED_ENTRIES)

    @cached_property
    def _marginal(self) -> Floats:
        result = np.empty_like(self.scale)

        def fill(rows: slice, total: Floats) -> None:
            np.divide(self.matrix.pairs[rows], total, out=total)
            result[rows] = total.sum(axis=1)

        self._by_rows(fill)
        return result * self.scale + self.matrix.singles

    @cached_property
    def _both(self) -> tuple[Floats, Floats]:
        """The marginal and the squares in one pass."""
        first, second = np.empty((2, self.scale.size))

        def fill(rows: slice, total: Floats) -> None:
            share = self.matrix.pairs[rows] / total
            first[rows] = share.sum(axis=1)
            second[rows] = np.divide(share, total, out=share).sum(axis=1)

        self._by_rows(fill)
        singles = self.matrix.singles
        return first * self.scale + singles, second * self.scale**2 + singles

    @property
    def marginal(self) -> Floats:
        return self._both[0] if "_both" in self.__dict__ else self._marginal

    @property
    def squares(self) -> Floats:
        return self._both[1]

    @cached_property
    def _hessian(self) -> Floats:
        result = np.empty_like(self.matrix.pairs)

        def fill(rows: slice, total: Floats) -> None:
            np.multiply(total, total, out=total)
            np.divide(self.matrix.pairs[rows], total, out=result[rows])
            result[rows] *= np.multiply.outer(self.scale[rows], self.scale)

        self._by_rows(fill)
        return as_laplacian(result)

    def dense(self) -> Floats:
        return self._hessian.copy()

    def product(self, direction: Floats) -> Floats:
        return self._hessian @ direction
