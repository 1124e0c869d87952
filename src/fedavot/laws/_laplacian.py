"""Hessians of expected weights: Laplacians, from products of weights.

E[diag(Y) − Y Yᵀ] is the Laplacian of a weighted graph on the clients, in which clients i and j are
joined by E[Y_i Y_j].
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedavot._checks import Floats
from fedavot._incidence import Incidence, total_by

_SPARSE_COST, _SPARSE_START = 30.0, 300_000.0
"""Time of a sparse product's operations and of its start, in operations of a dense product."""
_DENSE_ROWS = 1_000


def as_laplacian(joint: Floats) -> Floats:
    """Turn E[Y_i Y_j] into E[diag(Y) − Y Yᵀ] in place; the diagonal given is not used.

    The rows of the Laplacian sum to zero, which gives its diagonal without cancellation.
    """
    np.fill_diagonal(joint, 0.0)
    np.negative(joint, out=joint)
    np.fill_diagonal(joint, -joint.sum(axis=1))
    return joint


def gram(rows: Any) -> Floats:
    """Return the sum of the outer products of sparse rows, shape (n_columns, n_columns)."""
    count, width = rows.shape
    products = float(np.square(np.diff(rows.indptr), dtype=np.float64).sum())
    if count * float(width) ** 2 > _SPARSE_COST * products + _SPARSE_START:
        return np.asarray((rows.T @ rows).toarray())
    joint = np.zeros((width, width))
    for first in range(0, count, _DENSE_ROWS):
        block = rows[first : first + _DENSE_ROWS].toarray()
        joint += block.T @ block
    return joint


@dataclass(frozen=True, eq=False)
class Roots:
    """The numbers √q(A) Y_i of a list of cohorts, one entry per member of each.

    As rows of a sparse matrix B they give the Hessian's entries off its diagonal, −Bᵀ B. A cohort
    of two gives one entry, which is added without a matrix product.
    """

    incidence: Incidence
    entries: Floats

    def matrix(self) -> Any:
        """Return them as a scipy matrix, shape (n_cohorts, n_clients)."""
        return self.incidence.matrix(self.entries)

    def laplacian(self) -> Floats:
        """Return E[diag(Y) − Y Yᵀ], shape (n_clients, n_clients)."""
        n_clients = self.incidence.n_clients
        flat = total_by(self.incidence.pairs.keys, self._pair_products(), n_clients * n_clients)
        joint = flat.reshape(n_clients, n_clients)
        joint = joint + joint.T
        if self.incidence.has_larger:
            joint += gram(self._larger())
        return as_laplacian(joint)

    def sparse_laplacian(self) -> Any:
        """Return the same matrix as a scipy array in compressed columns."""
        from scipy import sparse

        pairs, shape = self.incidence.pairs, (self.incidence.n_clients,) * 2
        joint = sparse.coo_array((self._pair_products(), (pairs.first, pairs.second)), shape=shape)
        joint = (joint + joint.T).tocsr()
        if self.incidence.has_larger:
            rows = self._larger()
            joint = joint + rows.T @ rows
        joint.setdiag(0.0)
        degree = np.asarray(joint.sum(axis=1)).ravel()
        return (sparse.diags_array(degree) - joint).tocsc()

    def _pair_products(self) -> Floats:
        """Return q(A) Y_i Y_j of each cohort {i, j}."""
        starts = self.incidence.offsets[:-1][self.incidence.pairs.cohorts]
        return np.asarray(self.entries[starts] * self.entries[starts + 1])

    def _larger(self) -> Any:
        return self.matrix()[self.incidence.sizes > 2]
