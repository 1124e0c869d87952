"""Newton's method on the concave dual, with the Laplacian of co-participation as its Hessian.

D(x) = Σ p_i x_i − E_A log Σ_{k∈A} exp(x_k) has gradient p − m(x) and Hessian
−E[diag(Y_A) − Y_A Y_Aᵀ]. The third derivative along d is at most the range of d within a cohort
times the second, so a step of length log(1 + β)/β with β the largest such range increases D from
anywhere (Sun and Tran-Dinh 2019): along a chain of a thousand cohorts potentials may move by
thousands at once. The full step is tried first and kept unless the slope along d has become clearly
negative: D is concave, so while the slope is positive D is still rising. Parts of the problem that
do not interact have their own step lengths.
"""

import numpy as np

from fedavot._checks import Floats
from fedavot.solve._problem import DualProblem, Iterate, Pull
from fedavot.solve.direction import DENSE_CLIENTS, newton_direction

_LONGEST_STEP = 8.0
"""Largest change per step of a difference within a cohort: a local model is no good beyond e^8."""


def newton(
    problem: DualProblem,
    start: Floats,
    *,
    tol: float,
    max_iter: int,
    relative: float = np.inf,
    pull: Pull | None = None,
    dense: int = DENSE_CLIENTS,
) -> Iterate:
    """Climb until the gradient's L1 norm is within ``tol``, or ``max_iter`` evaluations are spent.

    The law is evaluated once per step, and more often where the full step overshoots. The gradient
    of each client must also be within ``relative`` of its target. Problems of up to ``dense`` free
    clients may be factorised densely.
    """
    potentials = start
    point = problem.system.curvature(potentials)
    gradient = _gradient(problem, potentials, point.marginal, pull)
    evaluations = 1
    while (
        evaluations < max_iter
        and problem.free.any()
        and not _small(problem, gradient, tol, relative)
    ):
        direction = newton_direction(problem, point, gradient, pull, dense)
        slope = problem.by_part(direction * gradient)
        reach = np.maximum(problem.reach_by_part(direction), 1e-9)
        safe = np.log1p(reach) / reach
        # Soft alignment always has an optimum, however far away; exact alignment may have none.
        length = np.ones_like(reach) if pull else np.minimum(1.0, _LONGEST_STEP / reach)
        while True:
            moved = potentials + length[problem.parts] * direction
            point = problem.system.curvature(moved)
            gradient = _gradient(problem, moved, point.marginal, pull)
            evaluations += 1
            end = problem.by_part(direction * gradient)
            over = (length > safe) & (end < -0.5 * slope)
            if not over.any() or evaluations >= max_iter:
                break
            # The slope vanishes in between: go where a line through both would, a tenth at least.
            back = np.maximum(0.1, slope / np.where(over & (slope > end), slope - end, 1.0))
            length = np.where(over, np.maximum(safe, length * back), length)
        potentials = moved
    return Iterate(potentials, point.marginal, float(np.abs(gradient).sum()), evaluations)


def _small(problem: DualProblem, gradient: Floats, tol: float, relative: float) -> bool:
    if not np.abs(gradient).sum() <= tol:
        return False
    if np.isinf(relative):
        return True
    return bool(np.all(np.abs(gradient) <= relative * problem.target, where=problem.free))


def _gradient(
    problem: DualProblem, potentials: Floats, marginal: Floats, pull: Pull | None
) -> Floats:
    gradient = problem.error(marginal)
    return gradient if pull is None else gradient - pull.force(potentials)
