"""The importance that the rounds of a log cannot deliver, and the clients that cause it.

A log of moderate size is certified as an explicit law. A large one is searched along two orders:
by decreasing p_i/a_i with a_i = −log(1 − π_i), whose prefixes contain the worst set if clients are
independent, and by the potentials after some plain sweeps over evenly spaced rounds, which order
clients long before they converge. A deficient set found there proves infeasibility. Finding none
proves nothing, unless sweeps over all rounds reach weights that deliver ``owed``.

Asking more clients, or all of them, would help. If states are unknown, cohorts are first completed:
a client whose state is not known is drawn to take part as often as it does where its state is
known. Counting it as absent would make a federation infeasible only for lack of observations.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence
from fedavot.alignment import Alignment, Status
from fedavot.audit.participation import ONE_BY_ONE, some_of
from fedavot.audit.statistics.fitting import Fitting
from fedavot.audit.statistics.rules import Plan
from fedavot.audit.statistics.window import MOST_ENTRIES, Members, Window
from fedavot.certificate import FEASIBLE_SLACK
from fedavot.feasibility import certify
from fedavot.solve import align

MOST_SWEEPS, SWEPT = 50, 1e-6
"""Largest number of sweeps for a large log, and how close weights must come to prove
feasibility."""
LEAST_MERGED = 30
"""Smallest number of rounds after merging for a meaningful answer."""
TIMES = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)
"""Factors by which cohorts are enlarged, in ascending order."""


@dataclass(frozen=True, eq=False)
class Shortfall:
    """What the rounds of a window cannot deliver.

    Attributes
    ----------
    feasible : bool
        Whether no set has more importance than coverage.
    deficiency, hall_ratio : float
        As in a certificate.
    deficient, worst : int arrays
        The sets that attain them; empty if feasible.
    order : int array, shape (n_clients,)
        The clients in an order whose prefixes are the worst sets.
    nearest : Plan or None
        The weights nearest to the importance, which prove feasibility if it holds; None for a log
        so large that they were not computed.
    window : Window
        The rounds.
    """

    feasible: bool
    deficiency: float
    hall_ratio: float
    deficient: Integers
    worst: Integers
    order: Integers
    nearest: Plan | None
    window: Window


def shortfall(window: Window, *, prove: bool = False) -> Shortfall:
    """Find the part of ``owed`` that the rounds of a window cannot deliver.

    Parameters
    ----------
    window : Window
    prove : bool
        Whether to look for weights that prove feasibility in a large window as well.
    """
    if window.large:
        return _scanned(window, prove)
    certificate = certify(window.owed, window.law())
    potentials, levels = certificate.potentials, certificate.levels
    assert potentials is not None
    assert levels is not None
    wanted = window.owed > 0
    worst = np.flatnonzero(wanted & (levels == levels[wanted].min()))
    return Shortfall(
        feasible=certificate.feasible,
        deficiency=certificate.deficiency,
        hall_ratio=certificate.hall_ratio,
        deficient=certificate.deficient,
        worst=worst[:0] if certificate.feasible else worst,
        order=np.lexsort((-potentials, levels)),
        nearest=Plan(potentials, levels),
        window=window,
    )


def _scanned(window: Window, prove: bool) -> Shortfall:
    """Search the prefixes of two orders; other sets may be worse."""
    rates = window.taken / window.n_rounds
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = window.owed / -np.log1p(-rates)
    independent = np.argsort(-np.where(window.owed > 0, ratio, -1.0), kind="stable")
    step = -(-window.incidence.members.size // MOST_ENTRIES)
    some = window if step == 1 else window.part(np.arange(0, window.n_rounds, step))
    swept = _swept(some)
    ordered = np.lexsort((-swept.potentials, swept.levels))
    found = (_along(window, order) for order in (independent, ordered))
    worst = max(found, key=lambda one: one.deficiency)
    if not worst.feasible or not prove:
        return worst
    plan = swept if step == 1 else _swept(window)
    if plan.status is Status.UNCONVERGED:
        return worst
    return replace(worst, nearest=Plan(plan.potentials, plan.levels))


def _swept(window: Window) -> Alignment:
    return align(window.owed, window.law(), method="ipfp", tol=SWEPT, max_iter=MOST_SWEEPS)


def _along(window: Window, order: Integers) -> Shortfall:
    """Return the shortfall of the prefixes of one order."""
    hits = np.bincount(first_places(window, order), minlength=window.n_clients)
    wanted, covered = np.cumsum(window.owed[order]), np.cumsum(hits) / window.n_rounds
    short = wanted - covered
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(wanted > 0, wanted / covered, 0.0)
    last, steepest = int(np.argmax(short)), int(np.argmax(ratios))
    feasible = bool(short[last] <= FEASIBLE_SLACK)
    return Shortfall(
        feasible=feasible,
        deficiency=0.0 if feasible else float(short[last]),
        hall_ratio=1.0 if feasible else float(ratios[steepest]),
        deficient=np.sort(order[: 0 if feasible else last + 1]),
        worst=np.sort(order[: 0 if feasible else steepest + 1]),
        order=order,
        nearest=None,
        window=window,
    )


def first_places(window: Window, order: Integers) -> Integers:
    """Return the place in an order of the first member of each round, shape (n_rounds,)."""
    place = np.empty(window.n_clients, dtype=np.int32)
    place[order] = np.arange(window.n_clients, dtype=np.int32)
    return np.asarray(window.incidence.minimum(place))


def touched(incidence: Incidence, clients: Integers) -> NDArray[np.bool_]:
    """Return, for every round, whether any of the clients took part."""
    mask = np.zeros(incidence.n_clients, dtype=bool)
    mask[clients] = True
    return np.asarray(np.logical_or.reduceat(mask[incidence.members], incidence.offsets[:-1]))


def completed(window: Window, rates: Floats, *, rng: np.random.Generator) -> Window:
    """Return the window with unknown states drawn.

    Parameters
    ----------
    window : Window
    rates : float array, shape (n_clients,)
        The probability that each client takes part in a round.
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
    """Return the rounds as if all available clients had taken part, with unknown states drawn.

    Parameters
    ----------
    fitting : Fitting
        The rounds, and how many of them amount to one independent observation.
    available : Incidence
        The clients that could have taken part in each, as far as is known.
    rng : Generator
    """
    window = fitting.window
    there = replace(window, incidence=available)
    return completed(there, replace(fitting, window=there).rates(), rng=rng)


def larger_cohorts(
    window: Window, available: Window | None, *, rng: np.random.Generator
) -> tuple[int | None, int]:
    """Return the factor by which cohorts would have to grow, and the largest factor tried.

    If the log says which clients were available, more of them are drawn, short of all. Otherwise
    consecutive rounds are merged, as if one round had gathered the clients of several.

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
    """Return the window with consecutive rounds merged, ``times`` at a time; None if too few."""
    n_rounds = window.n_rounds // times
    if n_rounds < LEAST_MERGED:
        return None
    rounds = np.repeat(np.arange(window.n_rounds) // times, window.incidence.sizes)
    inside = rounds < n_rounds
    return _grouped(window, rounds[inside], window.incidence.members[inside], n_rounds)


def _asked(
    window: Window, available: Incidence, times: int, rng: np.random.Generator
) -> Window | None:
    """Return the rounds with ``times`` times as many clients, drawn from the available ones.

    None if the next smaller factor already included all of them.
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
    """Return a window of pairs of round and client; its target is the whole importance."""
    keys = np.unique(rounds * window.n_clients + members)
    incidence = Incidence.of_keys(keys, n_rounds, window.n_clients)
    return Window(incidence, np.arange(n_rounds), window.importance, None)
