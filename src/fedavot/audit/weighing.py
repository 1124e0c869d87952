"""The weights that known rules give to every entry of a log.

A rule is fitted to some rounds and applied to others: its numbers come in from outside. Online
rules learn while they are applied, round by round.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot._simplex import softmax, sparsemax
from fedavot.audit.participation import Ragged
from fedavot.audit.window import Window
from fedavot.laws._incidence import Incidence
from fedavot.online import OnlineAligner
from fedavot.rules.online import STEP
from fedavot.selection import select

MOST_REPLAYED = 60_000
"""Rounds that online weights are replayed over, the last ones: more than a year of one every ten
minutes. They depend on each other, and are replayed one by one."""


class Weights(Protocol):
    """One number and one level a client, and how they become weights."""

    @property
    def potentials(self) -> Floats:
        """Within a level only differences matter."""
        ...

    @property
    def levels(self) -> Integers:
        """The lowest present takes all."""
        ...

    @property
    def objective(self) -> str:
        """As in `align`."""
        ...


@dataclass(frozen=True, eq=False)
class Plan:
    """Weights by potentials and levels alone."""

    potentials: Floats
    levels: Integers
    objective: str = "entropy"


def weights_of(alignment: Weights, window: Window) -> Floats:
    """Return an alignment's weight of every entry."""
    incidence = window.incidence
    weights = np.empty(incidence.members.size)
    for rounds, entries in window.chunks():
        offsets = incidence.offsets[rounds.start : rounds.stop + 1] - entries.start
        part = Incidence(incidence.members[entries], offsets, incidence.n_clients)
        weights[entries] = _shares(alignment, part)
    return weights


def _shares(alignment: Weights, incidence: Incidence) -> Floats:
    share = softmax if alignment.objective == "entropy" else sparsemax
    if not alignment.levels.any():
        return share(alignment.potentials[incidence.members], incidence.offsets)
    lowest = incidence.spread_over_members(incidence.minimum(alignment.levels))
    kept = alignment.levels[incidence.members] == lowest
    weights = np.zeros(incidence.members.size)
    within = incidence.within(alignment.levels)
    weights[kept] = share(alignment.potentials[within.members], within.offsets)
    return weights


def inverse(window: Window, seen: Floats) -> Floats:
    """Return p_i/π_i of every entry: inverse-probability weights."""
    return np.asarray((window.importance / seen)[window.incidence.members])


def normalised(window: Window, weights: Floats) -> Floats:
    """Scale every round's weights to sum to one; a round of zeros is shared equally."""
    incidence = window.incidence
    scaled = np.empty_like(weights)
    for rounds, entries in window.chunks():
        sizes, part = incidence.sizes[rounds], weights[entries]
        sums = np.add.reduceat(part, incidence.offsets[rounds] - entries.start)
        some = np.repeat(sums > 0, sizes)
        spread = np.repeat(np.where(sums > 0, sums, sizes), sizes)
        scaled[entries] = np.where(some, part, 1.0) / spread
    return scaled


def learned(window: Window) -> Floats:
    """Return the weights that learning on the way would have given, entry by entry.

    The rounds before the last `MOST_REPLAYED` are not replayed: their weights are equal.
    """
    aligner = _fresh(window.importance)
    weights = window.plain()
    offsets = window.incidence.offsets
    for t in range(max(0, window.n_rounds - MOST_REPLAYED), window.n_rounds):
        entries = slice(offsets[t], offsets[t + 1])
        weights[entries] = aligner.observe(window.incidence.members[entries])
    return weights


def chosen(window: Window, available: Ragged, rng: np.random.Generator) -> tuple[Window, Floats]:
    """Return the rounds as they were had the server chosen whom to ask, and their weights.

    In every round as many are chosen as took part, by weights learned on the way.

    Parameters
    ----------
    window : Window
        The rounds as they were.
    available : Ragged
        Who could have taken part in them; nobody is missing who did.
    rng : Generator
        Of the choices.
    """
    aligner = _fresh(window.importance)
    members, weights = [], []
    for t, size in enumerate(window.incidence.sizes.tolist()):
        there = available.row(t)
        places, given = select(aligner.weights(there), size, rng)
        asked = there[places]
        aligner.observe(asked, given)
        order = np.argsort(asked)
        members.append(asked[order])
        weights.append(given[order])
    sizes = [row.size for row in members]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    incidence = Incidence(np.concatenate(members), offsets, window.n_clients)
    taken = Window(incidence, window.rounds, window.importance, window.unknown)
    return taken, np.concatenate(weights)


def _fresh(importance: Floats) -> OnlineAligner:
    """Return an aligner whose first weights are the importance's shares in the cohort."""
    start = np.log(np.where(importance > 0, importance, 1.0))
    return OnlineAligner(importance, step=STEP, potentials=start)
