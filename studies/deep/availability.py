"""Who is available when: the settings, as functions of the clients' labels.

Every setting gives a bool array of shape (rounds, n_clients). Cohorts are ten of those available,
drawn uniformly; all, if fewer are. Clients are ranked by the mean of their labels.

* ``even``: everybody is always available.
* ``daynight``: a client whose share of animals is a has the probability .1 + .8 a by day and
  .9 − .8 a by night, which take turns of 12 rounds.
* ``phones``: the traces of 100 phones; the scarcer a phone, the higher its client's labels.
* ``markov``: chains that leave "available" with probability .2 a round; the long-run share of
  being available falls linearly from .5 to .05 with the rank.
* ``gone-early``, ``gone-third``: two fifths of the clients, drawn at random, leave for good after
  5 rounds or after a third of the rounds.
* ``cyclic``: the clients with more animals than vehicles for 25 rounds, then the others for 25.

Those of FedAWE's Table 2 (Xiang et al., NeurIPS 2024), in which all available clients take part: a
client's base probability is the mean of U(0, 1) weights of the first five classes and U(0, ½) of
the others over its labels; ``stationary``; ``staircase``, ten rounds at it and ten at .4 of it;
``sine``, times .7 + .3 sin(2π t/20); ``interleaved-sine``, the same, and 0 where it is below .1.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Present = NDArray[np.bool_]
ANIMALS = (2, 3, 4, 5, 6, 7)
"""Classes of CIFAR-10; the same numbers stand for half of any other ten classes."""
HALF_DAY, PHASE = 12, 25
LEAVES = 0.2
GONE, EARLY = 0.4, 5
DRAWS = 20
"""Runs from which inclusion probabilities are estimated."""


@dataclass(frozen=True, eq=False)
class Clients:
    """What availability depends on: each client's mix of classes, and the phones' traces."""

    mixes: NDArray[np.float64]
    """Shape (n_clients, n_classes)."""
    phones: Present | None = field(default=None)

    @property
    def rank(self) -> NDArray[np.int64]:
        """Each client's place in the order of mean labels, from 0."""
        means = self.mixes @ np.arange(self.mixes.shape[1])
        return np.argsort(np.argsort(means, kind="stable"), kind="stable")

    @property
    def animals(self) -> NDArray[np.float64]:
        """Each client's share of animals."""
        return np.asarray(self.mixes[:, ANIMALS].sum(axis=1))

    def importance(self, name: str) -> NDArray[np.float64]:
        """Return ``uniform``, or ``skewed``: 1 to n_clients by rank, normalised."""
        count = len(self.mixes)
        amounts = np.ones(count) if name == "uniform" else 1.0 + self.rank
        return np.asarray(amounts / amounts.sum())


def _even(clients: Clients, rng: np.random.Generator, rounds: int) -> Present:
    return np.ones((rounds, len(clients.mixes)), np.bool_)


def _daynight(clients: Clients, rng: np.random.Generator, rounds: int) -> Present:
    day = (np.arange(rounds) // HALF_DAY % 2 == 0)[:, None]
    share = np.where(day, clients.animals, 1 - clients.animals)
    return rng.random(share.shape) < 0.1 + 0.8 * share


def _phones(clients: Clients, rng: np.random.Generator, rounds: int) -> Present:
    if clients.phones is None:
        raise SystemExit("the data file has no phones; prepare it with --phones FOLDER")
    table: Present = clients.phones[np.arange(rounds) % len(clients.phones)]
    return table[:, clients.rank]


def _markov(clients: Clients, rng: np.random.Generator, rounds: int) -> Present:
    count = len(clients.mixes)
    share = 0.5 - 0.45 * clients.rank / max(count - 1, 1)
    enters = LEAVES * share / (1 - share)
    table = np.empty((rounds, count), np.bool_)
    now = rng.random(count) < share
    for row in table:
        row[:] = now
        now = np.where(now, rng.random(count) >= LEAVES, rng.random(count) < enters)
    return table


def _gone(clients: Clients, rng: np.random.Generator, rounds: int, last: int) -> Present:
    table = _even(clients, rng, rounds)
    count = table.shape[1]
    leaving = np.random.default_rng(0).permutation(count)[: round(GONE * count)]
    table[last:, leaving] = False
    return table


def _gone_early(clients: Clients, rng: np.random.Generator, rounds: int) -> Present:
    return _gone(clients, rng, rounds, EARLY)


def _gone_third(clients: Clients, rng: np.random.Generator, rounds: int) -> Present:
    return _gone(clients, rng, rounds, rounds // 3)


def _cyclic(clients: Clients, rng: np.random.Generator, rounds: int) -> Present:
    day = (np.arange(rounds) // PHASE % 2 == 0)[:, None]
    return np.asarray(day == (clients.animals > 0.5))


def _published(factor: Callable[[Any], Any], cut: float = 0.0) -> "Availability":
    def draw(clients: Clients, rng: np.random.Generator, rounds: int) -> Present:
        classes = clients.mixes.shape[1]
        high = np.where(np.arange(classes) < classes // 2, 1.0, 0.5)
        base = clients.mixes @ (np.random.default_rng(0).random(classes) * high)
        chance = factor(np.arange(rounds))[:, None] * base
        return np.asarray(rng.random(chance.shape) < np.where(chance < cut, 0.0, chance))

    return draw


Availability = Callable[[Clients, np.random.Generator, int], Present]
SETTINGS: dict[str, Availability] = {
    "even": _even,
    "daynight": _daynight,
    "phones": _phones,
    "markov": _markov,
    "gone-early": _gone_early,
    "gone-third": _gone_third,
    "cyclic": _cyclic,
}
PUBLISHED: dict[str, Availability] = {
    "stationary": _published(lambda t: np.ones(t.size)),
    "staircase": _published(lambda t: np.where(t // 10 % 2 == 1, 0.4, 1.0)),
    "sine": _published(lambda t: 0.7 + 0.3 * np.sin(2 * np.pi * t / 20)),
    "interleaved-sine": _published(lambda t: 0.7 + 0.3 * np.sin(2 * np.pi * t / 20), cut=0.1),
}


def cohorts(
    setting: str, clients: Clients, size: int | None
) -> Callable[[np.random.Generator, int], list[NDArray[np.int64]]]:
    """Return a function of (rng, rounds) that draws ``size`` of those available, or all of them."""
    available = (SETTINGS | PUBLISHED)[setting]

    def draw(rng: np.random.Generator, rounds: int) -> list[NDArray[np.int64]]:
        found = [np.flatnonzero(row) for row in available(clients, rng, rounds)]
        if size is None:
            return found
        return [np.sort(rng.choice(one, min(size, one.size), replace=False)) for one in found]

    return draw


def inclusion(
    setting: str, clients: Clients, size: int | None, rounds: int
) -> NDArray[np.float64] | None:
    """Return how often each client takes part, where a law exists; None if clients leave for good.

    It is the mean over `DRAWS` runs of other seeds; for a fixed trace, that of the trace.
    """
    if setting.startswith("gone"):
        return None
    draw, count = cohorts(setting, clients, size), np.zeros(len(clients.mixes))
    for seed in range(DRAWS):
        members = np.concatenate(draw(np.random.default_rng([seed, 2]), rounds))
        count += np.bincount(members, minlength=count.size)
    return np.maximum(count, 1.0) / (DRAWS * rounds)
