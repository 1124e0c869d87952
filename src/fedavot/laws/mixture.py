"""A mixture of laws, such as for hours of the day or regional outages.

A round first draws a state s with probability w_s, then a cohort from the law of that state.
Clients that are independent given the state are correlated overall. Rounds in which nobody reports
do not count: the mixture as a whole is conditioned on A ≠ ∅, so a state has weight w_s P_s(A ≠ ∅).
Every expectation is then the weighted average over the states.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_distribution, as_generator, as_size, shown
from fedavot._clients import Clients, Members, agreed_names
from fedavot.errors import LawError
from fedavot.laws._laplacian import Factor, Factored, factor_product
from fedavot.laws._law import Law, SolvableLaw, System, as_law


class Mixture(SolvableLaw):
    """Draw a state, then a cohort from the law of that state.

    Parameters
    ----------
    laws : sequence of laws
        One per state, over the same clients.
    probabilities : array-like, shape (n_states,)
        Probability of each state over all rounds, those in which nobody reports included.
    clients : sequence of str, optional
        The clients' names, in the order of their indices; the laws' own by default.

    Attributes
    ----------
    laws : tuple of laws
        Laws of the states of positive probability.
    probabilities : float array, shape (n_states,)
        Probability of each of these states given that at least one client reports.
    nonempty : float
        Probability that at least one client reports in a round.
    """

    def __init__(
        self,
        laws: Sequence[Law],
        probabilities: ArrayLike,
        *,
        clients: Sequence[str] | None = None,
    ) -> None:
        weights = as_distribution(probabilities, what="probability", item="state", error=LawError)
        if not isinstance(laws, Sequence):
            raise LawError(f"laws must be a sequence of laws, found {shown(laws)}")
        if len(laws) != weights.size:
            raise LawError(f"{weights.size} probabilities for {len(laws)} laws")
        states = [as_law(law, what=f"state {number}") for number, law in enumerate(laws)]
        for number, law in enumerate(states):
            if law.n_clients != states[0].n_clients:
                both = f"{law.n_clients} clients, state 0 has {states[0].n_clients}"
                raise LawError(f"state {number} has {both}; all states need the same clients")
        n_clients, named = states[0].n_clients, (law.clients for law in states)
        self._clients = Clients(n_clients, agreed_names(n_clients, clients, *named))
        self.laws = tuple(law for law, weight in zip(states, weights, strict=True) if weight)
        chances = np.array([law.nonempty for law in self.laws])
        # Relative to the largest, because products of tiny numbers lose digits or vanish.
        reporting = weights[weights > 0] * (chances / chances.max())
        self.nonempty = float(reporting.sum() * chances.max())
        self.probabilities: Floats = reporting / reporting.sum()

    def _detail(self) -> str:
        return f"{len(self.laws)} states"

    def inclusion(self) -> Floats:
        return _average(self.probabilities, (law.inclusion() for law in self.laws))

    def coverage(self, clients: Members) -> float:
        members = self._clients.mask(clients).nonzero()[0]
        return float(self.probabilities @ [law.coverage(members) for law in self.laws])

    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        count = as_size(rounds, what="rounds", low=0)
        states = as_generator(rng).choice(len(self.laws), size=count, p=self.probabilities)
        return [self.laws[state].sample(rng, 1)[0] for state in states]

    def system(self, levels: Integers | None = None) -> System:
        return _MixtureSystem(tuple(law.system(levels) for law in self.laws), self.probabilities)

    def prefix_gains(self, order: Integers) -> Floats:
        return _average(self.probabilities, (law.prefix_gains(order) for law in self.laws))


def _average(weights: Floats, parts: Iterable[Floats]) -> Floats:
    return np.asarray(sum(weight * part for weight, part in zip(weights, parts, strict=True)))


@dataclass(frozen=True, eq=False)
class _MixtureSystem:
    systems: tuple[System, ...]
    weights: Floats

    def marginal(self, potentials: Floats) -> Floats:
        return _average(self.weights, (system.marginal(potentials) for system in self.systems))

    def curvature(self, potentials: Floats) -> "_MixturePoint":
        points = tuple(system.curvature(potentials) for system in self.systems)
        return _MixturePoint(points, self.weights)


@dataclass(frozen=True, eq=False)
class _MixturePoint:
    points: tuple[Any, ...]
    weights: Floats

    @cached_property
    def marginal(self) -> Floats:
        return _average(self.weights, (point.marginal for point in self.points))

    @cached_property
    def squares(self) -> Floats:
        return _average(self.weights, (point.squares for point in self.points))

    def product(self, direction: Floats) -> Floats:
        products = (
            point.product(direction) if part is None else factor_product(part, direction)
            for point, part in zip(self.points, self._parts, strict=True)
        )
        return _average(self.weights, products)

    def dense(self) -> Floats:
        return _average(self.weights, (point.dense() for point in self.points))

    def factors(self) -> list[Factor] | None:
        """Return the low-rank factors of the states, or None if the law of some state has none."""
        parts = [part for part in self._parts if part is not None]
        if len(parts) < len(self.points):
            return None
        return [
            factor._replace(columns=root * factor.columns)
            for part, root in zip(parts, np.sqrt(self.weights), strict=True)
            for factor in part
        ]

    @cached_property
    def _parts(self) -> list[list[Factor] | None]:
        return [point.factors() if isinstance(point, Factored) else None for point in self.points]
