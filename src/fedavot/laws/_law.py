"""What the rest of the library needs of an availability law.

A law is a distribution over non-empty cohorts. Everything else needs only a few numbers of it, so a
law of 2^N cohorts in closed form can be used like a list of five:

* the inclusion probabilities P(i ∈ A) and the coverage f(I) = P(A ∩ I ≠ ∅),
* the expected weights m(x) = E[softmax of x over A], within fixed levels, and their curvature.

With *levels*, the weight of a cohort is shared among its members of the lowest-numbered level.

A user's law has the five members of `Law`. It is checked once, and everything else follows from
these, more slowly than in closed form: the coverage of prefixes by evaluating them one by one, and
the derivative of the expected weights by central differences.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import (
    LARGEST_POTENTIAL,
    Floats,
    Integers,
    as_array,
    as_floats,
    as_size,
    odd_one,
    refuse_if_too_large,
    shown,
)
from fedavot._clients import Clients, Members
from fedavot.errors import LawError, OptionError
from fedavot.laws._laplacian import as_laplacian

LEVEL_GAP = 80.0
"""Distance at which two potentials act as two levels: the lower one's share is below 1e-34."""
_BYTES_PER_CLIENT = 64
"""Peak memory per client of building a law and evaluating it once, as measured."""
_MEMBERS = ("n_clients", "inclusion", "coverage", "expected_weights", "sample")
_SLACK = 1e-7
"""Rounding error allowed in the sums and probabilities of a user's law."""
_DIFFERENCE = 1e-5
"""Step of central differences, whose error is then about 1e-10."""


class Curvature(Protocol):
    """The second-order information of E_A log Σ_{k∈A} exp(x_k) at one point.

    The Hessian is E[diag(Y_A) − Y_A Y_Aᵀ], the Laplacian of a weighted graph on the clients.
    """

    @property
    def marginal(self) -> Floats:
        """Expected weights E[Y_i], shape (n_clients,)."""

    @property
    def squares(self) -> Floats:
        """Expected squared weights E[Y_i²], shape (n_clients,)."""

    def dense(self) -> Floats:
        """Return the Hessian, shape (n_clients, n_clients)."""


class System(Protocol):
    """The expected weights as a map of the potentials, with the levels held fixed."""

    def marginal(self, potentials: Floats) -> Floats:
        """Return the expected weights, shape (n_clients,)."""

    def curvature(self, potentials: Floats) -> Curvature:
        """Return the expected weights and what is needed of their derivative."""


@runtime_checkable
class Law(Protocol):
    """An availability law: a distribution over non-empty cohorts of clients 0..n_clients−1.

    Any object with these members can be passed to `certify`, `align` and `Mixture`; the laws of
    this package have them too. An attribute ``clients`` with the clients' names is optional.
    """

    @property
    def n_clients(self) -> int:
        """Number of clients."""

    def inclusion(self) -> Floats:
        """Return P(i ∈ A) for every client, shape (n_clients,)."""

    def coverage(self, clients: Iterable[int]) -> float:
        """Return P(A ∩ clients ≠ ∅): 0 for nobody, 1 for everybody, and never falling."""

    def expected_weights(self, potentials: ArrayLike, levels: ArrayLike | None = None) -> Floats:
        """Return E[Y_i], shape (n_clients,), where Y is the softmax of the potentials over A.

        With ``levels`` (integers, shape (n_clients,)), the softmax is over the members of A in the
        lowest level present, and the other members get nothing.
        """

    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        """Draw one cohort per round, as indices in ascending order."""


class SolvableLaw(ABC):
    """A law with everything that the solvers need; those of this package derive from it.

    Attributes
    ----------
    nonempty : float
        Probability that a cohort is not empty, before conditioning on that.
    """

    _clients: Clients
    nonempty: float = 1.0

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return self._clients.count

    @property
    def clients(self) -> tuple[str, ...] | None:
        """The clients' names, if they have any."""
        return self._clients.names

    @abstractmethod
    def inclusion(self) -> Floats:
        """Return P(i ∈ A) for every client, shape (n_clients,)."""

    @abstractmethod
    def coverage(self, clients: Members) -> float:
        """Return P(A ∩ clients ≠ ∅)."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        """Draw one cohort per round, as indices in ascending order."""

    @abstractmethod
    def system(self, levels: Integers | None = None) -> System:
        """Return the map from potentials to expected weights within these levels."""

    @abstractmethod
    def prefix_gains(self, order: Integers) -> Floats:
        """Return the coverage that each client adds to those before it in an order of all clients.

        Shape (n_clients,), in that order. The first k entries sum to the coverage of the first k
        clients, and each entry is exact up to rounding relative to itself.
        """

    def worst_order(self, importance: Floats) -> Integers | None:
        """Return an order whose prefixes include every worst set, or None if none is known."""
        return None

    def expected_weights(self, potentials: ArrayLike, levels: ArrayLike | None = None) -> Floats:
        """Return the expected softmax weights, shape (n_clients,); see `fedavot.Law`."""
        point = as_potentials(potentials, self.n_clients)
        return self.system(as_levels(levels, self.n_clients)).marginal(point)

    @abstractmethod
    def _detail(self) -> str:
        """Return the parameters of the law in a few words, for its repr."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_clients:,} clients, {self._detail()})"


def as_potentials(potentials: ArrayLike, n_clients: int) -> Floats:
    """Return finite potentials, shape (n_clients,)."""
    array = as_floats(potentials, what="potentials", error=OptionError, item="client")
    if array.size != n_clients:
        raise OptionError(f"potentials has {array.size} entries for {n_clients} clients")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise OptionError(f"the potential of client {bad[0]} is {array[bad[0]]}; it must be finite")
    beyond = np.abs(array) - LARGEST_POTENTIAL
    # At this size any difference makes two levels: shrink the excess so that none overflows.
    return np.where(beyond > 0, np.sign(array) * (LARGEST_POTENTIAL + 1e-9 * beyond), array)


def refuse_too_many_clients(n_clients: int, *, remedy: str) -> None:
    """Raise if arrays over this many clients would not fit in memory."""
    n_bytes = _BYTES_PER_CLIENT * n_clients
    refuse_if_too_large(n_bytes, what=f"a law over {n_clients:,} clients", remedy=remedy)


def as_levels(levels: ArrayLike | None, n_clients: int) -> Integers | None:
    """Return integer levels, shape (n_clients,), or None for a single level."""
    if levels is None:
        return None
    otherwise = f"levels must be {n_clients} integers"
    array = as_array(levels, otherwise=otherwise, error=OptionError)
    if array.shape != (n_clients,) or not np.issubdtype(array.dtype, np.integer):
        shape = f"found {array.dtype} of shape {array.shape}"
        raise OptionError(f"{otherwise}, {shape}: {odd_one(array)}")
    # Only their order matters: number them from 0.
    return np.unique(array, return_inverse=True)[1].astype(np.int64) if np.ptp(array) else None


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


class UserLaw(SolvableLaw):
    """A user's law with everything that the solvers need."""

    def __init__(self, law: Law, what: str) -> None:
        self._law = law
        count = as_size(law.n_clients, what=f"n_clients of {what}", low=1)
        self._clients = Clients(count, getattr(law, "clients", None))
        try:
            self._inclusion = self._checked(law.inclusion(), np.ones(count), f"inclusion of {what}")
            name = f"expected_weights of {what}"
            weights = self._checked(law.expected_weights(np.zeros(count)), self._inclusion, name)
            coverage = float(law.coverage(list(range(count))))
        except (TypeError, IndexError, KeyError, AttributeError) as cause:
            raise LawError(
                f"{what}, a {type(law).__name__}, does not follow fedavot.Law: "
                f"{type(cause).__name__}: {cause}"
            ) from cause
        totals = {f"the sum of {name}": weights.sum(), f"coverage of everybody in {what}": coverage}
        for name, total in totals.items():
            if not abs(total - 1.0) <= _SLACK:
                raise LawError(f"{name} is {total:.9g}, not 1; empty cohorts do not count")

    def _checked(self, values: Any, most: Floats, name: str) -> Floats:
        """Return one number per client, from 0 to ``most``."""
        array = as_floats(values, what=name, error=LawError)
        if array.size != self.n_clients:
            raise LawError(f"{name} has {array.size} entries for {self.n_clients} clients")
        wrong = np.flatnonzero(~((array >= 0) & (array <= most + _SLACK)))
        if wrong.size:
            client, limit = self._clients.label(wrong[0]), f"must be from 0 to {most[wrong[0]]:.9g}"
            raise LawError(f"{name} is {array[wrong[0]]} for client {client}; it {limit}")
        return np.asarray(np.minimum(array, most))

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
