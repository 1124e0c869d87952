"""What the rounds of a log cannot deliver of the importance, and which clients are behind it.

A log of moderate size is certified as an explicit law. A large one is searched along two orders:
that of falling p_i/a_i with a_i = −log(1 − π_i), whose prefixes hold the worst set if clients are
independent, and that of the potentials after some plain sweeps over evenly spaced rounds, which
order clients long before they settle. A set found there proves infeasibility. That none is found
proves nothing, unless sweeps over all rounds come to weights that deliver what is owed.

What would help is to ask more clients, or all of them. Where states are unknown, cohorts are first
completed: a client whose state is not known takes part as often as it does where it is known, by a
draw. To count it absent would call a federation infeasible for want of observation.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence
from fedavot.alignment import Alignment, Status
from fedavot.audit.participation import ONE_BY_ONE, some_of
from fedavot.audit.statistics.case import Fitting
from fedavot.audit.statistics.weighing import Plan, weights_of
from fedavot.audit.statistics.window import MOST_ENTRIES, Members, Window
from fedavot.certificate import FEASIBLE_SLACK
from fedavot.feasibility import certify
from fedavot.solve import align

MOST_SWEEPS, SWEPT = 50, 1e-6
"""How many sweeps a large log gets, and how near weights must come to prove feasibility."""
LEAST_MERGED = 30
"""Rounds that must be left after merging for the answer to mean anything."""
TIMES = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)
"""How many times as many clients a round are tried, in growing steps."""


@dataclass(frozen=True, eq=False)
class Shortfall:
    """What the rounds of a window cannot deliver.

    Attributes
    ----------
    feasible : bool
        Whether no set is wanted more than it is covered.
    deficiency, hall_ratio : float
        As in a certificate.
    deficient, worst : int arrays
        The sets behind either; empty if feasible.
    order : int array, shape (n_clients,)
        The clients such that its prefixes are the worst sets.
    nearest : Plan or None
        The weights nearest to the importance, which prove it where it is feasible; None for a log
        so large that they were not found.
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

    def delivered(self) -> Floats | None:
        """Return each client's mean weight under the nearest weights; None if not found."""
        if self.nearest is None:
            return None
        return self.window.mean_weights(weights_of(self.nearest, self.window))


def shortfall(window: Window, *, prove: bool = False) -> Shortfall:
    """Find what the rounds of a window cannot deliver of what they owe.

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
    """Look at the prefixes of two orders; other sets may be worse."""
    rates = window.taken / window.n_rounds
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = window.owed / -np.log1p(-rates)
    independent = np.argsort(-np.where(window.owed > 0, ratio, -1.0), kind="stable")
    step = -(-window.incidence.members.size // MOST_ENTRIES)
    some = window if step == 1 else window.part(np.arange(0, window.n_rounds, step))
    swept = _swept(some)
    ordered = np.lexsort((-swept.potentials, swept.levels))
    worst = max((_along(window, order) for order in (independent, ordered)), key=_deficiency)
    if not worst.feasible or not prove:
        return worst
    plan = swept if step == 1 else _swept(window)
    if plan.status is Status.UNCONVERGED:
        return worst
    return replace(worst, nearest=Plan(plan.potentials, plan.levels))


def _swept(window: Window) -> Alignment:
    return align(window.owed, window.law(), method="ipfp", tol=SWEPT, max_iter=MOST_SWEEPS)


def _deficiency(found: Shortfall) -> float:
    return found.deficiency


def _along(window: Window, order: Integers) -> Shortfall:
    """Return the shortfall of the prefixes of one order."""
    wanted, covered = np.cumsum(window.owed[order]), _prefix_coverage(window, order)
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
    """Return where the first member of each round stands in an order, shape (n_rounds,)."""
    place = np.empty(window.n_clients, dtype=np.int32)
    place[order] = np.arange(window.n_clients, dtype=np.int32)
    return np.asarray(window.incidence.minimum(place))


def _prefix_coverage(window: Window, order: Integers) -> Floats:
    hits = np.bincount(first_places(window, order), minlength=window.n_clients)
    return np.asarray(np.cumsum(hits) / window.n_rounds)


def touched(incidence: Incidence, clients: Integers) -> NDArray[np.bool_]:
    """Say of every round whether any of the clients took part."""
    mask = np.zeros(incidence.n_clients, dtype=bool)
    mask[clients] = True
    return np.asarray(np.logical_or.reduceat(mask[incidence.members], incidence.offsets[:-1]))


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
