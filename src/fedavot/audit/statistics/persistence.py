"""Whether a round predicts the next one: for each group, and for all clients together.

One client's presence may say next to nothing about its own presence in the next round while the
presence of its group, or the mix of clients as a whole, says a great deal: if clinics are drawn at
random in office hours, the presence of one clinic does not persist, but office hours do.

For a group, the measure is how often it takes part after a round with any of its clients, and after
one without. For all clients together it is the correlation, from one round to the next, of
u·(x_t − π), with x_t for the presence of each client in round t and π for its mean. The direction u
is the most persistent one in one half of the rounds, the leading eigenvector of their covariance
with the next round, and the correlation is measured in the other half. So noise that is mistaken
for a pattern does not count.
"""

from math import sqrt
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence
from fedavot.audit.recommending import Estimate

MOST_ENTRIES = 2_000_000
"""Number of entries, at the end of the log, from which the joint correlation is estimated."""
LEAST_ROUNDS = 8
"""Smallest number of rounds in each half for an estimate."""
NORMAL = 1.959964
"""Quantile of the normal distribution at 97.5 %."""
NOTHING_KNOWN = Estimate(0.0, -1.0, 1.0)


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

    def matrix(sets: Incidence) -> Any:
        rows = sets.between(first, sets.n_cohorts)
        return rows.matrix(np.ones(rows.members.size))

    states = matrix(present)
    known = np.full(present.n_clients, float(states.shape[0]))
    hidden = None if unknown is None else matrix(unknown)
    if hidden is not None:
        known -= hidden.sum(axis=0)
    rates = states.sum(axis=0) / np.maximum(known, 1.0)
    return states if hidden is None else states + hidden * rates, rates


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
