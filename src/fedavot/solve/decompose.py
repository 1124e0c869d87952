"""Search for the levels of a law that has no known worst order, and prove them right.

Potentials climb towards the optimum; clients that cannot get their importance drift above those
that must give way, so their order reveals the levels long before any marginal has converged. Each
round of the search climbs a while, orders the clients by level and potential, and reads the levels
off that order anew. Once they stop changing, Newton's method has to meet the target inside every
level; only that ends the search. What still resists is split by max-flow where cohorts are listed,
and by softening where they are not.
"""

from dataclasses import replace

import numpy as np

from fedavot._checks import Floats
from fedavot.laws._law import SolvableLaw
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.successive import SuccessiveDraws, listed
from fedavot.solve._problem import Problem, Run
from fedavot.solve.climbing import (
    CLIMBS,
    Effort,
    Solution,
    after,
    climb,
    climb_until,
    from_zero,
    gathered,
    go_on,
    met,
    one_level,
    reread,
    within,
)
from fedavot.solve.coarse import first_guess
from fedavot.solve.ipfp import ipfp
from fedavot.solve.levels import partition
from fedavot.solve.maxflow import split_by_flow
from fedavot.solve.softening import by_softening

_SORTING_SWEEPS = 15
_SORTS = 4
"""An order that has not settled by then is cheaper to find by max-flow."""
_LISTED_CLIENTS = 1_000
"""Draws of pairs from more clients than this are not listed for a max-flow."""


def decompose(importance: Floats, law: SolvableLaw, effort: Effort) -> Solution:
    """Find levels and potentials whose marginal is the nearest attainable importance."""
    order = law.worst_order(importance)
    if order is not None:
        parts = partition(importance, law, order)
        problem = within(importance, law, parts)
        guess = np.zeros(importance.size)
        if parts.ratios.size == 1:
            guess = first_guess(importance, law, order)
        start = replace(from_zero(parts, 0), potentials=guess)
        return Solution(parts, climb_until(problem, start, effort))
    return _search(importance, law, effort)


def _search(importance: Floats, law: SolvableLaw, effort: Effort) -> Solution:
    parts = one_level(importance, law)
    run = from_zero(parts, 0)
    # A client wanted more often than it takes part settles at once that levels are needed.
    sorting = bool(np.any(parts.target > law.inclusion() + 1e-12))
    sweeps_sort = _flowing(law)
    if sorting and not sweeps_sort:
        return resolve(importance, law, effort, Solution(parts, run))
    sorts = looks = 0
    while True:
        problem = within(importance, law, parts)
        run = _sort(problem, run, effort) if sorting else climb(problem, run, effort, looks)
        sorts, looks = sorts + sorting, looks + (not sorting)
        if (met(problem, run, effort) and not sorting) or run.evaluations >= effort.max_iter:
            return Solution(parts, run)
        found = reread(importance, law, parts, run)
        sorting = not np.array_equal(found.levels, parts.levels)
        if not (sorts < _SORTS and sweeps_sort if sorting else looks < len(CLIMBS)):
            return resolve(importance, law, effort, Solution(found, run))
        if sorting:
            run = replace(run, potentials=gathered(run.potentials, found.levels))
        parts = found


def resolve(importance: Floats, law: SolvableLaw, effort: Effort, begin: Solution) -> Solution:
    """Find the levels for sure, by max-flow from those at hand if cohorts are listed.

    Other laws have theirs found by softening.
    """
    run = begin.run
    cohorts = listed(law) if _flowing(law) else None
    if cohorts is None:
        return by_softening(importance, law, effort, run.evaluations)
    settled = split_by_flow(importance, cohorts, begin.parts, run.potentials)
    start = from_zero(settled, run.evaluations)
    return Solution(settled, climb_until(within(importance, law, settled), start, effort))


def refine(importance: Floats, law: SolvableLaw, solution: Solution, effort: Effort) -> Solution:
    """Read the levels once more, and meet the target inside them if they have changed."""
    parts, run = solution.parts, solution.run
    found = reread(importance, law, parts, run)
    if np.array_equal(found.levels, parts.levels):
        return solution
    start = replace(run, potentials=gathered(run.potentials, found.levels))
    return Solution(found, go_on(within(importance, law, found), start, effort))


def _flowing(law: SolvableLaw) -> bool:
    """Say whether the law has a list of cohorts short enough for a max-flow."""
    if isinstance(law, SuccessiveDraws):
        return law.size > 2 or law.n_clients <= _LISTED_CLIENTS
    return isinstance(law, Cohorts)


def _sort(problem: Problem, run: Run, effort: Effort) -> Run:
    """Sweep a while to let the potentials find their order."""
    sweeps = min(_SORTING_SWEEPS, effort.max_iter - run.evaluations)
    swept = ipfp(problem, run.potentials, tol=effort.tol, max_iter=sweeps)
    return after(run, swept)
