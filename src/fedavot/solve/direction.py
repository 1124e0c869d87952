"""The Newton direction: solve Hessian · d = gradient by whatever the law's structure makes cheap.

The Hessian E[diag(Y) − Y Yᵀ] is the Laplacian of a weighted graph on the clients; the pull of soft
alignment adds to its diagonal. Listed cohorts that overlap little (chains, trees, grids) have a
sparse factor. Laws of product form have a Hessian of low rank except for its diagonal: factors with
r columns cost N r², not N³. Small problems are factorised as they are, and all others are solved by
conjugate gradients. The linear solvers serve the plan of least variance too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from fedavot._checks import Floats, Integers
from fedavot.laws._explicit import ExplicitSystem, Listed
from fedavot.laws._laplacian import Factor, Factored, as_laplacian, gram
from fedavot.laws._law import Curvature
from fedavot.solve.dual import DualProblem, Pull

# Number of clients up to which a dense factorisation is cheaper than conjugate gradients, and up to
# which it fits in memory, for badly conditioned problems.
DENSE_CLIENTS, STUBBORN_CLIENTS = 1500, 5_000
# Number of clients up to which a dense factorisation is cheaper than any other.
_FEW_CLIENTS = 200
# Number of columns up to which least squares by singular values cost no more than products.
_FEW_COLUMNS = 100
# Number of clients up to which a product law's exact Hessian costs no more than its factors.
_EXACT_CLIENTS = 40
# Relative ridge: it fixes the free constant of each component, and is far below the gradient.
_RIDGE = 1e-12
# Share of a client's weight below which its curvature counts as zero, and its longest step.
_FLAT, _SWEEP = 1e-16, 8.0
# Steps of conjugate gradients after which a factorisation is cheaper, where one is possible.
CG_STEPS = 200


@dataclass(frozen=True, eq=False)
class _Step:
    """One linear system: (Laplacian + diag(extra)) d = gradient over the free clients."""

    problem: DualProblem
    point: Any
    gradient: Floats
    extra: Floats
    pulled: bool

    def with_sweeps(self, direction: Floats, block: Integers, curvature: Floats) -> Floats:
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
    extra = _extra(problem, point.marginal, gradient, pull)
    step = _Step(problem, point, gradient, extra, pulled=pull is not None)
    count = int(np.count_nonzero(problem.free))
    if isinstance(problem.system, ExplicitSystem):
        if dense and count > _FEW_CLIENTS and problem.system.is_sparse:
            return _by_sparse_factor(step)
    elif isinstance(point, Factored):
        factors = point.factors() if count > _EXACT_CLIENTS else None
        if factors is not None:
            return _by_factors(step, factors)
    if count <= (min(dense, DENSE_CLIENTS) if isinstance(point, Listed) else dense):
        return _by_blocks(step, point.dense())
    direction, solved = _by_conjugate_gradients(step)
    # Where the problem is badly conditioned, factorising it costs less than any number of steps.
    return direction if solved or count > dense else _by_blocks(step, None)


def _extra(problem: DualProblem, marginal: Floats, gradient: Floats, pull: Pull | None) -> Floats:
    """Return what is added to the Laplacian's diagonal.

    A weight m with a gradient g > m grows exponentially: its curvature, about m, promises a step of
    g/m where log((m + g)/m) is right. The logarithmic mean of m and m + g in place of m gives that
    step. With a pull this is done for every shortfall, because steps there are long and shorter
    ones that never overshoot need fewer evaluations in all.
    """
    far = gradient > (marginal if pull is None else 0.0)
    extra = _RIDGE * problem.target
    if far.any():
        mean = logarithmic_mean(np.where(far, marginal + gradient, marginal), marginal)
        extra = extra + np.where(far, mean - marginal, 0.0)
    return extra if pull is None else extra + pull.softness * pull.weights


def _by_blocks(step: _Step, hessian: Floats | None) -> Floats:
    """Solve part by part densely; without the whole matrix, from the weights of its cohorts."""
    direction, parts = np.zeros_like(step.gradient), step.problem.parts
    if hessian is None:
        rows = step.point.roots().matrix()
        # Each cohort lies within one part: sorted by part, the cohorts of a part are neighbours.
        part = parts[rows.indices[rows.indptr[:-1]]]
        order = np.argsort(part, kind="stable")
        rows, part = rows[order], part[order]
    clients, starts = step.problem.grouped
    for block in np.split(clients, starts[1:]):
        if hessian is None:
            own = slice(*np.searchsorted(part, [parts[block[0]], parts[block[0]] + 1]))
            matrix = as_laplacian(gram(rows[own][:, block]))
        else:
            matrix = hessian if block.size == direction.size else hessian[np.ix_(block, block)]
        direction[block] = _by_dense_factor(step, matrix, block)
    return direction


def _by_dense_factor(step: _Step, laplacian: Floats, block: Integers) -> Floats:
    """Solve one part densely; the matrix is overwritten."""
    curvature = laplacian.diagonal().copy()
    np.fill_diagonal(laplacian, curvature + step.extra[block])
    return step.with_sweeps(solve_dense(laplacian, step.gradient[block]), block, curvature)


def _by_sparse_factor(step: _Step) -> Floats:
    clients = np.flatnonzero(step.problem.free)
    matrix = step.point.roots().sparse_laplacian()[clients][:, clients]
    ridged = matrix + sparse.diags_array(step.extra[clients])
    solution = solve_sparse(ridged, step.gradient[clients])
    direction = np.zeros_like(step.gradient)
    direction[clients] = step.with_sweeps(solution, clients, matrix.diagonal())
    return direction


def _by_factors(step: _Step, factors: list[Factor]) -> Floats:
    """Solve part by part with the product law's columns: E[Y_i Y_j] = Σ_k s_k F_ik F_jk."""
    direction, parts = np.zeros_like(step.gradient), step.problem.parts
    by_part: dict[int, list[Factor]] = {}
    for factor in factors:
        by_part.setdefault(int(parts[factor.clients[0]]), []).append(factor)
    place = np.full(direction.size, -1)
    clients, starts = step.problem.grouped
    for block in np.split(clients, starts[1:]):
        own = by_part.get(int(parts[block[0]]), [])
        signs = np.concatenate([np.empty(0), *(one.signs for one in own)])
        if len(own) == 1 and np.array_equal(own[0].clients, block):
            columns = own[0].columns
        else:
            # Side by side, with one row per client of the block.
            columns, last = np.zeros((block.size, signs.size)), 0
            place[block] = np.arange(block.size)
            for one in own:
                first, last, rows = last, last + one.signs.size, place[one.clients]
                columns[rows[rows >= 0], first:last] = one.columns[rows >= 0]
        if block.size <= max(_FEW_CLIENTS, columns.shape[1]):
            matrix = as_laplacian((columns * signs) @ columns.T)
            direction[block] = _by_dense_factor(step, matrix, block)
        else:
            direction[block] = _by_low_rank(step, columns, signs, block)
    return direction


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
    solution = step.with_sweeps(right + scaled @ inner, block, diagonal - step.extra[block] - own)
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


def logarithmic_mean(left: Floats, right: Floats) -> Floats:
    """Return (a − b)/log(a/b) of two arrays, entry by entry."""
    from scipy.special import exprel

    high, low = np.maximum(left, right), np.minimum(left, right)
    high, low = np.maximum(high, 1e-300), np.maximum(low, 1e-300)
    return np.asarray(high * exprel(np.log(low / high)))


def inner(left: Floats, right: Floats) -> float:
    """Return the inner product of two vectors.

    BLAS would share it with other threads, and waiting for these takes a hundred times as long as
    the product when the machine is busy.
    """
    return float(np.einsum("i,i->", left, right))


def solve_dense(matrix: Floats, right: Floats) -> Floats:
    """Solve a symmetric positive semidefinite system by Cholesky, or else by least squares.

    Entries may span many orders of magnitude. Cholesky's rounding does not depend on how rows and
    columns are scaled; for least squares they are scaled to a unit diagonal.
    """
    from scipy.linalg import lapack

    # Transposed, the matrix lies in memory as LAPACK expects it.
    factor, failed = lapack.dpotrf(matrix.T, lower=1, overwrite_a=0, clean=0)
    if not failed:
        return np.asarray(lapack.dpotrs(factor, right, lower=1)[0])
    # Rounding made a singular direction negative: take the least-norm solution.
    diagonal = matrix.diagonal()
    scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = matrix * scale[:, None] * scale
    return np.asarray(scale * np.linalg.lstsq(scaled, scale * right, rcond=1e-14)[0])


def solve_sparse(matrix: Any, right: Floats) -> Floats:
    """Solve a sparse symmetric positive definite system by factorisation."""
    from scipy.sparse.linalg import splu

    # Positive definite, so the order may follow the pattern alone and no pivot need be sought.
    how = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
    return np.asarray(splu(matrix.tocsc(), diag_pivot_thresh=0.0, **how).solve(right))


def conjugate_gradients(
    product: Callable[[Floats], Floats],
    right: Floats,
    diagonal: Floats,
    aim: float,
    steps: int = CG_STEPS,
) -> tuple[Floats, bool]:
    """Solve to a relative residual of ``aim`` in the preconditioned norm.

    Returns the solution, and whether it met the aim within ``steps`` steps.
    """
    solution, residual, search = np.zeros_like(right), right, right / diagonal
    energy = inner(residual, search)
    goal = aim * aim * energy
    for _ in range(steps):
        image = product(search)
        bend = inner(search, image)
        if not bend > 0.0:
            break
        solution = solution + (energy / bend) * search
        residual = residual - (energy / bend) * image
        scaled = residual / diagonal
        previous, energy = energy, inner(residual, scaled)
        if energy <= goal:
            return solution, True
        search = scaled + (energy / previous) * search
    return solution, False
