"""What the rest of the library asks of an availability law.

A law is a distribution over non-empty cohorts. Everything downstream needs only a handful of
numbers from it, so a law with 2^N cohorts serves as well as a list of five:

* the inclusion probabilities P(i ∈ A) and the coverage f(I) = P(A ∩ I ≠ ∅),
* the expected weights m(x) = E[softmax of x over A], within fixed levels, and their curvature.

With *levels*, a cohort's weight is shared among its members of the lowest-numbered level alone.
"""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_array, as_floats, odd_one, shown
from fedavot.errors import CohortError, LawError, OptionError

_LARGEST = 1e300
"""Potentials this large still have differences that are floats."""


class Curvature(Protocol):
    """The second-order information of E_A log Σ_{k∈A} exp(x_k) at one point.

    The Hessian is E[diag(Y_A) − Y_A Y_Aᵀ], the Laplacian of a weighted graph on the clients.
    """

    @property
    def marginal(self) -> Floats:
        """Expected weights E[Y_i], shape (n_clients,)."""
        ...

    @property
    def squares(self) -> Floats:
        """Expected squared weights E[Y_i²], shape (n_clients,)."""
        ...

    def product(self, direction: Floats) -> Floats:
        """Multiply the Hessian with a vector, shape (n_clients,)."""
        ...

    def dense(self) -> Floats:
        """Return the Hessian, shape (n_clients, n_clients)."""
        ...


class System(Protocol):
    """The expected weights as a map of the potentials, with the levels held fixed."""

    def marginal(self, potentials: Floats) -> Floats:
        """Return the expected weights, shape (n_clients,)."""
        ...

    def curvature(self, potentials: Floats) -> Curvature:
        """Return the expected weights and what is needed of their derivative."""
        ...


@runtime_checkable
class Law(Protocol):
    """An availability law: a distribution over non-empty cohorts of clients 0..n_clients−1."""

    @property
    def n_clients(self) -> int:
        """How many clients there are."""
        ...

    @property
    def nonempty(self) -> float:
        """Probability that a round has anybody at all, before conditioning on it."""
        ...

    def inclusion(self) -> Floats:
        """Return P(i ∈ A) for every client, shape (n_clients,)."""
        ...

    def coverage(self, clients: Iterable[int]) -> float:
        """Return P(A ∩ clients ≠ ∅)."""
        ...

    def expected_weights(self, potentials: ArrayLike, levels: ArrayLike | None = None) -> Floats:
        """Return E[Y_i] for softmax weights, lexicographic in the levels if given."""
        ...

    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        """Draw one cohort a round, members ascending."""
        ...

    def system(self, levels: Integers | None = None) -> System:
        """Return the map from potentials to expected weights within these levels."""
        ...

    def prefix_gains(self, order: Integers) -> Floats:
        """Return the coverage each client adds to those before it in an order of all clients.

        Shape (n_clients,), in that order; the sum of the first k is the coverage of the first k
        clients, and each is exact to rounding relative to itself.
        """
        ...

    def worst_order(self, importance: Floats) -> Integers | None:
        """Return an order whose prefixes include every worst set, or None if none is known."""
        ...


def as_law(law: Law) -> Law:
    """Return the law, or say that it is not one."""
    if not isinstance(law, Law):
        raise LawError(f"{law!r} is not an availability law, such as Cohorts or UniformCohorts")
    return law


def as_potentials(potentials: ArrayLike, n_clients: int) -> Floats:
    """Return finite potentials, shape (n_clients,)."""
    array = as_floats(potentials, what="potentials", error=OptionError, item="client")
    if array.size != n_clients:
        raise OptionError(f"potentials has {array.size} entries for {n_clients} clients")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise OptionError(f"the potential of client {bad[0]} is {array[bad[0]]}; it must be finite")
    beyond = np.abs(array) - _LARGEST
    # Out there any difference makes two levels: shrink what is beyond so that none overflows.
    return np.where(beyond > 0, np.sign(array) * (_LARGEST + 1e-9 * beyond), array)


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


def as_laplacian(joint: Floats) -> Floats:
    """Turn E[Y_i Y_j], whatever its diagonal, into E[diag(Y) − Y Yᵀ] in place.

    Rows of the latter sum to zero, which gives the diagonal without cancellation.
    """
    np.fill_diagonal(joint, 0.0)
    np.negative(joint, out=joint)
    np.fill_diagonal(joint, -joint.sum(axis=1))
    return joint


def client_mask(
    clients: Iterable[int], n_clients: int
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a boolean mask of a set of clients; repeats are harmless in a set."""
    try:
        given = clients if isinstance(clients, np.ndarray) else list(clients)
    except TypeError:
        raise CohortError(f"clients must be a flat set, found {shown(clients)}") from None
    members = as_array(given, otherwise="clients must be a flat set", error=CohortError)
    mask = np.zeros(n_clients, dtype=bool)
    if not members.size:
        return mask
    if not np.issubdtype(members.dtype, np.integer):
        raise CohortError(f"clients must be integers, found {members.dtype}: {odd_one(members)}")
    unknown = members[(members < 0) | (members >= n_clients)]
    if unknown.size:
        raise CohortError(f"client {unknown[0]} is unknown; clients run from 0 to {n_clients - 1}")
    mask[members] = True
    return mask
