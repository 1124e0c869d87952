"""Climbing inside fixed levels: how far to go, where to begin, and when the target is met.

Levels fix what every client should get, a `Partition`'s target; a *run* of some solver says how
close the potentials have come. The search for levels alternates between the two: climb for a while,
then read the levels again off the order of the potentials.
"""

from dataclasses import dataclass

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._explicit import ExplicitSystem
from fedavot.laws._law import SolvableLaw
from fedavot.solve._problem import Problem, Pull, Run
from fedavot.solve.direction import DENSE_CLIENTS, STUBBORN_CLIENTS
from fedavot.solve.ipfp import accelerated
from fedavot.solve.levels import Partition, partition
from fedavot.solve.newton import newton

CLIMBS = (10, 15)
"""Evaluations before each look at the order: short at first, for tight problems show early."""
_LONG_CLIMB = 50
"""Evaluations at a time inside levels that are known to be right."""
_FACTORISED_AT_ONCE = 300
"""Up to here a few factorisations cost less than a few sweeps."""
_LOW_RANK_AT_ONCE = 20_000
"""Likewise for laws of product form, whose factors are cheaper."""
_ACCELERATED_CLIMB = 30
_REACH = 20.0


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


def one_level(importance: Floats, law: SolvableLaw) -> Partition:
    """Put every client in one level, apart from those it would be hopeless or idle to solve for.

    Clients that no cohort contains come first, with ratio 0; clients without importance last.
    """
    unreachable = (law.inclusion() <= 0) & (importance > 0)
    idle = importance == 0
    kinds = np.where(unreachable, 0, np.where(idle, 2, 1))
    present, levels = np.unique(kinds, return_inverse=True)
    target = np.where(unreachable, 0.0, importance)
    if idle.any():
        target[idle] = law.expected_weights(np.zeros(idle.size), levels)[idle]
    middle = kinds == 1
    scale = (1.0 - target[idle].sum()) / max(importance[middle].sum(), 1e-300)
    target[middle] *= scale
    ratios = np.array([0.0, scale, np.inf])[present]
    return Partition(levels, ratios, target)


def within(importance: Floats, law: SolvableLaw, parts: Partition) -> Problem:
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


def reread(importance: Floats, law: SolvableLaw, parts: Partition, run: Run) -> Partition:
    """Read the levels off the order of the potentials within the present ones."""
    return partition(importance, law, np.lexsort((-run.potentials, parts.levels)))


def gathered(potentials: Floats, levels: Integers) -> Floats:
    """Bring each level's potentials within reach of its median.

    A client that was in the wrong level has been driven off without bound; in its new level it
    would have to come all the way back.
    """
    order = np.lexsort((potentials, levels))
    sizes = np.bincount(levels)
    middle = potentials[order[np.cumsum(sizes) - sizes + sizes // 2]]
    return np.asarray(np.clip(potentials - middle[levels], -_REACH, _REACH))


def met(problem: Problem, run: Run, effort: Effort) -> bool:
    """Say whether a run has met its target as closely as asked."""
    if not run.residual <= effort.tol:
        return False
    if np.isinf(effort.relative):
        return True
    return worst_error(problem, run) <= effort.relative


def worst_error(problem: Problem, run: Run) -> float:
    """Return the largest error of a client, relative to its target."""
    error = np.abs(problem.error(run.marginal))[problem.free]
    with np.errstate(over="ignore"):
        return float(np.max(error / problem.target[problem.free], initial=0.0))


def climb(problem: Problem, run: Run, effort: Effort, looks: int) -> Run:
    """Go for the target, by the cheapest method for the size, for a while."""
    left = effort.max_iter - run.evaluations
    explicit = isinstance(problem.system, ExplicitSystem)
    limit = _FACTORISED_AT_ONCE if explicit else _LOW_RANK_AT_ONCE
    large = np.count_nonzero(problem.free) > limit
    if large and looks == 0 and effort.method == "auto":
        budget = min(left, _ACCELERATED_CLIMB)
        return after(run, accelerated(problem, run.potentials, tol=effort.tol, max_iter=budget))
    budget = min(left, CLIMBS[looks] if looks < len(CLIMBS) else _LONG_CLIMB)
    return go_on(problem, run, effort, budget=budget, dense=STUBBORN_CLIENTS if looks else None)


def go_on(
    problem: Problem,
    run: Run,
    effort: Effort,
    *,
    pull: Pull | None = None,
    budget: int = CLIMBS[0],
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
    return after(run, climbed)


def climb_until(problem: Problem, run: Run, effort: Effort) -> Run:
    """Climb inside levels that are known to be right until the target is met."""
    looks, worst = 0, np.inf
    while not met(problem, run, effort) and run.evaluations < effort.max_iter:
        run = climb(problem, run, effort, looks)
        looks, before, worst = looks + 1, worst, worst_error(problem, run)
        if run.residual <= effort.tol and worst > 0.5 * before:
            # What is left to meet lies below what floats can tell.
            break
    return run


def from_zero(parts: Partition, evaluations: int) -> Run:
    """Return a run that has yet to reach anything: its residual is infinite."""
    return Run(np.zeros(parts.target.size), parts.target, np.inf, evaluations)


def after(before: Run, run: Run) -> Run:
    """Return a run that went on from another, evaluations counted together."""
    return Run(run.potentials, run.marginal, run.residual, before.evaluations + run.evaluations)
