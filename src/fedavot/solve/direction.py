"""The Newton direction: solve Hessian · d = gradient by whatever the law's structure makes cheap.

The Hessian E[diag(Y) − Y Yᵀ] is the Laplacian of a weighted graph on the clients; the pull of soft
alignment adds to its diagonal. Listed cohorts that overlap little (chains, trees, grids) have a
sparse factor. Laws of product form have a Hessian of low rank except for its diagonal: factors with
r columns cost N r², not N³. Small problems are factorised as they are, and all others are solved by
conjugate gradients.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from fedavot._checks import Floats, Integers
from fedavot.laws._explicit import ExplicitSystem, Listed
from fedavot.laws._laplacian import Factor, Factored, as_laplacian, gram
from fedavot.laws._law import Curvature
from fedavot.solve._numeric import conjugate_gradients, logarithmic_mean, solve_dense, solve_sparse
from fedavot.solve._problem import DualProblem, Pull

DENSE_CLIENTS = 1500
"""Number of clients up to which a dense factorisation is cheaper than conjugate gradients."""
STUBBORN_CLIENTS = 5_000
"""Number of clients up to which it fits in memory, for badly conditioned problems."""
_FEW_CLIENTS = 200
"""Number of clients up to which a dense factorisation is cheaper than any other."""
_FEW_COLUMNS = 100
"""Number of columns up to which least squares by singular values cost no more than products."""
_EXACT_CLIENTS = 40
"""Number of clients up to which a product law's exact Hessian costs no more than its factors."""
_RIDGE = 1e-12
"""Relative ridge: it fixes the free constant of each component, and is far below the gradient."""
_FLAT = 1e-16
"""Share of a client's weight below which its curvature counts as zero."""
_SWEEP = 8.0
"""Longest step of a client without curvature."""


@dataclass(frozen=True, eq=False)
class _Step:
    """One linear system: (Laplacian + diag(extra)) d = gradient over the free clients."""

    problem: DualProblem
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

        Such clients are alone wherever they get weight. A linear model would send them to infinity
        for a shortfall that no potential can mend, and shorten everybody else's step.
        """
        weight = self.point.marginal[block]
        stuck = curvature <= _FLAT * weight
        # A pull gives every client curvature.
        if self.pulled or not stuck.any():
            return direction
        target = self.problem.target[block]
        sweep = np.log(np.maximum(target, 1e-300) / np.maximum(weight, 1e-300))
        return np.where(stuck, np.clip(sweep, -_SWEEP, _SWEEP), direction)


def newton_direction(
    problem: DualProblem, point: Curvature, gradient: Floats, pull: Pull | None, dense: int
) -> Floats:
    """Solve Hessian · direction = gradient over the free clients.

    Problems of up to ``dense`` free clients may be factorised densely, larger ones may not; 0 asks
    for conjugate gradients, unless the law is in closed form.
    """
    extra = _extra(problem, point, gradient, pull)
    step = _Step(problem, point, gradient, extra, pulled=pull is not None)
    count = int(np.count_nonzero(problem.free))
    if isinstance(problem.system, ExplicitSystem):
        if dense and count > _FEW_CLIENTS and problem.system.is_sparse:
            return _by_sparse_factor(step)
    elif isinstance(point, Factored):
        factors = point.factors() if count > _EXACT_CLIENTS else None
        if factors is not None:
            return _by_factors(step, factors)
    at_once = min(dense, DENSE_CLIENTS) if isinstance(point, Listed) else dense
    if count <= at_once:
        return _by_blocks(step)
    direction, solved = _by_conjugate_gradients(step)
    # Where the problem is badly conditioned, factorising it costs less than any number of steps.
    return direction if solved or count > dense else _by_large_blocks(step)


def _extra(problem: DualProblem, point: Curvature, gradient: Floats, pull: Pull | None) -> Floats:
    """Return what is added to the Laplacian's diagonal.

    A weight m with a gradient g > m grows exponentially: its curvature, about m, promises a step of
    g/m where log((m + g)/m) is right. The logarithmic mean of m and m + g in place of m gives that
    step. With a pull this is done for every shortfall, because steps there are long and shorter
    ones that never overshoot need fewer evaluations in all.
    """
    marginal = point.marginal
    far = gradient > (marginal if pull is None else 0.0)
    if pull is None and not far.any():
        return _RIDGE * problem.target
    mean = logarithmic_mean(np.where(far, marginal + gradient, marginal), marginal)
    ridge = np.where(far, mean - marginal, 0.0) + _RIDGE * problem.target
    return ridge if pull is None else ridge + pull.stiffness


def _by_blocks(step: _Step) -> Floats:
    direction = np.zeros_like(step.gradient)
    hessian = step.point.dense()
    for block in step.problem.blocks:
        matrix = hessian if block.size == direction.size else hessian[np.ix_(block, block)]
        direction[block] = step.solve_block(matrix, block)
    return direction


def _by_large_blocks(step: _Step) -> Floats:
    """Solve part by part, without ever forming the whole matrix.

    Parts with fewer cohorts than clients are solved on the cohorts' side.
    """
    direction = np.zeros_like(step.gradient)
    roots, parts = step.point.roots().matrix(), step.problem.parts
    # Each cohort lies within one part: sorted by part, the cohorts of a part are neighbours.
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
    clients = np.flatnonzero(step.problem.free)
    matrix = step.point.roots().sparse_laplacian()[clients][:, clients]
    direction = np.zeros_like(step.gradient)
    solution = solve_sparse(
        matrix + sparse.diags_array(step.extra[clients]), step.gradient[clients]
    )
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
    """Put the factors of one part side by side, one row per client of its block."""
    if len(factors) == 1 and np.array_equal(place[factors[0].clients], np.arange(size)):
        return factors[0].columns, factors[0].signs
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
    # A client alone in all its cohorts has no curvature, and rounding must not send it far away.
    diagonal = np.maximum(diagonal, 1e-8 * target)
    scaled = columns / diagonal[:, None]
    right = step.gradient[block] / diagonal
    small = np.diag(signs) - columns.T @ scaled
    if signs.size > _FEW_COLUMNS and signs.min() > 0:
        # Positive semidefinite, and singular only along the constant, which is removed below.
        inner = solve_dense(small, columns.T @ right)
    else:
        inner = np.linalg.lstsq(small, columns.T @ right, rcond=1e-15)[0]
    own = np.square(columns) @ signs
    solution = step.settled(right + scaled @ inner, block, diagonal - step.extra[block] - own)
    # Only differences matter, and the constant is the direction that rounding amplifies.
    return np.asarray(solution - (target @ solution) / max(float(target.sum()), 1e-300))


def _by_conjugate_gradients(step: _Step) -> tuple[Floats, bool]:
    free, point = step.problem.free, step.point

    def product(vector: Floats) -> Floats:
        return np.where(free, point.product(vector) + step.extra * vector, 0.0)

    # A client alone in all its cohorts has no curvature, and rounding must not send it far away.
    diagonal = np.maximum(point.marginal - point.squares, 1e-8 * point.marginal)
    preconditioner = np.where(free, diagonal + step.extra, 1.0)
    aim = min(0.1, float(np.sqrt(np.abs(step.gradient).sum())))
    return conjugate_gradients(product, step.gradient, preconditioner, aim)
