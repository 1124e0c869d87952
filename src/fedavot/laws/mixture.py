"""A mixture of laws, such as for hours of the day or regional outages.

A round first draws a state s with probability w_s, then a cohort from the law of that state.
Clients that are independent given the state are correlated overall. Rounds in which nobody reports
do not count: the mixture as a whole is conditioned on A ≠ ∅, so a state has weight w_s P_s(A ≠ ∅).
Every expectation is then the weighted average over the states.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_distribution, as_generator, as_size, shown
from fedavot._clients import Clients, Members, agreed_names
from fedavot.errors import LawError
from fedavot.laws._explicit import Listed
from fedavot.laws._factors import Factor, Factored, product
from fedavot.laws._law import BaseLaw, Law, SolvableLaw, System
from fedavot.laws._user_law import as_law

_FEW_COHORTS = 1_000
"""Number of listed cohorts up to which columns are cheaper than conjugate gradients."""


class Mixture(BaseLaw):
    """Draw a state, then a cohort from the law of that state.

    Parameters
    ----------
    laws : sequence of laws
        One per state, over the same clients.
    probabilities : array-like, shape (n_states,)
        Probability of each state over all rounds, those in which nobody reports included.
    clients : sequence of str, optional
        The clients' names, in the order of their indices; the laws' own by default.
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
                raise LawError(
                    f"state {number} has {law.n_clients} clients, state 0 has "
                    f"{states[0].n_clients}; all states need the same clients"
                )
        known = (getattr(law, "clients", None) for law in states)
        n_clients = states[0].n_clients
        self._clients = Clients(n_clients, agreed_names(n_clients, clients, *known))
        used = np.flatnonzero(weights)
        self._laws = tuple(states[int(state)] for state in used)
        chances = np.array([law.nonempty for law in self._laws])
        # Relative to the largest, because products of tiny numbers lose digits or vanish.
        reporting = weights[used] * (chances / chances.max())
        self._nonempty = float(reporting.sum() * chances.max())
        self._weights: Floats = reporting / reporting.sum()

    def _detail(self) -> str:
        return f"{len(self._laws)} states"

    @property
    def nonempty(self) -> float:
        """Probability that at least one client reports in a round."""
        return self._nonempty

    @property
    def laws(self) -> tuple[SolvableLaw, ...]:
        """Laws of the states of positive probability."""
        return self._laws

    @property
    def probabilities(self) -> Floats:
        """Probability of each of these states given that at least one client reports."""
        return self._weights

    def inclusion(self) -> Floats:
        return _average(self._weights, (law.inclusion() for law in self._laws))

    def coverage(self, clients: Members) -> float:
        members = self._clients.mask(clients).nonzero()[0]
        return float(self._weights @ [law.coverage(members) for law in self._laws])

    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        count = as_size(rounds, what="rounds", low=0)
        states = as_generator(rng).choice(len(self._laws), size=count, p=self._weights)
        return [self._laws[state].sample(rng, 1)[0] for state in states]

    def system(self, levels: Integers | None = None) -> System:
        return _MixtureSystem(tuple(law.system(levels) for law in self._laws), self._weights)

    def prefix_gains(self, order: Integers) -> Floats:
        return _average(self._weights, (law.prefix_gains(order) for law in self._laws))


def _average(weights: Floats, parts: Iterable[Floats]) -> Floats:
    return np.asarray(sum(weight * part for weight, part in zip(weights, parts, strict=True)))


@dataclass(frozen=True, eq=False)
class _MixtureSystem:
    systems: tuple[System, ...]
    weights: Floats

    def marginal(self, potentials: Floats) -> Floats:
        return _average(self.weights, (system.marginal(potentials) for system in self.systems))

    def curvature(self, potentials: Floats) -> "_MixturePoint":
        return _MixturePoint(
            tuple(system.curvature(potentials) for system in self.systems), self.weights
        )


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
        return _average(
            self.weights,
            (
                point.product(direction) if part is None else product(part, direction)
                for point, part in zip(self.points, self._by_state, strict=True)
            ),
        )

    def dense(self) -> Floats:
        return _average(self.weights, (point.dense() for point in self.points))

    def factors(self) -> list[Factor] | None:
        """Return the low-rank factors of the states, or None if the law of some state has none.

        A mixture of lists alone has none either: products with their sparse matrices cost far less.
        """
        if not any(isinstance(point, Factored) for point in self.points):
            return None
        known = [part for part in self._by_state if part is not None]
        if len(known) < len(self.points):
            return None
        return [
            factor._replace(columns=root * factor.columns)
            for part, root in zip(known, np.sqrt(self.weights), strict=True)
            for factor in part
        ]

    @cached_property
    def _by_state(self) -> list[list[Factor] | None]:
        return [
            point.factors() if isinstance(point, Factored) else _listed_factors(point)
            for point in self.points
        ]


def _listed_factors(point: Any) -> list[Factor] | None:
    """Return one column √q(A) Y per listed cohort, or None if there are too many or no list."""
    if not isinstance(point, Listed):
        return None
    roots = point.roots()
    if roots.incidence.n_cohorts > _FEW_COHORTS:
        return None
    one = np.ones(1)
    members, entries = roots.incidence.members.astype(np.int64), roots.entries[:, None]
    return [
        Factor(members[first:last], entries[first:last], one)
        for first, last in itertools.pairwise(roots.incidence.offsets.tolist())
        if last - first > 1
    ]
