"""The Hessian of listed cohorts, as a sum over the cohorts.

The entries of E[diag(Y) − Y Yᵀ] off its diagonal are −Σ_A q(A) Y_i Y_j, those of −Bᵀ B for the
sparse matrix B with rows √q(A) Y_A. A cohort of two gives one entry, which is added without a
matrix product.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedavot._checks import Floats
from fedavot._incidence import Incidence, total_by
from fedavot.laws._laplacian import as_laplacian, gram


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
