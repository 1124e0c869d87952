"""Expected softmax weights of laws with 2^N cohorts, as integrals of products.

With u = exp(x) and s_A = Σ_{k∈A} u_k, the identity 1/s = ∫₀^∞ e^{−ts} dt turns an expectation
over cohorts into an integral over t of a product over clients:

    E[Y_i]     = ∫ a_i(t) dΩ(t),            a_i(t) = t u_i ρ_i(t),
    E[Y_i²]    = ∫ t u_i a_i(t) dΩ(t),
    E[Y_i Y_j] = ∫ a_i(t) a_j(t) dΩ(t)      for i ≠ j,

where ρ_i(t) is client i's inclusion probability under the law tilted by e^{−t s_A}, and dΩ the
tilted normaliser E[e^{−t s_A}] dt/t. After the substitution t = exp(τ − e^{−τ}) the integrand
decays doubly exponentially towards t = 0, and the trapezoid rule converges geometrically. A law of
this kind supplies ρ and Ω; this module supplies nodes, levels and the sums, in blocks of clients so
that memory stays O(N).
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._factors import Factor
from fedavot.laws._laplacian import as_laplacian
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
BLOCK_ENTRIES = 1 << 18
"""Entries of a (clients, nodes) block: 2 MB of float64, which stays in the cache."""


class Group(NamedTuple):
    """Clients of one level, those of earlier levels, and those of later ones.

    A group gets weight only where all earlier clients are absent; later ones do not affect it.
    """

    clients: Integers
    earlier: Integers
    later: Integers


class Nodes(NamedTuple):
    """Quadrature nodes: log t, and the weight of dt/t at each, both (n_times,)."""

    log_times: Floats
    steps: Floats


class TiltedLaw(Protocol):
    """A law of product form: its tilted normaliser and inclusion probabilities."""

    def bounds(self, group: Group, potentials: Floats) -> tuple[float, float]:
        """Return the logs of the least and of the largest Σ_{k∈A} exp(x_k) in the group."""

    def reach(self, group: Group) -> float:
        """Return the probability that the group's level is a cohort's lowest."""

    def tilt(self, group: Group, potentials: Floats, nodes: Nodes) -> "Tilt":
        """Return the tilted law at the nodes."""


class Tilt(Protocol):
    """A product law tilted by e^{−t s_A} at every node."""

    def sums(self) -> Floats:
        """Return ∫ a dΩ and ∫ t u a dΩ, shape (2, n_clients)."""

    def joint(self) -> Floats:
        """Return ∫ a_i a_j dΩ, shape (n_clients, n_clients)."""

    def factor(self) -> tuple[Floats, Floats]:
        """Return the columns and the signs of a `Factor`."""


@dataclass(frozen=True, eq=False)
class GroupedSystem:
    """Expected weights of a law in closed form, one group of clients after the other."""

    point: Callable[[tuple[Group, ...], Floats], Curvature]
    levels: Integers | None

    def marginal(self, potentials: Floats) -> Floats:
        return self.curvature(potentials).marginal

    def curvature(self, potentials: Floats) -> Curvature:
        return self.point(tuple(groups(potentials, self.levels)), potentials)


def groups(potentials: Floats, levels: Integers | None) -> Iterator[Group]:
    """Split the clients by level, and at gaps in the potentials so wide that they act as levels."""
    if levels is None and np.ptp(potentials) <= LEVEL_GAP:
        nobody = np.empty(0, dtype=np.int64)
        yield Group(np.arange(potentials.size), nobody, nobody)
        return
    key = -potentials if levels is None else levels
    order = np.lexsort((-potentials, key))
    drop = np.diff(potentials[order]) < -LEVEL_GAP
    if levels is not None:
        drop |= np.diff(levels[order]) > 0
    cuts = [0, *(np.flatnonzero(drop) + 1).tolist(), order.size]
    for first, last in itertools.pairwise(cuts):
        yield Group(order[first:last], order[:first], order[last:])


def place_nodes(low: float, high: float) -> Nodes:
    """Place nodes for sums s_A between exp(low) and about exp(high)."""
    count = int(np.ceil((_RIGHT_END - low + high - _LEFT_END) / _STEP)) + 1
    # A few extra nodes do no harm, and compiled programs are cached by their shapes.
    count += -count % _NODE_MULTIPLE
    place = _LEFT_END + _STEP * np.arange(count)
    bend = np.exp(-place - _LEFT_SHIFT)
    return Nodes(place - bend - high, _STEP * (1.0 + bend))


def thinned(nodes: Nodes) -> Nodes:
    """Return few nodes, enough for a `Factor`."""
    kept = slice(_THINNED // 2, None, _THINNED)
    return Nodes(nodes.log_times[kept], _THINNED * nodes.steps[kept])


@dataclass(frozen=True, eq=False)
class ProductPoint:
    """Expected weights and curvature at one vector of potentials, group by group."""

    law: TiltedLaw
    groups: tuple[Group, ...]
    potentials: Floats

    @cached_property
    def _tilts(self) -> list[tuple[Group, Tilt]]:
        return [(group, self._tilt(group)) for group in self.groups if group.clients.size > 1]

    def _tilt(self, group: Group, *, thin: bool = False) -> Tilt:
        values = self.potentials[group.clients]
        # Shift the largest potential to zero: only differences matter, and t scales with them.
        values = values - values.max()
        nodes = place_nodes(*self.law.bounds(group, values))
        return self.law.tilt(group, values, thinned(nodes) if thin else nodes)

    @cached_property
    def _sums(self) -> Floats:
        sums = np.zeros((2, self.potentials.size))
        for group in self.groups:
            if group.clients.size == 1:
                sums[:, group.clients] = self.law.reach(group)
        for group, tilt in self._tilts:
            inner = tilt.sums()
            # A level's weights sum to the probability of reaching it, which is known exactly:
            # scaling to it removes the rounding in normalisers of thousands of factors.
            total = inner[0].sum()
            if total > 0:
                inner *= self.law.reach(group) / total
            sums[:, group.clients] = inner
        return sums

    @property
    def marginal(self) -> Floats:
        return np.asarray(self._sums[0])

    @property
    def squares(self) -> Floats:
        return np.asarray(self._sums[1])

    def dense(self) -> Floats:
        joint = np.zeros((self.potentials.size, self.potentials.size))
        for (clients, _, _), tilt in self._tilts:
            joint[np.ix_(clients, clients)] = tilt.joint()
        return as_laplacian(joint)

    def factors(self) -> list[Factor]:
        """Return the curvature within each group of several clients as a low-rank factor."""
        return [
            Factor(group.clients, *self._tilt(group, thin=True).factor())
            for group in self.groups
            if group.clients.size > 1
        ]


def scaled_times(potentials: Floats, nodes: Nodes) -> Floats:
    """Return t u_i, shape (n_clients, n_times), cut off where e^{−tu} is zero anyway."""
    exponents = np.add.outer(potentials, nodes.log_times)
    return np.asarray(np.exp(np.minimum(exponents, 300.0, out=exponents), out=exponents))


def client_blocks(n_clients: int, n_times: int) -> Iterator[slice]:
    """Yield slices of clients whose (clients, nodes) arrays stay in the cache."""
    size = max(1, BLOCK_ENTRIES // n_times)
    for first in range(0, n_clients, size):
        yield slice(first, min(first + size, n_clients))
