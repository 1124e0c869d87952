"""Search for the levels of a law that has no known worst order, and prove them right.

Potentials climb towards the optimum; clients that cannot get their importance drift above those
that must give way, so their order reveals the levels long before any marginal has converged. Each
round of the search climbs a while, orders the clients by level and potential, and reads the levels
off that order anew. Once they stop changing, Newton's method has to meet the target inside every
level; only that ends the search. What still resists is split by max-flow where cohorts are listed.
Elsewhere soft alignment orders the clients: with softness ρ a client whose level has the ratio λ
stands about (1 − λ)/ρ above the mean, so a ρ ten times smaller tells levels ten times closer apart,
starting from potentials ten times as large.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._explicit import ExplicitSystem
from fedavot.laws._law import Law
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.successive import SuccessiveDraws, listed
from fedavot.solve._problem import Problem, Pull, Run
from fedavot.solve.coarse import first_guess
from fedavot.solve.direction import DENSE_CLIENTS, STUBBORN_CLIENTS
from fedavot.solve.ipfp import accelerated, ipfp
from fedavot.solve.levels import Partition, partition
from fedavot.solve.maxflow import split_by_flow
from fedavot.solve.newton import newton

_SORTING_SWEEPS = 15
_SORTS = 2
"""An order that has not settled by then is cheaper to find by max-flow or soft alignment."""
_CLIMBS = (10, 15)
"""Evaluations before each look at the order: short at first, for tight problems show early."""
_LONG_CLIMB = 50
"""Evaluations at a time inside levels that are known to be right."""
_FACTORISED_AT_ONCE = 300
"""Up to here a few factorisations cost less than a few sweeps."""
_LOW_RANK_AT_ONCE = 20_000
"""Likewise for laws of product form, whose factors are cheaper."""
_ACCELERATED_CLIMB = 30
_REACH = 20.0
_PROBE = 6
"""Evaluations after which a climb inside levels must have come three times closer."""
_LISTED_CLIENTS = 1_000
"""Draws of pairs from more clients than this are not listed for a max-flow."""
_LEAST_SOFTNESS = 1e-13
_FIRST_SOFTNESS = (1.0, 0.1, 0.03)
"""Before any levels are told apart; potentials then range over no more than 2/0.03."""
_ORDERED = 0.01
"""Relative error of a soft alignment that is used for its order alone."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Levels, and where the solver stopped within them."""

    parts: Partition
    run: Run


@dataclass(frozen=True)
class Effort:
    """When to stop, and by which method.

    Attributes
    ----------
    tol : float
        L1 distance to the target.
    max_iter : int
        Most evaluations of the law.
    method : str
        "auto" or "newton".
    relative : float
        Largest error of any single client, relative to its target.
    """

    tol: float
    max_iter: int
    method: str
    relative: float = np.inf


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
    parts = one_level(importance, law)
    run = _from_zero(parts, 0)
    # A client wanted more often than it takes part settles at once that levels are needed.
    sorting = bool(np.any(parts.target > law.inclusion() + 1e-12))
    sweeps_sort = _flowing(law)
    if sorting and not sweeps_sort:
        return resolve(importance, law, effort, run)
    sorts = looks = 0
    while True:
        problem = within(importance, law, parts)
        run = _sort(problem, run, effort) if sorting else _climb(problem, run, effort, looks)
        sorts, looks = sorts + sorting, looks + (not sorting)
        if (met(problem, run, effort) and not sorting) or run.evaluations >= effort.max_iter:
            return Solution(parts, run)
        found = _reread(importance, law, parts, run)
        sorting = not np.array_equal(found.levels, parts.levels)
        if not (sorts < _SORTS and sweeps_sort if sorting else looks < len(_CLIMBS)):
            return resolve(importance, law, effort, run)
        if sorting:
            run = replace(run, potentials=_gathered(run.potentials, found.levels))
        parts = found


def resolve(importance: Floats, law: Law, effort: Effort, run: Run) -> Solution:
    """Find the levels for sure, by max-flow if cohorts are listed, else by softening."""
    cohorts = listed(law) if _flowing(law) else None
    if cohorts is None:
        return _by_softening(importance, law, effort, run.evaluations)
    settled = split_by_flow(importance, cohorts, one_level(importance, law), run.potentials)
    start = _from_zero(settled, run.evaluations)
    return Solution(settled, _climb_until(within(importance, law, settled), start, effort))


def refine(importance: Floats, law: Law, solution: Solution, effort: Effort) -> Solution:
    """Read the levels once more, and meet the target inside them if they have changed."""
    parts, run = solution.parts, solution.run
    found = _reread(importance, law, parts, run)
    if np.array_equal(found.levels, parts.levels):
        return solution
    start = replace(run, potentials=_gathered(run.potentials, found.levels))
    return Solution(found, _newton(within(importance, law, found), start, effort))


def _flowing(law: Law) -> bool:
    """Say whether the law has a list of cohorts short enough for a max-flow."""
    if isinstance(law, SuccessiveDraws):
        return law.size > 2 or law.n_clients <= _LISTED_CLIENTS
    return isinstance(law, Cohorts)


def _by_softening(importance: Floats, law: Law, effort: Effort, evaluations: int) -> Solution:
    """Tell levels apart by ever smaller softness inside them, until the target is met."""
    parts = one_level(importance, law)
    problem = within(importance, law, parts)
    run = _after(
        _from_zero(parts, evaluations), _newton(problem, _from_zero(parts, 0), effort, budget=1)
    )
    best = Solution(parts, run)
    for softness in _FIRST_SOFTNESS:
        run = _soften(problem, run, softness, effort)
    while softness >= _LEAST_SOFTNESS and run.evaluations < effort.max_iter:
        found = _reread(importance, law, parts, run)
        if np.array_equal(found.levels, parts.levels):
            run = _exactly(problem, run, effort)
            if run.residual < best.run.residual:
                best = Solution(parts, run)
            if met(problem, run, effort):
                return best
            # Levels out of reach drive their clients apart, which may show where they split.
            found = _reread(importance, law, parts, run)
            softness /= 10
        run = replace(run, potentials=_gathered(run.potentials, found.levels))
        parts, problem = found, within(importance, law, found)
        run = _soften(problem, run, softness, effort)
    return Solution(best.parts, replace(best.run, evaluations=run.evaluations))


def _reread(importance: Floats, law: Law, parts: Partition, run: Run) -> Partition:
    """Read the levels off the order of the potentials within the present ones."""
    return partition(importance, law, np.lexsort((-run.potentials, parts.levels)))


def _soften(problem: Problem, run: Run, softness: float, effort: Effort) -> Run:
    """Climb with a pull by wanted plus present weight.

    With it a client stands (1 − λ)/(1 + λ)/ρ above the mean: by falling λ, and never far off.
    """
    weights = np.where(problem.free, problem.target + run.marginal, 0.0)
    pull = Pull(softness, weights, problem.parts)
    goal = replace(effort, tol=_ORDERED * softness, relative=_ORDERED * softness)
    return _newton(problem, run, goal, pull=pull)


def _exactly(problem: Problem, run: Run, effort: Effort) -> Run:
    """Climb without a pull as long as that leads somewhere."""
    run, before = _newton(problem, run, effort, budget=_PROBE), np.inf
    while run.residual < 0.3 * before and not met(problem, run, effort):
        before = run.residual
        run = _newton(problem, run, effort, budget=_PROBE)
    return run


def met(problem: Problem, run: Run, effort: Effort) -> bool:
    """Say whether a run has met its target as closely as asked."""
    if not run.residual <= effort.tol:
        return False
    if np.isinf(effort.relative):
        return True
    error = np.abs(problem.error(run.marginal))
    return bool(np.all(error <= effort.relative * problem.target, where=problem.free))


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
    explicit = isinstance(problem.system, ExplicitSystem)
    limit = _FACTORISED_AT_ONCE if explicit else _LOW_RANK_AT_ONCE
    large = np.count_nonzero(problem.free) > limit
    if large and looks == 0 and effort.method == "auto":
        budget = min(left, _ACCELERATED_CLIMB)
        return _after(run, accelerated(problem, run.potentials, tol=effort.tol, max_iter=budget))
    budget = min(left, _CLIMBS[looks] if looks < len(_CLIMBS) else _LONG_CLIMB)
    return _newton(problem, run, effort, budget=budget, dense=STUBBORN_CLIENTS if looks else None)


def _newton(
    problem: Problem,
    run: Run,
    effort: Effort,
    *,
    pull: Pull | None = None,
    budget: int = _CLIMBS[0],
    dense: int | None = None,
) -> Run:
    """Go on from a run by Newton's method, for at most ``budget`` evaluations."""
    climbed = newton(
        problem,
        run.potentials,
        tol=effort.tol,
        relative=effort.relative,
        max_iter=max(1, min(budget, effort.max_iter - run.evaluations)),
        pull=pull,
        dense=DENSE_CLIENTS if dense is None else dense,
    )
    return _after(run, climbed)


def _climb_until(problem: Problem, run: Run, effort: Effort) -> Run:
    """Climb inside levels that are known to be right until the target is met."""
    looks = 0
    while not met(problem, run, effort) and run.evaluations < effort.max_iter:
        run = _climb(problem, run, effort, looks)
        looks += 1
    return run


def _from_zero(parts: Partition, evaluations: int) -> Run:
    """Return a run that has yet to reach anything: its residual is infinite."""
    return Run(np.zeros(parts.target.size), parts.target, np.inf, evaluations)


def _after(before: Run, run: Run) -> Run:
    return Run(run.potentials, run.marginal, run.residual, before.evaluations + run.evaluations)
