"""The Newton direction: solve Hessian · d = gradient by whatever the law's structure makes cheap.

The Hessian E[diag(Y) − Y Yᵀ] is the Laplacian of a weighted graph on the clients, plus the pull of
softness, which adds to its diagonal. Listed cohorts that overlap little (chains,
trees, grids) have a sparse factor. Laws of product form have a Hessian of low rank but for its
diagonal: factors with r columns cost N r², not N³. Small problems are factorised as they are, and
whatever remains is left to conjugate gradients.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._explicit import ExplicitSystem
from fedavot.laws._law import Curvature, as_laplacian
from fedavot.laws._quadrature import Factor, Factored
from fedavot.solve._problem import Problem, Pull

DENSE_CLIENTS = 1500
"""Up to here a dense factorisation is cheaper than conjugate gradients."""
STUBBORN_CLIENTS = 5_000
"""Up to here it fits in memory, for problems so badly conditioned that they need one."""
_FEW_CLIENTS = 200
"""Up to here a dense factorisation is cheaper than any other."""
_EXACT_CLIENTS = 40
"""Up to here a product law's exact Hessian costs no more than its factors."""
_RIDGE = 1e-12
"""Relative; fixes the free constant of each connected component and drowns in the gradient."""
_CG_STEPS = 200


def newton_direction(
    problem: Problem, point: Curvature, gradient: Floats, pull: Pull | None, dense: int
) -> Floats:
    """Solve Hessian · direction = gradient over the free clients.

    Problems of up to ``dense`` free clients may be factorised densely, larger ones not.
    """
    count = int(np.count_nonzero(problem.free))
    system = problem.system
    if isinstance(system, ExplicitSystem):
        if count > _FEW_CLIENTS and dense and system.is_sparse:
            return _by_sparse_factor(problem, point, gradient, pull)
    elif count > _EXACT_CLIENTS and dense:
        factors = point.factors() if isinstance(point, Factored) else None
        if factors is not None:
            return _by_factors(problem, factors, gradient, pull)
    if count <= dense:
        return _by_blocks(problem, point, gradient, pull)
    return _by_conjugate_gradients(problem, point, gradient, pull)


def blocks(problem: Problem) -> list[Integers]:
    """Return the free clients, part by part: the Hessian has no entries between parts."""
    clients = np.flatnonzero(problem.free)
    parts = problem.parts[clients]
    order = np.argsort(parts, kind="stable")
    cuts = np.flatnonzero(np.diff(parts[order])) + 1
    return np.split(clients[order], cuts)


def _by_blocks(problem: Problem, point: Curvature, gradient: Floats, pull: Pull | None) -> Floats:
    direction = np.zeros_like(gradient)
    hessian = point.dense()
    for block in blocks(problem):
        matrix = hessian if block.size == gradient.size else hessian[np.ix_(block, block)]
        direction[block] = _solve_block(problem, matrix, block, gradient, pull)
    return direction


def _solve_block(
    problem: Problem, matrix: Floats, block: Integers, gradient: Floats, pull: Pull | None
) -> Floats:
    """Solve one part densely; the matrix is overwritten."""
    np.fill_diagonal(matrix, matrix.diagonal() + _extra(problem, pull)[block])
    return solve_dense(matrix, gradient[block])


def _extra(problem: Problem, pull: Pull | None) -> Floats:
    """Return what is added to the Laplacian's diagonal."""
    ridge = _RIDGE * problem.target
    return ridge if pull is None else ridge + pull.stiffness


def _by_sparse_factor(problem: Problem, point: Any, gradient: Floats, pull: Pull | None) -> Floats:
    from scipy import sparse
    from scipy.sparse.linalg import splu

    clients = np.flatnonzero(problem.free)
    matrix = point.sparse()[clients][:, clients]
    ridge = sparse.diags_array(_extra(problem, pull)[clients])
    factor = splu(
        (matrix + ridge).tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    direction = np.zeros_like(gradient)
    direction[clients] = factor.solve(gradient[clients])
    return direction


def _by_factors(
    problem: Problem, factors: list[Factor], gradient: Floats, pull: Pull | None
) -> Floats:
    """Solve part by part with the product law's columns: E[Y_i Y_j] = Σ_k s_k F_ik F_jk."""
    direction = np.zeros_like(gradient)
    by_part: dict[int, list[Factor]] = {}
    for factor in factors:
        by_part.setdefault(int(problem.parts[factor.clients[0]]), []).append(factor)
    for block in blocks(problem):
        found = by_part.get(int(problem.parts[block[0]]), [])
        columns, signs = _gather(found, block, gradient.size)
        if block.size <= max(_FEW_CLIENTS, columns.shape[1]):
            matrix = as_laplacian((columns * signs) @ columns.T)
            direction[block] = _solve_block(problem, matrix, block, gradient, pull)
        else:
            direction[block] = _by_low_rank(problem, columns, signs, block, gradient, pull)
    return direction


def _gather(factors: list[Factor], block: Integers, n_clients: int) -> tuple[Floats, Floats]:
    """Lay the factors of one part side by side, rows in the order of the block."""
    place = np.full(n_clients, -1)
    place[block] = np.arange(block.size)
    columns = np.zeros((block.size, sum(factor.signs.size for factor in factors)))
    first = 0
    for factor in factors:
        rows = place[factor.clients]
        last = first + factor.signs.size
        columns[rows[rows >= 0], first:last] = factor.columns[rows >= 0]
        first = last
    return columns, np.concatenate([np.empty(0), *(factor.signs for factor in factors)])


def _by_low_rank(
    problem: Problem,
    columns: Floats,
    signs: Floats,
    block: Integers,
    gradient: Floats,
    pull: Pull | None,
) -> Floats:
    """Solve (D − F S Fᵀ) d = g through the small matrix S − Fᵀ D⁻¹ F (Woodbury)."""
    diagonal = columns @ (signs * columns.sum(axis=0)) + _extra(problem, pull)[block]
    # A client alone in all its cohorts has no curvature: rounding must not send it far away.
    diagonal = np.maximum(diagonal, 1e-8 * problem.target[block])
    scaled = columns / diagonal[:, None]
    right = gradient[block] / diagonal
    small = np.diag(signs) - columns.T @ scaled
    inner = np.linalg.lstsq(small, columns.T @ right, rcond=1e-15)[0]
    solution = right + scaled @ inner
    if pull is None:
        weight = problem.target[block]
        solution = solution - (weight @ solution) / weight.sum()
    return np.asarray(solution)


def _by_conjugate_gradients(
    problem: Problem, point: Curvature, gradient: Floats, pull: Pull | None
) -> Floats:
    free = problem.free

    extra = _extra(problem, pull)

    def product(vector: Floats) -> Floats:
        return np.where(free, point.product(vector) + extra * vector, 0.0)

    # A client alone in all its cohorts has no curvature: rounding must not send it far away.
    diagonal = np.maximum(point.marginal - point.squares, 1e-8 * point.marginal)
    preconditioner = np.where(free, diagonal + extra, 1.0)
    aim = min(0.1, float(np.sqrt(np.abs(gradient).sum())))
    return conjugate_gradients(product, gradient, preconditioner, aim)


def solve_dense(matrix: Floats, right: Floats) -> Floats:
    """Solve a symmetric positive semidefinite system by Cholesky, else by least squares.

    Rows and columns are first scaled to a unit diagonal: entries may span many orders of magnitude.
    """
    from scipy.linalg import lapack

    diagonal = matrix.diagonal()
    scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = matrix * scale[:, None] * scale
    factor, failed = lapack.dpotrf(scaled, lower=1, overwrite_a=0, clean=0)
    if failed:
        # Rounding made a singular direction negative: take the least-norm solution.
        return np.asarray(scale * np.linalg.lstsq(scaled, scale * right, rcond=1e-14)[0])
    solution, _ = lapack.dpotrs(factor, scale * right, lower=1)
    return np.asarray(scale * solution)


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
