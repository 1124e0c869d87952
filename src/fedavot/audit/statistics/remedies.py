"""What would bring an importance within reach: asking more clients, or all of them.

Where states are unknown, cohorts are first completed: a client whose state is not known takes part
as often as it does where it is known, by a draw. To count it absent would call a federation
infeasible for want of observation.
"""

from dataclasses import replace

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence
from fedavot.audit.participation import ONE_BY_ONE, some_of
from fedavot.audit.statistics.fitting import Fitting
from fedavot.audit.statistics.shortfall import shortfall
from fedavot.audit.statistics.window import Members, Window

LEAST_MERGED = 30
"""Rounds that must be left after merging for the answer to mean anything."""
TIMES = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)
"""How many times as many clients a round are tried, in growing steps."""


def completed(window: Window, rates: Floats, *, rng: np.random.Generator) -> Window:
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
    rounds = np.repeat(np.arange(window.n_rounds), unknown.sizes)
    there = rng.random(unknown.members.size) < rates[unknown.members]
    members = np.concatenate([window.incidence.members, unknown.members[there]])
    at = np.repeat(np.arange(window.n_rounds), window.incidence.sizes)
    return _grouped(window, np.concatenate([at, rounds[there]]), members, window.n_rounds)


def everybody(fitting: Fitting, available: Incidence, *, rng: np.random.Generator) -> Window:
    """Return the rounds as they were had all who were available taken part, unknown states drawn.

    Parameters
    ----------
    fitting : Fitting
        The rounds, and how many of them tell as much as one look.
    available : Incidence
        Who could have taken part in each, as far as is known.
    rng : Generator
    """
    window = fitting.window
    there = replace(window, incidence=available)
    return completed(there, replace(fitting, window=there).rates(), rng=rng)


def larger_cohorts(
    window: Window, available: Window | None, *, rng: np.random.Generator
) -> tuple[int | None, int]:
    """Return how many times as many clients a round would do, and the most that was tried.

    Where the log tells who was available, more of them are drawn, short of all. Elsewhere rounds in
    a row are merged, as if each gathered the clients of so many.

    Parameters
    ----------
    window : Window
        The rounds; no state is unknown.
    available : Window or None
        The same rounds with `everybody`.
    rng : Generator
    """
    if (available or window).large:
        return None, 0
    tried = 0
    for times in TIMES:
        if available is None:
            more = _merged(window, times)
        else:
            more = _asked(window, available.incidence, times, rng)
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
    window: Window, available: Incidence, times: int, rng: np.random.Generator
) -> Window | None:
    """Return the rounds with so many times as many of the available, drawn.

    None if fewer times as many were all of them already.
    """
    fewer = max((count for count in TIMES if count < times), default=1)
    if np.all(fewer * window.incidence.sizes >= available.sizes):
        return None
    sizes = np.minimum(times * window.incidence.sizes, available.sizes)
    first = min(sizes.size, ONE_BY_ONE)
    rows = [rng.choice(available.row(t), size=sizes[t], replace=False) for t in range(first)]
    rows.append(some_of(available.between(first, sizes.size), sizes[first:], rng))
    rounds = np.repeat(np.arange(window.n_rounds), sizes)
    return _grouped(window, rounds, np.concatenate(rows), window.n_rounds)


def _grouped(window: Window, rounds: Integers, members: Members, n_rounds: int) -> Window:
    """Return the rounds of pairs of round and client; what is wanted is the whole importance."""
    keys = np.unique(rounds * window.n_clients + members)
    incidence = Incidence.of_keys(keys, n_rounds, window.n_clients)
    return Window(incidence, np.arange(n_rounds), window.importance, None)
