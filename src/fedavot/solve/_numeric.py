"""Numerical routines that several solvers share: linear systems and the logarithmic mean."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedavot._checks import Floats

CG_STEPS = 200
"""Steps of conjugate gradients after which a factorisation is cheaper, where one is possible."""


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
    factor = splu(
        matrix.tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    return np.asarray(factor.solve(right))


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
    solution = np.zeros_like(right)
    residual = right
    scaled = residual / diagonal
    search = scaled
    energy = inner(residual, scaled)
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
