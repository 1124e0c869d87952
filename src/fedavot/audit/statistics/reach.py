"""Whether weights exist that give every client its importance, and how sure that is.

For the rounds of a log, the answer is their `shortfall`. For the law behind them, an interval is
needed, since the worst of many sets looks worse in a sample than it is. As in `estimates`, two
figures bracket the deficiency max_I p(I) − f(I), and likewise the Hall ratio max_I p(I)/f(I):

* from above, the log's own figure, in a bootstrap of blocks over the worst and nearly worst sets,
  which are the prefixes of the shortfall's order;
* from below, sets found in the blocks of one parity, whose coverage is measured in the other; its
  upper limit is the exact binomial one for the number of independent rounds that the blocks are
  worth.
"""

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence, total_by
from fedavot.alignment import Alignment
from fedavot.audit.findings import Reach, Reached, Shares
from fedavot.audit.recommending import Estimate
from fedavot.audit.statistics.case import Case
from fedavot.audit.statistics.estimates import TAIL, Resampling
from fedavot.audit.statistics.fitting import Fitting
from fedavot.audit.statistics.rules import weights_of
from fedavot.audit.statistics.shortfall import (
    Shortfall,
    completed,
    everybody,
    first_places,
    larger_cohorts,
    shortfall,
    touched,
)
from fedavot.audit.statistics.window import Window

MOST_PREFIXES = 2_000
"""Number of sets in the bootstrap, half of them the first of the order: a matrix of 1,000 samples
by this many sets fits in memory."""
SLACK = 1e-9
"""Rounding error of a set whose coverage is exactly its importance."""


def reach(
    fitting: Fitting,
    resampling: Resampling,
    *,
    available: Incidence | None,
    rng: np.random.Generator,
) -> tuple[Reach, Shortfall]:
    """Find out whether exact alignment is possible, how certain that is, and what would help.

    Parameters
    ----------
    fitting : Fitting
        The rounds, and how often clients take part in them.
    resampling : Resampling
        Resampling of the same rounds.
    available : Incidence or None
        The clients that could have taken part in each of them.
    rng : Generator
        Generator for unknown states and larger cohorts.

    Returns
    -------
    Reach
    Shortfall
        The shortfall of the rounds, with unknown states drawn.
    """
    seen = fitting.window
    window = completed(seen, fitting.rates(), rng=rng)
    found = shortfall(window, prove=True)
    # A share of which the fraction u is drawn has the variance that 1 / (1/(1 − u) + u) times as
    # many rounds would give.
    drawn = 1.0 / seen.known + 1.0 - seen.known if seen.known > 0 else np.inf
    low, lowest_ratio = _from_below(window, resampling, fitting.rounds_per_observation * drawn)
    high, highest_ratio = _from_above(window, found, resampling, float(np.sqrt(drawn)))
    if seen.unknown is not None:
        # States drawn independently coincide less often than real ones; as observed, clients take
        # part too rarely. The larger figure is used.
        most, steepest = _from_above(seen, shortfall(seen), resampling, 1.0)
        high, highest_ratio = max(high, most), max(highest_ratio, steepest)
    deficiency = _around(found.deficiency, low, high)
    unseen = seen.taken == 0
    never = np.flatnonzero(unseen & (seen.owed > 0))
    everyone = None if available is None else everybody(fitting, available, rng=rng)
    larger, tried = None, 0
    if not found.feasible and not never.size:
        larger, tried = larger_cohorts(window, everyone, rng=rng)
    proven = found.nearest is not None
    return Reach(
        feasible=found.feasible,
        proven=proven or not found.feasible,
        sure=proven and deficiency.high == 0.0 if found.feasible else deficiency.low > 0.0,
        deficiency=deficiency,
        hall_ratio=_around(found.hall_ratio, lowest_ratio, highest_ratio),
        deficient=_reached(window, found.deficient),
        worst=_reached(window, found.worst),
        never_seen=never,
        larger_cohorts=larger,
        tried_cohorts=tried,
        if_all_asked=None if everyone is None else shortfall(everyone).deficiency,
    ), found


def _around(value: float, low: float, high: float) -> Estimate:
    return Estimate(value, min(low, value), max(high, value))


def _reached(window: Window, clients: Integers) -> Reached:
    covered = float(touched(window.incidence, clients).mean())
    return Reached(clients, float(window.owed[clients].sum()), covered)


def _from_below(
    window: Window, resampling: Resampling, per_observation: float
) -> tuple[float, float]:
    """Return lower limits of deficiency and Hall ratio."""
    if not resampling.tells or not np.isfinite(per_observation):
        return 0.0, 1.0
    odd = resampling.block % 2 == 1
    halves = [(shortfall(window.part(np.flatnonzero(mask))), ~mask) for mask in (odd, ~odd)]
    short = [(found.deficient, rest) for found, rest in halves]
    worst = [(found.worst, rest) for found, rest in halves]
    wanted, most = _crossed(window, short, resampling, per_observation)
    ratio_wanted, ratio_most = _crossed(window, worst, resampling, per_observation)
    return max(0.0, wanted - most), max(1.0, ratio_wanted / ratio_most) if ratio_most > 0 else 1.0


def _crossed(
    window: Window,
    sets: list[tuple[Integers, NDArray[np.bool_]]],
    resampling: Resampling,
    per_observation: float,
) -> tuple[float, float]:
    """Return the sets' mean importance, and the upper limit of their coverage in other rounds."""
    wanted, hit = np.zeros(window.n_rounds), np.zeros(window.n_rounds)
    for clients, rest in sets:
        values = np.zeros(window.n_clients)
        values[clients] = 1.0
        wanted[rest] = window.owed_by_round(values)[rest]
        hit[rest] = touched(window.incidence, clients)[rest]
    return float(wanted.mean()), _upper_limit(hit, resampling, per_observation)


def _upper_limit(hit: Floats, resampling: Resampling, per_observation: float) -> float:
    """Return the upper confidence limit of a share, for rounds that are not independent."""
    from scipy.special import betaincinv

    share = float(hit.mean())
    spread = float(np.var(resampling.deviations(hit)))
    binomial = share * (1 - share) / hit.size
    alike = max(1.0, per_observation, spread / binomial if binomial > 0 else 1.0)
    rounds = hit.size / alike
    hits = share * rounds
    if rounds - hits <= 0:
        return 1.0
    return float(betaincinv(hits + 1, rounds - hits, 1 - TAIL))


def _from_above(
    window: Window, found: Shortfall, resampling: Resampling, wider: float
) -> tuple[float, float]:
    """Return upper limits of deficiency and Hall ratio."""
    if not resampling.tells or not np.isfinite(wider):
        return 1.0, np.inf
    first = first_places(window, found.order)
    wanted = np.cumsum(window.owed[found.order])
    ends = _ends(wanted, found.deficient.size)
    if not ends.size:
        return found.deficiency, found.hall_ratio
    # covered[b, k]: the rounds of block b that have any client of prefix k.
    place = np.searchsorted(ends, first)
    inside = place < ends.size
    keys = resampling.block[inside] * ends.size + place[inside]
    counts = total_by(keys, np.ones(keys.size), resampling.n_blocks * ends.size)
    covered = np.cumsum(counts.reshape(resampling.n_blocks, ends.size), axis=1)
    rounds = (resampling.draws @ resampling.sizes)[:, None]
    coverage = (resampling.draws @ covered) / rounds
    middle = coverage.mean(axis=0)
    coverage = np.clip(middle + (coverage - middle) * resampling.widening * wider, 0.0, 1.0)
    with np.errstate(divide="ignore"):
        ratios = np.max(wanted[ends] / coverage, axis=1)
    short = float(np.quantile(np.max(wanted[ends] - coverage, axis=1), 1 - TAIL))
    ratio = float(np.quantile(ratios, 1 - TAIL, method="higher"))
    return short if short > SLACK else 0.0, ratio if ratio > 1 + SLACK else 1.0


def _ends(wanted: Floats, deficient: int) -> Integers:
    """Return where prefixes end: the deficient set, the first places, and evenly spaced ones."""
    n_clients = wanted.size
    first = np.arange(min(n_clients, MOST_PREFIXES // 2))
    even = np.linspace(0, n_clients - 1, min(n_clients, MOST_PREFIXES // 2)).astype(np.int64)
    ends = np.unique([max(deficient - 1, 0), *first, *even])
    # Every round covers the set of all clients, so that set is not informative.
    return np.asarray(ends[(wanted[ends] > 0) & (ends < n_clients - 1)])


def shares_of(case: Case, found: Shortfall, alignment: Alignment) -> Shares:
    """Return every client's shares over the log.

    Parameters
    ----------
    case : Case
        The log.
    found : Shortfall
        Its shortfall, whose weights are those nearest to the importance, if it has any.
    alignment : Alignment
        The weights that count as the nearest otherwise.
    """
    window, totals = case.window, case.totals
    rounds = window if found.nearest is None else found.window
    delivered = rounds.mean_weights(weights_of(found.nearest or alignment, rounds))
    importance, owed = window.importance, window.owed
    # If a client is not always observed, ``owed`` is smaller, and so is the share it can attain.
    observed = np.where(importance > 0, owed / np.where(importance > 0, importance, 1.0), 1.0)
    attained = delivered * observed
    unknown = 0 if window.unknown is None else window.unknown.counts()
    known = np.full(window.n_clients, float(totals.n_filled)) - unknown
    inclusion = np.full(window.n_clients, np.nan)
    np.divide(totals.taken, known, out=inclusion, where=known > 0)
    return Shares(
        importance=importance,
        owed=owed,
        implied=totals.implied,
        attained=attained / attained.sum(),
        inclusion=inclusion,
    )


def grouped(case: Case, shares: Shares) -> Shares | None:
    """Return every group's shares, from those of its clients; None without groups."""
    group_of, groups = case.federation.group_of, case.federation.groups
    if group_of is None:
        return None

    def summed(values: Floats) -> Floats:
        return total_by(group_of, values, len(groups))

    reached = [
        float(touched(case.window.incidence, np.flatnonzero(group_of == group)).mean())
        for group in range(len(groups))
    ]
    return Shares(
        importance=summed(shares.importance),
        owed=summed(shares.owed),
        implied=summed(shares.implied),
        attained=summed(shares.attained),
        inclusion=np.array(reached),
    )
