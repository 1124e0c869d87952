"""A problem with its levels held fixed, and how far a solver got with it.

Within fixed levels every importance worth asking for is a *target* that the marginal must meet.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot.laws._law import System


@dataclass(frozen=True, eq=False)
class Problem:
    """Find potentials whose expected weights are the target.

    Attributes
    ----------
    system : System
        Expected weights as a map of the potentials, levels fixed.
    target : float array, shape (n_clients,)
        What they should be.
    free : bool array, shape (n_clients,)
        Clients whose potentials are solved for.
    exempt : bool array, shape (n_clients,)
        Clients without importance: their weight is whatever nobody else can take.
    parts : int array, shape (n_clients,)
        From 0; clients of different parts do not affect each other: levels, or finer.
    """

    system: System
    target: Floats
    free: NDArray[np.bool_]
    exempt: NDArray[np.bool_]
    parts: Integers

    def error(self, marginal: Floats) -> Floats:
        """Return target − marginal, zero for exempt clients."""
        return np.where(self.exempt, 0.0, self.target - marginal)

    def by_part(self, values: Floats) -> Floats:
        """Add up values by part, shape (n_parts,)."""
        return np.asarray(np.bincount(self.parts, values), dtype=np.float64)

    def range_by_part(self, values: Floats) -> Floats:
        """Return largest minus least value among each part's free clients, shape (n_parts,)."""
        parts, values = self.parts[self.free], values[self.free]
        high = np.full(int(self.parts.max()) + 1, -np.inf)
        low = -high
        np.maximum.at(high, parts, values)
        np.minimum.at(low, parts, values)
        return np.where(high >= low, high, 0.0) - np.where(high >= low, low, 0.0)

    def log_ratio(self, marginal: Floats) -> Floats:
        """Return log(target / marginal), the IPFP increment, zero for clients not solved for."""
        ratio = np.ones_like(marginal)
        # A weight below the range of floats still has to pull its client back up.
        np.divide(self.target, np.maximum(marginal, 1e-300), out=ratio, where=self.free)
        return np.log(ratio)


@dataclass(frozen=True, eq=False)
class Run:
    """Where a solver stopped.

    Attributes
    ----------
    potentials, marginal : float arrays, shape (n_clients,)
        The last point and its expected weights.
    residual : float
        L1 norm of the error (for soft alignment, of the gradient).
    evaluations : int
        How many times the expected weights were computed.
    """

    potentials: Floats
    marginal: Floats
    residual: float
    evaluations: int
