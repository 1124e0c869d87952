"""Figures counted over all rounds of a log, for a log of which only some rounds are kept.

No state is unknown in such a log, so ``owed`` equals the importance, and the gap of the plain
average is half of Σ_i |implied_i − p_i| over all rounds. Its interval comes from the rounds kept.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedavot._checks import Integers
from fedavot.audit.findings import Shares
from fedavot.audit.recommending import Estimate
from fedavot.audit.statistics.case import Case, Fitting


class Extent(NamedTuple):
    """The size of a log: rounds with and without participants, entries, and times."""

    rounds: int
    empty_rounds: int
    entries: int
    span: tuple[float, float] | None


def extent_of(case: Case) -> Extent:
    """Return the size of the whole log."""
    window, log = case.window, case.federation.participation
    totals = log.totals
    if totals is not None:
        empty = totals.n_rounds - totals.n_filled
        return Extent(totals.n_filled, empty, totals.n_entries, totals.span)
    span = None if log.times is None else (float(log.times.min()), float(log.times.max()))
    empty = log.n_rounds - window.n_rounds
    return Extent(window.n_rounds, empty, window.incidence.members.size, span)


def exact_gap(case: Case, gap: Estimate) -> Estimate:
    """Return the plain average's gap over all rounds, given its gap over the rounds kept."""
    totals = case.federation.participation.totals
    if totals is None:
        return gap
    value = float(np.abs(totals.implied - case.window.importance).sum()) / 2
    return Estimate(value, min(gap.low, value), max(gap.high, value))


def exact_shares(case: Case, shares: Shares) -> Shares:
    """Return the clients' shares, with the plain average's taken over all rounds."""
    totals = case.federation.participation.totals
    if totals is None:
        return shares
    return replace(shares, implied=totals.implied, inclusion=totals.taken / totals.n_filled)


def hidden(case: Case) -> Integers:
    """Return the clients that took part in the log but in none of the rounds kept."""
    totals = case.federation.participation.totals
    if totals is None:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero((totals.taken > 0) & (case.window.taken == 0))


def without_hidden(case: Case) -> Fitting:
    """Return all rounds kept, with no importance for the clients that are in none of them.

    Otherwise these clients would seem never to take part, and alignment to be infeasible.
    """
    unseen = hidden(case)
    importance = case.window.importance.copy()
    importance[unseen] = 0.0
    if not unseen.size or not importance.any():
        return case.whole
    return case.fitting(replace(case.window, importance=importance / importance.sum()))
