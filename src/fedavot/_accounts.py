"""What all online aligners have in common: importance, rounds, and weights given so far.

For each client an aligner keeps the importance summed over the rounds (owed) and the weights it was
given. How potentials move after a round is left to the aligners.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_amount, as_distribution, as_floats
from fedavot._clients import Clients, Members, in_client_order
from fedavot._files import PathLike, read_document, write_document
from fedavot._simplex import level_weights, softmax
from fedavot._state import (
    as_finite,
    as_state,
    reading_state,
    refuse_sums,
    saved_names,
    within_reach,
)
from fedavot.errors import CohortError, ImportanceError


class Accounts(ABC):
    """Importance, rounds and weights given, and how they are saved."""

    _format: ClassVar[str]
    _version: ClassVar[int] = 2
    # What states of earlier versions lack.
    _earlier: ClassVar[dict[str, Any]] = {}
    _options: ClassVar[tuple[str, ...]]
    _counts: ClassVar[tuple[str, ...]]
    _amounts: ClassVar[tuple[str, ...]]
    _arrays: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        importance: ArrayLike | Mapping[str, float],
        step: float,
        clients: Sequence[str] | None,
    ) -> None:
        if clients is None and isinstance(importance, Mapping):
            clients = tuple(importance)
        self._importance = as_distribution(
            in_client_order(importance, clients),
            what="importance",
            item="client",
            error=ImportanceError,
        )
        self._clients = Clients(self._importance.size, clients)
        self._step = as_amount(step, what="step", positive=True)
        self._rounds = 0
        # Owed as of the round `_settled`; what was owed since follows from the importance.
        self._settled = 0
        self._owed = np.zeros(self._importance.size)
        self._given = np.zeros(self._importance.size)

    @property
    def n_clients(self) -> int:
        """Number of clients, those who left included."""
        return self._importance.size

    @property
    def clients(self) -> tuple[str, ...] | None:
        """The clients' names, if they have any."""
        return self._clients.names

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_clients:,} clients, {self._rounds:,} rounds)"

    @property
    def rounds(self) -> int:
        """Number of rounds observed."""
        return self._rounds

    @property
    def importance(self) -> Floats:
        """Present importance, shape (n_clients,)."""
        return self._importance.copy()

    @property
    def owed(self) -> Floats:
        """Importance summed over the rounds observed, shape (n_clients,)."""
        return np.asarray(self._owed + self._importance * (self._rounds - self._settled))

    @property
    def realised(self) -> Floats:
        """Mean weight each client was given, shape (n_clients,); zeros before the first round."""
        return np.asarray(self._given / max(self._rounds, 1))

    @property
    def effective_potentials(self) -> Floats:
        """Potentials that determine the weights, shape (n_clients,)."""
        return self._effective_of(np.arange(self.n_clients), self._importance)

    def weights(self, cohort: Members) -> Floats:
        """Return the weights of a cohort, without learning from it.

        Parameters
        ----------
        cohort : sequence of int or str, of length n_members
            Distinct clients, by index or by name.

        Returns
        -------
        ndarray of shape (n_members,)
            Weights in the order of the cohort; they sum to one.
        """
        members = self._clients.cohort(cohort)
        due = self._importance[members]
        return _shared(due, self._effective_of(members, due))

    def observe(self, cohort: Members, given: ArrayLike | None = None) -> Floats:
        """Take one step: the cohort reported and was given its weights.

        Parameters
        ----------
        cohort : sequence of int or str, of length n_members
            Distinct clients, by index or by name.
        given : array_like of shape (n_members,), optional
            The weights that the members were given, if they differ from `weights`, such as
            after a selection among the available. The realised mean weights count these.

        Returns
        -------
        ndarray of shape (n_members,)
            The weights given; by default as `weights` returned them before the step.
        """
        members = self._clients.cohort(cohort)
        due = self._importance[members]
        effective = self._effective_of(members, due)
        shares = _shared(due, effective) if given is None else _as_given(given, members)
        self._rounds += 1
        self._given[members] += shares
        self._move(members, due, effective, shares)
        return shares

    def join(
        self,
        importance: ArrayLike,
        potentials: ArrayLike | None = None,
        *,
        clients: Sequence[str] | None = None,
    ) -> Integers:
        """Add clients, by default at the importance-weighted mean of the others' potentials.

        Parameters
        ----------
        importance : float or array_like of shape (n_new,)
            Shares of the new clients in the new total, summing to less than one; the others are
            scaled to share the rest.
        potentials : array_like of shape (n_new,), optional
            Potentials at which the new clients start.
        clients : sequence of str, optional
            Names of the new clients; needed if and only if the others have names.

        Returns
        -------
        ndarray of int64, shape (n_new,)
            Indices of the new clients.
        """
        shares = _as_new_shares(importance)
        everyone = self._clients.joined(shares.size, clients)
        if potentials is None:
            start = np.full(shares.size, within_reach(self._usual()))
        else:
            start = as_finite(potentials, shares.size, what="potentials")
        self._settle()
        nothing = np.zeros(shares.size)
        self._clients = everyone
        self._owed = np.concatenate([self._owed, nothing])
        self._given = np.concatenate([self._given, nothing])
        self._importance = np.concatenate([self._importance * (1.0 - shares.sum()), shares])
        self._extend(start)
        return np.arange(self.n_clients - shares.size, self.n_clients, dtype=np.int64)

    def reweigh(self, importance: ArrayLike, *, added: ArrayLike | None = None) -> None:
        """Change the importance of the clients from now on; earlier rounds stay as they were.

        Parameters
        ----------
        importance : array_like of shape (n_clients,)
            The new distribution over the clients.
        added : array_like of shape (n_clients,), optional
            What is added to the potentials, such as the change of log p; nothing by default.
        """
        shares = as_distribution(
            importance, what="importance", item="client", error=ImportanceError
        )
        if shares.size != self.n_clients:
            raise ImportanceError(
                f"importance has {shares.size} entries, but there are {self.n_clients} clients"
            )
        change = np.zeros(shares.size) if added is None else added
        change = as_finite(change, self.n_clients, what="added")
        self._settle()
        self._importance = shares
        self._shift(change)

    def save(self, path: PathLike) -> None:
        """Write the state to ``path`` as versioned JSON, whole or not at all."""
        write_document(path, format=self._format, version=self._version, content=self.state_dict())

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Read what `save` wrote; the aligner continues as the saved one would."""
        content = read_document(path, format=cls._format, version=cls._version)
        return cls.from_state(content, source=os.fspath(path))

    def state_dict(self, *, arrays: bool = False) -> dict[str, Any]:
        """Return the whole state as numbers and lists, for use in a larger checkpoint.

        Parameters
        ----------
        arrays : bool
            Whether the lists are arrays instead, for a checkpoint that holds arrays.
        """
        kept = self._state()
        content = {name: kept[name] for name in (*self._amounts, *self._counts)}
        content |= {name: kept[name] if arrays else kept[name].tolist() for name in self._arrays}
        return content if self.clients is None else content | {"clients": list(self.clients)}

    @classmethod
    def from_state(cls, content: Mapping[str, Any], *, source: str = "the state") -> Self:
        """Return an aligner with the state that `state_dict` returned.

        Parameters
        ----------
        content : mapping
            What `state_dict` returned; further keys are ignored.
        source : str
            Where the state comes from, for messages.
        """
        with reading_state(source):
            held = as_state(content, counts=cls._counts, amounts=cls._amounts, arrays=cls._arrays)
            known = {**cls._earlier, **content, **held}
            options = {name: known[name] for name in cls._options}
            aligner = cls(**options, clients=saved_names(content, held["importance"].size))
            aligner._restore(held, content)
            refuse_sums(aligner._given, aligner._rounds, what="given")
            refuse_sums(aligner._owed, aligner._settled, what="owed")
        return aligner

    def _usual(self) -> float:
        """Return the potential at which clients start by default: the others' mean."""
        return float(self._importance @ self.effective_potentials)

    def _settle(self) -> None:
        """Bring what every client is owed up to the present round."""
        self._owed = self.owed
        self._settled = self._rounds

    def _state(self) -> dict[str, Any]:
        """Return what is saved, by name."""
        return {name.removeprefix("_"): value for name, value in vars(self).items()}

    def _restore(self, held: dict[str, Any], content: Mapping[str, Any]) -> None:
        """Take over the checked numbers and arrays of a saved state, by name."""
        for name, value in held.items():
            setattr(self, f"_{name}", value)

    @abstractmethod
    def _effective_of(self, members: Integers, due: Floats) -> Floats:
        """Return the effective potentials of some clients, given their importance."""

    @abstractmethod
    def _move(self, members: Integers, due: Floats, effective: Floats, shares: Floats) -> None:
        """Move the potentials after a round in which members due so much were given shares."""

    @abstractmethod
    def _shift(self, added: Floats) -> None:
        """Add to the potentials after the importance has changed."""

    @abstractmethod
    def _extend(self, start: Floats) -> None:
        """Add the potentials of clients who have just joined."""


def _shared(due: Floats, effective: Floats) -> Floats:
    """Return the softmax over members with importance; equal weights if nobody has any."""
    if np.count_nonzero(due) == due.size:
        return softmax(effective)
    idle = due == 0
    return level_weights(np.where(idle, 0.0, effective), idle)


def _as_given(given: ArrayLike, members: Integers) -> Floats:
    """Return the weights that members were given: non-negative, summing to one."""
    shares = as_distribution(given, what="given weight", item="member", error=CohortError)
    if shares.size != members.size:
        raise CohortError(f"given has {shares.size} weights for a cohort of {members.size}")
    return shares


def _as_new_shares(importance: ArrayLike) -> Floats:
    """Return the shares of new clients, which must leave some for the others."""
    several = np.array([importance]) if np.isscalar(importance) else importance
    shares = as_floats(several, what="importance", error=ImportanceError)
    total = float(shares.sum())
    if not (total < 1.0 and (shares >= 0).all()):
        raise ImportanceError(
            f"importance of the new clients is {shares[:5].tolist()}, in all {total!r}; each must "
            "be at least 0 and their sum below 1"
        )
    return shares
