"""Federations that are difficult in different ways, for `advice.py`.

The audit's constants were chosen on those of ``CHOSEN_ON``, and on none of ``NEW``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.random import Generator

from fedavot._checks import Floats, Integers
from fedavot.audit import Federation, Participation
from fedavot.experiments.phones import COHORT_SIZE, read

N_CLIENTS = 40
HALVES = np.arange(N_CLIENTS) * 2 // N_CLIENTS
QUARTERS = np.arange(N_CLIENTS) % 4
EVEN = np.full(N_CLIENTS, 1.0 / N_CLIENTS)
RATES = np.random.default_rng(7).uniform(0.1, 0.6, N_CLIENTS)


@dataclass(frozen=True, eq=False)
class Case:
    """A federation, the groups whose labels differ, and whether the audit is told of them."""

    cohorts: list[Integers]
    importance: Floats
    groups: Integers | None
    told: bool = True
    available: list[Integers] | None = None
    examples: Floats | None = None

    def federation(self, first: int, last: int) -> Federation:
        """Return the federation from one round up to another."""
        log = _log(self.cohorts[first:last], self.importance.size)
        if self.available is not None:
            there = _log(self.available[first:last], self.importance.size).cohorts
            log = replace(log, available=there, all_available=True)
        if self.examples is not None:
            log = replace(log, examples=self.examples[log.members])
        if self.groups is None or not self.told:
            return Federation(log, self.importance)
        names = tuple(f"group {number}" for number in range(int(self.groups.max()) + 1))
        return Federation(log, self.importance, names, self.groups)


def _log(cohorts: list[Integers], n_clients: int) -> Participation:
    names = tuple(f"client-{number}" for number in range(n_clients))
    offsets = np.concatenate([[0], np.cumsum([cohort.size for cohort in cohorts])])
    return Participation(names, offsets, np.concatenate(cohorts).astype(np.int32))


def independent(rng: Generator, rates: Floats) -> list[Integers]:
    """Draw cohorts of independent clients, from rates of shape (n_rounds, n_clients)."""
    cohorts = []
    for rate in rates:
        there = rng.random(rate.size) < rate
        cohorts.append(np.flatnonzero(there if there.any() else rate == rate.max())[:64])
    return cohorts


def alike(rate: Floats, rounds: int) -> Floats:
    """Return the same rates in every round."""
    return np.tile(rate, (rounds, 1))


def slack(rng: Generator, rounds: int) -> Case:
    """Any importance can be met, with room to spare."""
    return Case(independent(rng, alike(RATES, rounds)), EVEN, QUARTERS)


def tight(rng: Generator, rounds: int) -> Case:
    """Cohorts of two, and clients that matter up to forty times as much as others."""
    cohorts = [np.sort(rng.choice(N_CLIENTS, 2, replace=False)) for _ in range(rounds)]
    importance = np.arange(N_CLIENTS, 0, -1.0)
    return Case(cohorts, importance / importance.sum(), np.arange(N_CLIENTS) * 4 // N_CLIENTS)


def scarce(rng: Generator, rounds: int) -> Case:
    """Give a small group much importance, although it is seldom there."""
    rare = np.arange(N_CLIENTS) < 4
    importance = np.where(rare, 0.4 / 4, 0.6 / 36)
    cohorts = independent(rng, alike(np.where(rare, 0.06, 0.25), rounds))
    return Case(cohorts, importance, rare.astype(np.int64))


def day_and_night(rng: Generator, rounds: int, *, told: bool = True) -> Case:
    """Either half of the clients takes turns with the other."""
    turn = (np.arange(rounds) // 12 % 2)[:, None]
    return Case(independent(rng, np.where(turn == HALVES, 0.3, 0.01)), EVEN, HALVES, told)


def unseen_day_and_night(rng: Generator, rounds: int) -> Case:
    """Do the same, but do not tell the audit of the groups."""
    return day_and_night(rng, rounds, told=False)


def short_day(rng: Generator, rounds: int) -> Case:
    """One half of the clients has three quarters of the time."""
    late = (np.arange(rounds) % 24 >= 18)[:, None].astype(np.int64)
    return Case(independent(rng, np.where(late == HALVES, 0.3, 0.02)), EVEN, HALVES)


def drift(rng: Generator, rounds: int) -> Case:
    """One half of the clients comes less and less, the other more and more."""
    time = np.linspace(0, 1, rounds)[:, None]
    rates = np.where(HALVES == 0, 0.4 - 0.35 * time, 0.05 + 0.35 * time)
    return Case(independent(rng, rates), EVEN, HALVES)


def sticky(rng: Generator, rounds: int) -> Case:
    """Clients that come stay for a while, and those of one group come seldom."""
    there, cohorts = rng.random(N_CLIENTS) < 0.2, []
    arrives = np.where(QUARTERS == 0, 0.01, 0.05)
    for _ in range(rounds):
        drawn = rng.random(N_CLIENTS)
        there = np.where(there, drawn >= 0.08, drawn < arrives)
        cohorts.append(np.flatnonzero(there) if there.any() else np.array([1]))
    return Case(cohorts, EVEN, QUARTERS)


def chosen(rng: Generator, rounds: int) -> Case:
    """Let the server ask four of those available, of whom one group is rare."""
    available = independent(rng, alike(np.where(QUARTERS == 0, 0.15, 0.6), rounds))
    asked = [np.sort(rng.choice(there, min(4, there.size), False)) for there in available]
    return Case(asked, EVEN, QUARTERS, available=available)


def by_examples(rng: Generator, rounds: int) -> Case:
    """Examples decide the importance and the weights; who has many is seldom there."""
    examples = rng.integers(10, 200, N_CLIENTS) * np.where(QUARTERS == 0, 4.0, 1.0)
    cohorts = independent(rng, alike(np.where(QUARTERS == 0, 0.1, 0.35), rounds))
    return Case(cohorts, examples / examples.sum(), QUARTERS, examples=examples)


def unwanted_examples(rng: Generator, rounds: int) -> Case:
    """All clients should count the same, but are weighted by their examples."""
    examples = rng.integers(10, 100, N_CLIENTS) * np.where(QUARTERS == 0, 1.0, 6.0)
    cohorts = independent(rng, alike(np.full(N_CLIENTS, 0.25), rounds))
    return Case(cohorts, EVEN, QUARTERS, examples=examples)


def same_data(rng: Generator, rounds: int) -> Case:
    """All clients have data of the same kind."""
    return Case(independent(rng, alike(RATES, rounds)), EVEN, None)


def few_rounds(rng: Generator, rounds: int) -> Case:
    """As with slack, but for thirty rounds."""
    return slack(rng, min(rounds, 60))


def never_seen(rng: Generator, rounds: int) -> Case:
    """As with slack, but one client never takes part."""
    absent = np.arange(N_CLIENTS) == 3
    return Case(independent(rng, alike(np.where(absent, 0.0, RATES), rounds)), EVEN, QUARTERS)


CHOSEN_ON: tuple[Callable[[Generator, int], Case], ...] = (
    *(slack, tight, scarce, day_and_night, unseen_day_and_night, short_day, drift, sticky),
    *(chosen, by_examples, unwanted_examples, same_data, few_rounds, never_seen),
)


def weekly(rng: Generator, rounds: int) -> Case:
    """Have a quarter of the clients at weekends only, another on workdays only."""
    weekend = (np.arange(rounds) // 4 % 7 >= 5)[:, None]
    rates = np.where(weekend, [[0.4, 0.02, 0.2, 0.2]], [[0.02, 0.4, 0.2, 0.2]])
    return Case(independent(rng, rates[:, QUARTERS]), EVEN, QUARTERS)


def heavy_tail(rng: Generator, rounds: int) -> Case:
    """Rates fall geometrically, from 60 % to 1 %, and each quarter has data of its own."""
    rates = np.geomspace(0.6, 0.01, N_CLIENTS)
    return Case(independent(rng, alike(rates, rounds)), EVEN, np.arange(N_CLIENTS) * 4 // N_CLIENTS)


def giant(rng: Generator, rounds: int) -> Case:
    """One client has a third of all examples and takes part in every tenth round."""
    examples = np.where(np.arange(N_CLIENTS) == 0, 20.0 * N_CLIENTS, 40.0)
    cohorts = independent(rng, alike(np.where(np.arange(N_CLIENTS) == 0, 0.1, 0.25), rounds))
    groups = (np.arange(N_CLIENTS) > 0).astype(np.int64)
    return Case(cohorts, examples / examples.sum(), groups, examples=examples)


def regions(rng: Generator, rounds: int) -> Case:
    """Let the server ask six clients of one region in each round, one of them far too seldom."""
    available = independent(rng, alike(np.full(N_CLIENTS, 0.8), rounds))
    region = rng.choice(4, rounds, p=[0.1, 0.3, 0.3, 0.3])
    asked = []
    for there, own in zip(available, region, strict=True):
        of_region = there[QUARTERS[there] == own]
        asked.append(np.sort(rng.choice(of_region, min(6, of_region.size), replace=False)))
    filled = [row if row.size else there[:1] for row, there in zip(asked, available, strict=True)]
    return Case(filled, EVEN, QUARTERS, available=available)


def growing(rng: Generator, rounds: int) -> Case:
    """Half of the clients join one after the other, the last of them near the end."""
    joins = np.where(HALVES == 0, 0.0, (np.arange(N_CLIENTS) - 20) / 22) * rounds
    rates = np.where(np.arange(rounds)[:, None] >= joins, RATES, 0.0)
    return Case(independent(rng, rates), EVEN, HALVES)


def one_by_one(rng: Generator, rounds: int) -> Case:
    """Give every client data of its own, whatever its rate, and do not tell the audit."""
    groups = rng.permutation(N_CLIENTS) % 10
    return Case(independent(rng, alike(RATES, rounds)), EVEN, groups, told=False)


NEW: tuple[Callable[[Generator, int], Case], ...] = (
    *(weekly, heavy_tail, giant, regions, growing, one_by_one),
)


def phones(folder: Path, rng: Generator, *, skewed: bool) -> Case:
    """Real phones, in the order of their log; groups by how long they charge, untold."""
    log = read(folder)
    available = [np.flatnonzero(there) for there in log.charging]
    asked = [np.sort(rng.choice(one, min(COHORT_SIZE, one.size), False)) for one in available]
    importance = log.skewed if skewed else np.full(log.n_clients, 1.0 / log.n_clients)
    groups = np.argsort(np.argsort(log.shares)) * 4 // log.n_clients
    return Case(asked, importance, groups, told=False, available=available)
