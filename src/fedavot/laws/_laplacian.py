"""Hessians of expected weights: Laplacians, from products of weights, and their low-rank factors.

E[diag(Y) − Y Yᵀ] is the Laplacian of a weighted graph on the clients, in which clients i and j are
joined by E[Y_i Y_j]. Laws in closed form have these numbers as outer products of few columns, which
make Newton steps cheap.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedavot._checks import Floats, Integers
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

    As rows of a sparse matrix B they give the Hessian's entries off its diagonal, −Bᵀ B.
    """

    incidence: Incidence
    entries: Floats

    def matrix(self) -> Any:
        """Return them as a scipy matrix, shape (n_cohorts, n_clients)."""
        return self.incidence.matrix(self.entries)

    def laplacian(self) -> Floats:
        """Return E[diag(Y) − Y Yᵀ], shape (n_clients, n_clients)."""
        n_clients, pairs = self.incidence.n_clients, self.incidence.pairs
        starts = self.incidence.offsets[:-1][pairs.cohorts]
        # A cohort of two gives one entry, which is added without a matrix product.
        flat = total_by(pairs.keys, self.entries[starts] * self.entries[starts + 1], n_clients**2)
        joint = flat.reshape(n_clients, n_clients) + flat.reshape(n_clients, n_clients).T
        if self.incidence.has_larger:
            joint += gram(self.matrix()[self.incidence.sizes > 2])
        return as_laplacian(joint)

    def sparse_laplacian(self) -> Any:
        """Return the same matrix as a scipy array in compressed columns."""
        from scipy import sparse

        rows = self.matrix()
        joint = (rows.T @ rows).tocsc()
        joint.setdiag(0.0)
        return sparse.diags_array(np.asarray(joint.sum(axis=1)).ravel(), format="csc") - joint


class Factor(NamedTuple):
    """Low-rank curvature of one group of clients.

    The entries of Σ_k signs_k columns_k columns_kᵀ off its diagonal are about E[Y_i Y_j]; its
    diagonal is meaningless. There is one row per client and one column per sign, 1 or −1.
    """

    clients: Integers
    columns: Floats
    signs: Floats


@runtime_checkable
class Factored(Protocol):
    """A point whose curvature may be available as a sum of low-rank factors.

    Points without factors have a ``product`` instead, the Hessian times a vector.
    """

    def factors(self) -> list[Factor] | None:
        """Return factors that sum to about E[Y_i Y_j], i ≠ j, or None if there are none."""


def factor_product(factors: list[Factor], direction: Floats) -> Floats:
    """Return the Hessian that the factors stand for times a vector, shape (n_clients,)."""
    result = np.zeros_like(direction)
    for clients, columns, signs in factors:
        # Σ_j E[Y_i Y_j] (d_i − d_j), in which the diagonal does not matter.
        own = direction[clients]
        both = np.stack((columns.sum(axis=0), own @ columns), axis=1) * signs[:, None]
        ones, moved = (columns @ both).T
        result[clients] += own * ones - moved
    return result
