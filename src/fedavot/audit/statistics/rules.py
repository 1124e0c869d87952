"""The rules that an audit compares, by their names in `fedavot.rules`, and the weights they give.

Three are the audit's own: ``as-applied``, the weights that the log says were used; ``by-examples``,
FedAvg with weights in proportion to the number of examples that each participant trained on,
according to the log; and ``fedavot-online-soft``, the weights of the steady rule without memory.

A rule is fitted to some rounds and applied to others, so its fitted numbers are passed in. Rules
that learn while they are applied are replayed round by round.
"""

from dataclasses import dataclass

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence
from fedavot._simplex import level_weights, softmax
from fedavot.alignment import Alignment
from fedavot.audit.statistics.window import Window
from fedavot.online import OnlineAligner
from fedavot.rules.names import RuleName, label_of
from fedavot.rules.ours import learner
from fedavot.selection import select

FEDAVG, HORVITZ_THOMPSON = RuleName.FEDAVG.value, RuleName.HORVITZ_THOMPSON.value
SELF_NORMALISED_IPW = RuleName.SELF_NORMALISED_IPW.value
FEDAVOT, SOFT = RuleName.FEDAVOT.value, RuleName.SOFT.value
ONLINE, SELECT, STEADY = RuleName.ONLINE.value, RuleName.SELECT.value, RuleName.STEADY.value
FEDAVGM, FULL = RuleName.FEDAVGM.value, RuleName.FULL.value
IMPORTANCE_AVERAGE = RuleName.IMPORTANCE_AVERAGE.value
AS_APPLIED, BY_EXAMPLES, SOFT_ONLINE = "as-applied", "by-examples", "fedavot-online-soft"
_LABELS = {
    AS_APPLIED: "as applied",
    BY_EXAMPLES: "average by examples",
    SOFT_ONLINE: "FedAVOT, online and soft",
}
MOST_REPLAYED = 60_000
"""Largest number of rounds replayed, the last of the log: more than a year at one every ten
minutes."""


def label(rule: str) -> str:
    """Return a rule's label, or its name if this version does not know the rule.

    >>> label("fedavg"), label("of-another-version")
    ('plain average', 'of-another-version')
    """
    return _LABELS.get(rule) or label_of(rule)


@dataclass(frozen=True, eq=False)
class Plan:
    """Weights by potentials and levels alone."""

    potentials: Floats
    levels: Integers


def weights_of(alignment: Alignment | Plan, window: Window) -> Floats:
    """Return the weight that an alignment gives to every entry."""
    incidence = window.incidence
    weights = np.empty(incidence.members.size)
    for rounds, entries in window.chunks():
        offsets = incidence.offsets[rounds.start : rounds.stop + 1] - entries.start
        part = Incidence(incidence.members[entries], offsets, incidence.n_clients)
        weights[entries] = _shares(alignment, part)
    return weights


def _shares(alignment: Alignment | Plan, incidence: Incidence) -> Floats:
    potentials = alignment.potentials[incidence.members]
    if not alignment.levels.any():
        return softmax(potentials, incidence.offsets)
    levels = alignment.levels[incidence.members]
    return level_weights(potentials, levels, incidence.offsets, share=softmax)


def inverse(window: Window, seen: Floats) -> Floats:
    """Return p_i/π_i for every entry: inverse-probability weights."""
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


def first_replayed(window: Window) -> int:
    """Return the round from which online weights are replayed; 0 if all rounds are."""
    return max(0, window.n_rounds - MOST_REPLAYED)


def learned(window: Window) -> Floats:
    """Return the weights that an online aligner would have given, entry by entry.

    Weights of rounds that are not replayed are equal.
    """
    aligner = _fresh(window.importance)
    weights, incidence = window.plain(), window.incidence
    for t in range(first_replayed(window), window.n_rounds):
        entries = slice(incidence.offsets[t], incidence.offsets[t + 1])
        weights[entries] = aligner.observe(incidence.members[entries])
    return weights


def softly_learned(window: Window) -> Floats:
    """Return the weights that a soft online aligner would have given, entry by entry.

    The steady rule learns its weights in this way, with memory or without.
    """
    aligner = learner(window.importance)
    return np.concatenate(
        [aligner.observe(window.incidence.row(t)) for t in range(window.n_rounds)]
    )


def chosen(window: Window, available: Incidence, rng: np.random.Generator) -> tuple[Window, Floats]:
    """Return the rounds as if the server had chosen which clients to ask, and their weights.

    In every round as many clients are chosen as took part, by weights learned online.

    Parameters
    ----------
    window : Window
        The rounds as they were.
    available : Incidence
        The clients that could have taken part in them, including all that did.
    rng : Generator
        Generator for the choices.
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
    return OnlineAligner(importance, softness=0)
