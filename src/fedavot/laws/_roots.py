"""The Hessian of listed cohorts, from what each cohort adds to it.

E[diag(Y) − Y Yᵀ] is a Laplacian whose entries off the diagonal are −Σ_A q(A) Y_i Y_j: with the
rows √q(A) Y_A of a sparse matrix B, those of −Bᵀ B. Cohorts of two give one entry each, which is
added without a product of matrices.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedavot._checks import Floats
from fedavot._incidence import Incidence, total_by
from fedavot.laws._law import as_laplacian

_DENSE_FROM = 1 / 30
"""Share of a dense product's work from which on the sparse one, far slower a step, takes longer."""
_DENSE_WIDTH, _DENSE_ROWS = 500, 1_000


@dataclass(frozen=True, eq=False)
class Roots:
    """The numbers √q(A) Y_i of a list of cohorts.

    Attributes
    ----------
    incidence : Incidence
        The cohorts.
    entries : float array, shape (n_entries,)
        One number per member of each cohort.
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


def gram(rows: Any) -> Floats:
    """Return the sum of the outer products of sparse rows, shape (n_columns, n_columns)."""
    count, width = rows.shape
    products = float(np.square(np.diff(rows.indptr), dtype=np.float64).sum())
    if width < _DENSE_WIDTH or products < count * float(width) ** 2 * _DENSE_FROM:
        return np.asarray((rows.T @ rows).toarray())
    joint = np.zeros((width, width))
    for first in range(0, count, _DENSE_ROWS):
        block = rows[first : first + _DENSE_ROWS].toarray()
        joint += block.T @ block
    return joint
