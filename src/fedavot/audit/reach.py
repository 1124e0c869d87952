"""Whether weights exist that give every client its importance; what is missing, and what would do.

The answer for the rounds of a log is a certificate. For the law behind them it needs an interval,
as the worst of many sets looks worse in a sample than it is. As in `estimates`, two figures bracket
the deficiency max_I p(I) − f(I), and likewise the Hall ratio max_I p(I)/f(I):

* from above, the log's own, in a bootstrap of blocks over the sets that are worst or nearly so,
  the prefixes of the certificate's order;
* from below, sets found in the blocks of one parity, whose coverage is taken from the other; its
  upper limit is the exact binomial one for as many independent rounds as the blocks amount to.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot.alignment import Status
from fedavot.audit.estimates import TAIL, Resampling
from fedavot.audit.findings import Estimate, Reach, Reached
from fedavot.audit.fitting import MOST_EXPLICIT
from fedavot.audit.participation import Ragged
from fedavot.audit.weighing import Plan
from fedavot.audit.window import Window
from fedavot.certificate import FEASIBLE_SLACK
from fedavot.feasibility import certify
from fedavot.laws._incidence import Incidence, total_by
from fedavot.solve import align

MOST_PREFIXES = 2_000
MOST_SWEEPS, SWEPT = 100, 1e-6
"""How long weights that prove feasibility are looked for in a large log, and how near they are."""
LEAST_MERGED = 30
"""Rounds that must be left after merging for the answer to mean anything."""
MERGES = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)


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
    """

    feasible: bool
    deficiency: float
    hall_ratio: float
    deficient: Integers
    worst: Integers
    order: Integers
    nearest: Plan | None


def shortfall(window: Window) -> Shortfall:
    """Find what the rounds of a window cannot deliver of what they owe."""
    if window.incidence.members.size > MOST_EXPLICIT:
        return _scanned(window)
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
    )


def _scanned(window: Window) -> Shortfall:
    """Look at the sets that would be worst if clients were independent; others may be worse."""
    rates = np.bincount(window.incidence.members, minlength=window.n_clients) / window.n_rounds
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = window.owed / -np.log1p(-rates)
    order = np.argsort(-np.where(window.owed > 0, ratio, -1.0), kind="stable")
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
        nearest=_swept(window) if feasible else None,
    )


def _swept(window: Window) -> Plan | None:
    """Return weights that deliver what is owed, if plain sweeps find them soon."""
    swept = align(window.owed, window.law(), method="ipfp", tol=SWEPT, max_iter=MOST_SWEEPS)
    if swept.status is Status.UNCONVERGED:
        return None
    return Plan(swept.potentials, swept.levels)


def _first_places(window: Window, order: Integers) -> Integers:
    """Return where the first member of each round stands in an order, shape (n_rounds,)."""
    place = np.empty(window.n_clients, dtype=np.int32)
    place[order] = np.arange(window.n_clients, dtype=np.int32)
    return np.asarray(window.incidence.minimum(place))


def _prefix_coverage(window: Window, order: Integers) -> Floats:
    hits = np.bincount(_first_places(window, order), minlength=window.n_clients)
    return np.asarray(np.cumsum(hits) / window.n_rounds)


def reach(
    window: Window,
    found: Shortfall,
    resampling: Resampling,
    *,
    look: float,
    available: Ragged | None,
) -> Reach:
    """Say whether exact alignment is possible, how sure that is, and what would make it so.

    Parameters
    ----------
    window : Window
        The rounds.
    found : Shortfall
        Of the same rounds.
    resampling : Resampling
        Of the same rounds.
    look : float
        How many rounds tell as much as one independent one.
    available : Ragged or None
        Who could have taken part in each of them.
    """
    low, lowest_ratio = _from_below(window, resampling, look)
    high, highest_ratio = _from_above(window, found, resampling)
    deficiency = _around(found.deficiency, low, high)
    unseen = np.bincount(window.incidence.members, minlength=window.n_clients) == 0
    larger, tried = (None, 0) if found.feasible else _larger(window)
    proven = found.nearest is not None
    return Reach(
        feasible=found.feasible,
        sure=proven and deficiency.high == 0.0 if found.feasible else deficiency.low > 0.0,
        deficiency=deficiency,
        hall_ratio=_around(found.hall_ratio, lowest_ratio, highest_ratio),
        deficient=_reached(window, found.deficient),
        worst=_reached(window, found.worst),
        never=np.flatnonzero(unseen & (window.owed > 0)),
        larger_cohorts=larger,
        tried_cohorts=tried,
        if_all_asked=_all_asked(window, available),
    )


def _all_asked(window: Window, available: Ragged | None) -> float | None:
    """Return the deficiency if all who were available had taken part."""
    if available is None:
        return None
    asked = everybody(window, available)
    # What is owed is of the rounds as they were observed.
    return shortfall(replace(asked, importance=window.owed)).deficiency


def _around(value: float, low: float, high: float) -> Estimate:
    return Estimate(value, min(low, value), max(high, value))


def _reached(window: Window, clients: Integers) -> Reached:
    covered = float(touched(window.incidence, clients).mean())
    return Reached(clients, float(window.owed[clients].sum()), covered)


def touched(incidence: Incidence, clients: Integers) -> NDArray[np.bool_]:
    """Say of every round whether any of the clients took part."""
    mask = np.zeros(incidence.n_clients, dtype=bool)
    mask[clients] = True
    return np.asarray(np.logical_or.reduceat(mask[incidence.members], incidence.offsets[:-1]))


def _from_below(window: Window, resampling: Resampling, look: float) -> tuple[float, float]:
    """Return lower limits of deficiency and Hall ratio."""
    if not resampling.tells:
        return 0.0, 1.0
    odd = resampling.block % 2 == 1
    halves = [(shortfall(window.part(np.flatnonzero(mask))), ~mask) for mask in (odd, ~odd)]
    short = [(found.deficient, rest) for found, rest in halves]
    worst = [(found.worst, rest) for found, rest in halves]
    wanted, most = _crossed(window, short, resampling, look)
    ratio_wanted, ratio_most = _crossed(window, worst, resampling, look)
    return max(0.0, wanted - most), max(1.0, ratio_wanted / ratio_most) if ratio_most > 0 else 1.0


def _crossed(
    window: Window,
    sets: list[tuple[Integers, NDArray[np.bool_]]],
    resampling: Resampling,
    look: float,
) -> tuple[float, float]:
    """Return the mean importance of sets, and the most their coverage may be in other rounds."""
    wanted, hit = np.zeros(window.n_rounds), np.zeros(window.n_rounds)
    for clients, rest in sets:
        values = np.zeros(window.n_clients)
        values[clients] = 1.0
        wanted[rest] = window.owed_by_round(values)[rest]
        hit[rest] = touched(window.incidence, clients)[rest]
    return float(wanted.mean()), _upper_limit(hit, resampling, look)


def _upper_limit(hit: Floats, resampling: Resampling, look: float) -> float:
    """Return the upper confidence limit of a share, for rounds that depend on one another."""
    from scipy.special import betaincinv

    share = float(hit.mean())
    spread = float(np.var(resampling.deviations(hit)))
    binomial = share * (1 - share) / hit.size
    alike = max(1.0, look, spread / binomial if binomial > 0 else 1.0)
    rounds = hit.size / alike
    hits = share * rounds
    if rounds - hits <= 0:
        return 1.0
    return float(betaincinv(hits + 1, rounds - hits, 1 - TAIL))


def _from_above(window: Window, found: Shortfall, resampling: Resampling) -> tuple[float, float]:
    """Return upper limits of deficiency and Hall ratio."""
    if not resampling.tells:
        return 1.0, np.inf
    first = _first_places(window, found.order)
    wanted = np.cumsum(window.owed[found.order])
    ends = _ends(wanted, len(found.deficient))
    if not ends.size:
        # One client holds all importance: what its absence costs is the log's own figure.
        return found.deficiency, found.hall_ratio
    # covered[b, k]: the rounds of block b that have anybody of prefix k.
    place = np.searchsorted(ends, first)
    inside = place < ends.size
    keys = resampling.block[inside] * ends.size + place[inside]
    counts = total_by(keys, np.ones(keys.size), resampling.n_blocks * ends.size)
    covered = np.cumsum(counts.reshape(resampling.n_blocks, ends.size), axis=1)
    rounds = (resampling.draws @ resampling.sizes)[:, None]
    coverage = (resampling.draws @ covered) / rounds
    with np.errstate(divide="ignore"):
        ratios = np.max(wanted[ends] / coverage, axis=1)
    short = np.max(wanted[ends] - coverage, axis=1)
    return (
        max(0.0, float(np.quantile(short, 1 - TAIL))),
        max(1.0, float(np.quantile(ratios, 1 - TAIL, method="higher"))),
    )


def _ends(wanted: Floats, deficient: int) -> Integers:
    """Return the last places of prefixes: the deficient set's, the first ones, and evenly on."""
    n_clients = wanted.size
    first = np.arange(min(n_clients, MOST_PREFIXES // 2))
    even = np.linspace(0, n_clients - 1, min(n_clients, MOST_PREFIXES // 2)).astype(np.int64)
    ends = np.unique([max(deficient - 1, 0), *first, *even])
    # All clients together are covered by every round: they say nothing, whatever rounding does.
    return np.asarray(ends[(wanted[ends] > 0) & (wanted[ends] < 1 - 1e-9)])


def _larger(window: Window) -> tuple[int | None, int]:
    """Return how many rounds in a row, merged, make the importance attainable; most tried."""
    unseen = np.bincount(window.incidence.members, minlength=window.n_clients) == 0
    if np.any(window.owed[unseen] > 0) or window.incidence.members.size > MOST_EXPLICIT:
        return None, 0
    tried = 0
    for count in MERGES:
        if window.n_rounds < LEAST_MERGED * count:
            break
        tried = count
        merged = _merged(window, count)
        if certify(window.owed, merged.law()).feasible:
            return count, tried
    return None, tried


def _merged(window: Window, count: int) -> Window:
    """Return the window with every so many rounds in a row made one."""
    n_rounds = window.n_rounds // count
    rounds = np.repeat(np.arange(window.n_rounds) // count, window.incidence.sizes)
    inside = rounds < n_rounds
    keys = np.unique(rounds[inside] * window.n_clients + window.incidence.members[inside])
    offsets = np.searchsorted(keys, np.arange(n_rounds + 1) * window.n_clients)
    members = (keys % window.n_clients).astype(np.int32)
    incidence = Incidence(members, offsets, window.n_clients)
    return Window(incidence, np.arange(n_rounds), window.importance, None)


def everybody(window: Window, available: Ragged) -> Window:
    """Return the rounds as they were had all who were available taken part."""
    sizes = np.diff(available.offsets)
    filled = np.flatnonzero(sizes)
    offsets = np.concatenate(([0], np.cumsum(sizes[filled])))
    incidence = Incidence(available.members, offsets, window.n_clients)
    return Window(incidence, window.rounds[filled], window.importance, None)
