"""Iterative proportional fitting in logs: the paper's Algorithm 1, and an accelerated form.

One sweep over rows and columns of the plan is x ← x + log p − log m(x). The accelerated form
divides the increment by about 1 − E[Y_i²]/m_i, the diagonal of the matrix by which a sweep reduces
the error, and extrapolates over the last few increments (Anderson 1965). It needs nothing but
expected weights, so it is the solver of choice for a million clients.
"""

from dataclasses import replace

import numpy as np

from fedavot._checks import Floats
from fedavot.laws._explicit import ExplicitSystem
from fedavot.solve._problem import DualProblem, Iterate

_MEMORY = 4
_NEAR = 0.02
"""Residual below which the diagonal correction hardly changes any more."""
_ROUGH = 1e-5
"""Residual down to which expected weights of six digits are good enough, as long as they halve it
each time."""
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

    The best point is kept: where extrapolation overshoots, it starts again from there. Far from
    the target expected weights may be rough, but those of the result are not.
    """
    history = _History(np.sqrt(problem.target))
    last: tuple[Floats, Floats] | None = None
    damping = np.ones_like(start)
    potentials, best = start, Iterate(start, problem.target, np.inf, 0)
    far, best_is_rough = max(_ROUGH, 100.0 * tol), False
    for evaluation in range(1, max_iter + 1):
        if best_is_rough and evaluation == max_iter:
            potentials, best = best.potentials, replace(best, residual=np.inf)
        marginal = None
        if best.residual > far and 2 * evaluation <= max_iter:
            marginal = _rough_marginal(problem, potentials)
        rough = marginal is not None
        marginal, damping = _evaluate(
            problem, potentials, damping, correct=best.residual > _NEAR, marginal=marginal
        )
        residual = float(np.abs(problem.error(marginal)).sum())
        if rough and not residual < best.residual / 2.0:
            far = np.inf  # rounding may be what is left
        if not residual < 2.0 * best.residual:
            history.clear()
            last = None
            potentials = best.potentials + problem.log_ratio(best.marginal)
            continue
        if residual < best.residual:
            best, best_is_rough = Iterate(potentials, marginal, residual, evaluation), rough
        if residual <= tol and not rough:
            break
        increment = problem.log_ratio(marginal) / damping
        if last is not None:
            history.append(potentials - last[0], increment - last[1])
        last = potentials, increment
        potentials = potentials + history.extrapolate(increment)
    return replace(best, evaluations=evaluation)


class _History:
    """The last few changes from one point to the next, over which increments are extrapolated.

    Sums over clients are left to einsum, for the reason that `_numeric.inner` gives.

    Parameters
    ----------
    weights : array, shape (n_clients,)
        Factors of the increments in the norm in which they are to cancel.
    """

    def __init__(self, weights: Floats) -> None:
        self._weights = weights
        self._whole = np.empty((_MEMORY, weights.size))
        self._weighted = np.empty((_MEMORY, weights.size))
        self._gram = np.empty((_MEMORY, _MEMORY))
        self._n_seen = 0

    def clear(self) -> None:
        self._n_seen = 0

    def append(self, step: Floats, change: Floats) -> None:
        """Add a change of the point, and of the increment with it; the oldest may have to go."""
        place = self._n_seen % _MEMORY
        np.add(step, change, out=self._whole[place])
        latest = np.multiply(self._weights, change, out=self._weighted[place])
        self._n_seen += 1
        held = self._weighted[: self._n_seen]
        products = np.einsum("ki,i->k", held, latest)
        self._gram[place, : len(held)] = self._gram[: len(held), place] = products

    def extrapolate(self, increment: Floats) -> Floats:
        """Combine an increment with the last ones so that they cancel as far as they can."""
        n_held = min(self._n_seen, _MEMORY)
        if n_held == 0:
            return increment
        gram = self._gram[:n_held, :n_held].copy()
        # A multiple of the machine epsilon keeps nearly parallel changes from cancelling.
        gram[np.diag_indices_from(gram)] *= 1.0 + 1e-13
        aim = np.einsum("ki,i->k", self._weighted[:n_held], self._weights * increment)
        mix = np.linalg.lstsq(gram, aim, rcond=None)[0]
        move: Floats = increment - np.einsum("k,ki->i", mix, self._whole[:n_held])
        return np.clip(move, -_LONGEST_STEP, _LONGEST_STEP, out=move)


def _rough_marginal(problem: DualProblem, potentials: Floats) -> Floats | None:
    """Return the marginal in single precision, where that is faster."""
    system = problem.system
    return system.rough_marginal(potentials) if isinstance(system, ExplicitSystem) else None


def _evaluate(
    problem: DualProblem,
    potentials: Floats,
    damping: Floats,
    *,
    correct: bool,
    marginal: Floats | None,
) -> tuple[Floats, Floats]:
    """Return the marginal, unless it is given, and the correction, anew if ``correct``.

    For listed cohorts a client's mean weight where it takes part is near E[Y_i²]/m_i, below it, and
    costs nothing.
    """
    if isinstance(problem.system, ExplicitSystem):
        marginal = problem.system.marginal(potentials) if marginal is None else marginal
        part, whole = marginal, problem.system.inclusion
    elif correct:
        point = problem.system.curvature(potentials)
        marginal = point.marginal
        part, whole = point.squares, marginal
    else:
        return problem.system.marginal(potentials), damping
    share = np.divide(part, whole, out=np.zeros_like(damping), where=whole > 0)
    # A client that is always alone has share 1, and is aligned whatever its potential.
    return marginal, np.maximum(1.0 - share, 0.02)
