"""Expected softmax weights of laws with 2^N cohorts, as integrals of products.

With u = exp(x) and s_A = Σ_{k∈A} u_k, the identity 1/s = ∫₀^∞ e^{−ts} dt turns an expectation
over cohorts into an integral over t of a product over clients:

    E[Y_i]     = ∫ a_i(t) dΩ(t),            a_i(t) = t u_i ρ_i(t),
    E[Y_i²]    = ∫ t u_i a_i(t) dΩ(t),
    E[Y_i Y_j] = ∫ a_i(t) a_j(t) dΩ(t)      for i ≠ j,

where ρ_i(t) is client i's inclusion probability under the law tilted by e^{−t s_A}, and dΩ the
tilted normaliser E[e^{−t s_A}] dt/t. After the substitution t = exp(τ − e^{−τ}) the integrand
decays doubly exponentially towards t = 0, and the trapezoid rule converges geometrically. This
module places the nodes and sorts the clients by level; `independent` and `_circle` supply ρ and Ω,
in blocks of clients so that memory stays O(N).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._law import LEVEL_GAP, Curvature

_STEP = 0.22
"""Step at which the trapezoid rule's error is rounding, as halving it shows."""
_LEFT_SHIFT = 2.0
"""Distance to the left of the integrand's bulk at which the doubly exponential tail begins."""
_LEFT_END = -5.5
"""Left end, where t is e^-38, so that the part cut off is below rounding."""
_RIGHT_END = np.log(42.0)
"""Right end, where e^-42 remains of the slowest exponential."""
_NODE_MULTIPLE = 8
_THINNED = 4
"""Every fourth node gives a factor to within 0.2 %."""
_BLOCK_ENTRIES = 1 << 18
"""Entries of a (clients, nodes) block: 2 MB of float64, which stays in the cache."""


class Nodes(NamedTuple):
    """Quadrature nodes: log t, and the weight of dt/t at each, both (n_times,)."""

    log_times: Floats
    steps: Floats


class LevelOrder(NamedTuple):
    """All clients, sorted by level, and where each level begins.

    A level gets weight only where all clients of earlier levels are absent; later ones do not
    affect it.
    """

    clients: Integers
    starts: Integers

    @property
    def sizes(self) -> Integers:
        """Number of clients of each level, shape (n_levels,)."""
        return np.diff(self.starts, append=self.clients.size)


@dataclass(frozen=True, eq=False)
class LeveledSystem:
    """Expected weights of a law in closed form, at points made from clients sorted by level."""

    point: Callable[[LevelOrder, Floats], Curvature]
    levels: Integers | None

    def marginal(self, potentials: Floats) -> Floats:
        return self.curvature(potentials).marginal

    def curvature(self, potentials: Floats) -> Curvature:
        return self.point(sort_by_level(potentials, self.levels), potentials)


def sort_by_level(potentials: Floats, levels: Integers | None) -> LevelOrder:
    """Sort clients by level, and cut at gaps in the potentials so wide that they act as levels."""
    if levels is None and np.ptp(potentials) <= LEVEL_GAP:
        return LevelOrder(np.arange(potentials.size), np.zeros(1, dtype=np.int64))
    order = np.lexsort((-potentials, -potentials if levels is None else levels))
    drop = np.diff(potentials[order]) < -LEVEL_GAP
    if levels is not None:
        drop |= np.diff(levels[order]) > 0
    return LevelOrder(order, np.append(0, np.flatnonzero(drop) + 1))


def place_nodes(low: float, high: float) -> Nodes:
    """Place nodes for sums s_A between exp(low) and about exp(high)."""
    count = int(np.ceil((_RIGHT_END - low + high - _LEFT_END) / _STEP)) + 1
    # A few extra nodes do no harm, and compiled programs are cached by their shapes.
    count += -count % _NODE_MULTIPLE
    place = _LEFT_END + _STEP * np.arange(count)
    bend = np.exp(-place - _LEFT_SHIFT)
    return Nodes(place - bend - high, _STEP * (1.0 + bend))


def thin(nodes: Nodes) -> Nodes:
    """Return few nodes, enough for a `Factor`."""
    few = slice(_THINNED // 2, None, _THINNED)
    return Nodes(nodes.log_times[few], _THINNED * nodes.steps[few])


def scaled_times(potentials: Floats, nodes: Nodes) -> Floats:
    """Return t u_i, shape (n_clients, n_times), cut off where e^{−tu} is zero anyway."""
    exponents = np.add.outer(potentials, nodes.log_times)
    return np.asarray(np.exp(np.minimum(exponents, 300.0, out=exponents), out=exponents))


def clients_per_block(n_times: int) -> int:
    """Return how many clients have (clients, nodes) arrays that stay in the cache."""
    return max(1, _BLOCK_ENTRIES // n_times)


def blocks_of(n_clients: int, size: int) -> list[slice]:
    """Cut clients into blocks of at most this size."""
    return [slice(first, min(first + size, n_clients)) for first in range(0, n_clients, size)]
