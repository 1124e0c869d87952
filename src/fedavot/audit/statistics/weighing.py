"""The weights that known rules give to every entry of a log.

A rule is fitted to some rounds and applied to others: its numbers come in from outside. Rules that
learn while they are applied are in `replay`.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence
from fedavot._simplex import level_weights, softmax, sparsemax
from fedavot.audit.statistics.window import Window


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
    potentials = alignment.potentials[incidence.members]
    if not alignment.levels.any():
        return share(potentials, incidence.offsets)
    levels = alignment.levels[incidence.members]
    return level_weights(potentials, levels, incidence.offsets, share=share)


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
