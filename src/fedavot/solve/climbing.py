"""Solve for the potentials within fixed levels, for a limited number of evaluations at a time.

A `Partition` fixes what every client should get; an `Iterate` says how close the potentials have
come. The search for levels alternates between the two: climb the dual for a while, then read the
levels off the order of the potentials again.
"""

from dataclasses import dataclass

import numpy as np

from fedavot._checks import Floats
from fedavot.laws._explicit import ExplicitSystem
from fedavot.laws._law import SolvableLaw
from fedavot.solve._problem import DualProblem, Iterate, Pull
from fedavot.solve.direction import DENSE_CLIENTS, STUBBORN_CLIENTS
from fedavot.solve.ipfp import accelerated
from fedavot.solve.levels import Partition
from fedavot.solve.newton import newton

CLIMBS = (10, 15)
"""Evaluations of the first climbs: few, because tight problems show early."""
_LONG_CLIMB = 50
"""Evaluations of each later climb."""
_FACTORISED_AT_ONCE = 300
"""Number of clients up to which a few factorisations cost less than a few sweeps."""
_LOW_RANK_AT_ONCE = 20_000
"""The same for laws of product form, whose factors are cheaper."""
_ACCELERATED_CLIMB = 30


@dataclass(frozen=True, eq=False)
class Solution:
    """Levels, and the point that a solver has reached within them."""

    partition: Partition
    iterate: Iterate


@dataclass(frozen=True)
class StoppingRule:
    """When a solver stops, and which methods it may use.

    It stops at the L1 distance ``tol`` to the target, where no client's error exceeds ``relative``
    of its own target, or after ``max_iter`` evaluations of the law; ``method`` is "auto" or
    "newton".
    """

    tol: float
    max_iter: int
    method: str
    relative: float = np.inf


def within(importance: Floats, law: SolvableLaw, split: Partition) -> DualProblem:
    """Return the problem of meeting the target within fixed levels.

    A level of one client is met by any potential, so only larger levels are solved for.
    """
    several = np.bincount(split.levels)[split.levels] > 1
    leveled = bool(split.levels.any())
    system = law.system(split.levels if leveled else None)
    independent = split.levels
    if leveled and isinstance(system, ExplicitSystem):
        # Within a level, explicit cohorts may fall apart further.
        independent = system.incidence.components()
    return DualProblem(
        system,
        split.target,
        several & (importance > 0) & (split.target > 0),
        importance == 0,
        independent,
    )


def met(problem: DualProblem, iterate: Iterate, stop: StoppingRule) -> bool:
    """Say whether the target is met as closely as the stopping rule asks."""
    if not iterate.residual <= stop.tol:
        return False
    return bool(np.isinf(stop.relative) or _worst_error(problem, iterate) <= stop.relative)


def climb(problem: DualProblem, iterate: Iterate, stop: StoppingRule, climbs: int) -> Iterate:
    """Climb for a while by the cheapest method for the size; ``climbs`` counts earlier climbs."""
    left = stop.max_iter - iterate.evaluations
    explicit = isinstance(problem.system, ExplicitSystem)
    limit = _FACTORISED_AT_ONCE if explicit else _LOW_RANK_AT_ONCE
    large = np.count_nonzero(problem.free) > limit
    if large and climbs == 0 and stop.method == "auto":
        budget = min(left, _ACCELERATED_CLIMB)
        swept = accelerated(problem, iterate.potentials, tol=stop.tol, max_iter=budget)
        return swept.after(iterate)
    budget = min(left, CLIMBS[climbs] if climbs < len(CLIMBS) else _LONG_CLIMB)
    dense = STUBBORN_CLIENTS if climbs else DENSE_CLIENTS
    return go_on(problem, iterate, stop, budget=budget, dense=dense)


def go_on(
    problem: DualProblem,
    iterate: Iterate,
    stop: StoppingRule,
    *,
    pull: Pull | None = None,
    budget: int = CLIMBS[0],
    dense: int = DENSE_CLIENTS,
) -> Iterate:
    """Continue by Newton's method, for at most ``budget`` evaluations."""
    climbed = newton(
        problem,
        iterate.potentials,
        tol=stop.tol,
        relative=stop.relative,
        max_iter=max(1, min(budget, stop.max_iter - iterate.evaluations)),
        pull=pull,
        dense=dense,
    )
    return climbed.after(iterate)


def climb_until(problem: DualProblem, iterate: Iterate, stop: StoppingRule) -> Iterate:
    """Climb within levels that are known to be right, until the target is met."""
    climbs, worst = 0, np.inf
    while not met(problem, iterate, stop) and iterate.evaluations < stop.max_iter:
        iterate = climb(problem, iterate, stop, climbs)
        climbs, before, worst = climbs + 1, worst, _worst_error(problem, iterate)
        if iterate.residual <= stop.tol and worst > 0.5 * before:
            # What remains of the relative error is rounding.
            break
    return iterate


def _worst_error(problem: DualProblem, iterate: Iterate) -> float:
    """Return the largest error of a client, relative to its target."""
    error = np.abs(problem.error(iterate.marginal))[problem.free]
    with np.errstate(over="ignore"):
        return float(np.max(error / problem.target[problem.free], initial=0.0))
