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
from fedavot.solve.dual import DualProblem, Iterate, StoppingRule

# Increments over which the accelerated form extrapolates.
_MEMORY = 4
# Residual below which the diagonal correction hardly changes any more.
_NEAR = 0.02
# Residual down to which expected weights of six digits are good enough, as long as they halve it
# each time.
_ROUGH = 1e-5
# Largest step of an extrapolated potential: a factor of e^30 is beyond any sensible weight.
_LONGEST_STEP = 30.0


def ipfp(problem: DualProblem, start: Iterate, stop: StoppingRule, *, budget: int) -> Iterate:
    """Run the paper's Algorithm 1 until both marginals are within the tolerance in L1.

    After a sweep the columns are met exactly, because weights are softmaxes, so only the rows are
    compared. At most ``budget`` sweeps are made.
    """
    potentials, marginal = start.potentials, problem.system.marginal(start.potentials)
    residual, sweeps = np.inf, 0
    while sweeps < budget and not residual <= stop.tol:
        potentials = potentials + problem.log_ratio(marginal)
        marginal = problem.system.marginal(potentials)
        residual = float(np.abs(problem.error(marginal)).sum())
        sweeps += 1
    return Iterate(potentials, marginal, residual, start.evaluations + sweeps + 1)


def accelerated(
    problem: DualProblem, start: Iterate, stop: StoppingRule, *, budget: int
) -> Iterate:
    """Run IPFP with a diagonal correction and Anderson extrapolation, for ``budget`` evaluations.

    The best point is kept: where extrapolation overshoots, it starts again from there. Far from
    the target expected weights may be rough, but those of the result are not.
    """
    system, potentials = problem.system, start.potentials
    listed = system if isinstance(system, ExplicitSystem) else None
    history = _History(np.sqrt(problem.target))
    damping = np.ones_like(potentials)
    best = replace(start, marginal=problem.target, residual=np.inf)
    far, best_is_rough = max(_ROUGH, 100.0 * stop.tol), False
    for evaluation in range(1, budget + 1):
        if best_is_rough and evaluation == budget:
            potentials, best = best.potentials, replace(best, residual=np.inf)
        marginal = None
        if listed is not None and best.residual > far and 2 * evaluation <= budget:
            marginal = listed.rough_marginal(potentials)
        rough = marginal is not None
        if listed is not None:
            # For listed cohorts a client's mean weight where it takes part is near E[Y_i²]/m_i,
            # below it, and costs nothing.
            marginal = listed.marginal(potentials) if marginal is None else marginal
            damping = _damping(marginal, listed.inclusion)
        elif best.residual > _NEAR:
            point = system.curvature(potentials)
            marginal = point.marginal
            damping = _damping(point.squares, marginal)
        else:
            marginal = system.marginal(potentials)
        residual = float(np.abs(problem.error(marginal)).sum())
        if rough and not residual < best.residual / 2.0:
            far = np.inf  # rounding may be what is left
        if not residual < 2.0 * best.residual:
            history.clear()
            potentials = best.potentials + problem.log_ratio(best.marginal)
            continue
        if residual < best.residual:
            best, best_is_rough = (
                replace(best, potentials=potentials, marginal=marginal, residual=residual),
                rough,
            )
        if residual <= stop.tol and not rough:
            break
        increment = problem.log_ratio(marginal) / damping
        potentials = potentials + history.extrapolate(potentials, increment)
    return replace(best, evaluations=start.evaluations + evaluation)


def _damping(part: Floats, whole: Floats) -> Floats:
    share = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
    # A client that is always alone has share 1, and is aligned whatever its potential.
    return np.maximum(1.0 - share, 0.02)


class _History:
    """The last few changes from one point to the next, over which increments are extrapolated.

    Sums over clients are left to einsum, for the reason that `direction.inner` gives.

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
        self.clear()

    def clear(self) -> None:
        self._count = 0
        self._last: tuple[Floats, Floats] | None = None

    def extrapolate(self, point: Floats, increment: Floats) -> Floats:
        """Combine the increment at a point with the last ones so that they cancel if they can."""
        if self._last is not None:
            # Add the change of the point, and of the increment with it; the oldest may have to go.
            place = self._count % _MEMORY
            change = increment - self._last[1]
            np.add(point - self._last[0], change, out=self._whole[place])
            latest = np.multiply(self._weights, change, out=self._weighted[place])
            self._count += 1
            products = np.einsum("ki,i->k", self._weighted[: self._count], latest)
            self._gram[place, : products.size] = self._gram[: products.size, place] = products
        self._last = point, increment
        count = min(self._count, _MEMORY)
        if count == 0:
            return increment
        gram = self._gram[:count, :count].copy()
        # A multiple of the machine epsilon keeps nearly parallel changes from cancelling.
        gram[np.diag_indices_from(gram)] *= 1.0 + 1e-13
        aim = np.einsum("ki,i->k", self._weighted[:count], self._weights * increment)
        mix = np.linalg.lstsq(gram, aim, rcond=None)[0]
        move: Floats = increment - np.einsum("k,ki->i", mix, self._whole[:count])
        return np.clip(move, -_LONGEST_STEP, _LONGEST_STEP, out=move)
