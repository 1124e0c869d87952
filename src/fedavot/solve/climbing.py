"""Solve for the potentials within fixed levels, by the cheapest method for the size.

A `Partition` fixes what every client should get; an `Iterate` says how close the potentials have
come. The search for levels alternates between the two: climb the dual for a while, then read the
levels off the order of the potentials again.
"""

import numpy as np

from fedavot.laws._explicit import ExplicitSystem
from fedavot.solve.direction import DENSE_CLIENTS, STUBBORN_CLIENTS
from fedavot.solve.dual import DualProblem, Iterate, StoppingRule
from fedavot.solve.ipfp import accelerated
from fedavot.solve.newton import newton

# Evaluations of the first climbs: few, because tight problems show early; and of each later climb.
CLIMBS, _LONG_CLIMB, _ACCELERATED_CLIMB = (10, 15), 50, 30
# Number of clients up to which a few factorisations cost less than a few sweeps, for cohorts that
# are listed, and for laws of product form, whose factors are cheaper.
_FACTORISED_AT_ONCE, _LOW_RANK_AT_ONCE = 300, 20_000


def climb(problem: DualProblem, iterate: Iterate, stop: StoppingRule, climbs: int) -> Iterate:
    """Climb for a while by the cheapest method for the size; ``climbs`` counts earlier climbs."""
    listed = isinstance(problem.system, ExplicitSystem)
    limit = _FACTORISED_AT_ONCE if listed else _LOW_RANK_AT_ONCE
    if np.count_nonzero(problem.free) > limit and climbs == 0 and stop.method == "auto":
        budget = min(stop.max_iter - iterate.evaluations, _ACCELERATED_CLIMB)
        return accelerated(problem, iterate, stop, budget=budget)
    budget = CLIMBS[climbs] if climbs < len(CLIMBS) else _LONG_CLIMB
    dense = STUBBORN_CLIENTS if climbs else DENSE_CLIENTS
    return newton(problem, iterate, stop, budget=budget, dense=dense)


def climb_until(problem: DualProblem, iterate: Iterate, stop: StoppingRule) -> Iterate:
    """Climb within levels that are known to be right, until the target is met."""
    climbs, worst = 0, np.inf
    while not problem.met(iterate, stop) and iterate.evaluations < stop.max_iter:
        iterate = climb(problem, iterate, stop, climbs)
        climbs, before, worst = climbs + 1, worst, problem.worst_error(iterate)
        if iterate.residual <= stop.tol and worst > 0.5 * before:
            break  # what remains of the relative error is rounding
    return iterate
