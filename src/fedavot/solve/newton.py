"""Newton's method on the concave dual, with the Laplacian of co-participation as its Hessian.

D(x) = Σ p_i x_i − E_A log Σ_{k∈A} exp(x_k) has gradient p − m(x) and Hessian
−E[diag(Y_A) − Y_A Y_Aᵀ]. The third derivative along d is at most the range of d within a cohort
times the second, so a step of length log(1 + β)/β with β the largest such range increases D from
anywhere (Sun and Tran-Dinh 2019): along a chain of a thousand cohorts potentials may move by
thousands at once. The full step is tried first and kept unless the slope along d has become clearly
negative: D is concave, so while the slope is positive D is still rising. Parts of the problem that
do not interact have their own step lengths.

Where there are many clients, `climb` sweeps before the first step: that is the cheapest way to come
near the optimum.
"""

import numpy as np

from fedavot._checks import Floats
from fedavot.laws._explicit import ExplicitSystem
from fedavot.laws._law import Curvature
from fedavot.solve.direction import DENSE_CLIENTS, STUBBORN_CLIENTS, newton_direction
from fedavot.solve.dual import DualProblem, Iterate, Pull, StoppingRule
from fedavot.solve.ipfp import accelerated

# Evaluations of the first climbs: few, because tight problems show early; and of each later climb.
CLIMBS, _LONG_CLIMB, _ACCELERATED_CLIMB = (10, 15), 50, 30
# Number of clients up to which a few factorisations cost less than a few sweeps, for cohorts that
# are listed, and for laws of product form, whose factors are cheaper.
_FACTORISED_AT_ONCE, _LOW_RANK_AT_ONCE = 300, 20_000
# Largest change per step of a difference within a cohort: a local model is no good beyond e^8.
_LONGEST_STEP = 8.0


def newton(
    problem: DualProblem,
    start: Iterate,
    stop: StoppingRule,
    *,
    budget: int,
    pull: Pull | None = None,
    dense: int = DENSE_CLIENTS,
) -> Iterate:
    """Climb until the gradient is as small as the rule asks, or ``budget`` evaluations are spent.

    The law is evaluated once per step, and more often where the full step overshoots. Problems of
    up to ``dense`` free clients may be factorised densely.
    """
    budget = max(1, min(budget, stop.max_iter - start.evaluations))
    potentials, parts = start.potentials, problem.parts
    point, gradient = _evaluate(problem, potentials, pull)
    evaluations = 1
    while evaluations < budget and problem.free.any():
        short = np.abs(gradient)
        if short.sum() <= stop.tol and (
            np.isinf(stop.relative)
            or np.all(short <= stop.relative * problem.target, where=problem.free)
        ):
            break
        direction = newton_direction(problem, point, gradient, pull, dense)
        slope = np.bincount(parts, direction * gradient)
        reach = np.maximum(problem.reach_by_part(direction), 1e-9)
        safe = np.log1p(reach) / reach
        # Soft alignment always has an optimum, however far away; exact alignment may have none.
        length = np.ones_like(reach) if pull else np.minimum(1.0, _LONGEST_STEP / reach)
        while True:
            moved = potentials + length[parts] * direction
            point, gradient = _evaluate(problem, moved, pull)
            evaluations += 1
            end = np.bincount(parts, direction * gradient)
            over = (length > safe) & (end < -0.5 * slope)
            if not over.any() or evaluations >= budget:
                break
            # The slope vanishes in between: go where a line through both would, a tenth at least.
            back = np.maximum(0.1, slope / np.where(over & (slope > end), slope - end, 1.0))
            length = np.where(over, np.maximum(safe, length * back), length)
        potentials = moved
    residual = float(np.abs(gradient).sum())
    return Iterate(potentials, point.marginal, residual, start.evaluations + evaluations)


def _evaluate(
    problem: DualProblem, potentials: Floats, pull: Pull | None
) -> tuple[Curvature, Floats]:
    point = problem.system.curvature(potentials)
    gradient = problem.error(point.marginal)
    return point, gradient if pull is None else gradient - pull.force(potentials)


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
