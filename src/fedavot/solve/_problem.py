"""A problem with its levels held fixed, and how far a solver got with it.

Within fixed levels every importance worth asking for is a *target* that the marginal must meet.
Softness adds a pull towards a common potential: −(ρ/2) Σ p_i (x_i − x̄)², x̄ the p-weighted mean of
the client's part.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot.laws._explicit import ExplicitSystem
from fedavot.laws._law import System

_NEAR = 8.0
"""A reach up to here does not shorten a step, so that a bound on it will do."""


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

    @cached_property
    def _grouped(self) -> tuple[Integers, Integers]:
        """The free clients, part after part, and where each part begins."""
        clients = np.flatnonzero(self.free)
        clients = clients[np.argsort(self.parts[clients], kind="stable")]
        return clients, np.flatnonzero(np.diff(self.parts[clients], prepend=-1))

    @cached_property
    def blocks(self) -> list[Integers]:
        """The free clients, part by part."""
        clients, starts = self._grouped
        return np.split(clients, starts[1:])

    def by_part(self, values: Floats) -> Floats:
        """Add up values by part, shape (n_parts,)."""
        return np.asarray(np.bincount(self.parts, values), dtype=np.float64)

    def reach_by_part(self, direction: Floats) -> Floats:
        """Return how far a direction pulls members of one cohort apart, shape (n_parts,).

        Any two clients of a part may meet, so it is the range over the part; where that is long
        and cohorts are listed, the largest range within a cohort, which may be far shorter.
        """
        clients, starts = self._grouped
        values = direction[clients]
        high, low = np.maximum.reduceat(values, starts), np.minimum.reduceat(values, starts)
        reach = np.zeros(int(self.parts.max()) + 1)
        reach[self.parts[clients[starts]]] = high - low
        if reach.max() <= _NEAR or not isinstance(self.system, ExplicitSystem):
            return reach
        if not self.system.has_most_pairs:
            firsts, ranges = self.system.ranges(np.where(self.free, direction, 0.0))
            reach = np.zeros_like(reach)
            np.maximum.at(reach, self.parts[firsts], ranges)
        return reach

    def log_ratio(self, marginal: Floats) -> Floats:
        """Return log(target / marginal), the IPFP increment, zero for clients not solved for."""
        ratio = np.ones_like(marginal)
        # A weight below the range of floats still has to pull its client back up.
        np.divide(self.target, np.maximum(marginal, 1e-300), out=ratio, where=self.free)
        return np.log(ratio)


@dataclass(frozen=True, eq=False)
class Pull:
    """The pull of soft alignment towards the mean potential of each part.

    Attributes
    ----------
    softness : float
        Its strength ρ.
    weights : float array, shape (n_clients,)
        The importance p_i by which each client is drawn; zero for clients not solved for.
    parts : int array, shape (n_clients,)
        Clients are drawn towards the mean of their own part.
    """

    softness: float
    weights: Floats
    parts: Integers

    @cached_property
    def _mass(self) -> Floats:
        return np.maximum(np.bincount(self.parts, self.weights), 1e-300)

    def force(self, potentials: Floats) -> Floats:
        """Return ρ p ∘ (x − x̄), shape (n_clients,)."""
        mean = np.bincount(self.parts, self.weights * potentials) / self._mass
        return np.asarray(self.softness * self.weights * (potentials - mean[self.parts]))

    @property
    def stiffness(self) -> Floats:
        """The diagonal ρ p of the Hessian.

        The rest of it, −ρ p pᵀ/p(part), is left out: gradients sum to zero over a part, and for
        those the solution without it solves the whole.
        """
        return self.softness * self.weights


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
