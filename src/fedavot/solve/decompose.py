"""Search for the levels of a law that has no known worst order, and prove them right.

As the potentials climb towards the optimum, clients that cannot get their importance rise above
the others, so the order of the potentials reveals the levels long before any marginal has
converged. Each round of the search climbs for a while, orders the clients by level and potential,
and reads the levels off that order again. Once they stop changing, Newton's method has to meet the
target within every level; only that ends the search. Levels that are still wrong are split by
max-flow where cohorts are listed; where they are not, by softening and the base of least norm.
"""

from dataclasses import replace

import numpy as np

from fedavot._checks import Floats
from fedavot.laws._law import SolvableLaw
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.successive import SuccessiveDraws, explicit_cohorts
from fedavot.solve._problem import DualProblem, Iterate
from fedavot.solve.climbing import (
    CLIMBS,
    Solution,
    StoppingRule,
    climb,
    climb_until,
    go_on,
    met,
    within,
)
from fedavot.solve.coarse import first_guess
from fedavot.solve.ipfp import ipfp
from fedavot.solve.levels import gathered, one_level, partition, reread
from fedavot.solve.maxflow import split_by_flow
from fedavot.solve.softening import by_softening

_SORTING_SWEEPS = 15
_SORTS = 4
"""Sorting attempts after which max-flow finds the levels more cheaply."""
_LISTED_CLIENTS = 1_000
"""Number of clients up to which draws of pairs are listed for a max-flow."""


def decompose(importance: Floats, law: SolvableLaw, stop: StoppingRule) -> Solution:
    """Find levels and potentials whose marginal is the nearest attainable importance."""
    order = law.worst_order(importance)
    if order is not None:
        split = partition(importance, law, order)
        problem = within(importance, law, split)
        guess = np.zeros(importance.size)
        if split.ratios.size == 1:
            guess = first_guess(importance, law, order)
        start = replace(Iterate.zero(split.target), potentials=guess)
        return Solution(split, climb_until(problem, start, stop))
    return _search(importance, law, stop)


def _search(importance: Floats, law: SolvableLaw, stop: StoppingRule) -> Solution:
    split = one_level(importance, law)
    iterate = Iterate.zero(split.target)
    # A client whose target exceeds its inclusion probability shows at once that levels are needed.
    sorting = bool(np.any(split.target > law.inclusion() + 1e-12))
    sweeps_sort = _flowing(law)
    if sorting and not sweeps_sort:
        return resolve(importance, law, stop, Solution(split, iterate))
    sorts = climbs = 0
    while True:
        problem = within(importance, law, split)
        if sorting:
            iterate = _sort(problem, iterate, stop)
        else:
            iterate = climb(problem, iterate, stop, climbs)
        sorts, climbs = sorts + sorting, climbs + (not sorting)
        if (met(problem, iterate, stop) and not sorting) or iterate.evaluations >= stop.max_iter:
            return Solution(split, iterate)
        found = reread(importance, law, split.levels, iterate.potentials)
        sorting = not np.array_equal(found.levels, split.levels)
        if not (sorts < _SORTS and sweeps_sort if sorting else climbs < len(CLIMBS)):
            return resolve(importance, law, stop, Solution(found, iterate))
        if sorting:
            iterate = replace(iterate, potentials=gathered(iterate.potentials, found.levels))
        split = found


def resolve(importance: Floats, law: SolvableLaw, stop: StoppingRule, begin: Solution) -> Solution:
    """Find the levels by a method that does not fail: max-flow if cohorts are listed, or softening.

    Max-flow starts from the levels of ``begin``.
    """
    iterate = begin.iterate
    cohorts = explicit_cohorts(law) if _flowing(law) else None
    if cohorts is None:
        return by_softening(importance, law, stop, iterate.evaluations)
    settled = split_by_flow(importance, cohorts, begin.partition, iterate.potentials)
    start = Iterate.zero(settled.target, iterate.evaluations)
    return Solution(settled, climb_until(within(importance, law, settled), start, stop))


def refine(
    importance: Floats, law: SolvableLaw, solution: Solution, stop: StoppingRule
) -> Solution:
    """Read the levels once more, and meet the target within them if they have changed."""
    levels, iterate = solution.partition.levels, solution.iterate
    found = reread(importance, law, levels, iterate.potentials)
    if np.array_equal(found.levels, levels):
        return solution
    start = replace(iterate, potentials=gathered(iterate.potentials, found.levels))
    return Solution(found, go_on(within(importance, law, found), start, stop))


def _flowing(law: SolvableLaw) -> bool:
    """Say whether the law has a list of cohorts short enough for a max-flow."""
    if isinstance(law, SuccessiveDraws):
        return law.size > 2 or law.n_clients <= _LISTED_CLIENTS or not law.exact
    return isinstance(law, Cohorts)


def _sort(problem: DualProblem, iterate: Iterate, stop: StoppingRule) -> Iterate:
    """Sweep for a while, so that the potentials find their order."""
    sweeps = min(_SORTING_SWEEPS, stop.max_iter - iterate.evaluations)
    return ipfp(problem, iterate.potentials, tol=stop.tol, max_iter=sweeps).after(iterate)
