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
from typing import Any, NamedTuple, Protocol

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
    """Clients of one level, and those of the levels before and after it.

    Attributes
    ----------
    clients : int array
        Members of the group.
    earlier, later : int arrays
        Clients of lower-numbered levels, which must all be absent for the group to get weight,
        and clients of higher-numbered levels, which do not affect it.
    """

    clients: Integers
    earlier: Integers
    later: Integers


class Nodes(NamedTuple):
    """Quadrature nodes: log t, and the weight of dt/t at each, both (n_times,)."""

    log_times: Floats
    steps: Floats


class TiltedLaw(Protocol):
    """A law of product form: its tilted normaliser and inclusion probabilities.

    Arrays over nodes have shape (n_nodes,), arrays over clients and nodes (n_clients, n_nodes);
    a law that conditions on the cohort's size may use several complex nodes, or layers, per t.
    """

    def bounds(self, group: Group, potentials: Floats) -> tuple[float, float]:
        """Return the logs of the least and of the largest Σ_{k∈A} exp(x_k) in the group."""
        ...

    def reach(self, group: Group) -> float:
        """Return the probability that the group's level is a cohort's lowest."""
        ...

    def tilt(self, group: Group, potentials: Floats, nodes: Nodes) -> "Tilt":
        """Return the tilted law at the nodes."""
        ...


class Tilt(Protocol):
    """A product law tilted by e^{−t s_A} at every node."""

    @property
    def weights(self) -> Any:
        """Quadrature weights dΩ, shape (n_layers, n_times), complex if the nodes are."""
        ...

    def sums(self) -> Floats:
        """Return ∫ a dΩ and ∫ t u a dΩ, shape (2, n_clients)."""
        ...

    def inclusions(self, block: slice) -> tuple[Floats, Iterator[Any]]:
        """Return t·u and ρ for each layer, for a block of clients, each (n_block, n_times)."""
        ...

    def joint(self, block: slice) -> Floats:
        """Return ∫ a_i a_j dΩ for a block of clients, shape (n_block, n_block)."""
        ...

    def factor(self) -> tuple[Floats, Floats]:
        """Return the columns and the signs of a `Factor`."""
        ...


@dataclass(frozen=True, eq=False)
class GroupedSystem:
    """Expected weights of a law in closed form, one group of clients after the other.

    Attributes
    ----------
    point : function
        From the groups and the potentials to the weights and their curvature.
    levels : int array, shape (n_clients,), or None
        Level of each client; None for a single level.
    """

    point: Callable[[tuple[Group, ...], Floats], Curvature]
    levels: Integers | None

    def marginal(self, potentials: Floats) -> Floats:
        """Return the expected weights, shape (n_clients,)."""
        return self.curvature(potentials).marginal

    def curvature(self, potentials: Floats) -> Curvature:
        """Return the expected weights and what is needed of their derivative."""
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
    def _tilts(self) -> tuple[tuple[Group, Tilt], ...]:
        return tuple((group, self._tilt(group)) for group in self.groups if group.clients.size > 1)

    def _tilt(self, group: Group, *, thin: bool = False) -> Tilt:
        values = self.potentials[group.clients]
        # Shift the largest potential to zero: only differences matter, and t scales with them.
        values = values - values.max()
        nodes = place_nodes(*self.law.bounds(group, values))
        return self.law.tilt(group, values, thinned(nodes) if thin else nodes)

    @cached_property
    def _sums(self) -> tuple[Floats, Floats]:
        marginal, squares = np.zeros((2, self.potentials.size))
        for group in self.groups:
            if group.clients.size == 1:
                marginal[group.clients] = squares[group.clients] = self.law.reach(group)
        for group, tilt in self._tilts:
            inner = tilt.sums()
            # A level's weights sum to the probability of reaching it, which is known exactly:
            # scaling to it removes the rounding in normalisers of thousands of factors.
            total = inner[0].sum()
            if total > 0:
                inner *= self.law.reach(group) / total
            marginal[group.clients], squares[group.clients] = inner
        return marginal, squares

    @property
    def marginal(self) -> Floats:
        return self._sums[0]

    @property
    def squares(self) -> Floats:
        return self._sums[1]

    def product(self, direction: Floats) -> Floats:
        # Σ_j E[Y_i Y_j] (d_i − d_j) needs no diagonal, hence no squared weights.
        result = np.zeros_like(direction)
        for (clients, _, _), tilt in self._tilts:
            shape = tilt.weights.shape
            totals = np.zeros((shape[0], 2, shape[1]), dtype=tilt.weights.dtype)
            for block in client_blocks(clients.size, shape[1]):
                both = np.stack((np.ones(clients[block].size), direction[clients[block]]))
                scale, inclusions = tilt.inclusions(block)
                for layer, inclusion in enumerate(inclusions):
                    totals[layer] += both @ (scale * inclusion)
            totals *= tilt.weights[:, None, :]
            for block in client_blocks(clients.size, shape[1]):
                scale, inclusions = tilt.inclusions(block)
                for layer, inclusion in enumerate(inclusions):
                    ones, moved = ((scale * inclusion) @ totals[layer].T).T.real
                    result[clients[block]] += direction[clients[block]] * ones - moved
        return result

    def dense(self) -> Floats:
        joint = np.zeros((self.potentials.size, self.potentials.size))
        for (clients, _, _), tilt in self._tilts:
            joint[np.ix_(clients, clients)] = tilt.joint(slice(None))
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
