"""Low-rank factors of the Hessian of expected weights, which make Newton steps cheap."""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers

_NEGLIGIBLE = 1e-4
"""Share of every client's curvature below which a column is left out of a factor."""
_BLOCK_CLIENTS = 1 << 12
"""Clients that are judged at a time."""


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


def product(factors: list[Factor], direction: Floats) -> Floats:
    """Return the Hessian that the factors stand for times a vector, shape (n_clients,)."""
    result = np.zeros_like(direction)
    for clients, columns, signs in factors:
        # Σ_j E[Y_i Y_j] (d_i − d_j), in which the diagonal does not matter.
        own = direction[clients]
        both = np.stack((columns.sum(axis=0), own @ columns), axis=1) * signs[:, None]
        ones, moved = (columns @ both).T
        result[clients] += own * ones - moved
    return result


def significant(columns: Floats) -> NDArray[np.bool_]:
    """Say which columns of a `Factor` matter to some client's curvature, shape (rank,)."""
    totals, found = columns.sum(axis=0), np.zeros(columns.shape[1], dtype=bool)
    # In blocks of clients, so that a factor is not held several times over.
    for first in range(0, columns.shape[0], _BLOCK_CLIENTS):
        block = columns[first : first + _BLOCK_CLIENTS]
        # What each column adds to Σ_{j≠i} E[Y_i Y_j], compared with the sum over all columns.
        added = np.abs(block * (totals - block))
        whole = np.maximum(added.sum(axis=1, keepdims=True), 1e-300)
        found |= np.any(added > _NEGLIGIBLE * whole, axis=0)
    return found
