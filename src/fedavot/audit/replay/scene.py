"""The part of a log that is replayed: all of it, or a smaller federation drawn from it.

A large log is made smaller in three ways, each only as far as it must be. Clients are sampled. If
that would leave cohorts much smaller than they are, consecutive rounds are merged, so that cohorts
keep their size and clients still return after about as many rounds, relative to their number. And
only the last rounds are taken.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence
from fedavot.audit.federation import Federation
from fedavot.audit.statistics.case import Case
from fedavot.audit.statistics.fitting import Fitting
from fedavot.audit.statistics.judging import FITTED
from fedavot.audit.statistics.window import Window

MOST_CLIENTS = 1_000
MOST_ROUNDS = 3_000
MOST_ENTRIES = 300_000
ENOUGH = 10
"""Cohorts of more clients than this may be smaller than they are in the log."""


@dataclass(frozen=True, eq=False)
class Scene:
    """Rounds to train on, in order.

    Attributes
    ----------
    window : Window
        The rounds, with the importance of their clients.
    fitting : Fitting
        The first part of them, which weights are fitted to.
    group_of : int array, shape (n_clients,), or None
        The group of each client.
    available : Incidence or None
        The clients that could have taken part in each round, if the server has a choice.
    examples, applied : float array, shape (n_entries,), or None
        The number of examples and the weight of every entry, if the log has them.
    clients : int array, shape (n_clients,)
        The positions of the clients in the log.
    """

    window: Window
    fitting: Fitting
    group_of: Integers | None
    available: Incidence | None
    examples: Floats | None
    applied: Floats | None
    clients: Integers

    @property
    def fitted_rounds(self) -> int:
        """Number of rounds in the first part."""
        return self.fitting.window.n_rounds


def scene_of(case: Case, rng: np.random.Generator) -> Scene:
    """Return what is replayed of a log."""
    federation, log = case.federation, case.federation.participation
    available = case.available(case.window) if case.has_choice else None
    n_clients, sizes = case.window.n_clients, case.window.incidence.sizes
    kept = _sample(federation, rng) if n_clients > MOST_CLIENTS else np.arange(n_clients)
    share = kept.size / n_clients
    merged = max(1, round(min(ENOUGH, sizes.mean()) / (share * sizes.mean())))
    mean_size = share * merged * float(sizes.mean())
    rounds = min(MOST_ROUNDS, max(1, int(MOST_ENTRIES / mean_size)))
    first = max(0, sizes.size - rounds * merged)
    chosen = np.arange(first, sizes.size)
    thinning = _Thinning(kept, n_clients, (chosen - first) // merged)
    cohorts, entries = thinning(case.window.incidence.rows(chosen))
    entries += case.window.incidence.offsets[first]
    places = chosen[::merged]
    # Empty rounds change nothing in training, and no weights are defined for them.
    filled = np.flatnonzero(cohorts.sizes)
    window = Window(
        cohorts.rows(filled), case.window.rounds[places][filled], _shares(federation, kept), None
    )
    cut = max(1, min(round(FITTED * filled.size), filled.size - 1))
    return Scene(
        window=window,
        fitting=case.fitting(window.part(np.arange(cut))),
        group_of=None if federation.group_of is None else federation.group_of[kept],
        available=None if available is None else thinning(available.rows(chosen))[0].rows(filled),
        examples=None if log.examples is None else log.examples[entries],
        applied=None if log.applied is None else log.applied[entries],
        clients=kept,
    )


def _sample(federation: Federation, rng: np.random.Generator) -> Integers:
    """Return every so many of the clients, ordered by group and importance; ascending."""
    group = np.zeros(federation.n_clients) if federation.group_of is None else federation.group_of
    order = np.lexsort((federation.importance, group))
    stride = federation.n_clients / MOST_CLIENTS
    places = (np.arange(MOST_CLIENTS) + rng.random()) * stride
    return np.sort(order[places.astype(np.int64)])


def _shares(federation: Federation, kept: Integers) -> Floats:
    """Return the importance of some clients, which sums to one; equal if they have none."""
    shares = federation.importance[kept]
    total = float(shares.sum())
    return shares / total if total > 0 else np.full(kept.size, 1.0 / kept.size)


class _Thinning(NamedTuple):
    """Which clients are kept, of how many, and the new number of each round."""

    kept: Integers
    n_clients: int
    number: Integers

    def __call__(self, rounds: Incidence) -> tuple[Incidence, Integers]:
        """Return the thinned rounds, and the position of each of their entries before that."""
        if self.kept.size == self.n_clients and self.number[-1] + 1 == self.number.size:
            return rounds, np.arange(rounds.members.size)
        place = np.full(self.n_clients, -1)
        place[self.kept] = np.arange(self.kept.size)
        new = place[rounds.members]
        number = rounds.spread_over_members(self.number)
        there = np.flatnonzero(new >= 0)
        keys, firsts = np.unique(number[there] * self.kept.size + new[there], return_index=True)
        n_rounds = int(self.number[-1]) + 1
        return Incidence.of_keys(keys, n_rounds, self.kept.size), there[firsts]
