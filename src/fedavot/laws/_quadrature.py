"""Expected softmax weights of laws with 2^N cohorts, as integrals of products.

With u = exp(x) and s_A = Σ_{k∈A} u_k, the identity 1/s = ∫₀^∞ e^{−ts} dt turns an expectation
over cohorts into an integral over t of a product over clients:

    E[Y_i]     = ∫ a_i(t) dΩ(t),            a_i(t) = t u_i ρ_i(t),
    E[Y_i²]    = ∫ t u_i a_i(t) dΩ(t),
    E[Y_i Y_j] = ∫ a_i(t) a_j(t) dΩ(t)      for i ≠ j,

where ρ_i(t) is client i's inclusion probability under the law tilted by e^{−t s_A}, and dΩ the
tilted normaliser E[e^{−t s_A}] dt/t. Substituting t = exp(τ − e^{−τ}), the integrand dies off
doubly exponentially towards t = 0 and the trapezoid rule converges geometrically. A law of this
kind supplies ρ and Ω; this module supplies nodes, levels, and the sums, in blocks of clients so
that memory stays O(N).
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot.laws._law import as_laplacian

_STEP = 0.22
"""Where the trapezoid rule's error has fallen to rounding (checked by halving it)."""
_LEFT_SHIFT = 2.0
"""How far left of the integrand's bulk the doubly exponential tail begins."""
_LEFT_END = -5.5
"""There t has fallen to e^-38, so that what is cut off is under rounding."""
_RIGHT_END = np.log(42.0)
"""Likewise: e^-42 remains of the slowest exponential."""
_NODE_MULTIPLE = 8
_THINNED = 4
"""One node in four still gives a factor to 0.2 %."""
_NEGLIGIBLE = 1e-4
"""Columns that add less than this share to every client's curvature are left out of a factor."""
_LEVEL_GAP = 80.0
"""Potentials this far apart act as two levels: the lower one's share is below 1e-34."""
BLOCK_ENTRIES = 1 << 18
"""Entries of a (clients, nodes) block: 2 MB of float64, which stays in the cache."""


class Group(NamedTuple):
    """Clients of one level, with what the law knows of the others.

    Attributes
    ----------
    clients : int array
        The group's members.
    earlier, later : int arrays
        Clients of lower-numbered levels, which must all be absent for the group to get weight,
        and of higher-numbered ones, which do not matter to it.
    """

    clients: Integers
    earlier: Integers
    later: Integers


class Nodes(NamedTuple):
    """Quadrature nodes: log t, and the weight of dt/t at each, both (n_times,)."""

    log_times: Floats
    steps: Floats


class Factor(NamedTuple):
    """Low-rank curvature of one group of clients.

    Σ_k signs_k columns_k columns_kᵀ has about E[Y_i Y_j] off its diagonal; its diagonal means
    nothing. It serves as a Newton matrix or as a preconditioner.

    Attributes
    ----------
    clients : int array, shape (n_group,)
        The group's members.
    columns : float array, shape (n_group, rank)
        One row per client.
    signs : float array, shape (rank,)
        1 or −1 for each column.
    """

    clients: Integers
    columns: Floats
    signs: Floats


@runtime_checkable
class Factored(Protocol):
    """A point whose curvature may be known as a sum of low-rank factors."""

    def factors(self) -> list[Factor] | None:
        """Return factors that sum to about E[Y_i Y_j], i ≠ j, or None if there are none."""
        ...


class TiltedLaw(Protocol):
    """What a law of product form knows: its tilted normaliser and inclusion probabilities.

    Arrays over nodes have shape (n_nodes,), arrays over clients and nodes (n_clients, n_nodes);
    a law that conditions on the cohort's size may use several complex nodes for each t.
    """

    def bounds(self, group: Group, potentials: Floats) -> tuple[float, float]:
        """Return log of the least and of the largest possible Σ_{k∈A} exp(x_k) in the group."""
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
        """The quadrature weights dΩ, shape (n_layers, n_times), complex if layers are."""
        ...

    def sums(self) -> Floats:
        """Return ∫ a dΩ and ∫ t u a dΩ, shape (2, n_clients)."""
        ...

    def inclusions(self, block: slice) -> tuple[Floats, Iterator[Any]]:
        """Return t·u, and layer by layer ρ, for a block of clients, each (n_block, n_times)."""
        ...

    def joint(self, block: slice) -> Floats:
        """Return ∫ a_i a_j dΩ for a block of clients, shape (n_block, n_block)."""
        ...

    def factor(self) -> tuple[Floats, Floats]:
        """Return the columns and the signs of a `Factor`."""
        ...


@dataclass(frozen=True, eq=False)
class ProductSystem:
    """Expected weights of a law of product form, level by level."""

    law: TiltedLaw
    n_clients: int
    levels: Integers | None

    def marginal(self, potentials: Floats) -> Floats:
        """Return the expected weights, shape (n_clients,)."""
        return self.curvature(potentials).marginal

    def curvature(self, potentials: Floats) -> "ProductPoint":
        """Return the expected weights and what is needed of their derivative."""
        return ProductPoint(self.law, tuple(groups(potentials, self.levels)), potentials)


def groups(potentials: Floats, levels: Integers | None) -> Iterator[Group]:
    """Split the clients by level, and by gaps so wide that they act as levels."""
    if levels is None and np.ptp(potentials) <= _LEVEL_GAP:
        nobody = np.empty(0, dtype=np.int64)
        yield Group(np.arange(potentials.size), nobody, nobody)
        return
    key = -potentials if levels is None else levels
    order = np.lexsort((-potentials, key))
    drop = np.diff(potentials[order]) < -_LEVEL_GAP
    if levels is not None:
        drop |= np.diff(levels[order]) > 0
    cuts = [0, *(np.flatnonzero(drop) + 1).tolist(), order.size]
    for first, last in itertools.pairwise(cuts):
        yield Group(order[first:last], order[:first], order[last:])


def place_nodes(low: float, high: float) -> Nodes:
    """Place nodes for sums s_A between exp(low) and about exp(high)."""
    count = int(np.ceil((_RIGHT_END - low + high - _LEFT_END) / _STEP)) + 1
    # A few nodes too many do no harm, and compiled programs are kept by their shapes.
    count += -count % _NODE_MULTIPLE
    place = _LEFT_END + _STEP * np.arange(count)
    bend = np.exp(-place - _LEFT_SHIFT)
    return Nodes(place - bend - high, _STEP * (1.0 + bend))


def thinned(nodes: Nodes) -> Nodes:
    """Return few nodes, enough for a `Factor`."""
    kept = slice(_THINNED // 2, None, _THINNED)
    return Nodes(nodes.log_times[kept], _THINNED * nodes.steps[kept])


def significant(columns: Floats) -> NDArray[np.bool_]:
    """Say which columns of a `Factor` matter to some client's curvature, shape (rank,)."""
    # What a column adds to Σ_{j≠i} E[Y_i Y_j], as a share of the whole.
    added = np.abs(columns * (columns.sum(axis=0) - columns))
    whole = np.maximum(added.sum(axis=1, keepdims=True), 1e-300)
    return np.asarray(np.any(added > _NEGLIGIBLE * whole, axis=0))


@dataclass(frozen=True, eq=False)
class ProductPoint:
    """Everything at one vector of potentials, group by group."""

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
            # that takes out the rounding in normalisers of thousands of factors.
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
        # Σ_j E[Y_i Y_j] (d_i − d_j) needs no diagonal, so no square of an own weight either.
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
    """Return t u_i, shape (n_clients, n_times), cut off where e^{−tu} has long vanished."""
    exponents = np.add.outer(potentials, nodes.log_times)
    return np.asarray(np.exp(np.minimum(exponents, 300.0, out=exponents), out=exponents))


def client_blocks(n_clients: int, n_times: int) -> Iterator[slice]:
    size = max(1, BLOCK_ENTRIES // n_times)
    for first in range(0, n_clients, size):
        yield slice(first, min(first + size, n_clients))
