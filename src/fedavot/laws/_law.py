"""What the rest of the library needs of an availability law.

A law is a distribution over non-empty cohorts. Everything else needs only a few numbers of it, so a
law of 2^N cohorts in closed form can be used like a list of five:

* the inclusion probabilities P(i ∈ A) and the coverage f(I) = P(A ∩ I ≠ ∅),
* the expected weights m(x) = E[softmax of x over A], within fixed levels, and their curvature.

With *levels*, the weight of a cohort is shared among its members of the lowest-numbered level.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import (
    LARGEST_POTENTIAL,
    Floats,
    Integers,
    as_array,
    as_floats,
    odd_one,
    refuse_if_too_large,
)
from fedavot._clients import Clients
from fedavot.errors import OptionError

LEVEL_GAP = 80.0
"""Distance at which two potentials act as two levels: the lower one's share is below 1e-34."""
_BYTES_PER_CLIENT = 64
"""Peak memory per client of building a law and evaluating it once, as measured."""


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
    @abstractmethod
    def n_clients(self) -> int:
        """Number of clients."""

    @abstractmethod
    def inclusion(self) -> Floats:
        """Return P(i ∈ A) for every client, shape (n_clients,)."""

    @abstractmethod
    def coverage(self, clients: Iterable[int]) -> float:
        """Return P(A ∩ clients ≠ ∅): 0 for nobody, 1 for everybody, and never falling."""

    @abstractmethod
    def expected_weights(self, potentials: ArrayLike, levels: ArrayLike | None = None) -> Floats:
        """Return E[Y_i], shape (n_clients,), where Y is the softmax of the potentials over A.

        With ``levels`` (integers, shape (n_clients,)), the softmax is over the members of A in the
        lowest level present, and the other members get nothing.
        """

    @abstractmethod
    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        """Draw one cohort per round, as indices in ascending order."""


@runtime_checkable
class SolvableLaw(Law, Protocol):
    """A law with everything that the solvers need."""

    @property
    @abstractmethod
    def nonempty(self) -> float:
        """Probability that a cohort is not empty, before conditioning on that."""

    @abstractmethod
    def system(self, levels: Integers | None = None) -> System:
        """Return the map from potentials to expected weights within these levels."""

    @abstractmethod
    def prefix_gains(self, order: Integers) -> Floats:
        """Return the coverage that each client adds to those before it in an order of all clients.

        Shape (n_clients,), in that order. The first k entries sum to the coverage of the first k
        clients, and each entry is exact up to rounding relative to itself.
        """

    @abstractmethod
    def worst_order(self, importance: Floats) -> Integers | None:
        """Return an order whose prefixes include every worst set, or None if none is known."""


class BaseLaw(SolvableLaw, ABC):
    """What the laws of this package have in common: their clients, and their repr."""

    _clients: Clients

    @property
    def nonempty(self) -> float:
        return 1.0

    @property
    def n_clients(self) -> int:
        return self._clients.count

    @property
    def clients(self) -> tuple[str, ...] | None:
        """The clients' names, if they have any."""
        return self._clients.names

    def expected_weights(self, potentials: ArrayLike, levels: ArrayLike | None = None) -> Floats:
        point = as_potentials(potentials, self.n_clients)
        return self.system(as_levels(levels, self.n_clients)).marginal(point)

    def worst_order(self, importance: Floats) -> Integers | None:
        return None

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
    refuse_if_too_large(
        _BYTES_PER_CLIENT * n_clients, what=f"a law over {n_clients:,} clients", remedy=remedy
    )


def as_levels(levels: ArrayLike | None, n_clients: int) -> Integers | None:
    """Return integer levels, shape (n_clients,), or None for a single level."""
    if levels is None:
        return None
    array = as_array(levels, otherwise=f"levels must be {n_clients} integers", error=OptionError)
    if array.shape != (n_clients,) or not np.issubdtype(array.dtype, np.integer):
        raise OptionError(
            f"levels must be {n_clients} integers, found {array.dtype} of shape {array.shape}: "
            f"{odd_one(array)}"
        )
    # Only their order matters: number them from 0.
    return np.unique(array, return_inverse=True)[1].astype(np.int64) if np.ptp(array) else None
