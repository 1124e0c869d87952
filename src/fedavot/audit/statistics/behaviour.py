"""How availability behaves: by hour, from round to round, and between clients.

A client is present in a round if it could be asked, provided the log records that; otherwise, if it
took part. With x_it ∈ {0, 1} for the presence of client i in
round t, K_t for the clients whose state is known then, and π_i for the share of its known rounds in
which i is present,

    dispersion = Σ_t (Σ_{i∈K_t} (x_it − π_i))²  /  Σ_t Σ_{i∈K_t} π_i (1 − π_i)

which is 1 on average if clients are present independently of each other.

One client's presence may say next to nothing about its own presence in the next round while the
presence of its group, or the mix of clients as a whole, says a great deal: if clinics are drawn at
random in office hours, the presence of one clinic does not persist, but office hours do.

For a group, the measure is how often it takes part after a round with any of its clients, and after
one without. For all clients together it is the correlation, from one round to the next, of
u·(x_t − π). The direction u is the most persistent one in one half of the rounds, the leading
eigenvector of their covariance with the next round, and the correlation is measured in the other
half. So noise that is mistaken for a pattern does not count.
"""

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence, total_by
from fedavot.audit.federation import Federation
from fedavot.audit.findings import Behaviour
from fedavot.audit.participation import slabs
from fedavot.audit.recommending import Estimate
from fedavot.audit.statistics.case import Case
from fedavot.audit.statistics.estimates import NORMAL, SLAB, Weighted, distance

HOUR = 3600.0
DAY_HOURS = 24
WEEK_HOURS = 7 * DAY_HOURS
FIRST_HOUR = 3 * DAY_HOURS
"""Hours from Monday to the beginning of 1970, which was a Thursday."""
DATED = (1e8, 1e11)
"""Seconds since 1970 lie in this range from 1973 to 5138: other numbers are on the log's own clock,
or were not seconds."""
MOST_ENTRIES = 2_000_000
"""Number of entries, at the end of the log, from which the joint correlation is estimated."""
LEAST_ROUNDS = 8
"""Smallest number of rounds in each half for an estimate."""
NOTHING_KNOWN = Estimate(0.0, -1.0, 1.0)


def behave(case: Case) -> Behaviour:
    """Describe when clients are present, and whether they tend to appear together.

    Means by hour and weekday are over all rounds of the log, including empty ones. Clients whose
    state is not known are assumed to be present as often as the others, or as the others of their
    group for means by group. Hours are None for a log without times, weekdays for one without
    dates.
    """
    federation = case.federation
    log = federation.participation
    present = log.eligible or log.cohorts
    by_hour = by_weekday = groups_by_hour = after = without = None
    dated = log.times is not None and is_dated(log.times)
    if log.times is not None:
        hour = ((log.times // HOUR + FIRST_HOUR * dated) % WEEK_HOURS).astype(np.int64)
        of_day = hour % DAY_HOURS
        by_hour = _means(present, log.unknown, of_day, DAY_HOURS)
        if dated:
            by_weekday = _means(present, log.unknown, hour // DAY_HOURS, 7)
        if federation.group_of is not None:
            groups_by_hour = _group_means(federation, present, of_day)
    if federation.group_of is not None:
        n_groups = len(federation.groups)
        after, without = group_returns(present, log.unknown, federation.group_of, n_groups)
    early, late = _halves(case)
    return Behaviour(
        of_available=log.eligible is not None,
        by_hour=by_hour,
        by_weekday=by_weekday,
        groups_by_hour=groups_by_hour,
        dated=dated,
        rounds_per_observation=case.rounds_per_observation,
        group_after_presence=after,
        group_after_absence=without,
        joint_persistence=joint_persistence(present, log.unknown),
        dispersion=dispersion(present, log.unknown),
        drift=distance(early, late),
        implied_first_half=early.window.mean_weights(early.weights),
        implied_last_half=late.window.mean_weights(late.weights),
    )


def _halves(case: Case) -> list[Weighted]:
    """Return the plain average in both halves of the log, the same twice if it has one round."""
    window = case.window
    # Relative to its own mean over the log, so that drift does not depend on the importance.
    steady = replace(window, importance=window.mean_weights(window.plain()))
    middle = max(1, window.n_rounds // 2)
    halves = [steady.part(np.arange(middle)), steady.part(np.arange(middle, window.n_rounds))]
    if not halves[1].n_rounds:
        halves[1] = halves[0]
    return [Weighted(half, half.plain(), case.resampling(half)) for half in halves]


def is_dated(times: Floats) -> bool:
    """Return whether a log's times are seconds since 1970, judging by their size."""
    return bool(times.size and times.min() > DATED[0] and times.max() < DATED[1])


def dispersion(present: Incidence, unknown: Incidence | None) -> float:
    """Return the variance of the number of clients relative to that of independent clients.

    Parameters
    ----------
    present, unknown : Incidence
        The clients that are present, and those whose state is not known, round by round.

    Returns
    -------
    float
        1 if it cannot be estimated, as from a single round.
    """
    share = _shares(present, unknown)
    spread = share * (1 - share)
    sizes = present.sizes
    expected = np.full(sizes.size, share.sum())
    variance = spread.sum() * sizes.size
    if unknown is not None:
        variance -= float(spread @ unknown.counts())
        for first, last in slabs(unknown.offsets, SLAB):
            part = unknown.between(first, last)
            row = np.repeat(np.arange(last - first), part.sizes)
            expected[first:last] -= total_by(row, share[part.members], last - first)
    found = float(np.square(sizes - expected).sum())
    return found / float(variance) if variance > 0 else 1.0


def _shares(present: Incidence, unknown: Incidence | None) -> Floats:
    """Return each client's share of its known rounds, 0 if there are none."""
    known = np.full(present.n_clients, float(present.n_cohorts))
    if unknown is not None:
        known -= unknown.counts()
    return np.asarray(present.counts() / np.maximum(known, 1.0))


def _means(present: Incidence, unknown: Incidence | None, slot: Integers, n_slots: int) -> Floats:
    """Return the mean number of clients by slot of a round; NaN where no state is known."""
    n_clients = present.n_clients
    there = total_by(slot, present.sizes.astype(np.float64), n_slots)
    known = n_clients * total_by(slot, np.ones(slot.size), n_slots)
    if unknown is not None:
        known -= total_by(slot, unknown.sizes.astype(np.float64), n_slots)
    return _of_known(n_clients * there, known)


def _group_means(federation: Federation, present: Incidence, hour: Integers) -> Floats:
    """Return the mean number of each group's clients by hour of day, shape (n_groups, 24)."""
    group_of, unknown = federation.group_of, federation.participation.unknown
    assert group_of is not None
    shape = (len(federation.groups), DAY_HOURS)
    sizes = np.bincount(group_of, minlength=shape[0]).astype(np.float64)[:, None]
    known = sizes * np.bincount(hour, minlength=DAY_HOURS)
    if unknown is not None:
        known -= _count_by_group(unknown, group_of, hour, shape)
    return _of_known(sizes * _count_by_group(present, group_of, hour, shape), known)


def _of_known(counts: Floats, known: Floats) -> Floats:
    means = np.full(counts.shape, np.nan)
    np.divide(counts, known, out=means, where=known > 0.5)
    return means


def _count_by_group(
    sets: Incidence, group_of: Integers, hour: Integers, shape: tuple[int, int]
) -> Integers:
    counts = np.zeros(shape[0] * shape[1], dtype=np.int64)
    for first, last in slabs(sets.offsets, SLAB):
        part = sets.between(first, last)
        key = group_of[part.members] * shape[1]
        key += np.repeat(hour[first:last], part.sizes)
        counts += np.bincount(key, minlength=counts.size)
    return counts.reshape(shape)


def group_returns(
    present: Incidence, unknown: Incidence | None, group_of: Integers, n_groups: int
) -> tuple[Floats, Floats]:
    """Return how often each group takes part after a round with it, and after one without.

    Pairs of rounds count if it is known in both whether any client of the group was present.

    Parameters
    ----------
    present, unknown : Incidence
        The clients that are present, and those whose state is not known, round by round.
    group_of : int array, shape (n_clients,)
        Each client's group.
    n_groups : int

    Returns
    -------
    two float arrays, shape (n_groups,)
        NaN if there is no such pair of rounds.
    """
    there = _with_group(present, group_of, n_groups)
    hidden = np.empty(0, dtype=np.int64)
    if unknown is not None:
        hidden = np.setdiff1d(_with_group(unknown, group_of, n_groups), there, assume_unique=True)
    last = present.n_cohorts - 1

    def counted(rounds: Integers) -> Floats:
        return np.bincount(rounds % n_groups, minlength=n_groups).astype(np.float64)

    # A pair of rounds has the key of the group in the first of them.
    firsts = there[(there < last * n_groups) & ~np.isin(there + n_groups, hidden)]
    seconds = there[there >= n_groups] - n_groups
    seconds = seconds[~np.isin(seconds, hidden)]
    lost = np.union1d(hidden[hidden < last * n_groups], hidden[hidden >= n_groups] - n_groups)
    both = counted(np.intersect1d(firsts, seconds, assume_unique=True))
    after = counted(firsts)
    without = last - counted(lost) - after
    with np.errstate(divide="ignore", invalid="ignore"):
        return both / after, (counted(seconds) - both) / without


def joint_persistence(present: Incidence, unknown: Incidence | None) -> Estimate:
    """Return the correlation of the mix of clients from one round to the next.

    Parameters
    ----------
    present, unknown : Incidence
        The clients that are present, and those whose state is not known, round by round.

    Returns
    -------
    Estimate
        Its interval is −1 to 1 if the correlation cannot be estimated.
    """
    first = int(np.searchsorted(present.offsets, present.offsets[-1] - MOST_ENTRIES))
    states, rates = _states(present, unknown, first)
    half = states.shape[0] // 2
    if half < LEAST_ROUNDS:
        return NOTHING_KNOWN
    parts = states[:half], states[half:]
    scores = [
        own @ direction - rates @ direction
        for own, other in (parts, parts[::-1])
        if (direction := _longest_lasting(other, rates)) is not None
    ]
    before = np.concatenate([one[:-1] for one in scores] or [np.zeros(1)])
    after = np.concatenate([one[1:] for one in scores] or [np.zeros(1)])
    spread = float(np.sqrt((before @ before) * (after @ after)))
    if spread <= 0:
        return NOTHING_KNOWN
    value, error = float(before @ after) / spread, NORMAL / sqrt(before.size)
    return Estimate(value, max(-1.0, value - error), min(1.0, value + error))


def lasting_direction(present: Incidence) -> Floats:
    """Return the direction in which the mix of clients is most persistent, shape (n_clients,)."""
    states, rates = _states(present, None, 0)
    found = _longest_lasting(states, rates) if present.n_cohorts > 1 else None
    return np.zeros(rates.size) if found is None else found


def _with_group(sets: Incidence, group_of: Integers, n_groups: int) -> Integers:
    """Return round · n_groups + group for every round and group that has a member in it."""
    rounds = np.repeat(np.arange(sets.n_cohorts, dtype=np.int64), sets.sizes)
    return np.unique(rounds * n_groups + group_of[sets.members])


def _states(present: Incidence, unknown: Incidence | None, first: int) -> tuple[Any, Floats]:
    """Return the rounds from ``first``, with a client's rate where it is unknown, and the rates."""
    present = present.between(first, present.n_cohorts)
    unknown = unknown and unknown.between(first, unknown.n_cohorts)
    rates = _shares(present, unknown)
    states = present.matrix(np.ones(present.members.size))
    if unknown is not None:
        states = states + unknown.matrix(np.ones(unknown.members.size)) * rates
    return states, rates


def _longest_lasting(states: Any, rates: Floats) -> Floats | None:
    """Return the direction whose covariance with the next round is largest; None if none is."""
    n_clients = rates.size
    if n_clients < 2:
        return np.ones(n_clients)

    def lagged(direction: Floats) -> Floats:
        score = states @ direction.ravel() - rates @ direction.ravel()
        moved = np.zeros_like(score)
        moved[1:] = score[:-1]
        moved[:-1] += score[1:]
        return np.asarray(states.T @ moved - rates * moved.sum())

    operator = LinearOperator((n_clients, n_clients), matvec=lagged, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(n_clients)
    if not np.abs(lagged(start)).max(initial=0.0) > 0:
        return None
    _, vectors = eigsh(operator, k=1, which="LA", v0=start, tol=1e-3, maxiter=1000)
    return np.asarray(vectors[:, 0])
