"""The Newton direction: solve Hessian · d = gradient by whatever the law's structure makes cheap.

The Hessian E[diag(Y) − Y Yᵀ] is the Laplacian of a weighted graph on the clients, plus the pull of
softness, which adds to its diagonal. Listed cohorts that overlap little (chains,
trees, grids) have a sparse factor. Laws of product form have a Hessian of low rank but for its
diagonal: factors with r columns cost N r², not N³. Small problems are factorised as they are, and
whatever remains is left to conjugate gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._explicit import ExplicitSystem, Listed
from fedavot.laws._law import Curvature, as_laplacian
from fedavot.laws._quadrature import Factor, Factored
from fedavot.laws._roots import gram
from fedavot.solve._problem import Problem, Pull

DENSE_CLIENTS = 1500
"""Up to here a dense factorisation is cheaper than conjugate gradients."""
STUBBORN_CLIENTS = 5_000
"""Up to here it fits in memory, for problems so badly conditioned that they need one."""
_FEW_CLIENTS = 200
"""Up to here a dense factorisation is cheaper than any other."""
_FEW_COLUMNS = 100
"""Up to here least squares through singular values cost no more than the columns' products."""
_EXACT_CLIENTS = 40
"""Up to here a product law's exact Hessian costs no more than its factors."""
_RIDGE = 1e-12
"""Relative; fixes the free constant of each connected component and drowns in the gradient."""
_CG_STEPS = 200
_FLAT = 1e-16
"""Share of a client's weight below which its curvature counts as none."""
_SWEEP = 8.0


@dataclass(frozen=True, eq=False)
class _Step:
    """One linear system: (Laplacian + diag(extra)) d = gradient over the free clients."""

    problem: Problem
    point: Any
    gradient: Floats
    extra: Floats
    pulled: bool

    def solve_block(self, laplacian: Floats, block: Integers) -> Floats:
        """Solve one part densely; the matrix is overwritten."""
        curvature = laplacian.diagonal().copy()
        np.fill_diagonal(laplacian, curvature + self.extra[block])
        return self.settled(solve_dense(laplacian, self.gradient[block]), block, curvature)

    def settled(self, direction: Floats, block: Integers, curvature: Floats) -> Floats:
        """Replace the direction of clients without curvature by a sweep's, log(target/weight).

        They are alone wherever they get weight, so a linear model would send them off to infinity
        for a shortfall that no potential can mend, and everybody else would have to wait.
        """
        weight = self.point.marginal[block]
        stuck = curvature <= _FLAT * weight
        # A pull gives curvature to everybody.
        if self.pulled or not stuck.any():
            return direction
        target = self.problem.target[block]
        sweep = np.log(np.maximum(target, 1e-300) / np.maximum(weight, 1e-300))
        return np.where(stuck, np.clip(sweep, -_SWEEP, _SWEEP), direction)


def newton_direction(
    problem: Problem, point: Curvature, gradient: Floats, pull: Pull | None, dense: int
) -> Floats:
    """Solve Hessian · direction = gradient over the free clients.

    Problems of up to ``dense`` free clients may be factorised densely, larger ones not; 0 asks for
    conjugate gradients whatever the structure.
    """
    extra = _extra(problem, point, gradient, pull)
    step = _Step(problem, point, gradient, extra, pulled=pull is not None)
    count = int(np.count_nonzero(problem.free))
    if isinstance(problem.system, ExplicitSystem):
        if dense and count > _FEW_CLIENTS and problem.system.is_sparse:
            return _by_sparse_factor(step)
    elif count > _EXACT_CLIENTS and dense and isinstance(point, Factored):
        factors = point.factors()
        if factors is not None:
            return _by_factors(step, factors)
    if count <= dense:
        large = count > DENSE_CLIENTS and isinstance(point, Listed)
        return _by_large_blocks(step) if large else _by_blocks(step)
    return _by_conjugate_gradients(step)


def _extra(problem: Problem, point: Curvature, gradient: Floats, pull: Pull | None) -> Floats:
    """Return what is added to the Laplacian's diagonal.

    A weight m that lacks more than it has, g > m, grows exponentially: its curvature, about m,
    promises a step of g/m where log((m + g)/m) is right. The logarithmic mean of m and m + g in
    place of m gives that step. Against a pull every shortfall gets it: steps there are long, and
    short ones that are sure arrive earlier.
    """
    marginal = point.marginal
    far = gradient > (marginal if pull is None else 0.0)
    if pull is None and not far.any():
        return _RIDGE * problem.target
    mean = logarithmic_mean(np.where(far, marginal + gradient, marginal), marginal)
    ridge = np.where(far, mean - marginal, 0.0) + _RIDGE * problem.target
    return ridge if pull is None else ridge + pull.stiffness


def logarithmic_mean(left: Floats, right: Floats) -> Floats:
    """Return (a − b)/log(a/b), or the mean where they are alike, entry by entry."""
    left, right = np.maximum(left, 1e-300), np.maximum(right, 1e-300)
    logs = np.log(left / right)
    alike = np.abs(logs) < 1e-3
    return np.where(alike, (left + right) / 2, (left - right) / np.where(alike, 1.0, logs))


def _by_blocks(step: _Step) -> Floats:
    direction = np.zeros_like(step.gradient)
    hessian = step.point.dense()
    for block in step.problem.blocks:
        matrix = hessian if block.size == direction.size else hessian[np.ix_(block, block)]
        direction[block] = step.solve_block(matrix, block)
    return direction


def _by_large_blocks(step: _Step) -> Floats:
    """Solve part by part without ever laying out the whole matrix.

    Parts with fewer cohorts than clients are solved on the cohorts' side.
    """
    direction = np.zeros_like(step.gradient)
    roots, parts = step.point.roots().matrix(), step.problem.parts
    # Each cohort lies within one part: in order of their parts, a part's are neighbours.
    part = parts[roots.indices[roots.indptr[:-1]]]
    order = np.argsort(part, kind="stable")
    roots, part = roots[order], part[order]
    for block in step.problem.blocks:
        own = parts[block[0]]
        rows = roots[np.searchsorted(part, own) : np.searchsorted(part, own, side="right")]
        rows = rows[:, block]
        if block.size > _FEW_CLIENTS and rows.shape[0] < 0.7 * block.size:
            direction[block] = _by_cohorts(step, rows, block)
        else:
            direction[block] = step.solve_block(as_laplacian(gram(rows)), block)
    return direction


def _by_cohorts(step: _Step, rows: Any, block: Integers) -> Floats:
    """Solve (D − Bᵀ B) d = g through the cohorts' matrix 1 − B D⁻¹ Bᵀ, B the rows √q Y."""
    diagonal = rows.T @ np.asarray(rows.sum(axis=1)).ravel() + step.extra[block]
    inverse = 1.0 / diagonal
    scaled = (rows * inverse[None, :]).tocsr()
    small = np.negative((scaled @ rows.T).toarray())
    np.fill_diagonal(small, small.diagonal() + 1.0)
    right = step.gradient[block] * inverse
    solution = np.asarray(right + scaled.T @ solve_dense(small, rows @ right))
    own = np.asarray(rows.power(2).sum(axis=0)).ravel()
    return step.settled(solution, block, diagonal - step.extra[block] - own)


def _by_sparse_factor(step: _Step) -> Floats:
    from scipy import sparse
    from scipy.sparse.linalg import splu

    clients = np.flatnonzero(step.problem.free)
    matrix = step.point.roots().sparse_laplacian()[clients][:, clients]
    factor = splu(
        (matrix + sparse.diags_array(step.extra[clients])).tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    direction = np.zeros_like(step.gradient)
    solution = factor.solve(step.gradient[clients])
    direction[clients] = step.settled(solution, clients, matrix.diagonal())
    return direction


def _by_factors(step: _Step, factors: list[Factor]) -> Floats:
    """Solve part by part with the product law's columns: E[Y_i Y_j] = Σ_k s_k F_ik F_jk."""
    direction = np.zeros_like(step.gradient)
    by_part: dict[int, list[Factor]] = {}
    for factor in factors:
        by_part.setdefault(int(step.problem.parts[factor.clients[0]]), []).append(factor)
    place = np.full(direction.size, -1)
    for block in step.problem.blocks:
        place[block] = np.arange(block.size)
        found = by_part.get(int(step.problem.parts[block[0]]), [])
        columns, signs = _gather(found, place, block.size)
        if block.size <= max(_FEW_CLIENTS, columns.shape[1]):
            matrix = as_laplacian((columns * signs) @ columns.T)
            direction[block] = step.solve_block(matrix, block)
        else:
            direction[block] = _by_low_rank(step, columns, signs, block)
    return direction


def _gather(factors: list[Factor], place: Integers, size: int) -> tuple[Floats, Floats]:
    """Lay the factors of one part side by side, rows at the clients' places in their block."""
    columns = np.zeros((size, sum(factor.signs.size for factor in factors)))
    first = 0
    for factor in factors:
        rows = place[factor.clients]
        last = first + factor.signs.size
        columns[rows[rows >= 0], first:last] = factor.columns[rows >= 0]
        first = last
    return columns, np.concatenate([np.empty(0), *(factor.signs for factor in factors)])


def _by_low_rank(step: _Step, columns: Floats, signs: Floats, block: Integers) -> Floats:
    """Solve (D − F S Fᵀ) d = g through the small matrix S − Fᵀ D⁻¹ F (Woodbury)."""
    target = step.problem.target[block]
    diagonal = columns @ (signs * columns.sum(axis=0)) + step.extra[block]
    # A client alone in all its cohorts has no curvature: rounding must not send it far away.
    diagonal = np.maximum(diagonal, 1e-8 * target)
    scaled = columns / diagonal[:, None]
    right = step.gradient[block] / diagonal
    small = np.diag(signs) - columns.T @ scaled
    if signs.size > _FEW_COLUMNS and signs.min() > 0:
        # Positive semidefinite, and singular only along the constant, which is taken out below.
        inner = solve_dense(small, columns.T @ right)
    else:
        inner = np.linalg.lstsq(small, columns.T @ right, rcond=1e-15)[0]
    own = np.square(columns) @ signs
    solution = step.settled(right + scaled @ inner, block, diagonal - step.extra[block] - own)
    # Only differences count, and the constant is the direction that rounding blows up.
    return np.asarray(solution - (target @ solution) / max(float(target.sum()), 1e-300))


def _by_conjugate_gradients(step: _Step) -> Floats:
    free, point = step.problem.free, step.point

    def product(vector: Floats) -> Floats:
        return np.where(free, point.product(vector) + step.extra * vector, 0.0)

    # A client alone in all its cohorts has no curvature: rounding must not send it far away.
    diagonal = np.maximum(point.marginal - point.squares, 1e-8 * point.marginal)
    preconditioner = np.where(free, diagonal + step.extra, 1.0)
    aim = min(0.1, float(np.sqrt(np.abs(step.gradient).sum())))
    return conjugate_gradients(product, step.gradient, preconditioner, aim)[0]


def solve_dense(matrix: Floats, right: Floats) -> Floats:
    """Solve a symmetric positive semidefinite system by Cholesky, else by least squares.

    Entries may span many orders of magnitude. Cholesky's rounding does not depend on how rows and
    columns are scaled; for least squares they are scaled to a unit diagonal.
    """
    from scipy.linalg import lapack

    # Transposed, the matrix lies in memory as LAPACK wants it.
    factor, failed = lapack.dpotrf(matrix.T, lower=1, overwrite_a=0, clean=0)
    if not failed:
        return np.asarray(lapack.dpotrs(factor, right, lower=1)[0])
    # Rounding made a singular direction negative: take the least-norm solution.
    diagonal = matrix.diagonal()
    scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = matrix * scale[:, None] * scale
    return np.asarray(scale * np.linalg.lstsq(scaled, scale * right, rcond=1e-14)[0])


def conjugate_gradients(
    product: Callable[[Floats], Floats],
    right: Floats,
    diagonal: Floats,
    aim: float,
    steps: int = _CG_STEPS,
) -> tuple[Floats, bool]:
    """Solve to a relative residual of ``aim`` in the preconditioned norm.

    Returns the solution, and whether it met the aim within so many steps.
    """
    solution = np.zeros_like(right)
    residual = right
    scaled = residual / diagonal
    search = scaled
    energy = float(residual @ scaled)
    goal = aim * aim * energy
    for _ in range(steps):
        image = product(search)
        bend = float(search @ image)
        if not bend > 0.0:
            break
        solution = solution + (energy / bend) * search
        residual = residual - (energy / bend) * image
        scaled = residual / diagonal
        previous, energy = energy, float(residual @ scaled)
        if energy <= goal:
            return solution, True
        search = scaled + (energy / previous) * search
    return solution, False
