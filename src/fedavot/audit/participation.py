"""Which clients took part in each round of a federation, in compressed form.

In a round, a client took part, did not take part, or its state is unknown. Unknown never means
absent: shares are taken over the rounds in which a client's state is known. `reading` reads and
checks the files.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers, as_size
from fedavot._incidence import Incidence

ONE_BY_ONE = 10_000
"""Number of rounds at the start of a log that are drawn one by one, as in earlier versions, so that
logs of this length keep their draws; later rounds are drawn all at once."""
SLAB = 1 << 20
"""About how many entries are sorted at a time, to save memory."""
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")


@dataclass(frozen=True, eq=False)
class Totals:
    """Counts over all rounds of a log of which only some rounds are kept.

    Attributes
    ----------
    n_rounds, n_filled : int
        Number of rounds, and of those with participants.
    n_entries : int
        Sum of the cohorts' sizes.
    taken : int64 array, shape (n_clients,)
        Number of rounds in which each client took part.
    implied : float array, shape (n_clients,)
        Each client's mean weight in the plain average, over the rounds with participants.
    span : pair of float, or None
        Times of the earliest and the latest round.
    """

    n_rounds: int
    n_filled: int
    n_entries: int
    taken: Integers
    implied: Floats
    span: tuple[float, float] | None

    def moved(self, place: NDArray[np.int32], n_clients: int) -> "Totals":
        """Return the totals with each client at its new place among more clients."""
        taken, implied = np.zeros(n_clients, dtype=np.int64), np.zeros(n_clients)
        taken[place], implied[place] = self.taken, self.implied
        return replace(self, taken=taken, implied=implied)


@dataclass(frozen=True, eq=False)
class Participation:
    """A participation log as it was read.

    Attributes
    ----------
    clients : tuple of str
        The clients' names: client i is ``clients[i]``. In numerical order if all are numbers,
        otherwise in alphabetical order.
    offsets : int64 array, shape (n_rounds + 1,)
        ``members[offsets[t]:offsets[t + 1]]`` took part in round t.
    members : int32 array, shape (n_entries,)
        The cohorts, one after the other, ascending and distinct within each.
    times : float array, shape (n_rounds,), or None
        Times of the rounds: seconds since 1970 in UTC if the log has dates, otherwise on the log's
        own clock. None if the log has no times.
    available : Incidence or None
        The clients available in each round, if the log has them: those that were asked, whether or
        not they took part; if ``all_available``, all that took part or could have.
    unknown : Incidence or None
        The clients whose state is unknown in each round.
    applied : float array, shape (n_entries,), or None
        The weights that were used, if the log has them.
    examples : float array, shape (n_entries,), or None
        The number of examples that each update was trained on, if the log has them.
    remembers : bool
        Whether the log says that the server used remembered contributions of absent clients: the
        weights then do not describe the whole aggregation.
    notes : tuple of str
        What was unusual in the log, and how it was read.
    all_available : bool
        Whether ``available`` has all clients that could have been asked.
    totals : Totals or None
        For a log so large that only some of its rounds are kept here: the counts over all rounds.
    """

    clients: tuple[str, ...]
    offsets: Integers
    members: NDArray[np.int32]
    times: Floats | None = None
    available: Incidence | None = None
    unknown: Incidence | None = None
    applied: Floats | None = None
    examples: Floats | None = None
    remembers: bool = False
    notes: tuple[str, ...] = ()
    all_available: bool = False
    totals: Totals | None = None

    @property
    def eligible(self) -> Incidence | None:
        """All clients that could have been asked in each round; None if the log does not say."""
        return self.available if self.all_available else None

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return len(self.clients)

    @property
    def n_rounds(self) -> int:
        """Number of rounds, including those without participants."""
        return self.offsets.size - 1

    @property
    def n_entries(self) -> int:
        """Sum of the cohorts' sizes."""
        return self.members.size

    @property
    def cohorts(self) -> Incidence:
        """The clients that took part in each round; a round may have none."""
        return Incidence(self.members, self.offsets, self.n_clients)

    def cohort(self, t: int) -> NDArray[np.int32]:
        """Return the clients that took part in round ``t``, in ascending order."""
        place = as_size(t, what="round", low=0, high=self.n_rounds - 1)
        return self.cohorts.row(place)

    def inclusion(self) -> Floats:
        """Return the share of rounds in which each client took part, of those with known state.

        Returns
        -------
        ndarray of shape (n_clients,)
            NaN for a client whose state is never known.
        """
        known = np.full(self.n_clients, self.n_rounds, dtype=np.int64)
        if self.unknown is not None:
            known -= self.unknown.counts()
        shares = np.full(self.n_clients, np.nan)
        taken = self.cohorts.counts()
        np.divide(taken, known, out=shares, where=known > 0)
        return shares

    def rounds_between(self, first: int, last: int) -> "Participation":
        """Return the rounds from ``first`` up to but not including ``last``, with all clients."""
        low = as_size(first, what="first", low=0, high=self.n_rounds)
        high = as_size(last, what="last", low=low, high=self.n_rounds)
        cohorts = self.cohorts.between(low, high)
        entries = slice(self.offsets[low], self.offsets[high])
        return replace(
            self,
            offsets=cohorts.offsets,
            members=cohorts.members,
            times=None if self.times is None else self.times[low:high],
            available=None if self.available is None else self.available.between(low, high),
            unknown=None if self.unknown is None else self.unknown.between(low, high),
            applied=None if self.applied is None else self.applied[entries],
            examples=None if self.examples is None else self.examples[entries],
            totals=None,
        )

    def with_clients(self, added: Sequence[str]) -> "Participation":
        """Return the log extended by clients that took part in no round.

        Parameters
        ----------
        added : sequence of str
            Names that are not in the log.
        """
        clients, place = ordered([*self.clients, *sorted(added)])
        place = place[: self.n_clients]
        cohorts, order = _moved(self.cohorts, place, len(clients))
        return replace(
            self,
            clients=clients,
            members=cohorts.members,
            available=self.available and _moved(self.available, place, len(clients))[0],
            unknown=self.unknown and _moved(self.unknown, place, len(clients))[0],
            applied=None if self.applied is None else self.applied[order],
            examples=None if self.examples is None else self.examples[order],
            totals=self.totals and self.totals.moved(place, len(clients)),
        )


def ordered(names: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Put clients in an order that does not depend on the rows' order.

    Parameters
    ----------
    names : sequence of str
        Distinct names. If all are whole numbers without leading zeros (7, not 007), they are
        ordered by size, otherwise by their characters.

    Returns
    -------
    tuple of str
        The names in order.
    int32 array, shape (n_names,)
        The new place of each name.
    """
    numbers = all(_INTEGER.fullmatch(name) for name in names)
    order = sorted(
        range(len(names)), key=(lambda i: int(names[i])) if numbers else names.__getitem__
    )
    place = np.empty(len(names), dtype=np.int32)
    place[order] = np.arange(len(names), dtype=np.int32)
    return tuple(names[i] for i in order), place


def keys(rounds: NDArray[Any], clients: NDArray[np.int32], n_clients: int) -> Integers:
    """Return ``round * n_clients + client`` for each row, shape (n_rows,)."""
    key = rounds.astype(np.int64)
    key *= n_clients
    key += clients
    return key


def drawn(available: Incidence, cohort_size: int, seed: int) -> Incidence:
    """Draw at most ``cohort_size`` available clients in each round, by seed and round."""
    counts = np.minimum(available.sizes, cohort_size)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    members = np.empty(offsets[-1], dtype=np.int32)
    first = min(counts.size, ONE_BY_ONE)
    for t in range(first):
        there = available.row(t)
        if there.size > cohort_size:
            rng = np.random.default_rng([seed, t])
            there = np.sort(rng.choice(there, cohort_size, replace=False))
        members[offsets[t] : offsets[t + 1]] = there
    rest = available.between(first, counts.size)
    rng = np.random.default_rng([seed, first])
    members[offsets[first] :] = some_of(rest, counts[first:], rng)
    return Incidence(members, offsets, available.n_clients)


def some_of(available: Incidence, sizes: Integers, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw a given number of each round's clients, uniformly without replacement.

    Every entry gets a random number, and the clients with the smallest numbers of a round are
    drawn. Numbers are consumed entry by entry, so a draw does not depend on the rounds after it.

    Parameters
    ----------
    available : Incidence
        The clients to draw from in each round.
    sizes : int array, shape (n_rounds,)
        How many to draw in each round, at most the number of available clients.
    rng : Generator

    Returns
    -------
    int32 array, shape (n_drawn,)
        The clients drawn, one round after the other, ascending within each.
    """
    parts = [np.empty(0, dtype=np.int32)]
    for low, high in slabs(available.offsets, SLAB):
        part = available.between(low, high)
        counts = part.sizes
        order = np.lexsort(
            (rng.random(part.members.size), np.repeat(np.arange(high - low), counts))
        )
        rank = np.arange(order.size) - np.repeat(part.offsets[:-1], counts)
        taken = np.zeros(order.size, dtype=bool)
        taken[order[rank < np.repeat(sizes[low:high], counts)]] = True
        parts.append(part.members[taken])
    return np.concatenate(parts)


def slabs(offsets: Integers, size: int) -> Iterator[tuple[int, int]]:
    """Cut rounds, or blocks of them, into runs of about ``size`` entries; at least one in each.

    Parameters
    ----------
    offsets : int array, shape (n_rounds + 1,)
        Number of entries before each round, and of all entries.
    size : int
    """
    first, last = 0, offsets.size - 1
    while first < last:
        beyond = int(np.searchsorted(offsets, offsets[first] + size, side="right")) - 1
        following = min(max(beyond, first + 1), last)
        yield first, following
        first = following


def _moved(
    sets: Incidence, place: NDArray[np.int32], n_clients: int
) -> tuple[Incidence, Integers | slice]:
    """Return the sets with each client at its new place, and the entries' new order."""
    members = place[sets.members]
    if np.all(np.diff(place) > 0):
        return Incidence(members, sets.offsets, n_clients), slice(None)
    rounds = sets.spread_over_members(np.arange(sets.n_cohorts, dtype=np.int32))
    order = np.argsort(keys(rounds, members, n_clients))
    return Incidence(members[order], sets.offsets, n_clients), order
