"""Whether weights exist that give every client its importance; what is missing, and what would do.

The answer for the rounds of a log is a certificate. For the law behind them it needs an interval,
as the worst of many sets looks worse in a sample than it is. As in `estimates`, two figures bracket
the deficiency max_I p(I) − f(I), and likewise the Hall ratio max_I p(I)/f(I):

* from above, the log's own, in a bootstrap of blocks over the sets that are worst or nearly so,
  the prefixes of the certificate's order;
* from below, sets found in the blocks of one parity, whose coverage is taken from the other; its
  upper limit is the exact binomial one for as many independent rounds as the blocks amount to.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot.audit.estimates import TAIL, Resampling
from fedavot.audit.findings import Estimate, Reach, Reached
from fedavot.audit.participation import Ragged
from fedavot.audit.window import Window
from fedavot.certificate import Certificate
from fedavot.feasibility import certify
from fedavot.laws._incidence import Incidence, total_by

MOST_PREFIXES = 2_000
LEAST_MERGED = 30
"""Rounds that must be left after merging for the answer to mean anything."""
MERGES = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)


@dataclass(frozen=True, eq=False)
class Deliverable:
    """Which of the window's importance can be delivered, with evidence.

    Attributes
    ----------
    certificate : Certificate
        Of the rounds as an explicit law.
    potentials, levels : arrays, shape (n_clients,)
        Of the weights nearest to the importance.
    """

    certificate: Certificate
    potentials: Floats
    levels: Integers
    objective = "entropy"


def deliverable(window: Window) -> Deliverable:
    """Certify what the rounds of a window owe."""
    certificate = certify(window.owed, window.law())
    potentials, levels = certificate.potentials, certificate.levels
    assert potentials is not None
    assert levels is not None
    return Deliverable(certificate, potentials, levels)


def reach(
    window: Window,
    found: Deliverable,
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
    found : Deliverable
        Of the same rounds.
    resampling : Resampling
        Of the same rounds.
    look : float
        How many rounds tell as much as one independent one.
    available : Ragged or None
        Who could have taken part in each of them.
    """
    certificate = found.certificate
    low, lowest_ratio = _from_below(window, resampling, look)
    high, highest_ratio = _from_above(window, found, resampling)
    deficiency = _around(certificate.deficiency, low, high)
    nobody = Reached(np.empty(0, dtype=np.int64), 0.0, 0.0)
    deficient = worst = nobody
    if not certificate.feasible:
        deficient = _reached(window, certificate.deficient)
        worst = _reached(window, _worst(window, found))
    unseen = np.bincount(window.incidence.members, minlength=window.n_clients) == 0
    larger, tried = (None, 0) if certificate.feasible else _larger(window, look)
    return Reach(
        feasible=certificate.feasible,
        sure=deficiency.high == 0.0 if certificate.feasible else deficiency.low > 0.0,
        deficiency=deficiency,
        hall_ratio=_around(certificate.hall_ratio, lowest_ratio, highest_ratio),
        deficient=deficient,
        worst=worst,
        never=np.flatnonzero(unseen & (window.owed > 0)),
        larger_cohorts=larger,
        tried_cohorts=tried,
        if_all_asked=_all_asked(window, available),
    )


def _all_asked(window: Window, available: Ragged | None) -> float | None:
    """Return the deficiency if all who were available had taken part."""
    if available is None:
        return None
    return float(certify(window.owed, everybody(window, available).law()).deficiency)


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


def _worst(window: Window, found: Deliverable) -> Integers:
    """Return the first level, whose importance is the most times its coverage."""
    wanted = window.owed > 0
    return np.flatnonzero(wanted & (found.levels == found.levels[wanted].min()))


def _from_below(window: Window, resampling: Resampling, look: float) -> tuple[float, float]:
    """Return lower limits of deficiency and Hall ratio."""
    if not resampling.tells:
        return 0.0, 1.0
    odd = resampling.block % 2 == 1
    halves = [(window.part(np.flatnonzero(mask)), ~mask) for mask in (odd, ~odd)]
    found = [(deliverable(half), half, rest) for half, rest in halves]
    short = [(item.certificate.deficient, rest) for item, _, rest in found]
    worst = [
        (_worst(half, item) if not item.certificate.feasible else np.empty(0, np.int64), rest)
        for item, half, rest in found
    ]
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


def _from_above(window: Window, found: Deliverable, resampling: Resampling) -> tuple[float, float]:
    """Return upper limits of deficiency and Hall ratio."""
    if not resampling.tells:
        return 1.0, np.inf
    order = np.lexsort((-found.potentials, found.levels))
    rank = np.empty(window.n_clients, dtype=np.int32)
    rank[order] = np.arange(window.n_clients, dtype=np.int32)
    first = window.incidence.minimum(rank)
    wanted = np.cumsum(window.owed[order])
    ends = _ends(found.levels[order], wanted)
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


def _ends(levels: Integers, wanted: Floats) -> Integers:
    """Return the last places of prefixes: where a level ends, and evenly in between."""
    steps = np.flatnonzero(np.diff(levels, append=levels[-1] + 1))[:MOST_PREFIXES]
    even = np.linspace(0, levels.size - 1, min(levels.size, MOST_PREFIXES)).astype(np.int64)
    ends = np.union1d(steps, even)
    # All clients together are covered by every round: they say nothing, whatever rounding does.
    return ends[(wanted[ends] > 0) & (wanted[ends] < 1 - 1e-9)]


def _larger(window: Window, look: float) -> tuple[int | None, int]:
    """Return how many rounds in a row, merged, make the importance attainable; most tried."""
    unseen = np.bincount(window.incidence.members, minlength=window.n_clients) == 0
    if np.any(window.owed[unseen] > 0):
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
