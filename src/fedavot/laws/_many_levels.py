"""Independent clients in many levels, evaluated in one pass instead of level by level.

An unattainable importance may have thousands of levels, most of them of a few clients. Each needs
its own integral, ∫ t u_i ρ_i(t) dΩ_b(t) with dΩ_b the product of factors of level b, but all can
share one set of nodes: the logarithms of the factors form a (clients, nodes) matrix, and summing
its rows by level gives the products of all levels at once. Levels that need similar numbers of
nodes are evaluated together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._factors import Factor
from fedavot.laws._quadrature import BLOCK_ENTRIES, Nodes, place_nodes, scaled_times, thinned

_SPAN = 8.0
"""Levels whose sums have log-ranges within this of each other share their nodes."""


def tilted(chances: Floats, present: Floats) -> Floats:
    """Return ρ = π v/(1 − π + π v) for v = e^{−tu}, each (n_clients, n_times); 0 for 0/0."""
    here = chances * present
    either = (1.0 - chances) + here
    return np.divide(here, either, out=np.zeros_like(here), where=either > 0)


class _Bunch(NamedTuple):
    """Some whole levels: the rows of their clients, the levels, and the nodes they share."""

    rows: Integers
    levels: Integers
    starts: Integers
    nodes: Nodes


@dataclass(frozen=True, eq=False)
class ManyLevels:
    """Independent clients in many levels.

    The clients are sorted by level, and ``starts`` says where each level begins; the largest
    potential of every level is 0. Of each level, ``outside`` is the probability that all earlier
    ones are absent, divided by P(A ≠ ∅), and ``reach`` that it is a cohort's lowest.
    """

    clients: Integers
    probabilities: Floats
    copies: Floats
    potentials: Floats
    starts: Integers
    outside: Floats
    reach: Floats

    @cached_property
    def sums(self) -> Floats:
        """The expected weights and their squares, shape (2, n)."""
        sums = np.empty((2, self.clients.size))
        for bunch in self._bunches():
            scale, mass, weights = self._masses(bunch)
            mass *= np.repeat(weights, np.diff(bunch.starts), axis=0)
            total = mass.sum(axis=1)
            squares = np.einsum("ij,ij->i", mass, scale)
            # A level's weights sum to the probability of reaching it, which is known exactly.
            found = np.add.reduceat(total, bunch.starts[:-1])
            right = np.divide(
                self.reach[bunch.levels], found, out=np.ones_like(found), where=found > 0
            )
            sums[:, bunch.rows] = np.stack((total, squares)) * np.repeat(
                right, np.diff(bunch.starts)
            )
        return sums

    def factors(self) -> Iterator[Factor]:
        """Yield the curvature of each level as a low-rank factor."""
        for bunch in self._bunches(thin=True):
            _, mass, weights = self._masses(bunch)
            columns = mass * np.repeat(np.sqrt(weights), np.diff(bunch.starts), axis=0)
            signs = np.ones(columns.shape[1])
            clients = self.clients[bunch.rows]
            for first, last in zip(bunch.starts[:-1], bunch.starts[1:], strict=True):
                yield Factor(clients[first:last], columns[first:last], signs)

    def _masses(self, bunch: _Bunch) -> tuple[Floats, Floats, Floats]:
        """Return t u and t u ρ by client and node, and dΩ by level and node."""
        chances = self.probabilities[bunch.rows, None]
        copies = self.copies[bunch.rows, None]
        scale = scaled_times(self.potentials[bunch.rows], bunch.nodes)
        present = np.expm1(-scale)
        with np.errstate(divide="ignore"):
            logs = copies * np.log1p(chances * present)
        product = np.exp(np.add.reduceat(logs, bunch.starts[:-1], axis=0))
        weights = self.outside[bunch.levels, None] * bunch.nodes.steps * product
        present += 1.0
        return scale, scale * copies * tilted(chances, present), weights

    def _bunches(self, *, thin: bool = False) -> Iterator[_Bunch]:
        """Yield bunches of levels that share their nodes and fit into the cache."""
        ends = np.append(self.starts[1:], self.clients.size)
        low = np.minimum.reduceat(self.potentials, self.starts)
        sums = np.add.reduceat(
            np.exp(self.potentials) * self.copies * self.probabilities, self.starts
        )
        high = np.log(np.maximum(sums, 1.0))
        kinds = np.floor((high - low) / _SPAN)
        for kind in np.unique(kinds):
            levels = np.flatnonzero(kinds == kind)
            nodes = place_nodes(float(low[levels].min()), float(high[levels].max()))
            nodes = thinned(nodes) if thin else nodes
            sizes = (ends - self.starts)[levels]
            room = max(1, BLOCK_ENTRIES // nodes.steps.size)
            cuts = np.flatnonzero(np.diff(np.cumsum(sizes) // room)) + 1
            for chosen in np.split(levels, cuts):
                count = (ends - self.starts)[chosen]
                offsets = np.concatenate(([0], np.cumsum(count)))
                rows = np.repeat(self.starts[chosen] - offsets[:-1], count) + np.arange(offsets[-1])
                yield _Bunch(rows, chosen, offsets, nodes)
