"""The clients of a federation: indices 0..n−1, and names for them if the caller gave any.

Names are turned into indices once, where they enter. Everything inside works with indices; what
goes back to the caller (messages, reprs, saved files) has the names again.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import Integers, as_array, enumerated, odd_one, quoted, shown
from fedavot.errors import CohortError, ImportanceError, InputError, OptionError

Members = ArrayLike | Iterable[int] | Iterable[str]
"""Clients given by index or by name."""


class Clients:
    """The clients of a federation, with or without names.

    Parameters
    ----------
    count : int
        Number of clients.
    names : sequence of str, optional
        One distinct name per client, in the order of their indices.
    """

    def __init__(self, count: int, names: Sequence[str] | None = None) -> None:
        self.count = count
        self.names = None if names is None else as_names(names, count)

    def label(self, index: int) -> str:
        """Return a client's name in quotes, or its index, for a message."""
        return str(int(index)) if self.names is None else repr(self.names[int(index)])

    def labels(self, indices: Iterable[int]) -> list[Any]:
        """Return the names of clients, or their indices where there are no names."""
        return [index if self.names is None else self.names[index] for index in map(int, indices)]

    def indices(self, clients: Members, *, what: str = "a cohort") -> Any:
        """Return clients given by name as indices; anything else is returned as it is.

        Unknown names, and names mixed with indices, are refused.
        """
        if isinstance(clients, np.ndarray) and clients.dtype.kind not in "UTO":
            return clients
        members = _as_list(clients, what=what)
        if not any(issubclass(kind, str) for kind in set(map(type, members))):
            return members
        for client in members:
            if not isinstance(client, str):
                name = next(name for name in members if isinstance(name, str))
                raise CohortError(
                    f"{what} mixes names and indices, such as {name!r} and {shown(client)}; use one"
                )
            if self.names is None:
                raise CohortError(
                    f"{what} has the client {client!r}, but the clients have no names here; pass "
                    "clients=[...] where they are described, or use indices"
                )
            if client not in self.by_name:
                raise CohortError(f"{what} has an unknown client, {self.nearest(client)}")
        return np.array([self.by_name[name] for name in members], dtype=np.int64)

    def cohort(self, cohort: Members) -> Integers:
        """Return a cohort's members in the order given, as distinct indices."""
        if not isinstance(cohort, np.ndarray) and isinstance(cohort, Set | Mapping):
            raise CohortError(f"a cohort must have an order, found {shown(cohort)}; give a list")
        members = self._integers(cohort, what="a cohort")
        if members.ndim != 1:
            raise CohortError(
                f"a cohort must be a flat sequence of clients, found shape {members.shape}"
            )
        if not members.size:
            raise CohortError("the cohort is empty; a round without replies has no weights")
        # Sorted, the first, the last and the neighbours decide: a few fast calls per cohort.
        ordered = members.copy()
        ordered.sort()
        self._refuse_unknown(ordered[0], ordered[-1], what="a cohort")
        repeated = ordered[1:] == ordered[:-1]
        if np.count_nonzero(repeated):
            client = self.label(ordered[repeated.argmax()])
            raise CohortError(f"the cohort has client {client} more than once")
        return members.astype(np.int64, copy=False)

    def mask(self, clients: Members) -> NDArray[np.bool_]:
        """Return a set of clients as a boolean array, shape (count,); repeats do no harm."""
        members, mask = self._integers(clients, what="the set"), np.zeros(self.count, dtype=bool)
        if members.size:
            self._refuse_unknown(members.min(), members.max(), what="the set")
            mask[members] = True
        return mask

    def _refuse_unknown(self, *extremes: Any, what: str) -> None:
        for client in extremes:
            if not 0 <= client < self.count:
                raise CohortError(
                    f"{what} has client {client}, but clients run from 0 to {self.count - 1}"
                )

    def _integers(self, clients: Members, *, what: str) -> NDArray[Any]:
        """Return clients by index or by name as an array of integers, of any shape."""
        if isinstance(clients, np.ndarray) and clients.dtype.kind in "iu":
            return clients
        members = as_array(
            self.indices(clients, what=what),
            otherwise=f"{what} must be a flat sequence of clients",
            error=CohortError,
        )
        if members.size and members.dtype.kind not in "iu":
            raise CohortError(
                f"{what} must hold client names or integer indices, found {members.dtype}: "
                f"{odd_one(members)}"
            )
        return members

    def joined(self, count: int, names: Sequence[str] | None) -> "Clients":
        """Return these clients followed by ``count`` new ones."""
        if (self.names is None) != (names is None):
            raise OptionError(
                "the clients have no names; leave clients out"
                if self.names is None
                else "the clients have names; pass clients=[...] with those of the new ones"
            )
        everyone = None if self.names is None else (*self.names, *as_names(names or (), count))
        return Clients(self.count + count, everyone)

    @cached_property
    def by_name(self) -> dict[str, int]:
        """The index of each name."""
        return {name: index for index, name in enumerate(self.names or ())}

    def nearest(self, name: Any) -> str:
        """Return an unknown name for a message, with the one that is probably meant."""
        names = self.names or ()
        few = isinstance(name, str) and len(names) <= 10_000
        close = difflib.get_close_matches(name, names, n=1) if few else []
        if close:
            return f"{name!r}; did you mean {close[0]!r}?"
        return f"{shown(name)}; the clients are {enumerated(map(quoted, names))}"


def as_names(
    names: Iterable[str], count: int | None, *, error: type[InputError] = OptionError
) -> tuple[str, ...]:
    """Return one distinct name per client, or raise an error; None for any number of clients."""
    listed = tuple(_as_list(names, what="clients", error=error))
    for name in listed:
        if not isinstance(name, str) or not name:
            raise error(f"clients must be names, as non-empty text; found {shown(name)}")
    if count is not None and len(listed) != count:
        raise error(f"clients has {len(listed)} names for {count} clients; name each once")
    if len(set(listed)) < len(listed):
        repeated = max(listed, key=Counter(listed).__getitem__)
        raise error(f"clients has the name {repeated!r} more than once")
    return tuple(map(str, listed))


def agreed_names(
    count: int, *sources: Sequence[str] | None, what: str = "the law"
) -> tuple[str, ...] | None:
    """Return the names on which all sources that have names agree, or None if none has."""
    agreed, *others = [as_names(names, count) for names in sources if names is not None] or [()]
    for names in others:
        for place, (one, other) in enumerate(zip(agreed, names, strict=True)):
            if one != other:
                raise OptionError(
                    f"client {place} is {one!r} in clients and {other!r} in {what}; give the same "
                    "names in the same order"
                )
    return agreed or None


def in_client_order(
    importance: ArrayLike | Mapping[str, float], clients: Sequence[str] | None
) -> ArrayLike:
    """Return importance by client name in the order of the clients, or as it is otherwise.

    A mapping must have exactly the clients that have names.
    """
    if not isinstance(importance, Mapping):
        return importance
    if clients is None:
        raise ImportanceError(
            "importance is given by client name, but the clients have no names here; pass "
            "clients=[...], or an array in the order of their indices"
        )
    listed = as_names(clients, None, error=ImportanceError)
    unknown = importance.keys() - set(listed)
    if unknown:
        first = next(name for name in importance if name in unknown)
        nearest = Clients(len(listed), listed).nearest(first)
        raise ImportanceError(f"importance has an unknown client, {nearest}")
    missing = [name for name in listed if name not in importance]
    if missing:
        raise ImportanceError(
            f"importance has no entry for {enumerated(map(quoted, missing))}; add one for each"
        )
    return [importance[name] for name in listed]


def _as_list(clients: Any, *, what: str, error: type[InputError] = CohortError) -> list[Any]:
    listed = clients.tolist() if isinstance(clients, np.ndarray) else clients
    if isinstance(listed, str):
        raise error(f"{what} must be a sequence of clients, found the text {listed!r}")
    try:
        return list(listed)
    except TypeError:
        raise error(f"{what} must be a sequence of clients, found {shown(clients)}") from None
