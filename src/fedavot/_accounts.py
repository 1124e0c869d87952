"""Accounts that every online aligner keeps, whatever its potentials follow.

They are the importance now, the rounds observed, and for each client the importance summed over
the rounds (owed) and the weight it was given. How potentials move and how weights follow from them
is left to the aligners.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_distribution, as_floats
from fedavot._clients import Clients, in_client_order
from fedavot._files import PathLike, read_document, write_document
from fedavot._state import refuse_sums
from fedavot.errors import CohortError, ImportanceError

VERSION = 2


class Accounts(ABC):
    """Importance, rounds and weights given, with the reading and writing of files."""

    _format: ClassVar[str]

    def __init__(
        self,
        importance: ArrayLike | Mapping[str, float],
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
        self._rounds = 0
        self._owed = np.zeros(self._importance.size)
        self._given = np.zeros(self._importance.size)

    @property
    def n_clients(self) -> int:
        """Number of clients."""
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
        """Importance now, shape (n_clients,)."""
        return self._importance.copy()

    @property
    def realised(self) -> Floats:
        """Mean weight each client was given, shape (n_clients,); zeros before the first round."""
        return np.asarray(self._given / max(self._rounds, 1))

    def save(self, path: PathLike) -> None:
        """Write the state to ``path`` as versioned JSON, whole or not at all."""
        write_document(path, format=self._format, version=VERSION, content=self.state_dict())

    def _names(self) -> dict[str, Any]:
        """Return the clients' names for a saved state, if they have any."""
        return {} if self.clients is None else {"clients": list(self.clients)}

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Read what :meth:`save` wrote; the aligner goes on bit for bit as the saved one would."""
        content = read_document(path, format=cls._format, version=VERSION)
        return cls.from_state(content, source=os.fspath(path))

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as numbers and lists."""

    @classmethod
    @abstractmethod
    def from_state(cls, content: Mapping[str, Any], *, source: str = "the state") -> Self:
        """Return the aligner that :meth:`state_dict` was taken of."""

    def _restore(self, held: Mapping[str, Any], *, settled: int) -> None:
        """Take over a saved state, unless its sums are not those of its rounds.

        Parameters
        ----------
        held : mapping
            Checked numbers and arrays by the names of the attributes they become.
        settled : int
            Number of rounds that ``owed`` counts.
        """
        for name, value in held.items():
            setattr(self, f"_{name}", value)
        refuse_sums(self._given, self._rounds, what="given")
        refuse_sums(self._owed, settled, what="owed")

    def _record(self, members: Integers, shares: Floats) -> None:
        """Count a round in which the members were given these weights."""
        self._rounds += 1
        self._given[members] += shares

    def _enrol(self, shares: Floats, clients: Clients) -> Integers:
        """Add clients with these shares of the new total, and return their indices."""
        self._clients = clients
        nothing = np.zeros(shares.size)
        self._owed = np.concatenate([self._owed, nothing])
        self._given = np.concatenate([self._given, nothing])
        self._importance = np.concatenate([self._importance * (1.0 - shares.sum()), shares])
        return np.arange(self.n_clients - shares.size, self.n_clients, dtype=np.int64)


def as_given(given: ArrayLike, members: Integers) -> Floats:
    """Return the weights that members were given: non-negative, summing to one."""
    weights = as_distribution(given, what="given weight", item="member", error=CohortError)
    if weights.size != members.size:
        raise CohortError(f"given has {weights.size} weights for a cohort of {members.size}")
    return weights


def as_new_shares(importance: ArrayLike) -> Floats:
    """Return the shares of new clients, which leave some for the others."""
    listed = np.array([importance]) if np.isscalar(importance) else importance
    shares = as_floats(listed, what="importance", error=ImportanceError)
    total = float(shares.sum())
    if not (total < 1.0 and (shares >= 0).all()):
        raise ImportanceError(
            f"importance of the new clients is {shares[:5].tolist()}, in all {total!r}; each must "
            "be at least 0 and all together below 1"
        )
    return shares
