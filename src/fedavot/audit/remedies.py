"""What would bring an importance within reach: asking more clients, or all of them.

Where states are unknown, cohorts are first completed: a client whose state is not known takes part
as often as it does where it is known, by a draw. To count it absent would call a federation
infeasible for want of observation.
"""

from dataclasses import replace

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.audit.fitting import MOST_EXPLICIT
from fedavot.audit.participation import Ragged
from fedavot.audit.shortfall import shortfall
from fedavot.audit.window import Members, Window
from fedavot.laws._incidence import Incidence

LEAST_MERGED = 30
"""Rounds that must be left after merging for the answer to mean anything."""
TIMES = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)


def completed(window: Window, rates: Floats, rng: np.random.Generator) -> Window:
    """Return the window with unknown states drawn.

    Parameters
    ----------
    window : Window
    rates : float array, shape (n_clients,)
        How likely each takes part in a round.
    rng : Generator
    """
    if window.unknown is None:
        return window
    unknown = window.unknown
    rounds = np.repeat(np.arange(window.n_rounds), np.diff(unknown.offsets))
    there = rng.random(unknown.members.size) < rates[unknown.members]
    members = np.concatenate([window.incidence.members, unknown.members[there]])
    at = np.repeat(np.arange(window.n_rounds), window.incidence.sizes)
    return _grouped(window, np.concatenate([at, rounds[there]]), members, window.n_rounds)


def if_all_asked(
    window: Window, available: Ragged, rates: Floats, rng: np.random.Generator
) -> float:
    """Return the deficiency if all who were available had taken part.

    Parameters
    ----------
    window : Window
        The rounds.
    available : Ragged
        Who could have taken part in each.
    rates : float array, shape (n_clients,)
        How likely each is available.
    rng : Generator
    """
    incidence = Incidence(available.members, available.offsets, window.n_clients)
    return shortfall(completed(replace(window, incidence=incidence), rates, rng)).deficiency


def larger_cohorts(
    window: Window, available: Ragged | None, rng: np.random.Generator
) -> tuple[int | None, int]:
    """Return how many times as many clients a round would do, and the most that was tried.

    Where the log tells who was available, more of them are drawn. Elsewhere rounds in a row are
    merged, as if each gathered the clients of so many.
    """
    size = window.incidence.members.size if available is None else available.members.size
    if size > MOST_EXPLICIT:
        return None, 0
    tried = 0
    for times in TIMES:
        if available is None:
            more = _merged(window, times)
        else:
            more = _asked(window, available, times, rng)
        if more is None:
            break
        tried = times
        if shortfall(more).feasible:
            return times, tried
    return None, tried


def _merged(window: Window, times: int) -> Window | None:
    """Return the window with every so many rounds in a row made one; None if too few are left."""
    n_rounds = window.n_rounds // times
    if n_rounds < LEAST_MERGED:
        return None
    rounds = np.repeat(np.arange(window.n_rounds) // times, window.incidence.sizes)
    inside = rounds < n_rounds
    return _grouped(window, rounds[inside], window.incidence.members[inside], n_rounds)


def _asked(
    window: Window, available: Ragged, times: int, rng: np.random.Generator
) -> Window | None:
    """Return the rounds with so many times as many of the available, drawn; None if all are in."""
    there = np.diff(available.offsets)
    sizes = np.minimum(times * window.incidence.sizes, there)
    if np.array_equal(sizes, there) and times > TIMES[0]:
        return None
    rows = [
        rng.choice(available.row(t), size=size, replace=False)
        for t, size in enumerate(sizes.tolist())
    ]
    rounds = np.repeat(np.arange(window.n_rounds), sizes)
    return _grouped(window, rounds, np.concatenate(rows), window.n_rounds)


def _grouped(window: Window, rounds: Integers, members: Members, n_rounds: int) -> Window:
    """Return the rounds of pairs of round and client; what is wanted is the whole importance."""
    keys = np.unique(rounds * window.n_clients + members)
    offsets = np.searchsorted(keys, np.arange(n_rounds + 1) * window.n_clients)
    incidence = Incidence(
        (keys % window.n_clients).astype(np.int32), offsets.astype(np.int64), window.n_clients
    )
    return Window(incidence, np.arange(n_rounds), window.importance, None)
