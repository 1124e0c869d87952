"""A problem with its levels held fixed, and how far a solver got with it.

Within fixed levels every importance worth asking for is a *target* that the marginal must meet.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats
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
    """

    system: System
    target: Floats
    free: NDArray[np.bool_]
    exempt: NDArray[np.bool_]

    def error(self, marginal: Floats) -> Floats:
        """Return target − marginal, zero for exempt clients."""
        return np.where(self.exempt, 0.0, self.target - marginal)

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
