"""The dual problem within fixed levels, the point that a solver has reached, and when it stops.

Within fixed levels the expected weights m(x) have to meet a *target*: the potentials x maximise the
concave dual Σ target_i x_i − E_A log Σ_{k∈A} exp(x_k). Soft alignment adds a pull towards a common
potential, −(ρ/2) Σ p_i (x_i − x̄)², where x̄ is the p-weighted mean over the client's part.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot.laws._explicit import ExplicitSystem
from fedavot.laws._law import SolvableLaw, System
from fedavot.solve.levels import Partition

# A range up to this does not shorten a step, so that an upper bound on it is enough.
_NEAR = 8.0


@dataclass(frozen=True)
class StoppingRule:
    """When a solver stops, and which methods it may use.

    It stops at the L1 distance ``tol`` to the target, where no client's error exceeds ``relative``
    of its own target, or after ``max_iter`` evaluations of the law; ``method`` is "auto" or
    "newton".
    """

    tol: float
    max_iter: int
    method: str = "auto"
    relative: float = np.inf


@dataclass(frozen=True, eq=False)
class Iterate:
    """The point that a solver has reached.

    ``marginal`` has the expected weights of the potentials, and ``residual`` is the L1 norm of the
    error (for soft alignment, of the gradient); ``evaluations`` counts how many times expected
    weights were computed so far.
    """

    potentials: Floats
    marginal: Floats
    residual: float
    evaluations: int

    @classmethod
    def start(cls, potentials: Floats, evaluations: int = 0) -> "Iterate":
        """Return potentials that are yet to be evaluated: their residual is infinite."""
        return cls(potentials, potentials, np.inf, evaluations)


@dataclass(frozen=True, eq=False)
class Solution:
    """Levels, and the point that a solver has reached within them."""

    partition: Partition
    iterate: Iterate


@dataclass(frozen=True, eq=False)
class DualProblem:
    """Find potentials whose expected weights equal the target, with the levels held fixed.

    Only the potentials of ``free`` clients are solved for; the expected weights of ``exempt``
    clients, which have no importance, are not compared with the target. ``parts`` numbers the part
    of each client from 0: clients of different parts do not interact. Parts are levels, or finer.
    """

    system: System
    target: Floats
    free: NDArray[np.bool_]
    exempt: NDArray[np.bool_]
    parts: Integers

    @classmethod
    def within(cls, importance: Floats, law: SolvableLaw, split: Partition) -> "DualProblem":
        """Return the problem of meeting the target within fixed levels.

        A level of one client is met by any potential, so only larger levels are solved for.
        """
        levels, exempt = split.levels, importance == 0
        system = law.system(levels if levels.any() else None)
        free = (np.bincount(levels)[levels] > 1) & ~exempt & (split.target > 0)
        if levels.any() and isinstance(system, ExplicitSystem):
            # Within a level, explicit cohorts may fall apart further.
            levels = system.incidence.components()
        return cls(system, split.target, free, exempt, levels)

    def error(self, marginal: Floats) -> Floats:
        """Return target − marginal, zero for exempt clients."""
        return np.where(self.exempt, 0.0, self.target - marginal)

    def worst_error(self, iterate: Iterate) -> float:
        """Return the largest error of a client that is solved for, relative to its target."""
        error = np.abs(self.error(iterate.marginal))[self.free]
        with np.errstate(over="ignore"):
            return float(np.max(error / self.target[self.free], initial=0.0))

    def met(self, iterate: Iterate, stop: StoppingRule) -> bool:
        """Say whether the target is met as closely as the stopping rule asks."""
        if not iterate.residual <= stop.tol:
            return False
        return np.isinf(stop.relative) or self.worst_error(iterate) <= stop.relative

    @cached_property
    def grouped(self) -> tuple[Integers, Integers]:
        """The free clients sorted by part, and the position where each part begins."""
        clients = np.flatnonzero(self.free)
        clients = clients[np.argsort(self.parts[clients], kind="stable")]
        return clients, np.flatnonzero(np.diff(self.parts[clients], prepend=-1))

    def reach_by_part(self, direction: Floats) -> Floats:
        """Return the largest range of a direction within any cohort of a part, shape (n_parts,).

        The range over the whole part is an upper bound, and is returned where it is small or the
        cohorts are not listed.
        """
        clients, starts = self.grouped
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
        """Return log(target / marginal), the IPFP increment; zero for clients not solved for."""
        ratio = np.ones_like(marginal)
        # A weight below the range of floats still has to pull its client back up.
        np.divide(self.target, np.maximum(marginal, 1e-300), out=ratio, where=self.free)
        return np.log(ratio)


@dataclass(frozen=True, eq=False)
class Pull:
    """The pull of soft alignment towards the mean potential of each part.

    ``softness`` is its strength ρ; ``weights`` has the p_i, zero for clients not solved for, and
    ``parts`` the part towards whose mean each client is pulled. Of its Hessian only the diagonal
    ρ p is used: the rest, −ρ p pᵀ/p(part), can be left out, because gradients sum to zero over a
    part, and for those the solution without it solves the whole.
    """

    softness: float
    weights: Floats
    parts: Integers

    def force(self, potentials: Floats) -> Floats:
        """Return ρ p ∘ (x − x̄), shape (n_clients,)."""
        mass = np.maximum(np.bincount(self.parts, self.weights), 1e-300)
        mean = np.bincount(self.parts, self.weights * potentials) / mass
        return np.asarray(self.softness * self.weights * (potentials - mean[self.parts]))
