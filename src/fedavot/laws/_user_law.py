"""Laws written by users: checked once, and completed with what the solvers need.

A user's law has the five members of `Law`. Everything else follows from them, more slowly than in
closed form: the coverage of prefixes by evaluating them one by one, and the derivative of the
expected weights by central differences.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers, as_floats, as_size, shown
from fedavot._clients import Clients, Members
from fedavot.errors import LawError
from fedavot.laws._laplacian import as_laplacian
from fedavot.laws._law import BaseLaw, Curvature, Law, SolvableLaw

_MEMBERS = ("n_clients", "inclusion", "coverage", "expected_weights", "sample")
_SLACK = 1e-7
"""Rounding error allowed in the sums and probabilities of a law."""
_PROBES = 64
"""Number of prefixes of the clients whose coverage is checked on entry."""
_RAISED = 8
"""Number of clients whose potential is raised on entry."""
_HIGH = 40.0
"""A potential so high that its client takes all the weight of its cohorts."""
_DIFFERENCE = 1e-5
"""Step of central differences, whose error is then about 1e-10."""


def as_law(law: Law, *, what: str = "the law") -> SolvableLaw:
    """Return a law that the solvers can use, or raise an error that says why it cannot be used.

    Parameters
    ----------
    law : Law
        A law of this package, which is returned as it is, or one written by a user.
    what : str
        Name of the law in messages.
    """
    if isinstance(law, type):
        raise LawError(f"{what} is the class {law.__name__}; pass an instance of it")
    if isinstance(law, SolvableLaw):
        return law
    missing = [member for member in _MEMBERS if not hasattr(law, member)]
    if missing:
        raise LawError(
            f"{what} is {shown(law)}, which is not an availability law such as Cohorts or "
            f"UniformCohorts: it has no {', '.join(missing)} (see fedavot.Law)"
        )
    return UserLaw(law, what)


class UserLaw(BaseLaw):
    """A user's law with everything that the solvers need."""

    def __init__(self, law: Law, what: str) -> None:
        self._law = law
        count = as_size(law.n_clients, what=f"n_clients of {what}", low=1)
        self._clients = Clients(count, getattr(law, "clients", None))
        try:
            self._inclusion = self._checked(
                law.inclusion(),
                np.ones(count),
                name=f"inclusion of {what}",
                limit="a probability: from 0 to",
            )
            self._check_weights(what)
            self._check_coverage(what)
            self._check_agreement(what)
        except (TypeError, IndexError, KeyError, AttributeError) as cause:
            raise LawError(
                f"{what}, a {type(law).__name__}, does not follow fedavot.Law: "
                f"{type(cause).__name__}: {cause}"
            ) from cause

    def _detail(self) -> str:
        return f"from {type(self._law).__name__}"

    def inclusion(self) -> Floats:
        return self._inclusion.copy()

    def coverage(self, clients: Members) -> float:
        return float(self._law.coverage(self._clients.mask(clients).nonzero()[0].tolist()))

    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        return self._law.sample(rng, rounds)

    def system(self, levels: Integers | None = None) -> "_UserSystem":
        return _UserSystem(self._law, levels)

    def prefix_gains(self, order: Integers) -> Floats:
        members = order.tolist()
        covered = [float(self._law.coverage(members[:k])) for k in range(1, len(members) + 1)]
        return np.maximum(np.diff(covered, prepend=0.0), 0.0)

    def _checked(self, given: Any, most: Floats, *, name: str, limit: str) -> Floats:
        """Return one number per client, from 0 to ``most``."""
        values = as_floats(given, what=name, error=LawError)
        if values.size != self.n_clients:
            raise LawError(f"{name} has {values.size} entries for {self.n_clients} clients")
        wrong = np.flatnonzero(~((values >= 0) & (values <= most + _SLACK)))
        if wrong.size:
            raise LawError(
                f"{name} is {values[wrong[0]]} for client {self._clients.label(wrong[0])}; it must "
                f"be {limit} {most[wrong[0]]:.9g}"
            )
        return np.minimum(values, most)

    def _check_weights(self, what: str) -> None:
        """Check the expected weights of equal potentials: a distribution below the inclusion."""
        weights = self._checked(
            self._law.expected_weights(np.zeros(self.n_clients)),
            self._inclusion,
            name=f"expected_weights of {what}",
            limit="from 0 to the inclusion probability,",
        )
        if not abs(weights.sum() - 1.0) <= _SLACK:
            most = int(np.abs(weights).argmax())
            raise LawError(
                f"expected_weights of {what} sum to {weights.sum():.9g}, not 1; the weights of "
                f"every cohort must sum to one (client {self._clients.label(most)} has the most, "
                f"{weights[most]:.3g})"
            )

    def _check_coverage(self, what: str) -> None:
        """Check that coverage goes from 0 to 1 and never falls, and agrees with the weights."""
        n_clients = self.n_clients
        sizes = np.unique(np.linspace(0, n_clients, min(n_clients, _PROBES) + 1).astype(int))
        covered = np.array([self._prefix(int(size)) for size in sizes])
        fallen = np.flatnonzero(~(np.diff(covered) >= -_SLACK))
        if fallen.size:
            low, high = sizes[fallen[0] : fallen[0] + 2].tolist()
            steps = np.diff([self._prefix(size) for size in range(low, high + 1)])
            client = low + int(np.argmin(steps))
            raise LawError(
                f"coverage of {what} falls when client {self._clients.label(client)} is added; "
                "P(A meets a set) cannot fall as the set grows"
            )
        if not (abs(covered[0]) <= _SLACK and abs(covered[-1] - 1.0) <= _SLACK):
            raise LawError(
                f"coverage of {what} is {covered[0]:.9g} for nobody and {covered[-1]:.9g} for "
                "everybody; it must be 0 and 1"
            )

    def _check_agreement(self, what: str) -> None:
        """Check that inclusion, coverage and expected weights describe the same cohorts."""
        n_clients = self.n_clients
        for client in np.unique(np.linspace(0, n_clients - 1, _PROBES).astype(int)).tolist():
            alone, chance = float(self._law.coverage([client])), self._inclusion[client]
            if not abs(alone - chance) <= _SLACK:
                raise LawError(
                    f"inclusion of {what} is {chance:.9g} for client "
                    f"{self._clients.label(client)}, but coverage of that client is {alone:.9g}; "
                    "both are P(i ∈ A)"
                )
        for client in np.unique(np.linspace(0, n_clients - 1, _RAISED).astype(int)).tolist():
            raised = np.zeros(n_clients)
            raised[client] = _HIGH
            weight = float(np.asarray(self._law.expected_weights(raised))[client])
            if not abs(weight - self._inclusion[client]) <= _SLACK:
                raise LawError(
                    f"expected_weights of {what} gives client {self._clients.label(client)} "
                    f"{weight:.9g} when its potential is {_HIGH:.0f} above the others'; a softmax "
                    f"gives it all weight when it takes part, {self._inclusion[client]:.9g}"
                )

        half = (n_clients + 1) // 2
        levels = (np.arange(n_clients) >= half).astype(np.int64)
        first = np.asarray(self._law.expected_weights(np.zeros(n_clients), levels))[:half]
        if not abs(float(first.sum()) - self._prefix(half)) <= _SLACK:
            raise LawError(
                f"expected_weights of {what} ignores levels: with client "
                f"{self._clients.label(half - 1)} and those before it in the first level, they get "
                f"{first.sum():.9g} in all; they must get all weight whenever any of them takes "
                f"part, {self._prefix(half):.9g}"
            )

    def _prefix(self, size: int) -> float:
        return float(self._law.coverage(list(range(size))))


@dataclass(frozen=True, eq=False)
class _UserSystem:
    law: Law
    levels: Integers | None

    def marginal(self, potentials: Floats) -> Floats:
        return np.asarray(self.law.expected_weights(potentials, self.levels), dtype=np.float64)

    def curvature(self, potentials: Floats) -> Curvature:
        return _UserPoint(self, potentials)


@dataclass(frozen=True, eq=False)
class _UserPoint:
    """Expected weights at one point, and their derivative by central differences."""

    system: _UserSystem
    potentials: Floats

    @cached_property
    def marginal(self) -> Floats:
        return self.system.marginal(self.potentials)

    @cached_property
    def squares(self) -> Floats:
        return np.maximum(self.marginal - np.diag(self._hessian), 0.0)

    def product(self, direction: Floats) -> Floats:
        largest = float(np.abs(direction).max(initial=0.0))
        if largest == 0.0:
            return np.zeros_like(direction)
        step = _DIFFERENCE / largest * direction
        ahead = self.system.marginal(self.potentials + step)
        behind = self.system.marginal(self.potentials - step)
        return (ahead - behind) * (largest / (2.0 * _DIFFERENCE))

    def dense(self) -> Floats:
        return self._hessian.copy()

    @cached_property
    def _hessian(self) -> Floats:
        columns: Any = [self.product(unit) for unit in np.eye(self.potentials.size)]
        # Rounding aside the Hessian is a Laplacian: symmetric, with rows that sum to zero.
        return as_laplacian(-(np.array(columns) + np.array(columns).T) / 2.0)
