"""Peers on explicit cohorts that need nothing but NumPy and SciPy.

* IPFP in logs: the paper's Algorithm 1 as anybody would vectorise it, safe for potentials of any
  spread.
* IPFP, tuned: the same iterates from plain exponentials, one place of the cohort at a time. It
  fails once potentials spread beyond the range of floats, but where it works nothing in NumPy
  is faster.
* L-BFGS and Newton-CG on the dual, with SciPy's CSR products.

All of them stop as soon as the marginal is within the problem's ``tol`` in L1.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.evaluate import Answer
from benchmarks.problems import ExplicitProblem, Floats

_WIDE = 600.0
"""Potentials further apart than this need each cohort's maximum subtracted."""


def ipfp_in_logs(problem: ExplicitProblem, max_iter: int = 100_000) -> Answer:
    """Run x ← x + log p − log m(x), each cohort's softmax taken safely."""
    columns, chances = problem.columns, problem.probabilities
    flat, log_importance = columns.ravel(), np.log(problem.importance)
    potentials = np.zeros(problem.n_clients)
    sweeps = 0
    while True:
        weights = potentials[columns]
        weights -= weights.max(axis=0)
        np.exp(weights, out=weights)
        weights *= chances / weights.sum(axis=0)
        marginal = np.bincount(flat, weights.ravel(), minlength=potentials.size)
        residual = np.abs(marginal - problem.importance).sum()
        if residual <= problem.tol or sweeps == max_iter:
            return Answer(potentials, note=f"{sweeps} iterations")
        # A weight below the range of floats still has to pull its client back up.
        potentials = potentials + log_importance - np.log(np.maximum(marginal, 1e-300))
        sweeps += 1


def ipfp_tuned(problem: ExplicitProblem, max_iter: int = 100_000) -> Answer:
    """Run u ← u p/m(u), the cohort's places one after the other."""
    columns, chances = problem.columns, problem.probabilities
    scale = np.ones(problem.n_clients)
    sweeps = 0
    while True:
        total = scale[columns[0]]
        for place in columns[1:]:
            total += scale[place]
        np.divide(chances, total, out=total)
        received = np.bincount(columns[0], total, minlength=scale.size)
        for place in columns[1:]:
            received += np.bincount(place, total, minlength=scale.size)
        residual = np.abs(scale * received - problem.importance).sum()
        if residual <= problem.tol or sweeps == max_iter:
            return Answer(np.log(scale), note=f"{sweeps} iterations")
        scale = problem.importance / received
        sweeps += 1


def lbfgs(problem: ExplicitProblem) -> Answer:
    """Minimise −D(x) by SciPy's L-BFGS-B, with its own tests switched off."""
    options = {"maxiter": 2_000, "maxfun": 3_000, "maxcor": 20, "ftol": 0.0, "gtol": 0.0}
    return _minimise(problem, "L-BFGS-B", options)


def newton_cg(problem: ExplicitProblem) -> Answer:
    """Minimise −D(x) by SciPy's truncated Newton method, with products of the Hessian."""
    return _minimise(problem, "Newton-CG", {"maxiter": 100, "xtol": 1e-13})


def _minimise(problem: ExplicitProblem, method: str, options: dict[str, float]) -> Answer:
    from scipy.optimize import minimize

    dual = _Dual(problem)

    def stop(intermediate_result) -> None:
        if dual.at(intermediate_result.x).residual <= problem.tol:
            raise StopIteration

    # SciPy's absolute thresholds mean something once a client's gradient is of order one.
    scale = float(problem.n_clients)

    def slope(potentials: Floats) -> Floats:
        return scale * dual.at(potentials).gradient

    def bend(potentials: Floats, direction: Floats) -> Floats:
        return scale * dual.at(potentials).product(direction)

    found = minimize(
        lambda potentials: scale * dual.at(potentials).value,
        np.zeros(problem.n_clients),
        jac=slope,
        hessp=bend if method == "Newton-CG" else None,
        method=method,
        callback=stop,
        options=options,
    )
    return Answer(found.x, note=f"{found.nit} iterations, {dual.evaluations} evaluations")


class _Dual:
    """The dual at the last point asked for, so that value, slope and bend share their products."""

    def __init__(self, problem: ExplicitProblem) -> None:
        self._problem = problem
        self._point: _Point | None = None
        self.evaluations = 0

    def at(self, potentials: Floats) -> "_Point":
        """Return everything at these potentials."""
        if self._point is None or not np.array_equal(potentials, self._point.potentials):
            self._point = _Point(self._problem, potentials.copy())
            self.evaluations += 1
        return self._point


@dataclass(frozen=True, eq=False)
class _Point:
    """E_A log Σ_{k∈A} exp(x_k − x̄)/|A| with x̄ = Σ p_i x_i, which is −D(x) + D(0).

    Written so, its value goes with the progress made and not with the size of D: line searches
    that compare values can then come closer to the target before rounding stops them.
    """

    problem: ExplicitProblem
    potentials: Floats

    @cached_property
    def _factors(self) -> tuple[Floats, Any, Floats, Floats]:
        """Scales u by client, a matrix S, its row sums S u, and each cohort's term of the value.

        The weights are S u over its row sums. Potentials too far apart for plain exponentials
        put the whole softmax into S.
        """
        matrix, size = self.problem.matrix, self.problem.members.shape[1]
        centred = self.potentials - self.problem.importance @ self.potentials
        if np.ptp(centred) <= _WIDE:
            scale = np.exp(centred)
            total = matrix @ scale
            return scale, matrix, total, np.log(total / size)
        values = centred[self.problem.members]
        tops = values.max(axis=1, keepdims=True)
        values = np.exp(values - tops)
        total = values.sum(axis=1, keepdims=True)
        weights = matrix.copy()
        weights.data = (values / total).ravel()
        ones = np.ones(len(values))
        return np.ones_like(centred), weights, ones, (tops + np.log(total / size))[:, 0]

    @property
    def value(self) -> float:
        return float(self.problem.probabilities @ self._factors[3])

    @cached_property
    def _marginal(self) -> Floats:
        scale, matrix, total, _ = self._factors
        return scale * (matrix.T @ (self.problem.probabilities / total))

    @property
    def gradient(self) -> Floats:
        return self._marginal - self.problem.importance

    @property
    def residual(self) -> float:
        return float(np.abs(self.gradient).sum())

    def product(self, direction: Floats) -> Floats:
        scale, matrix, total, _ = self._factors
        mean = (matrix @ (scale * direction)) / total
        shares = self.problem.probabilities / total * mean
        return self._marginal * direction - scale * (matrix.T @ shares)
