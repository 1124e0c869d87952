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
from fedavot.laws._law import SolvableLaw, refuse_too_many_clients


class Cohorts(SolvableLaw):
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

    Attributes
    ----------
    incidence : Incidence
        The distinct cohorts, members ascending within each.
    probabilities : float array, shape (n_cohorts,)
        Probability of each distinct cohort.

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
        flat, sizes = _flatten(members)
        incidence, self._clients = _checked(flat, sizes, n_clients, clients, "cohort {}".format)
        weights = np.full(sizes.size, 1.0 / sizes.size)
        if probabilities is not None:
            weights = as_distribution(
                probabilities, what="probability", item="cohort", error=LawError
            )
            if weights.size != sizes.size:
                raise LawError(f"{weights.size} probabilities for {sizes.size} cohorts")
        self.incidence, self.probabilities = _merged(incidence, weights)

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
            missing = np.not_equal(labels, labels)  # NaN and NaT
            if labels.dtype.kind == "O":
                missing = missing | [label is None for label in labels]
            distinct, place, sizes = np.unique(
                labels[~missing], return_inverse=True, return_counts=True
            )
        except TypeError as cause:
            raise LawError(f"rounds must have labels that can be sorted: {cause}") from None
        if missing.any():
            row = int(np.argmax(missing))
            raise LawError(
                f"rounds has {labels[row]} for row {row}; leave out rows without a round"
            )
        flat, names = column[np.argsort(place, kind="stable")], distinct.tolist()
        incidence, named = _checked(
            flat, sizes, n_clients, clients, lambda at: f"round {quoted(names[at])}"
        )
        return cls.of_rounds(incidence, named)

    @classmethod
    def of_rounds(cls, incidence: Incidence, named: Clients | None = None) -> "Cohorts":
        """Build the empirical law of rounds that are already checked and in compressed form."""
        law = cls.__new__(cls)
        equal = np.full(incidence.n_cohorts, 1.0 / incidence.n_cohorts)
        law.incidence, law.probabilities = _merged(incidence, equal)
        law._clients = named or Clients(incidence.n_clients)
        return law

    def _detail(self) -> str:
        return f"{self.n_cohorts:,} cohorts"

    @property
    def n_cohorts(self) -> int:
        """Number of distinct cohorts."""
        return self.incidence.n_cohorts

    def inclusion(self) -> Floats:
        return self._whole.inclusion.copy()

    def coverage(self, clients: Members) -> float:
        mask = self._clients.mask(clients)
        return float(self.probabilities[self.incidence.maximum(mask)].sum())

    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        count = as_size(rounds, what="rounds", low=0)
        drawn = as_generator(rng).choice(self.n_cohorts, size=count, p=self.probabilities)
        return [self.incidence.row(cohort).astype(np.int64) for cohort in drawn.tolist()]

    def system(self, levels: Integers | None = None) -> ExplicitSystem:
        if levels is None:
            return self._whole
        lowest = _with_single_clients_merged(self.incidence.within(levels), self.probabilities)
        return ExplicitSystem(*lowest, levels)

    @cached_property
    def _whole(self) -> ExplicitSystem:
        """The system without levels, cached because it may hold a dense matrix."""
        return ExplicitSystem(self.incidence, self.probabilities, None)

    def prefix_gains(self, order: Integers) -> Floats:
        rank = np.empty(self.n_clients, dtype=np.int32)
        rank[order] = np.arange(self.n_clients, dtype=np.int32)
        first = self.incidence.minimum(rank)
        return total_by(first, self.probabilities, self.n_clients)


def _flatten(members: Any) -> tuple[NDArray[Any], Integers]:
    """Return all members in one array, and the sizes of the cohorts."""
    if isinstance(members, Mapping):
        raise LawError(
            "cohorts are a mapping, of which only the keys would be used; pass the cohorts and "
            "their probabilities apart, as in Cohorts(list(given), list(given.values()))"
        )
    if isinstance(members, np.ndarray) and members.ndim == 2:
        flat = as_array(members, otherwise="cohorts", error=LawError).ravel()
        return flat, np.full(len(members), members.shape[1], dtype=np.int64)
    try:
        listed = [list(row) if isinstance(row, Set) else row for row in members]
    except TypeError:
        wanted = "cohorts must be a sequence of sequences of clients"
        raise LawError(f"{wanted}, found {shown(members)}") from None
    rows = []
    for number, row in enumerate(listed):
        otherwise = f"cohort {number} is not a sequence of client indices"
        rows.append(as_array(row, otherwise=otherwise, error=LawError))
        if rows[-1].ndim != 1:
            raise LawError(f"{otherwise}: {shown(row)}")
    sizes = np.array([row.size for row in rows], dtype=np.int64)
    return np.concatenate([row for row in rows if row.size] or [np.empty(0, dtype=int)]), sizes


def _checked(
    flat: NDArray[Any],
    sizes: Integers,
    n_clients: int | None,
    clients: Sequence[str] | None,
    label: Callable[[int], str],
) -> tuple[Incidence, Clients]:
    """Sort the members of each cohort, and refuse empty ones and repeated or unknown clients."""
    if not sizes.size:
        raise LawError("no cohorts were given; a law needs at least one")
    if not sizes.all():
        empty = label(int(sizes.argmin()))
        raise LawError(f"{empty} is empty; leave out rounds in which no client reported")
    limit = None if n_clients is None else as_size(n_clients, what="n_clients", low=1)
    if clients is not None:
        names = list(clients)
        named = Clients(len(names) if limit is None else limit, names)
        flat, limit = np.asarray(named.indices(flat, what="a cohort")), named.count
    if not np.issubdtype(flat.dtype, np.integer):
        raise LawError(
            f"cohorts must hold integer client indices, found {flat.dtype}: {odd_one(flat)}; pass "
            "clients=[...] to use names"
        )
    count = int(flat.max()) + 1 if limit is None else limit
    offsets = np.concatenate(([0], np.cumsum(sizes)))

    def cohort_of(place: Any) -> str:
        return label(int(np.searchsorted(offsets, place, side="right")) - 1)

    bad = np.flatnonzero((flat < 0) | (flat >= count))
    if bad.size:
        upper = "" if limit is None else f" to {count - 1}"
        client = flat[bad[0]]
        raise LawError(f"{cohort_of(bad[0])} has client {client}, but clients run from 0{upper}")
    if count > np.iinfo(np.int32).max:
        raise LawError(f"client index {count - 1} is too large; renumber the clients from 0")
    refuse_too_many_clients(count, remedy="renumber the clients that appear, from 0")
    everybody = Clients(count) if clients is None else named
    members, inside = flat.astype(np.int32), np.ones(flat.size - 1, dtype=bool)
    inside[offsets[1:-1] - 1] = False
    if np.any(inside & (members[1:] < members[:-1])):
        members = members[np.lexsort((members, np.repeat(np.arange(sizes.size), sizes)))]
    same = np.flatnonzero(inside & (members[1:] == members[:-1]))
    if same.size:
        client = everybody.label(members[same[0]])
        raise LawError(f"{cohort_of(same[0])} has client {client} more than once")
    return Incidence(members, offsets, count), everybody


def _merged(incidence: Incidence, probabilities: Floats) -> tuple[Incidence, Floats]:
    """Add up the probabilities of cohorts that occur more than once, in the order of the list.

    Cohorts are the same if two 64-bit sums of random keys are. If only one of them is, which is
    next to impossible, the list is returned as it is, and is the same law.
    """
    rng = np.random.default_rng(0x0F3DA507)
    first, second = (
        np.add.reduceat(keys[incidence.members], incidence.offsets[:-1])
        for keys in rng.integers(0, 2**64, (2, incidence.n_clients), dtype=np.uint64)
    )
    _, heads, group = np.unique(first, return_index=True, return_inverse=True)
    if heads.size == first.size or np.any(second != second[heads][group]):
        return incidence, probabilities
    mask = np.zeros(first.size, dtype=bool)
    mask[heads] = True
    return incidence.chosen(mask), total_by(group, probabilities, heads.size)[np.argsort(heads)]


def _with_single_clients_merged(
    incidence: Incidence, probabilities: Floats
) -> tuple[Incidence, Floats]:
    """Merge cohorts of a single client, if there are more of them than clients.

    Cohorts reduced to their lowest level are often of this kind, and then most of the list.
    """
    alone = incidence.sizes == 1
    if np.count_nonzero(alone) <= incidence.n_clients:
        return incidence, probabilities
    clients = incidence.members[incidence.offsets[:-1][alone]]
    mass = total_by(clients, probabilities[alone], incidence.n_clients)
    single = np.flatnonzero(np.bincount(clients))
    rest = incidence.chosen(~alone)
    members = np.concatenate((rest.members, single.astype(np.int32)))
    offsets = np.concatenate((rest.offsets, rest.offsets[-1] + 1 + np.arange(single.size)))
    joined = Incidence(members, offsets, incidence.n_clients)
    return joined, np.concatenate((probabilities[~alone], mass[single]))
