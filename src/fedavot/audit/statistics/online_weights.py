"""The weights that online rules would have given: the log replayed round by round.

Each round's weights depend on the rounds before it. In a run of equal cohorts, however, the
effective potentials come to rest: those who are absent are set aside one after the other, until the
members share all importance in proportion, and from there on every round is like the last. Such
rounds are filled in, not replayed, so that the time depends on how often the cohort changes and not
on the number of rounds.
"""

import itertools

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence
from fedavot.audit.statistics.window import Window
from fedavot.online import STEP, OnlineAligner
from fedavot.selection import select
from fedavot.soft_online import SoftOnlineAligner

SOFTNESS = 0.1
"""Of weights that are learned softly."""
MOST_REPLAYED = 60_000
"""Rounds that are replayed, the last ones: more than a year of one every ten minutes, if the cohort
changes in each."""
MOST_OF_RUN = 1_000
"""Rounds that a run of equal cohorts counts for at most: by then it is at rest as a rule."""
FIRST_LOOK = 8
"""Rounds of a run after which to look whether it is at rest; again after twice as many, and so on:
to look takes time in proportion to the clients."""
REST = 1e-10
"""How far, in log-odds, a round at rest may move any effective potential."""


def first_replayed(window: Window) -> int:
    """Return the round from which on online weights are replayed; 0 if all rounds are."""
    return int(_replayed_runs(window)[0])


def learned(window: Window) -> Floats:
    """Return the weights that learning on the way would have given, entry by entry.

    Weights of rounds that are not replayed are equal.
    """
    aligner = _fresh(window.importance)
    weights = window.plain()
    for first, last in itertools.pairwise(_replayed_runs(window).tolist()):
        _replay(aligner, window.incidence, slice(first, last), weights)
    return weights


def softly_learned(window: Window) -> Floats:
    """Return the weights that soft learning on the way would have given, entry by entry."""
    aligner = SoftOnlineAligner(
        window.importance, softness=SOFTNESS, step=STEP, potentials=_start(window.importance)
    )
    return np.concatenate(
        [aligner.observe(window.incidence.row(t)) for t in range(window.n_rounds)]
    )


def _replayed_runs(window: Window) -> Integers:
    """Return where the last runs start, as many as are replayed, and the number of rounds."""
    starts = _runs(window)
    counted = np.minimum(np.diff(starts), MOST_OF_RUN)
    from_here_on = np.cumsum(counted[::-1])[::-1]
    skipped = np.count_nonzero(from_here_on > MOST_REPLAYED)
    return starts[skipped:]


def _replay(aligner: OnlineAligner, incidence: Incidence, rounds: slice, weights: Floats) -> None:
    """Write the weights of a run of equal cohorts, observing no more than it needs."""
    offsets = incidence.offsets
    cohort = incidence.members[offsets[rounds.start] : offsets[rounds.start + 1]]
    # The aligner settles all clients once in so many rounds; whole turns keep it in step.
    turn = -(-incidence.n_clients // cohort.size)
    important, look = aligner.importance > 0, rounds.start + FIRST_LOOK
    t = rounds.start
    while t < rounds.stop:
        before = aligner.effective_potentials if t == look else None
        given = aligner.observe(cohort)
        weights[offsets[t] : offsets[t + 1]] = given
        t += 1
        if before is None:
            continue
        look += t - rounds.start
        moved = np.abs(aligner.effective_potentials - before)[important]
        if moved.max() <= REST:
            skipped = (rounds.stop - t) // turn * turn
            weights[offsets[t] : offsets[t + skipped]] = np.tile(given, skipped)
            t += skipped


def _runs(window: Window) -> Integers:
    """Return where runs of equal cohorts start, and the number of rounds after the last."""
    incidence = window.incidence
    members, offsets, sizes = incidence.members, incidence.offsets, incidence.sizes
    begins = np.ones(window.n_rounds + 1, dtype=bool)
    begins[1:-1] = sizes[1:] != sizes[:-1]
    for rounds, entries in window.chunks():
        # In a cohort as large as the one before it, a member's place is that of the other's plus
        # the size; the others begin a run whatever this compares.
        places = np.arange(entries.start, entries.stop)
        earlier = np.maximum(places - np.repeat(sizes[rounds], sizes[rounds]), 0)
        other = members[entries] != members[earlier]
        begins[rounds] |= np.logical_or.reduceat(other, offsets[rounds] - entries.start)
    return np.flatnonzero(begins)


def chosen(window: Window, available: Incidence, rng: np.random.Generator) -> tuple[Window, Floats]:
    """Return the rounds as they were had the server chosen whom to ask, and their weights.

    In every round as many are chosen as took part, by weights learned on the way.

    Parameters
    ----------
    window : Window
        The rounds as they were.
    available : Incidence
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
    return OnlineAligner(importance, step=STEP, potentials=_start(importance))


def _start(importance: Floats) -> Floats:
    return np.log(np.where(importance > 0, importance, 1.0))
