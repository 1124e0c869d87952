"""An explicit list of cohorts with their probabilities, in sparse form.

It is the law of a log of past rounds, or of a sample from a law without a closed form: q(A) for A
in a list, with m_i(x) = Σ_{A∋i} q(A) exp(x_i) / Σ_{k∈A} exp(x_k).
"""

from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import (
    Floats,
    Integers,
    as_array,
    as_distribution,
    as_generator,
    as_size,
    odd_one,
    quoted,
    shown,
)
from fedavot._clients import Clients, Members
from fedavot._incidence import Incidence, total_by
from fedavot.errors import LawError
from fedavot.laws._explicit import ExplicitSystem
from fedavot.laws._law import BaseLaw, refuse_too_many_clients
from fedavot.laws._merging import merged, singles_merged


class Cohorts(BaseLaw):
    """A distribution over an explicit list of cohorts.

    Parameters
    ----------
    members : sequence of sequences of int or str, or integer array of shape (n_cohorts, size)
        The cohorts, by index or by name. The order within a cohort does not matter; the
        probabilities of a cohort listed more than once are added.
    probabilities : array-like, shape (n_cohorts,), optional
        Probability of each cohort, summing to one. Equal by default, so that a list of rounds
        gives their empirical law.
    n_clients : int, optional
        Number of clients; by default one more than the largest index. Pass it if some clients never
        appear.
    clients : sequence of str, optional
        The clients' names, in the order of their indices.

    Examples
    --------
    >>> law = Cohorts([[0, 1], [1, 2], [1, 0]])
    >>> law.n_cohorts, law.inclusion().round(3).tolist()
    (2, [0.667, 1.0, 0.333])
    """

    def __init__(
        self,
        members: Sequence[Sequence[int]] | Sequence[Sequence[str]] | NDArray[Any],
        probabilities: ArrayLike | None = None,
        n_clients: int | None = None,
        *,
        clients: Sequence[str] | None = None,
    ) -> None:
        self._fill(members, probabilities, n_clients, clients, "cohort {}".format)

    def _fill(
        self,
        members: Any,
        probabilities: ArrayLike | None,
        n_clients: int | None,
        clients: Sequence[str] | None,
        label: Callable[[int], str],
    ) -> None:
        """Check and keep the cohorts; messages name one of them by its label."""
        if isinstance(members, Mapping):
            raise LawError(
                "cohorts are a mapping, of which only the keys would be used; pass the cohorts and "
                "their probabilities apart, as in Cohorts(list(given), list(given.values()))"
            )
        limit = None if n_clients is None else as_size(n_clients, what="n_clients", low=1)
        if clients is not None:
            names = list(clients)
            named = Clients(len(names) if limit is None else limit, names)
            limit = named.count
            members = _by_index(members, named, label)
        flat, sizes = _flatten(members, label)
        known = None if clients is None else named
        incidence = _checked_incidence(flat, sizes, limit, known, label)
        if probabilities is None:
            weights = np.full(sizes.size, 1.0 / sizes.size)
        else:
            weights = as_distribution(
                probabilities, what="probability", item="cohort", error=LawError
            )
            if weights.size != sizes.size:
                raise LawError(f"{weights.size} probabilities for {sizes.size} cohorts")
        self._incidence, self._probabilities = merged(incidence, weights)
        self._clients = Clients(incidence.n_clients) if clients is None else named

    @classmethod
    def from_log(
        cls,
        rounds: ArrayLike,
        members: ArrayLike,
        n_clients: int | None = None,
        *,
        clients: Sequence[str] | None = None,
    ) -> "Cohorts":
        """Build the law of a log in which each row says that a client took part in a round.

        Parameters
        ----------
        rounds : array-like, shape (n_rows,)
            The round of each row: any sortable labels, in any order.
        members : array-like of int or str, shape (n_rows,)
            The client of each row, by index or by name.
        n_clients, clients : optional
            As for the class. If the rows have names and ``clients`` is not given, the clients are
            those of the log, sorted by name.
        """
        labels = as_array(rounds, otherwise="rounds must be a flat sequence", error=LawError)
        if isinstance(members, list | tuple) and len({isinstance(m, str) for m in members}) > 1:
            raise LawError("members mixes names and indices; use one")
        column = as_array(members, otherwise="members must be a flat sequence", error=LawError)
        if labels.ndim != 1 or labels.shape != column.shape:
            raise LawError(
                f"rounds has shape {labels.shape} and members has shape {column.shape}; both need "
                "one entry per row of the log"
            )
        if clients is None and column.dtype.kind == "U":
            clients = np.unique(column).tolist()
        try:
            absent = np.flatnonzero(_is_missing(labels))
            if absent.size:
                raise LawError(
                    f"rounds has {labels[absent[0]]} for row {absent[0]}; leave out rows without a "
                    "round"
                )
            order = np.argsort(labels, kind="stable")
        except TypeError as cause:
            raise LawError(f"rounds must have labels that can be sorted: {cause}") from None
        found, sizes = np.unique(labels, return_counts=True)
        ragged = np.split(column[order], np.cumsum(sizes)[:-1])
        cohorts = [row.tolist() for row in ragged] if column.size else []
        names = found.tolist()
        law = cls.__new__(cls)
        law._fill(cohorts, None, n_clients, clients, lambda at: f"round {quoted(names[at])}")
        return law

    @classmethod
    def of_rounds(cls, incidence: Incidence) -> "Cohorts":
        """Build the empirical law of rounds that are already checked and in compressed form."""
        law = cls.__new__(cls)
        equal = np.full(incidence.n_cohorts, 1.0 / incidence.n_cohorts)
        law._incidence, law._probabilities = merged(incidence, equal)
        law._clients = Clients(incidence.n_clients)
        return law

    def _detail(self) -> str:
        return f"{self.n_cohorts:,} cohorts"

    @property
    def n_cohorts(self) -> int:
        """Number of distinct cohorts."""
        return self._incidence.n_cohorts

    @property
    def incidence(self) -> Incidence:
        """The distinct cohorts, members ascending within each."""
        return self._incidence

    @property
    def probabilities(self) -> Floats:
        """Probability of each distinct cohort, shape (n_cohorts,)."""
        return self._probabilities

    def inclusion(self) -> Floats:
        return self._whole.inclusion.copy()

    def coverage(self, clients: Members) -> float:
        mask = self._clients.mask(clients)
        return float(self._probabilities[self._incidence.maximum(mask)].sum())

    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        count = as_size(rounds, what="rounds", low=0)
        drawn = as_generator(rng).choice(self.n_cohorts, size=count, p=self._probabilities)
        return [self._incidence.row(cohort).astype(np.int64) for cohort in drawn.tolist()]

    def system(self, levels: Integers | None = None) -> ExplicitSystem:
        if levels is None:
            return self._whole
        lowest = singles_merged(self._incidence.within(levels), self._probabilities)
        return ExplicitSystem(*lowest, levels)

    @cached_property
    def _whole(self) -> ExplicitSystem:
        """The system without levels, cached because it may hold a dense matrix."""
        return ExplicitSystem(self._incidence, self._probabilities, None)

    def prefix_gains(self, order: Integers) -> Floats:
        rank = np.empty(self.n_clients, dtype=np.int32)
        rank[order] = np.arange(self.n_clients, dtype=np.int32)
        first = self._incidence.minimum(rank)
        return total_by(first, self._probabilities, self.n_clients)


def _iterated(members: Any) -> list[Any]:
    try:
        return list(members)
    except TypeError:
        raise LawError(
            f"cohorts must be a sequence of sequences of clients, found {shown(members)}"
        ) from None


def _by_index(members: Any, clients: Clients, label: Callable[[int], str]) -> Any:
    """Return cohorts given by name as indices; cohorts of indices are returned as they are."""
    if isinstance(members, np.ndarray) and members.dtype.kind not in "UTO":
        return members
    if not any(isinstance(member, str) for cohort in members for member in cohort):
        return members
    return [clients.indices(cohort, what=label(n)) for n, cohort in enumerate(members)]


def _flatten(members: Any, label: Callable[[int], str]) -> tuple[NDArray[Any], Integers]:
    """Return all members in one array, and the sizes of the cohorts."""
    if isinstance(members, np.ndarray) and members.ndim == 2:
        count, size = members.shape
        checked = as_array(members, otherwise="cohorts", error=LawError, item="cohort")
        flat, sizes = checked.reshape(-1), np.full(count, size, dtype=np.int64)
    else:
        rows = [
            as_array(
                list(row) if isinstance(row, Set) else row,
                otherwise=f"{label(number)} is not a sequence of client indices",
                error=LawError,
            )
            for number, row in enumerate(_iterated(members))
        ]
        for number, row in enumerate(rows):
            if row.ndim != 1:
                raise LawError(f"{label(number)} is not a sequence of client indices: {shown(row)}")
        sizes = np.array([row.size for row in rows], dtype=np.int64)
        filled = [row for row in rows if row.size]
        flat = np.concatenate(filled) if filled else np.empty(0, dtype=np.int64)
    if not sizes.size:
        raise LawError("no cohorts were given; a law needs at least one")
    empty = np.flatnonzero(sizes == 0)
    if empty.size:
        raise LawError(f"{label(empty[0])} is empty; leave out rounds in which no client reported")
    if not np.issubdtype(flat.dtype, np.integer):
        raise LawError(
            f"cohorts must hold integer client indices, found {flat.dtype}: {odd_one(flat)}; pass "
            "clients=[...] to use names"
        )
    return flat, sizes


def _checked_incidence(
    flat: NDArray[Any],
    sizes: Integers,
    n_clients: int | None,
    clients: Clients | None,
    label: Callable[[int], str],
) -> Incidence:
    """Sort the members of each cohort, and refuse repeated or out-of-range ones."""
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    limit = int(flat.max()) + 1 if n_clients is None else n_clients
    bad = np.flatnonzero((flat < 0) | (flat >= limit))
    if bad.size:
        cohort = int(np.searchsorted(offsets, bad[0], side="right")) - 1
        upper = "" if n_clients is None else f" to {limit - 1}"
        raise LawError(f"{label(cohort)} has client {flat[bad[0]]}, but clients run from 0{upper}")
    if limit > np.iinfo(np.int32).max:
        raise LawError(f"client index {limit - 1} is too large; renumber the clients from 0")
    refuse_too_many_clients(limit, remedy="renumber the clients that appear, from 0")
    members = _sort_within(flat.astype(np.int32), sizes, offsets)
    same = members[1:] == members[:-1]
    same[offsets[1:-1] - 1] = False
    if same.any():
        place = int(np.argmax(same))
        cohort = int(np.searchsorted(offsets, place, side="right")) - 1
        client = members[place] if clients is None else clients.label(members[place])
        raise LawError(f"{label(cohort)} has client {client} more than once")
    return Incidence(members, offsets, limit)


def _sort_within(
    members: NDArray[np.int32], sizes: Integers, offsets: Integers
) -> NDArray[np.int32]:
    """Sort the members of each cohort, for all cohorts of one size at a time."""
    ascending = members[1:] >= members[:-1]
    ascending[offsets[1:-1] - 1] = True
    if ascending.all():
        return members
    ordered = members.copy()
    for size in np.unique(sizes):
        places = offsets[:-1][sizes == size][:, None] + np.arange(size)
        ordered[places] = np.sort(members[places], axis=1)
    return ordered


def _is_missing(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which labels are None, NaN or NaT."""
    kind = labels.dtype.kind
    if kind == "O":
        found = [one is None or (isinstance(one, float) and np.isnan(one)) for one in labels]
        return np.array(found, dtype=np.bool_)
    test = {"f": np.isnan, "c": np.isnan, "m": np.isnat, "M": np.isnat}.get(kind)
    return np.zeros(labels.size, dtype=np.bool_) if test is None else test(labels)
