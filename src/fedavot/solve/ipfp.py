"""Iterative proportional fitting in logs: the paper's Algorithm 1, and an accelerated form.

One sweep over rows and columns of the plan is x ← x + log p − log m(x). The accelerated form
divides the increment by 1 − E[Y_i²]/m_i, the diagonal of the matrix by which a sweep reduces the
error, and extrapolates over the last few increments (Anderson 1965). It needs nothing but expected
weights, so it is the solver of choice for a million clients.
"""

from collections import deque
from dataclasses import replace

import numpy as np

from fedavot._checks import Floats
from fedavot.solve._problem import DualProblem, Iterate

_MEMORY = 4
_LONGEST_STEP = 30.0
"""Largest step of an extrapolated potential: a factor of e^30 is beyond any sensible weight."""


def ipfp(problem: DualProblem, start: Floats, *, tol: float, max_iter: int) -> Iterate:
    """Run the paper's Algorithm 1 until both marginals are within ``tol`` in L1.

    After a sweep the columns are met exactly, because weights are softmaxes, so only the rows are
    compared.
    """
    potentials, marginal = start, problem.system.marginal(start)
    residual = np.inf
    sweeps = 0
    while sweeps < max_iter and not residual <= tol:
        potentials = potentials + problem.log_ratio(marginal)
        marginal = problem.system.marginal(potentials)
        residual = float(np.abs(problem.error(marginal)).sum())
        sweeps += 1
    return Iterate(potentials, marginal, residual, sweeps + 1)


def accelerated(problem: DualProblem, start: Floats, *, tol: float, max_iter: int) -> Iterate:
    """Run IPFP with a diagonal correction and Anderson extrapolation.

    The best point is kept: where extrapolation overshoots, it starts again from there.
    """
    weights = np.sqrt(problem.target)
    history: deque[tuple[Floats, Floats]] = deque(maxlen=_MEMORY + 1)
    damping = np.ones_like(start)
    potentials, best = start, Iterate(start, problem.target, np.inf, 0)
    for evaluation in range(1, max_iter + 1):
        marginal, damping = _evaluate(problem, potentials, damping, correct=evaluation <= 2)
        residual = float(np.abs(problem.error(marginal)).sum())
        if not residual < 2.0 * best.residual:
            history.clear()
            potentials = best.potentials + problem.log_ratio(best.marginal)
            continue
        if residual < best.residual:
            best = Iterate(potentials, marginal, residual, evaluation)
        if residual <= tol:
            break
        history.append((potentials, problem.log_ratio(marginal) / damping))
        potentials = _extrapolate(history, weights)
    return replace(best, evaluations=evaluation)


def _evaluate(
    problem: DualProblem, potentials: Floats, damping: Floats, *, correct: bool
) -> tuple[Floats, Floats]:
    """Return the marginal, and the diagonal correction, computed anew if ``correct``."""
    if not correct:
        return problem.system.marginal(potentials), damping
    point = problem.system.curvature(potentials)
    share = np.divide(
        point.squares, point.marginal, out=np.zeros_like(damping), where=point.marginal > 0
    )
    # A client that is always alone has share 1, and is aligned whatever its potential.
    return point.marginal, np.maximum(1.0 - share, 0.02)


def _extrapolate(history: deque[tuple[Floats, Floats]], weights: Floats) -> Floats:
    """Combine the last points so that their increments cancel as far as they can."""
    point, increment = history[-1]
    if len(history) < 2:
        return point + increment
    steps = np.stack([b[0] - a[0] for a, b in zip(history, list(history)[1:], strict=False)])
    changes = np.stack([b[1] - a[1] for a, b in zip(history, list(history)[1:], strict=False)])
    scaled = changes * weights
    gram = scaled @ scaled.T
    # A multiple of the machine epsilon keeps nearly parallel changes from cancelling.
    gram[np.diag_indices_from(gram)] *= 1.0 + 1e-13
    mix = np.linalg.lstsq(gram, scaled @ (increment * weights), rcond=None)[0]
    move = increment - mix @ (steps + changes)
    return point + np.clip(move, -_LONGEST_STEP, _LONGEST_STEP)
