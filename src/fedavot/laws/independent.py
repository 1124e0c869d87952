"""Clients that are available independently of one another, in closed form.

P(i ∈ A) = π_i before conditioning on A ≠ ∅. With a_i = −log(1 − π_i), the coverage is
f(I) = (1 − e^{−a(I)}) / (1 − e^{−a([N])}): a concave function of an additive one, so the sets that
maximise p(I) − f(I) or p(I)/f(I) are prefixes in the order of falling p_i/a_i. The points
(a(I), p(I)) span a zonotope whose upper boundary those prefixes trace, and a convex function that
falls with a and rises with p attains its maximum there.

The expected weights are integrals as in `_quadrature`, with ρ = π v/(1 − π + π v) for v = e^{−tu}
and dΩ a product over the clients of a level. An unattainable importance may have thousands of
levels, most of them of a few clients: all can share one set of nodes, because summing the rows of
the (clients, nodes) matrix of log-factors by level gives the products of all levels at once. Levels
that need similar numbers of nodes are evaluated together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_floats, as_generator, as_size
from fedavot._clients import Clients, Members
from fedavot.errors import LawError
from fedavot.laws._compiled import can_compile, independent_sums
from fedavot.laws._laplacian import Factor, as_laplacian
from fedavot.laws._law import SolvableLaw
from fedavot.laws._quadrature import (
    LeveledSystem,
    LevelOrder,
    Nodes,
    blocks_of,
    clients_per_block,
    place_nodes,
    scaled_times,
    thin,
)

_COMPILED_CLIENTS = 20_000
"""Number of clients from which on compiling a program pays within a few evaluations."""
_COMPILED_SPREAD = 600.0
"""Range of potentials beyond which exp(x), which the compiled program computes, is no float."""
_SPAN = 8.0
"""Levels whose sums have log-ranges within this of each other share their nodes."""
_LEAST_NONEMPTY = 1e-150
"""Least P(A ≠ ∅): smaller ones are scaled up to it, which changes no expectation by more."""


class IndependentClients(SolvableLaw):
    """Each client is available with its own probability, independently of the others.

    Parameters
    ----------
    probabilities : array-like, shape (n_clients,)
        P(i ∈ A) before conditioning on A ≠ ∅; 0 and 1 are allowed.
    clients : sequence of str, optional
        The clients' names, in the order of their indices.

    Attributes
    ----------
    probabilities : float array, shape (n_clients,)
        P(i ∈ A) before conditioning on A ≠ ∅.
    exponents : float array, shape (n_clients,)
        The additive part a_i = −log(1 − π_i) of the coverage.
    nonempty : float
        Probability that anybody is available.
    """

    def __init__(self, probabilities: ArrayLike, *, clients: Sequence[str] | None = None) -> None:
        values = as_floats(probabilities, what="probabilities", error=LawError)
        self._clients = Clients(values.size, clients)
        bad = np.flatnonzero(~((values >= 0) & (values <= 1)))
        if bad.size:
            client, value = self._clients.label(bad[0]), values[bad[0]]
            raise LawError(f"the probability of client {client} is {value}; it must be in [0, 1]")
        if not np.any(values > 0):
            raise LawError("no client is ever available: every probability is 0")
        self.probabilities = values.copy()
        with np.errstate(divide="ignore"):
            self.exponents: Floats = -np.log1p(-values)
        self.nonempty = float(-np.expm1(-self.exponents.sum()))
        # If rounds are nearly always empty, the others have one member, whatever this factor on
        # the probabilities; it keeps division by the probability of the others from overflowing.
        self._lift = max(1.0, _LEAST_NONEMPTY / self.nonempty)

    def _detail(self) -> str:
        return f"mean cohort size {self.probabilities.sum() / self.nonempty:.3g}"

    def inclusion(self) -> Floats:
        return self.probabilities / self.nonempty

    def coverage(self, clients: Members) -> float:
        exponent = self.exponents[self._clients.mask(clients)].sum()
        return float(-np.expm1(-exponent) / self.nonempty)

    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        """Draw one non-empty cohort per round, members ascending."""
        rng, cohorts = as_generator(rng), []
        reached = -np.expm1(-np.cumsum(self.exponents))
        last = int(np.flatnonzero(self.probabilities)[-1])
        for _ in range(as_size(rounds, what="rounds", low=0)):
            # The first available client is drawn from its exact law given that there is one, so
            # that a law that is almost always empty costs no more than any other.
            first = int(np.searchsorted(reached, rng.random() * reached[-1], side="right"))
            first = min(first, last)
            others = rng.random(self.n_clients - first - 1) < self.probabilities[first + 1 :]
            cohorts.append(np.append(first, first + 1 + np.flatnonzero(others)))
        return cohorts

    def system(self, levels: Integers | None = None) -> LeveledSystem:
        return LeveledSystem(partial(_Point, self), levels)

    def prefix_gains(self, order: Integers) -> Floats:
        exponents = self.exponents[order]
        # The exponent of a client that is always available is infinite: nothing is left after it.
        before = np.concatenate(([0.0], np.cumsum(exponents)[:-1]))
        return np.exp(-before) * -np.expm1(-exponents) / self.nonempty

    def worst_order(self, importance: Floats) -> Integers:
        """Return the clients by falling p_i/a_i; clients without importance come last."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = importance / (self._lift * self.exponents)
        ratio[importance == 0] = -1.0
        return np.argsort(-ratio)


class _Bunch(NamedTuple):
    """Some levels: their rows, where each level begins among these, and the nodes they share."""

    levels: Integers
    rows: Integers
    starts: Integers
    nodes: Nodes


@dataclass(frozen=True, eq=False)
class _Point:
    """Expected weights and curvature at one vector of potentials; rows are clients by level."""

    law: IndependentClients
    order: LevelOrder
    potentials: Floats

    @cached_property
    def _values(self) -> Floats:
        """Potentials by row, below the largest of the level: only their differences matter."""
        values = self.potentials[self.order.clients]
        values -= np.repeat(np.maximum.reduceat(values, self.order.starts), self.order.sizes)
        return values

    @cached_property
    def _chances(self) -> Floats:
        return self.law._lift * self.law.probabilities[self.order.clients]

    @cached_property
    def _absent(self) -> Floats:
        """Probability that all clients of earlier levels are absent, shape (n_levels,)."""
        exponents = np.cumsum(self.law.exponents[self.order.clients])
        return np.asarray(np.exp(-np.append(0.0, exponents[self.order.starts[1:] - 1])))

    @cached_property
    def _sums(self) -> Floats:
        """E[Y_i] and E[Y_i²], shape (2, n_clients)."""
        clients, starts, sizes = *self.order, self.order.sizes
        own = np.add.reduceat(self.law.exponents[clients], starts)
        reach = self._absent * -np.expm1(-own) / self.law.nonempty
        # A client that is alone in its level gets all weight that reaches the level.
        sums = np.tile(np.repeat(reach, sizes), (2, 1))
        for bunch in self._bunches():
            inner = self._integrals(bunch)
            # A level's weights sum to the probability of reaching it, which is known exactly:
            # scaling to it removes the rounding in normalisers of thousands of factors.
            total = np.add.reduceat(inner[0], bunch.starts)
            scale = np.divide(reach[bunch.levels], total, np.ones_like(total), where=total > 0)
            sums[:, bunch.rows] = inner * np.repeat(scale, sizes[bunch.levels])
        by_client = np.empty_like(sums)
        by_client[:, clients] = sums
        return by_client

    @property
    def marginal(self) -> Floats:
        return np.asarray(self._sums[0])

    @property
    def squares(self) -> Floats:
        return np.asarray(self._sums[1])

    def dense(self) -> Floats:
        joint = np.zeros((self.potentials.size, self.potentials.size))
        for clients, columns in self._columns(thinned=False):
            joint[np.ix_(clients, clients)] = columns @ columns.T
        return as_laplacian(joint)

    def factors(self) -> list[Factor]:
        """Return the curvature of each level of several clients as a low-rank factor."""
        parts = self._columns(thinned=True)
        return [Factor(clients, columns, np.ones(columns.shape[1])) for clients, columns in parts]

    def _columns(self, *, thinned: bool) -> Iterator[tuple[Integers, Floats]]:
        """Yield the clients of each level, and a column √dΩ t u ρ for each node."""
        for bunch in self._bunches(thinned=thinned):
            columns = np.empty((bunch.rows.size, bunch.nodes.steps.size))
            for block, _, mass, weights in self._masses(bunch):
                np.multiply(mass, np.sqrt(weights), out=columns[block])
            ends = np.append(bunch.starts[1:], bunch.rows.size)
            for first, last in zip(bunch.starts, ends, strict=True):
                yield self.order.clients[bunch.rows[first:last]], columns[first:last]

    def _integrals(self, bunch: _Bunch) -> Floats:
        """Return ∫ t u ρ dΩ and ∫ (t u)² ρ dΩ up to a factor per level, shape (2, n_rows)."""
        rows, nodes = bunch.rows, bunch.nodes
        narrow = bunch.levels.size == 1 and self._values[rows].min() > -_COMPILED_SPREAD
        if narrow and rows.size >= _COMPILED_CLIENTS and can_compile():
            times = np.exp(nodes.log_times)
            return independent_sums(self._chances[rows], self._values[rows], times, nodes.steps)
        sums = np.empty((2, rows.size))
        for block, scale, mass, weights in self._masses(bunch):
            shares = np.multiply(mass, weights, out=mass)
            sums[0, block] = shares.sum(axis=1)
            sums[1, block] = np.einsum("ij,ij->i", shares, scale)
        return sums

    def _masses(self, bunch: _Bunch) -> Iterator[tuple[slice, Floats, Floats, Floats]]:
        """Yield t u and t u ρ by row and node, and dΩ, for blocks of the rows of a bunch.

        A bunch is one block, unless it is a single level too large for that.
        """
        size = bunch.rows.size
        width = clients_per_block(bunch.nodes.steps.size) if bunch.levels.size == 1 else size
        blocks = blocks_of(size, width)
        chances = self._chances[bunch.rows, None]
        logs = np.zeros((bunch.levels.size, bunch.nodes.steps.size))
        for block in blocks:
            scale = scaled_times(self._values[bunch.rows[block]], bunch.nodes)
            less = np.expm1(-scale)
            with np.errstate(divide="ignore"):
                factors = np.log1p(chances[block] * less)
            logs += np.add.reduceat(factors, bunch.starts, axis=0)
        outside = self._absent[bunch.levels, None] / (self.law._lift * self.law.nonempty)
        weights = outside * bunch.nodes.steps * np.exp(logs)
        if bunch.levels.size > 1:
            weights = np.repeat(weights, self.order.sizes[bunch.levels], axis=0)
        for block in blocks:
            if len(blocks) > 1:
                scale = scaled_times(self._values[bunch.rows[block]], bunch.nodes)
                less = np.expm1(-scale)
            here = chances[block] * (less + 1.0)
            either = (1.0 - chances[block]) + here
            # 0/0 is of a client of probability one at large t.
            ratio = np.divide(here, either, out=np.zeros_like(here), where=either > 0)
            yield block, scale, scale * ratio, weights

    def _bunches(self, *, thinned: bool = False) -> Iterator[_Bunch]:
        """Yield bunches of levels of several clients that share their nodes, to fit a cache."""
        starts, sizes = self.order.starts, self.order.sizes
        low = np.minimum.reduceat(self._values, starts)
        sums = np.add.reduceat(np.exp(self._values) * self._chances, starts)
        high = np.log(np.maximum(sums, 1.0))
        kinds = np.where(sizes > 1, np.floor((high - low) / _SPAN), -1.0)
        for kind in np.unique(kinds[sizes > 1]):
            levels = np.flatnonzero(kinds == kind)
            nodes = place_nodes(float(low[levels].min()), float(high[levels].max()))
            nodes = thin(nodes) if thinned else nodes
            room, count = clients_per_block(nodes.steps.size), sizes[levels]
            # A level too large for a block is a bunch of its own.
            filled = np.diff(np.cumsum(count) // room) > 0
            for some in np.split(levels, np.flatnonzero(filled | (count[:-1] > room)) + 1):
                ends = np.cumsum(sizes[some])
                shift = starts[some] - ends + sizes[some]
                rows = np.arange(ends[-1]) + np.repeat(shift, sizes[some])
                yield _Bunch(some, rows, ends - sizes[some], nodes)
