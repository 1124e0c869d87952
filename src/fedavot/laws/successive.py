"""Cohorts drawn one client after the other without replacement, by rates.

This is what NumPy's ``Generator.choice(replace=False, p=rates)`` does, and the paper's restricted
setting: each draw takes a remaining client with probability proportional to its rate. For two draws
q{a,b} = r_a r_b/(1−r_a) + r_a r_b/(1−r_b); in general

    P(first k draws are B) = Σ_{a∈B} P(first k−1 draws are B∖{a}) r_a / (1 − r(B∖{a})).

`Cohorts` lists them all with these probabilities: the pairs of up to 3,000 clients, and up to a
million larger cohorts. Longer lists are replaced by the empirical law of ``draws`` sampled cohorts,
whose probabilities have a standard error of at most 1/(2√draws).
"""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import (
    Floats,
    Integers,
    as_floats,
    as_generator,
    as_non_negative,
    as_seed,
    as_size,
    refuse_if_too_large,
)
from fedavot._clients import Clients, Members
from fedavot.errors import LawError
from fedavot.laws._explicit import ExplicitSystem
from fedavot.laws._law import Law, SolvableLaw
from fedavot.laws.cohorts import Cohorts

_MOST_PAIRS, _MOST_COHORTS = 4_500_000, 1_000_000
"""Longest exact lists, of pairs and of larger cohorts: some .5 GB."""
_BYTES_PER_MEMBER = 48
"""Peak memory per member of listing, checking and merging cohorts, as measured."""


class SuccessiveDraws(SolvableLaw):
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
    rates : float array, shape (n_clients,)
        The rates, summing to one.
    size : int
        Number of clients in every cohort.
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
        values = as_non_negative(
            values, what="the rate", item="client", error=LawError, clients=self._clients.names
        )
        self.size = as_size(size, what="size", low=1)
        self._draws = as_size(draws, what="draws", low=1)
        self._seed = as_seed(seed)
        positive = int(np.count_nonzero(values))
        if positive < self.size:
            needed = f"cohorts of {self.size} need that many clients with positive rates"
            raise LawError(f"{needed}, found {positive}")
        scaled = values / values.max()
        lost = np.flatnonzero((scaled == 0) & (values > 0))
        if lost.size:
            what = f"the rate of client {lost[0]} is {values[lost[0]]}, but beside the largest"
            why = f"{values.max()}, double precision cannot tell it from 0"
            raise LawError(f"{what}, {why}; set it to 0, or raise it")
        self.rates: Floats = scaled / scaled.sum()
        # The list is made from those of all smaller cohorts, of which the longest counts.
        count = math.comb(positive, min(self.size, positive // 2))
        self.exact = count <= (_MOST_PAIRS if self.size <= 2 else _MOST_COHORTS)
        listed = count if self.exact else self._draws
        refuse_if_too_large(
            _BYTES_PER_MEMBER * self.size * listed,
            what=f"the list of {listed:,} cohorts of {self.size}",
            remedy="pass a sample of cohorts to Cohorts instead",
        )

    def _detail(self) -> str:
        return f"size {self.size}" if self.exact else f"size {self.size}, {self._draws:,} sampled"

    @cached_property
    def cohorts(self) -> Cohorts:
        """The law as an explicit list of cohorts, made on first use."""
        if self.exact:
            return _exact(self.rates, self.size, self.clients)
        rng = np.random.default_rng(self._seed)
        drawn = _draw(self.rates, self.size, rng, self._draws)
        return Cohorts(drawn, n_clients=self.rates.size, clients=self.clients)

    def inclusion(self) -> Floats:
        return self.cohorts.inclusion()

    def coverage(self, clients: Members) -> float:
        return self.cohorts.coverage(clients)

    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        """Draw one cohort per round from the rates themselves, members ascending."""
        count = as_size(rounds, what="rounds", low=0)
        return list(_draw(self.rates, self.size, as_generator(rng), count))

    def system(self, levels: Integers | None = None) -> ExplicitSystem:
        return self.cohorts.system(levels)

    def prefix_gains(self, order: Integers) -> Floats:
        return self.cohorts.prefix_gains(order)


def explicit_cohorts(law: Law | None) -> Cohorts | None:
    """Return a law as an explicit list of cohorts, or None if it has no such list."""
    if isinstance(law, SuccessiveDraws):
        return law.cohorts
    return law if isinstance(law, Cohorts) else None


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
        # Of equal entries in a row, a stable sort puts the first one first.
        order = np.argsort(tries, kind="stable", axis=1)
        repeated = np.diff(np.take_along_axis(tries, order, axis=1), prepend=-1) == 0
        fresh = np.empty(tries.shape, dtype=bool)
        np.put_along_axis(fresh, order, ~repeated, axis=1)
        place = np.cumsum(fresh, axis=1)
        used = fresh & (place <= size)
        rows = drawn[first : first + count]
        rows[np.nonzero(used)[0], place[used] - 1] = tries[used]
        short = np.flatnonzero(place[:, -1] < size)
        for few in np.array_split(short, 1 + short.size * rates.size // (1 << 22)):
            # Those still too small are filled up by the first of exponential clocks.
            with np.errstate(divide="ignore", over="ignore"):
                clocks = rng.standard_exponential((few.size, rates.size)) / rates
            cohorts, places = np.nonzero(used[few])
            clocks[cohorts, tries[few][cohorts, places]] = -np.inf
            rows[few] = np.argpartition(clocks, size - 1, axis=1)[:, :size]
    drawn.sort(axis=1)
    return drawn


def _exact(rates: Floats, size: int, clients: tuple[str, ...] | None) -> Cohorts:
    """List every cohort with its probability, by the recursion over its last draw."""
    # With ascending rates, sums over a cohort's complement do not cancel: they are differences of
    # prefix sums between its members.
    order = np.argsort(rates, kind="stable")
    order = order[rates[order] > 0]
    ascending = rates[order]
    before = np.concatenate(([0.0], np.cumsum(ascending)))
    tables = [np.array([math.comb(i, k) for i in range(order.size)]) for k in range(1, size)]
    subsets, chances = np.arange(order.size)[:, None], ascending
    for length in range(2, size + 1):
        # All subsets of this length from those of one less, in colexicographic order.
        edges = np.pad(subsets, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, order.size)))
        remaining = (before[edges[:, 1:]] - before[edges[:, :-1] + 1]).sum(axis=1)
        # Append every larger element to each subset; sorting by the last keeps the order.
        repeats = order.size - 1 - subsets[:, -1]
        new = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        new += np.repeat(subsets[:, -1] + 1, repeats)
        subsets = np.column_stack((np.repeat(subsets, repeats, axis=0), new))
        subsets = subsets[np.argsort(new, kind="stable")]
        total = np.zeros(len(subsets))
        for last in range(length):
            # The ranks of the subsets without it, in colexicographic order.
            others = zip(tables, np.delete(subsets, last, axis=1).T, strict=False)
            rest = np.sum([table[column] for table, column in others], axis=0)
            # Divided first: the quotient is at most one, because what remains includes the rate.
            total += chances[rest] * (ascending[subsets[:, last]] / remaining[rest])
        chances = total
    return Cohorts(order[subsets], chances / chances.sum(), n_clients=rates.size, clients=clients)
