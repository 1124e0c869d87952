"""Two draws without replacement by rates, in closed form.

With rates r that sum to one and odds g_a = r_a/(1 − r_a), a pair has probability
q{a,b} = g_a r_b + r_a g_b: a matrix of rank two except for its diagonal, so the list of N²/2 pairs
is never needed. A set I is missed by the first draw and hit by the second, or hit by the first:

    f(I) = r(I) (1 + g([N]∖I)).

The expected weights are integrals as in `_quadrature`. Pair {i, j} gives i the weight
u_i/(u_i + u_j) = ∫ t u_i e^{−t u_i} e^{−t u_j} dt/t, so that at each node t a client needs only the
sums of r_j e^{−t u_j} and of g_j e^{−t u_j} over the others. These are prefix and suffix sums: all
terms are positive, and nothing cancels even for a client that is nearly always drawn.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot.laws._factors import Factor, significant
from fedavot.laws._laplacian import as_laplacian
from fedavot.laws._quadrature import (
    BLOCK_ENTRIES,
    Group,
    GroupedSystem,
    Nodes,
    place_nodes,
    scaled_times,
    thinned,
)

_LEAST_REST = 1e-150
"""Least sum of all rates but the largest: smaller sums are scaled up to it, so that odds stay far
from overflow and no probability changes by more."""

_FEW = 100
"""Number of clients up to which the pairs of a group take less time than its integrals."""
_FARTHEST = 700.0
"""Largest difference of potentials whose exponential does not overflow."""


@dataclass(frozen=True, eq=False)
class TwoDraws:
    """Two draws without replacement; ``rates`` and ``odds`` have shape (n_clients,)."""

    rates: Floats
    odds: Floats

    @staticmethod
    def of(rates: Floats) -> "TwoDraws":
        """Return the law for rates that sum to one, of which at least two are positive."""
        rest = _sum_of_others(rates)
        top = int(np.argmax(rates))
        if rest[top] < _LEAST_REST:
            rates = rates * (_LEAST_REST / rest[top])
            rates[top] = 1.0
            rest = _sum_of_others(rates)
        return TwoDraws(rates, rates / rest)

    def inclusion(self) -> Floats:
        """Return P(i ∈ A) for every client, shape (n_clients,)."""
        return self.rates * (1.0 + _sum_of_others(self.odds))

    def coverage(self, members: NDArray[np.bool_]) -> float:
        """Return the coverage of the set with this mask."""
        return float(self.rates[members].sum() * (1.0 + self.odds[~members].sum()))

    def prefix_gains(self, order: Integers) -> Floats:
        """Return the coverage each client adds to those before it in an order of all clients."""
        rates, odds = self.rates[order], self.odds[order]
        return odds * _sum_after(rates) + rates * _sum_after(odds)

    def system(self, levels: Integers | None) -> GroupedSystem:
        """Return the map from potentials to expected weights within these levels."""
        return GroupedSystem(partial(_Point, self), levels)


def _sum_after(values: Floats) -> Floats:
    """Return the sum of all later entries along the first axis, for each entry."""
    result = np.zeros_like(values)
    result[:-1] = np.cumsum(values[:0:-1], axis=0)[::-1]
    return result


def _sum_of_others(values: Floats) -> Floats:
    """Return the sum of all other entries along the first axis, without subtracting."""
    result = _sum_after(values)
    result[1:] += np.cumsum(values[:-1], axis=0)
    return result


@dataclass(frozen=True, eq=False)
class _Point:
    """Expected weights and curvature at one vector of potentials, group by group."""

    law: TwoDraws
    groups: tuple[Group, ...]
    potentials: Floats

    @cached_property
    def _sums(self) -> tuple[Floats, Floats]:
        marginal, squares = np.zeros((2, self.potentials.size))
        order = np.concatenate([group.clients for group in self.groups])
        ends = np.cumsum([group.clients.size for group in self.groups])
        # A partner of a later level takes no weight, so the client of this level takes it all.
        both = np.stack((self.law.rates[order], self.law.odds[order]), axis=1)
        later = np.append(np.zeros((1, 2)), np.cumsum(both[::-1], axis=0), axis=0)[::-1][ends]
        alone = np.array([group.clients.size == 1 for group in self.groups])
        single = order[ends[alone] - 1]
        marginal[single] = self.law.odds[single] * later[alone, 0]
        marginal[single] += self.law.rates[single] * later[alone, 1]
        squares[single] = marginal[single]
        for group, (rate, odds) in zip(self.groups, later, strict=True):
            if group.clients.size > 1:
                few = group.clients.size <= _FEW
                inner = (self._enumerate if few else self._integrate)(group.clients, rate, odds)
                marginal[group.clients], squares[group.clients] = inner
        return marginal, squares

    def _enumerate(self, clients: Integers, later_rate: float, later_odds: float) -> Floats:
        """Return E[Y_i] and E[Y_i²] of a group pair by pair, shape (2, n_group)."""
        rates, odds, values = (
            array[clients] for array in (self.law.rates, self.law.odds, self.potentials)
        )
        chances = np.multiply.outer(odds, rates)
        chances += chances.T
        np.fill_diagonal(chances, 0.0)
        behind = np.subtract.outer(values, values).T
        share = 1.0 / (1.0 + np.exp(np.minimum(behind, _FARTHEST)))
        chances *= share
        alone = odds * later_rate + rates * later_odds
        return np.stack((chances.sum(axis=1), (chances * share).sum(axis=1))) + alone

    def _integrate(self, clients: Integers, later_rate: float, later_odds: float) -> Floats:
        """Return E[Y_i] and E[Y_i²] of a group by quadrature, shape (2, n_group)."""
        rates, odds = self.law.rates[clients], self.law.odds[clients]
        sums = np.zeros((2, clients.size))
        for scale, steps in self._blocks(clients):
            present = np.exp(-scale)
            by_rate, by_odds = rates[:, None] * present, odds[:, None] * present
            mass = by_odds * (_sum_of_others(by_rate) + later_rate)
            mass += by_rate * (_sum_of_others(by_odds) + later_odds)
            mass *= scale
            sums[0] += mass @ steps
            mass *= scale
            sums[1] += mass @ steps
        return sums

    def _nodes(self, clients: Integers) -> tuple[Floats, Nodes]:
        values = self.potentials[clients] - self.potentials[clients].max()
        return values, place_nodes(float(values.min()), np.log(2.0))

    def _blocks(self, clients: Integers) -> Iterator[tuple[Floats, Floats]]:
        """Yield t·u of all the clients and the quadrature steps, for blocks of nodes."""
        values, nodes = self._nodes(clients)
        width = max(1, BLOCK_ENTRIES // values.size)
        for first in range(0, nodes.steps.size, width):
            part = Nodes(*(array[first : first + width] for array in nodes))
            yield scaled_times(values, part), part.steps

    @property
    def marginal(self) -> Floats:
        return self._sums[0]

    @property
    def squares(self) -> Floats:
        return self._sums[1]

    @property
    def _several(self) -> list[Integers]:
        return [group.clients for group in self.groups if group.clients.size > 1]

    def dense(self) -> Floats:
        joint = np.zeros((self.potentials.size, self.potentials.size))
        for clients in self._several:
            joint[np.ix_(clients, clients)] = self._joint(clients, clients)
        return as_laplacian(joint)

    def _joint(self, left: Integers, right: Integers) -> Floats:
        """Return E[Y_i Y_j] for pairs of different clients, shape (n_left, n_right)."""
        rates, odds = self.law.rates, self.law.odds
        joint = np.multiply.outer(odds[left], rates[right])
        joint += np.multiply.outer(rates[left], odds[right])
        ratio = np.exp(-np.abs(np.subtract.outer(self.potentials[left], self.potentials[right])))
        return joint * (ratio / np.square(1.0 + ratio))

    def factors(self) -> list[Factor]:
        """Return the curvature within each group of several clients as a low-rank factor."""
        return [self._factor(clients) for clients in self._several]

    def _factor(self, clients: Integers) -> Factor:
        """Return a group's factor by g rᵀ + r gᵀ = ½(g + r)(g + r)ᵀ − ½(g − r)(g − r)ᵀ.

        The client of the largest rate, whose odds may be huge, is added by a row of its own.
        """
        rates, odds = self.law.rates[clients], self.law.odds[clients]
        top = int(np.argmax(rates))
        row = self._joint(clients[[top]], clients)[0]
        row[top] = rates[top] = odds[top] = 0.0
        values, nodes = self._nodes(clients)
        nodes = thinned(nodes)
        scale = scaled_times(values, nodes)
        mass = scale * np.exp(-scale) * np.sqrt(nodes.steps / 2.0)
        columns = np.hstack(((odds + rates)[:, None] * mass, (odds - rates)[:, None] * mass))
        signs = np.repeat([1.0, -1.0], nodes.steps.size)
        kept = significant(columns)
        size = np.sqrt(max(float(row.sum()), 1e-300))
        own = np.zeros_like(row)
        own[top] = size
        star = np.column_stack((own + row / size, own - row / size)) / np.sqrt(2.0)
        return Factor(
            clients, np.hstack((columns[:, kept], star)), np.append(signs[kept], [1.0, -1.0])
        )
