"""Newton's method on the concave dual, with the Laplacian of co-participation as its Hessian.

D(x) = Σ p_i x_i − E_A log Σ_{k∈A} exp(x_k) has gradient p − m(x) and Hessian
−E[diag(Y_A) − Y_A Y_Aᵀ]. The third derivative along d is at most range(d) times the second, so a
step of log(1 + β)/β with β = range(d) climbs from anywhere (Sun and Tran-Dinh 2019). The full step
is tried first and kept unless the slope along d has turned round: D is concave, so a slope still
positive means every point on the way was better than the last. Parts of
the problem that do not interact have their own step lengths. Soft alignment adds
−(ρ/2) Σ p_i (x_i − x̄)², x̄ = Σ p_i x_i, which keeps the potentials finite for every p.
"""

from collections.abc import Callable

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._law import Curvature
from fedavot.solve._problem import Problem, Run

DENSE_CLIENTS = 1500
"""Up to here a dense factorisation is cheaper than conjugate gradients."""
STUBBORN_CLIENTS = 5_000
"""Up to here it fits in memory, for problems so badly conditioned that they need one."""
_RIDGE = 1e-12
"""Relative; fixes the free constant of each connected component and drowns in the gradient."""
_CG_STEPS = 200
_LONGEST_STEP = 8.0
"""Potentials spread by at most this much a step; e^8 is as far as a local model can be trusted."""


def newton(
    problem: Problem,
    start: Floats,
    *,
    tol: float,
    max_iter: int,
    softness: float = 0.0,
    dense: int = DENSE_CLIENTS,
) -> Run:
    """Climb until the gradient's L1 norm is within ``tol``, or ``max_iter`` evaluations are spent.

    The law is evaluated once a step, more often where the full step overshoots. Problems of up to
    ``dense`` free clients are factorised, larger ones take conjugate gradients.
    """
    potentials = start
    point = problem.system.curvature(potentials)
    gradient = _gradient(problem, potentials, point, softness)
    evaluations = 1
    while evaluations < max_iter and problem.free.any() and not np.abs(gradient).sum() <= tol:
        direction = _direction(problem, point, gradient, softness, dense)
        slope = problem.by_part(direction * gradient)
        reach = np.maximum(problem.range_by_part(direction), 1e-9)
        safe = np.log1p(reach) / reach
        # Soft potentials are bounded however far they are; exact ones may have no optimum at all.
        length = np.ones_like(reach) if softness else np.minimum(1.0, _LONGEST_STEP / reach)
        while True:
            moved = potentials + length[problem.parts] * direction
            point = problem.system.curvature(moved)
            gradient = _gradient(problem, moved, point, softness)
            evaluations += 1
            end = problem.by_part(direction * gradient)
            over = (length > safe) & (end < -0.5 * slope)
            if not over.any() or evaluations >= max_iter:
                break
            # The slope vanishes in between: go where a straight line would, at most to a tenth.
            back = np.maximum(0.1, slope / np.where(over, slope - end, 1.0))
            length = np.where(over, np.maximum(safe, length * back), length)
        potentials = moved
    return Run(potentials, point.marginal, float(np.abs(gradient).sum()), evaluations)


def _gradient(problem: Problem, potentials: Floats, point: Curvature, softness: float) -> Floats:
    gradient = problem.error(point.marginal)
    if softness:
        gradient = gradient - softness * _pull(problem, potentials)
    return gradient


def _pull(problem: Problem, values: Floats) -> Floats:
    """Return p ∘ (x − Σ p_k x_k): how strongly softness draws potentials together."""
    share = problem.target / max(float(problem.target.sum()), 1e-300)
    return np.asarray(share * (values - share @ values))


def _direction(
    problem: Problem, point: Curvature, gradient: Floats, softness: float, dense: int
) -> Floats:
    """Solve Hessian · direction = gradient over the free clients."""
    free = problem.free
    if np.count_nonzero(free) <= dense:
        direction = np.zeros_like(gradient)
        hessian = point.dense()
        for block in _blocks(problem):
            target = problem.target[block]
            matrix = hessian if block.size == gradient.size else hessian[np.ix_(block, block)]
            if softness:
                share = target / problem.target.sum()
                matrix += softness * (np.diag(share) - np.outer(share, share))
            np.fill_diagonal(matrix, matrix.diagonal() + _RIDGE * target)
            direction[block] = solve_dense(matrix, gradient[block])
        return direction

    def product(vector: Floats) -> Floats:
        result = point.product(vector)
        if softness:
            result = result + softness * _pull(problem, vector)
        return np.where(free, result, 0.0)

    # A client alone in all its cohorts has no curvature: rounding must not send it far away.
    diagonal = np.maximum(point.marginal - point.squares, 1e-8 * point.marginal)
    preconditioner = np.where(free, diagonal + (softness + _RIDGE) * problem.target, 1.0)
    aim = min(0.1, float(np.sqrt(np.abs(gradient).sum())))
    return conjugate_gradients(product, gradient, preconditioner, aim)


def _blocks(problem: Problem) -> list[Integers]:
    """Return the free clients, part by part: the Hessian has no entries between parts."""
    clients = np.flatnonzero(problem.free)
    parts = problem.parts[clients]
    order = np.argsort(parts, kind="stable")
    cuts = np.flatnonzero(np.diff(parts[order])) + 1
    return np.split(clients[order], cuts)


def solve_dense(matrix: Floats, right: Floats) -> Floats:
    """Solve a symmetric positive semidefinite system by Cholesky, else by least squares."""
    from scipy.linalg import lapack

    factor, failed = lapack.dpotrf(matrix, lower=1, overwrite_a=0, clean=0)
    if failed:
        # Rounding made a singular direction negative: take the least-norm solution.
        return np.asarray(np.linalg.lstsq(matrix, right, rcond=1e-14)[0])
    solution, _ = lapack.dpotrs(factor, right, lower=1)
    return np.asarray(solution)


def conjugate_gradients(
    product: Callable[[Floats], Floats], right: Floats, diagonal: Floats, aim: float
) -> Floats:
    """Solve to a relative residual of ``aim`` in the preconditioned norm."""
    solution = np.zeros_like(right)
    residual = right.copy()
    scaled = residual / diagonal
    search = scaled
    energy = float(residual @ scaled)
    goal = aim * aim * energy
    for _ in range(_CG_STEPS):
        image = product(search)
        bend = float(search @ image)
        if not bend > 0.0:
            break
        solution = solution + (energy / bend) * search
        residual = residual - (energy / bend) * image
        scaled = residual / diagonal
        previous, energy = energy, float(residual @ scaled)
        if energy <= goal:
            break
        search = scaled + (energy / previous) * search
    return solution
