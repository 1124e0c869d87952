"""Clients that are available independently of one another, in closed form.

P(i ∈ A) = π_i before conditioning on A ≠ ∅. With a_i = −log(1 − π_i), the coverage is
f(I) = (1 − e^{−a(I)}) / (1 − e^{−a([N])}): a concave function of an additive one, so the sets that
maximise p(I) − f(I) or p(I)/f(I) are prefixes in the order of falling p_i/a_i. The points
(a(I), p(I)) span a zonotope whose upper boundary those prefixes trace, and a convex function that
falls with a and rises with p attains its maximum there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_floats, as_generator, as_size
from fedavot._clients import Clients, Members
from fedavot.errors import LawError
from fedavot.laws._compiled import can_compile, independent_sums
from fedavot.laws._factors import Factor, significant
from fedavot.laws._law import BaseLaw
from fedavot.laws._many_levels import ManyLevels, tilted
from fedavot.laws._quadrature import (
    Group,
    GroupedSystem,
    Nodes,
    ProductPoint,
    Tilt,
    client_blocks,
    scaled_times,
)

_COMPILED_CLIENTS = 20_000
"""Number of clients from which on compiling a program pays within a few evaluations."""
_COMPILED_SPREAD = 600.0
"""Range of potentials beyond which exp(x), which the compiled program computes, is no float."""

_SMALL_LEVEL = 300
_MANY_LEVELS = 8
"""Number of levels of at most `_SMALL_LEVEL` clients from which on they are evaluated together."""
_LEAST_NONEMPTY = 1e-150
"""Least P(A ≠ ∅): smaller ones are scaled up to it, which changes no expectation by more."""


class IndependentClients(BaseLaw):
    """Each client is available with its own probability, independently of the others.

    Parameters
    ----------
    probabilities : array-like, shape (n_clients,)
        P(i ∈ A) before conditioning on A ≠ ∅; 0 and 1 are allowed.
    clients : sequence of str, optional
        The clients' names, in the order of their indices.
    """

    def __init__(self, probabilities: ArrayLike, *, clients: Sequence[str] | None = None) -> None:
        values = as_floats(probabilities, what="probabilities", error=LawError)
        self._clients = Clients(values.size, clients)
        bad = np.flatnonzero(~((values >= 0) & (values <= 1)))
        if bad.size:
            raise LawError(
                f"the probability of client {self._clients.label(bad[0])} is {values[bad[0]]}; it "
                "must be in [0, 1]"
            )
        if not np.any(values > 0):
            raise LawError("no client is ever available: every probability is 0")
        self._probabilities = values.copy()

    @cached_property
    def _copies(self) -> Floats:
        return np.ones_like(self._probabilities)

    @classmethod
    def of_types(cls, probabilities: Floats, copies: Floats) -> "IndependentClients":
        """Return a law of types: each entry stands for ``copies`` identical clients.

        Its expected weights are totals over a type. Only `system` is meaningful, which is what a
        solver needs for a first guess.
        """
        law = cls(probabilities)
        law._copies = copies
        return law

    def _detail(self) -> str:
        return f"mean cohort size {self._copies @ self._probabilities / self.nonempty:.3g}"

    @property
    def probabilities(self) -> Floats:
        """P(i ∈ A) before conditioning on A ≠ ∅, shape (n_clients,)."""
        return self._probabilities

    @cached_property
    def exponents(self) -> Floats:
        """The additive part a_i = −log(1 − π_i) of the coverage, shape (n_clients,)."""
        with np.errstate(divide="ignore"):
            return -self._copies * np.log1p(-self._probabilities)

    @cached_property
    def nonempty(self) -> float:
        """Probability that anybody is available."""
        return float(-np.expm1(-self.exponents.sum()))

    @cached_property
    def _lift(self) -> float:
        """Factor on the probabilities that keeps division by `nonempty` from overflowing.

        If rounds are nearly always empty, the others have one member, whatever the factor.
        """
        return max(1.0, _LEAST_NONEMPTY / self.nonempty)

    def inclusion(self) -> Floats:
        return self._probabilities / self.nonempty

    def coverage(self, clients: Members) -> float:
        exponent = self.exponents[self._clients.mask(clients)].sum()
        return float(-np.expm1(-exponent) / self.nonempty)

    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        """Draw one non-empty cohort per round, members ascending."""
        rng = as_generator(rng)
        return [self._draw(rng) for _ in range(as_size(rounds, what="rounds", low=0))]

    def _draw(self, rng: np.random.Generator) -> Integers:
        # The first available client is drawn from its exact law given that there is one, so that
        # a law that is almost always empty costs no more than any other.
        reached = -np.expm1(-np.cumsum(self.exponents))
        first = int(np.searchsorted(reached, rng.random() * reached[-1], side="right"))
        first = min(first, int(np.flatnonzero(self._probabilities)[-1]))
        after = np.flatnonzero(
            rng.random(self.n_clients - first - 1) < self._probabilities[first + 1 :]
        )
        return np.concatenate(([first], first + 1 + after))

    def system(self, levels: Integers | None = None) -> GroupedSystem:
        return GroupedSystem(partial(ProductPoint if levels is None else _leveled, self), levels)

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

    def bounds(self, group: Group, potentials: Floats) -> tuple[float, float]:
        """Return the logs of the least and of the largest Σ_{k∈A} exp(x_k) in the group."""
        clients = group.clients
        chances = self._copies[clients] * self._probabilities[clients]
        return float(potentials.min()), float(np.log(max(float(np.exp(potentials) @ chances), 1.0)))

    def reach(self, group: Group) -> float:
        """Return the probability that the group's level is a cohort's lowest."""
        absent = np.exp(-self.exponents[group.earlier].sum())
        return float(absent * -np.expm1(-self.exponents[group.clients].sum()) / self.nonempty)

    def many_levels(self, groups: tuple[Group, ...], potentials: Floats) -> ManyLevels:
        """Return the small groups among all groups, to be evaluated together."""
        order = np.concatenate([group.clients for group in groups])
        few = [group for group in groups if group.clients.size <= _SMALL_LEVEL]
        clients = np.concatenate([group.clients for group in few])
        starts = np.cumsum([0, *(group.clients.size for group in few[:-1])])
        before = np.concatenate(([0.0], np.cumsum(self.exponents[order])))
        absent = np.exp(-before[[group.earlier.size for group in few]])
        own = np.add.reduceat(self.exponents[clients], starts)
        sizes = np.diff(np.append(starts, clients.size))
        values = potentials[clients]
        return ManyLevels(
            clients,
            self._lift * self._probabilities[clients],
            self._copies[clients],
            values - np.repeat(np.maximum.reduceat(values, starts), sizes),
            starts,
            absent / (self._lift * self.nonempty),
            absent * -np.expm1(-own) / self.nonempty,
        )

    def tilt(self, group: Group, potentials: Floats, nodes: Nodes) -> Tilt:
        """Return the law tilted by e^{−t s_A}: again independent clients."""
        absent = float(np.exp(-self.exponents[group.earlier].sum()))
        return _IndependentTilt(
            self._lift * self._probabilities[group.clients],
            self._copies[group.clients],
            potentials,
            nodes,
            absent / (self._lift * self.nonempty),
        )


def _leveled(
    law: IndependentClients, groups: tuple[Group, ...], potentials: Floats
) -> ProductPoint:
    """Return weights and curvature within levels, with small levels evaluated together."""
    small = sum(group.clients.size <= _SMALL_LEVEL for group in groups)
    return (ProductPoint if small < _MANY_LEVELS else _LeveledPoint)(law, groups, potentials)


@dataclass(frozen=True, eq=False)
class _LeveledPoint(ProductPoint):
    """Weights and curvature of large levels, one by one, and of small ones, together."""

    law: IndependentClients

    @cached_property
    def _large(self) -> ProductPoint:
        large = tuple(group for group in self.groups if group.clients.size > _SMALL_LEVEL)
        return ProductPoint(self.law, large, self.potentials)

    @cached_property
    def _small(self) -> ManyLevels:
        return self.law.many_levels(self.groups, self.potentials)

    @cached_property
    def _sums(self) -> Floats:
        sums = self._large._sums
        sums[:, self._small.clients] = self._small.sums
        return sums

    def factors(self) -> list[Factor]:
        several = (factor for factor in self._small.factors() if factor.clients.size > 1)
        return [*self._large.factors(), *several]


@dataclass(frozen=True, eq=False)
class _IndependentTilt:
    """Independent clients tilted by e^{−t s_A} at every node; `outside` scales the normaliser."""

    probabilities: Floats
    copies: Floats
    potentials: Floats
    nodes: Nodes
    outside: float

    @cached_property
    def weights(self) -> Floats:
        """E[e^{−t s_A}] dτ at each node, shape (n_times,)."""
        log_normaliser = np.zeros(self.nodes.log_times.size)
        for block in client_blocks(self.potentials.size, self.nodes.log_times.size):
            scale = scaled_times(self.potentials[block], self.nodes)
            with np.errstate(divide="ignore"):
                log_normaliser += self.copies[block] @ np.log1p(
                    self.probabilities[block, None] * np.expm1(-scale)
                )
        return np.asarray(self.outside * self.nodes.steps * np.exp(log_normaliser))

    def sums(self) -> Floats:
        narrow = float(np.ptp(self.potentials)) < _COMPILED_SPREAD
        if self.potentials.size < _COMPILED_CLIENTS or not narrow or not can_compile():
            return self._plain_sums()
        times = (np.exp(self.nodes.log_times), self.outside * self.nodes.steps)
        return independent_sums(self.probabilities, self.copies, self.potentials, times)

    def _plain_sums(self) -> Floats:
        sums = np.zeros((2, self.potentials.size))
        for block in client_blocks(self.potentials.size, self.nodes.steps.size):
            scale, mass = self._masses(block)
            sums[0, block] = mass @ self.weights
            sums[1, block] = (mass * scale) @ self.weights
        return sums

    def _masses(self, block: slice) -> tuple[Floats, Floats]:
        """Return t u and a = t u ρ, each (n_block, n_times)."""
        scale = scaled_times(self.potentials[block], self.nodes)
        chances = self.probabilities[block, None]
        return scale, scale * self.copies[block, None] * tilted(chances, np.exp(-scale))

    def joint(self) -> Floats:
        mass = self._masses(slice(None))[1]
        return np.asarray((mass * self.weights) @ mass.T)

    def factor(self) -> tuple[Floats, Floats]:
        """Return a column √dΩ a for each node that matters to some client, all of sign 1."""
        shape = (self.potentials.size, self.nodes.steps.size)
        columns, roots = np.empty(shape), np.sqrt(self.weights)
        for block in client_blocks(*shape):
            np.multiply(self._masses(block)[1], roots, out=columns[block])
        matters = significant(columns)
        if not matters.all():
            columns = np.compress(matters, columns, axis=1)
        return columns, np.ones(columns.shape[1])
