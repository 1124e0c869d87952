"""Cohorts drawn one client after the other without replacement, by rates.

This is what NumPy's ``Generator.choice(replace=False, p=rates)`` does, and the paper's restricted
setting: each draw takes a remaining client with probability proportional to its rate. For two draws
q{a,b} = r_a r_b/(1−r_a) + r_a r_b/(1−r_b); in general

    P(first k draws are B) = Σ_{a∈B} P(first k−1 draws are B∖{a}) r_a / (1 − r(B∖{a})).

Short lists of cohorts are enumerated exactly. Long lists of pairs are replaced by closed forms,
which are exact as well (`_two_draws`). Long lists of larger cohorts are replaced by the empirical
law of ``draws`` sampled cohorts, whose probabilities have a standard error of at most 1/(2√draws).
"""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import (
    Floats,
    Integers,
    as_floats,
    as_generator,
    as_seed,
    as_size,
    refuse_if_too_large,
)
from fedavot._clients import Clients, Members
from fedavot.errors import LawError
from fedavot.laws._law import BaseLaw, Law, System
from fedavot.laws._two_draws import TwoDraws
from fedavot.laws.cohorts import Cohorts

_EXACT_COHORTS = 1_000_000
_LISTED_PAIRS = 200_000
"""Number of pairs up to which a pass over them takes less time than the integrals."""
_BYTES_PER_MEMBER = 48
"""Peak memory per member of listing, checking and merging cohorts, as measured."""


class SuccessiveDraws(BaseLaw):
    """Draw ``size`` clients without replacement, with probabilities proportional to their rates.

    Parameters
    ----------
    rates : array-like, shape (n_clients,)
        Non-negative rates; only their proportions matter.
    size : int
        Number of clients in every cohort; at least as many rates must be positive.
    draws : int, keyword-only
        Number of cohorts to sample where an exact list would be too long.
    seed : int, keyword-only
        Seed for that sample.
    clients : sequence of str, optional
        The clients' names, in the order of their indices.

    Attributes
    ----------
    exact : bool
        Whether the law is exact, or the empirical law of sampled cohorts.
    """

    def __init__(
        self,
        rates: ArrayLike,
        size: int,
        *,
        draws: int = 200_000,
        seed: int = 0,
        clients: Sequence[str] | None = None,
    ) -> None:
        values = as_floats(rates, what="rates", error=LawError)
        self._clients = Clients(values.size, clients)
        bad = np.flatnonzero(~((values >= 0) & np.isfinite(values)))
        if bad.size:
            raise LawError(
                f"the rate of client {self._clients.label(bad[0])} is {values[bad[0]]}; it must be "
                "finite and at least 0"
            )
        self._size = as_size(size, what="size", low=1)
        self._draws = as_size(draws, what="draws", low=1)
        self._seed = as_seed(seed)
        positive = int(np.count_nonzero(values))
        if positive < self._size:
            raise LawError(
                f"cohorts of {self._size} need that many clients with positive rates, "
                f"found {positive}"
            )
        self._rates = _proportions(values)
        self._count = math.comb(positive, self._size)
        self.exact = self._size <= 2 or self._count <= _EXACT_COHORTS
        pairs = self._size == 2 and self._count > _LISTED_PAIRS
        self._pairs = TwoDraws.of(self._rates) if pairs else None
        if self._pairs is None:
            self._refuse_a_list_too_large()

    def _refuse_a_list_too_large(self) -> None:
        count = self._count if self.exact else self._draws
        refuse_if_too_large(
            _BYTES_PER_MEMBER * self._size * count,
            what=f"the list of {count:,} cohorts of {self._size}",
            remedy="pass a sample of cohorts to Cohorts instead",
        )

    def _detail(self) -> str:
        return f"size {self._size}" if self.exact else f"size {self._size}, {self._draws:,} sampled"

    @property
    def rates(self) -> Floats:
        """The rates, summing to one, shape (n_clients,)."""
        return self._rates

    @property
    def size(self) -> int:
        """Number of clients in every cohort."""
        return self._size

    @cached_property
    def cohorts(self) -> Cohorts:
        """The law as an explicit list of cohorts, made on first use."""
        self._refuse_a_list_too_large()
        if self.exact:
            return _exact(self._rates, self._size, self.clients)
        rng = np.random.default_rng(self._seed)
        drawn = _draw(self._rates, self._size, rng, self._draws)
        return Cohorts(drawn, n_clients=self._rates.size, clients=self.clients)

    def inclusion(self) -> Floats:
        return self.cohorts.inclusion() if self._pairs is None else self._pairs.inclusion()

    def coverage(self, clients: Members) -> float:
        if self._pairs is None:
            return self.cohorts.coverage(clients)
        return self._pairs.coverage(self._clients.mask(clients))

    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        """Draw one cohort per round from the rates themselves, members ascending."""
        count = as_size(rounds, what="rounds", low=0)
        return list(_draw(self._rates, self._size, as_generator(rng), count))

    def system(self, levels: Integers | None = None) -> System:
        return (self.cohorts if self._pairs is None else self._pairs).system(levels)

    def prefix_gains(self, order: Integers) -> Floats:
        known = self.cohorts if self._pairs is None else self._pairs
        return known.prefix_gains(order)


def explicit_cohorts(law: Law | None) -> Cohorts | None:
    """Return a law as an explicit list of cohorts, or None if it has no such list."""
    if isinstance(law, SuccessiveDraws):
        return law.cohorts
    return law if isinstance(law, Cohorts) else None


def _proportions(rates: Floats) -> Floats:
    """Return the rates divided by their sum; refuse positive rates that round to zero."""
    scaled = rates / rates.max()
    lost = np.flatnonzero((scaled == 0) & (rates > 0))
    if lost.size:
        raise LawError(
            f"the rate of client {lost[0]} is {rates[lost[0]]}, but beside the largest, "
            f"{rates.max()}, double precision cannot tell it from 0; set it to 0, or raise it"
        )
    return np.asarray(scaled / scaled.sum())


def _draw(rates: Floats, size: int, rng: np.random.Generator, rounds: int) -> Integers:
    """Return cohorts, shape (rounds, size), members ascending."""
    drawn = np.empty((rounds, size), dtype=np.int64)
    # Drawing with replacement and passing over repeats is drawing without replacement.
    width = size + size // 2 + 4
    reached, last = np.cumsum(rates), np.flatnonzero(rates)[-1]
    block = max(1, (1 << 20) // width)
    for first in range(0, rounds, block):
        count = min(block, rounds - first)
        tries = np.searchsorted(reached, rng.random((count, width)) * reached[-1], side="right")
        tries = np.minimum(tries, last)
        fresh = _first_of_each(tries)
        place = np.cumsum(fresh, axis=1)
        used = fresh & (place <= size)
        rows = drawn[first : first + count]
        rows[np.nonzero(used)[0], place[used] - 1] = tries[used]
        short = np.flatnonzero(place[:, -1] < size)
        for few in np.array_split(short, 1 + short.size * rates.size // (1 << 22)):
            rows[few] = _completed(rates, tries[few], used[few], size, rng)
    drawn.sort(axis=1)
    return drawn


def _first_of_each(values: Integers) -> NDArray[np.bool_]:
    """Say which entries of each row differ from all earlier entries of the row."""
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    fresh = np.ones(values.shape, dtype=bool)
    again = ordered[:, 1:] == ordered[:, :-1]
    np.put_along_axis(fresh, order[:, 1:], ~again, axis=1)
    return fresh


def _completed(
    rates: Floats,
    tries: Integers,
    used: NDArray[np.bool_],
    size: int,
    rng: np.random.Generator,
) -> Integers:
    """Fill up cohorts that are still too small, by the first of exponential clocks."""
    with np.errstate(divide="ignore", over="ignore"):
        clocks = rng.standard_exponential((len(tries), rates.size)) / rates
    rows, places = np.nonzero(used)
    clocks[rows, tries[rows, places]] = -np.inf
    return np.asarray(np.argpartition(clocks, size - 1, axis=1)[:, :size])


def _exact(rates: Floats, size: int, clients: tuple[str, ...] | None) -> Cohorts:
    """List every cohort with its probability, by the recursion over its last draw."""
    # With ascending rates, sums over a cohort's complement do not cancel: they are differences of
    # prefix sums between its members.
    order = np.argsort(rates, kind="stable")
    order = order[rates[order] > 0]
    ascending = rates[order]
    before = np.concatenate(([0.0], np.cumsum(ascending)))
    subsets = np.arange(order.size)[:, None]
    chances = ascending
    for length in range(2, size + 1):
        subsets, chances = _extend(subsets, chances, ascending, before, length)
    return Cohorts(order[subsets], chances / chances.sum(), n_clients=rates.size, clients=clients)


def _extend(
    subsets: Integers, chances: Floats, rates: Floats, before: Floats, length: int
) -> tuple[Integers, Floats]:
    """Return all subsets of ``length`` from those of ``length − 1``, in colexicographic order."""
    edges = np.column_stack((np.full(len(subsets), -1), subsets, np.full(len(subsets), rates.size)))
    remaining = (before[edges[:, 1:]] - before[edges[:, :-1] + 1]).sum(axis=1)
    # Append every larger element to each subset; sorting by the last keeps the order.
    repeats = rates.size - 1 - subsets[:, -1]
    new = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    new += np.repeat(subsets[:, -1] + 1, repeats)
    longer = np.column_stack((np.repeat(subsets, repeats, axis=0), new))
    longer = longer[np.argsort(new, kind="stable")]
    total = np.zeros(len(longer))
    for last in range(length):
        rest = _rank(np.delete(longer, last, axis=1), rates.size)
        # Divided first: the quotient is at most one, because what remains includes the rate.
        total += chances[rest] * (rates[longer[:, last]] / remaining[rest])
    return longer, total


def _rank(subsets: Integers, n: int) -> Integers:
    """Return the rank of each ascending subset in colexicographic order."""
    rank = np.zeros(len(subsets), dtype=np.int64)
    for place in range(subsets.shape[1]):
        table = np.array([math.comb(value, place + 1) for value in range(n)], dtype=np.int64)
        rank += table[subsets[:, place]]
    return rank
