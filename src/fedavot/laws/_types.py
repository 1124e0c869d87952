"""Types that stand for clients whose potentials are equal or close.

Under a law that treats all clients alike, what a client contributes to a sum and what it gets are
smooth functions of its potential. Clients of equal potentials are one type. Where many potentials
lie close together, a few types at the Chebyshev points of their cell stand for all of them: sums
over the clients become sums over the types with *copies*, and values at the types are interpolated
back, both by the same polynomials and exact up to rounding.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from fedavot._checks import Floats, Integers

_WIDTH = 0.5
"""Width of a cell of potentials."""
_POINTS = 16
"""Chebyshev points of a cell. What is interpolated has its singularities at a distance of .8 or
more from the real axis, where it matters: the error falls like 6.5 to minus this number."""
_CROWDED = 3 * _POINTS
"""Number of different potentials in a cell from which on its points stand for them."""


@dataclass(frozen=True, eq=False)
class Types:
    """Types of clients, with one row of polynomials per distinct potential.

    ``potentials`` are those of the types, shape (n_types,); ``matrix`` has shape (n_distinct,
    n_types), or is None if types are distinct potentials; and ``place`` is the row of each client,
    shape (n_clients,).
    """

    potentials: Floats
    matrix: Any
    place: Integers

    @cached_property
    def copies(self) -> Floats:
        """How many clients each type stands for, shape (n_types,); not always a whole number."""
        counts = np.bincount(self.place).astype(np.float64)
        return counts if self.matrix is None else np.asarray(self.matrix.T @ counts)

    def spread(self, values: Floats) -> Floats:
        """Interpolate values at the types, shape (n_types, n), for each client."""
        found = values if self.matrix is None else self.matrix @ values
        return np.asarray(found[self.place])


def types_of(potentials: Floats, *, close: bool) -> Types:
    """Return types for these clients: of equal potentials, or also of close ones."""
    distinct, place = np.unique(potentials, return_inverse=True)
    cells = np.floor((distinct - distinct[0]) / _WIDTH).astype(np.int64)
    starts = np.flatnonzero(np.diff(cells, prepend=-1))
    sizes = np.diff(np.append(starts, distinct.size))
    crowded = (sizes > _CROWDED) & close
    shared = np.repeat(crowded, sizes)
    if not shared.any():
        return Types(distinct, None, place)
    alone = distinct[~shared]
    lows = distinct[0] + _WIDTH * cells[starts[crowded]]
    points = np.cos(np.pi * (np.arange(_POINTS) + 0.5) / _POINTS)
    centres = np.repeat(lows + _WIDTH / 2, sizes[crowded])
    columns = np.repeat(alone.size + _POINTS * np.arange(lows.size), sizes[crowded])
    widths = np.where(shared, _POINTS, 1)
    entries = np.ones(widths.sum())
    indices = np.empty(entries.size, dtype=np.int32)
    theirs = np.repeat(shared, widths)
    entries[theirs] = _polynomials((distinct[shared] - centres) * (2.0 / _WIDTH), points).ravel()
    indices[theirs] = np.add.outer(columns, np.arange(_POINTS)).ravel()
    indices[~theirs] = np.arange(alone.size)
    nodes = np.add.outer(lows + _WIDTH / 2, points * (_WIDTH / 2)).ravel()
    matrix = sparse.csr_array(
        (entries, indices, np.append(0, np.cumsum(widths))),
        shape=(distinct.size, alone.size + nodes.size),
    )
    return Types(np.concatenate((alone, nodes)), matrix, place)


def _polynomials(places: Floats, points: Floats) -> Floats:
    """Return Lagrange's polynomials of n Chebyshev points at places in [−1, 1].

    Shape (n_places, n_points): ℓ_j(x) = (1/n) (1 + 2 Σ_{k=1}^{n−1} T_k(x_j) T_k(x)), with
    Chebyshev's T_{k+1}(x) = 2 x T_k(x) − T_{k−1}(x).
    """
    there = np.empty((points.size, places.size))
    there[0], there[1] = 1.0, places
    for degree in range(2, points.size):
        np.multiply(2.0 * places, there[degree - 1], out=there[degree])
        there[degree] -= there[degree - 2]
    here = 2.0 * np.cos(np.multiply.outer(np.arange(points.size), np.arccos(points)))
    here[0] = 1.0
    return np.asarray(there.T @ here / points.size)
