"""Search for the levels of a law that has no known worst order, and prove them right.

Potentials climb towards the optimum; clients that cannot get their importance drift above those
that must give way, so their order reveals the levels long before any marginal has converged. Each
round of the search climbs a while, orders the clients by level and potential, and reads the levels
off that order anew. Once they stop changing, Newton's method has to meet the target inside every
level; only that ends the search. Explicit cohorts that still resist are split by max-flow.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._explicit import ExplicitSystem
from fedavot.laws._law import Law
from fedavot.laws.successive import listed
from fedavot.solve._problem import Problem, Run
from fedavot.solve.coarse import first_guess
from fedavot.solve.ipfp import accelerated, ipfp
from fedavot.solve.levels import Partition, partition
from fedavot.solve.maxflow import split_by_flow
from fedavot.solve.newton import DENSE_CLIENTS, STUBBORN_CLIENTS, newton

_SORTING_SWEEPS = 15
_SORTS = 2
"""Explicit cohorts whose order has not settled by then are cheaper to split by max-flow."""
_CLIMBS = (10, 15, 25, 50)
"""Evaluations before each look at the order: short at first, for tight problems show early."""
_FACTORISED_AT_ONCE = 300
"""Up to here a few factorisations cost less than a few sweeps."""
_ACCELERATED_CLIMB = 30
_REACH = 20.0


@dataclass(frozen=True, eq=False)
class Solution:
    """Levels, and where the solver stopped within them."""

    parts: Partition
    run: Run


@dataclass(frozen=True)
class Effort:
    """When to stop, and by which method."""

    tol: float
    max_iter: int
    method: str


def decompose(importance: Floats, law: Law, effort: Effort) -> Solution:
    """Find levels and potentials whose marginal is the nearest attainable importance."""
    order = law.worst_order(importance)
    if order is not None:
        parts = partition(importance, law, order)
        problem = within(importance, law, parts)
        guess = np.zeros(importance.size)
        if parts.ratios.size == 1:
            guess = first_guess(importance, law, order)
        start = replace(_from_zero(parts, 0), potentials=guess)
        return Solution(parts, _climb_until(problem, start, effort))
    return _search(importance, law, effort)


def _search(importance: Floats, law: Law, effort: Effort) -> Solution:
    cohorts = listed(law)
    parts = one_level(importance, law)
    run = _from_zero(parts, 0)
    # A client wanted more often than it takes part settles at once that levels are needed.
    sorting = bool(np.any(parts.target > law.inclusion() + 1e-12))
    sorts = looks = 0
    while True:
        problem = within(importance, law, parts)
        run = _sort(problem, run, effort) if sorting else _climb(problem, run, effort, looks)
        sorts, looks = sorts + sorting, looks + (not sorting)
        if (run.residual <= effort.tol and not sorting) or run.evaluations >= effort.max_iter:
            return Solution(parts, run)
        found = partition(importance, law, np.lexsort((-run.potentials, parts.levels)))
        sorting = not np.array_equal(found.levels, parts.levels)
        patient = sorts < _SORTS if sorting else looks < len(_CLIMBS)
        if not patient and cohorts is not None:
            settled = split_by_flow(importance, cohorts, one_level(importance, law))
            start = _from_zero(settled, run.evaluations)
            return Solution(settled, _climb_until(within(importance, law, settled), start, effort))
        if sorting:
            run = replace(run, potentials=_gathered(run.potentials, found.levels))
        parts = found


def _gathered(potentials: Floats, levels: Integers) -> Floats:
    """Bring each level's potentials within reach of its median.

    A client that was in the wrong level has been driven off without bound; in its new level it
    would have to come all the way back.
    """
    order = np.lexsort((potentials, levels))
    sizes = np.bincount(levels)
    middle = potentials[order[np.cumsum(sizes) - sizes + sizes // 2]]
    return np.asarray(np.clip(potentials - middle[levels], -_REACH, _REACH))


def one_level(importance: Floats, law: Law) -> Partition:
    """Put every client in one level, apart from those it would be hopeless or idle to solve for.

    Clients that no cohort contains come first, with ratio 0; clients without importance last.
    """
    unreachable = (law.inclusion() <= 0) & (importance > 0)
    idle = importance == 0
    kinds = np.where(unreachable, 0, np.where(idle, 2, 1))
    levels = np.unique(kinds, return_inverse=True)[1]
    target = np.where(unreachable, 0.0, importance)
    if idle.any():
        target[idle] = law.expected_weights(np.zeros(idle.size), levels)[idle]
    middle = kinds == 1
    scale = (1.0 - target[idle].sum()) / max(importance[middle].sum(), 1e-300)
    target[middle] *= scale
    ratios = np.array([0.0, scale, np.inf])[np.unique(kinds)]
    return Partition(levels, ratios, target)


def within(importance: Floats, law: Law, parts: Partition) -> Problem:
    """Return the problem of meeting the target inside fixed levels.

    A level of one client is met by whatever potential, so only larger ones are solved for.
    """
    several = np.bincount(parts.levels)[parts.levels] > 1
    leveled = bool(parts.levels.any())
    system = law.system(parts.levels if leveled else None)
    independent = parts.levels
    if leveled and isinstance(system, ExplicitSystem):
        # Within a level, explicit cohorts may fall apart further.
        independent = system.incidence.components()
    return Problem(
        system,
        parts.target,
        several & (importance > 0) & (parts.target > 0),
        importance == 0,
        independent,
    )


def _sort(problem: Problem, run: Run, effort: Effort) -> Run:
    """Sweep a while to let the potentials find their order."""
    sweeps = min(_SORTING_SWEEPS, effort.max_iter - run.evaluations)
    swept = ipfp(problem, run.potentials, tol=effort.tol, max_iter=sweeps)
    return _after(run, swept)


def _climb(problem: Problem, run: Run, effort: Effort, looks: int) -> Run:
    """Go for the target, by the cheapest method for the size, for a while."""
    left = effort.max_iter - run.evaluations
    large = np.count_nonzero(problem.free) > _FACTORISED_AT_ONCE
    if large and looks == 0 and effort.method == "auto":
        budget = min(left, _ACCELERATED_CLIMB)
        return _after(run, accelerated(problem, run.potentials, tol=effort.tol, max_iter=budget))
    budget = min(left, _CLIMBS[min(looks, len(_CLIMBS) - 1)])
    dense = STUBBORN_CLIENTS if looks else DENSE_CLIENTS
    return _after(
        run, newton(problem, run.potentials, tol=effort.tol, max_iter=budget, dense=dense)
    )


def _climb_until(problem: Problem, run: Run, effort: Effort) -> Run:
    """Climb inside levels that are known to be right until the target is met."""
    looks = 0
    while not run.residual <= effort.tol and run.evaluations < effort.max_iter:
        run = _climb(problem, run, effort, looks)
        looks += 1
    return run


def _from_zero(parts: Partition, evaluations: int) -> Run:
    """Return a run that has yet to reach anything: its residual is infinite."""
    return Run(np.zeros(parts.target.size), parts.target, np.inf, evaluations)


def _after(before: Run, run: Run) -> Run:
    return Run(run.potentials, run.marginal, run.residual, before.evaluations + run.evaluations)
