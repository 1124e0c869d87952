"""Hessians of expected weights: Laplacians, from products of weights.

E[diag(Y) − Y Yᵀ] is the Laplacian of a weighted graph on the clients, in which clients i and j are
joined by E[Y_i Y_j].
"""

from typing import Any

import numpy as np

from fedavot._checks import Floats

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
