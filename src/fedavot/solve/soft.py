"""Soft alignment: a price on the spread of the potentials, whatever their range.

Maximise D(x) − (ρ/2) Σ p_i (x_i − x̄)², x̄ = Σ p_i x_i. At the optimum m_i = p_i (1 − ρ (x_i − x̄)),
so clients that cannot get their importance end up about (1 − λ)/ρ above the mean, λ being the ratio
of their level: for small ρ thousands or 10^13 apart, where the differences that matter within a
level would be lost to rounding. So potentials far apart are split into levels, which get weight one
after the other, and the potentials of each level are kept relative to its mean. The mean itself is
known: the total weight of a level is fixed, λ_b p(B), hence x̄_b = x̄ + (1 − λ_b)/ρ, and what remains
is soft alignment of every level by itself with target λ_b p.
"""

from dataclasses import dataclass

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._law import LEVEL_GAP, SolvableLaw
from fedavot.solve._problem import DualProblem, Iterate, Pull
from fedavot.solve.newton import newton

_FAR = 1e3
"""Range of potentials up to which one level is enough: differences keep twelve decimals."""
_STEPS = 12
"""Evaluations between two checks of how far apart the potentials are."""


@dataclass(frozen=True, eq=False)
class SoftSolution:
    """The point that soft alignment has reached.

    Potentials of different ``levels`` are far apart: those of the ``iterate`` are relative to the
    mean of their level. ``totals`` has them as one vector, exact up to rounding, whose weighted
    mean is zero. ``reachable`` is the probability that a cohort has any client with importance.
    """

    levels: Integers
    totals: Floats
    reachable: float
    iterate: Iterate


def soften(
    importance: Floats,
    law: SolvableLaw,
    softness: float,
    start: Floats,
    *,
    tol: float,
    max_iter: int,
) -> SoftSolution:
    """Maximise the soft dual from ``start``, potentials of any range."""
    idle = importance == 0
    levels, totals = _apart(start, idle), start
    evaluations = 0
    while True:
        problem, ratios, reachable = _within(importance, law, levels)
        evaluations += 1
        iterate = newton(
            problem,
            _relative(totals, importance, levels),
            tol=tol,
            max_iter=max(1, min(_STEPS, max_iter - evaluations)),
            pull=Pull(softness, importance, levels),
        )
        evaluations += iterate.evaluations
        inner = _relative(iterate.potentials, importance, levels)
        totals = np.where(idle, 0.0, ((reachable - ratios) / softness)[levels] + inner)
        found = _apart(totals, idle)
        settled = np.array_equal(found, levels)
        if (settled and iterate.residual <= tol) or evaluations >= max_iter:
            # A residual within levels that are still changing means nothing.
            residual = iterate.residual if settled else np.inf
            iterate = Iterate(inner, iterate.marginal, residual, evaluations)
            return SoftSolution(levels, totals, reachable, iterate)
        levels = found


def _apart(potentials: Floats, idle: np.ndarray) -> Integers:
    """Return levels by falling potentials, cut at wide gaps; idle clients come last."""
    order = np.lexsort((-potentials, idle))
    values, last = potentials[order], idle[order]
    gap = LEVEL_GAP if np.ptp(potentials[~idle]) > _FAR else np.inf
    cut = ((np.diff(values) < -gap) & ~last[1:]) | (last[1:] & ~last[:-1])
    levels = np.empty(order.size, dtype=np.int64)
    levels[order] = np.concatenate(([0], np.cumsum(cut)))
    return levels


def _relative(potentials: Floats, importance: Floats, levels: Integers) -> Floats:
    """Return potentials minus their level's weighted mean."""
    mass = np.maximum(np.bincount(levels, importance), 1e-300)
    first = np.full(mass.size, -np.inf)
    np.maximum.at(first, levels, potentials)
    # Subtract the largest first: means of numbers near 10^13 are only accurate to 10^-3.
    near = potentials - first[levels]
    return np.asarray(near - (np.bincount(levels, importance * near) / mass)[levels])


def _within(
    importance: Floats, law: SolvableLaw, levels: Integers
) -> tuple[DualProblem, Floats, float]:
    """Return the problem within these levels, their ratios, and the coverage of all of them."""
    idle = importance == 0
    system = law.system(levels if levels.any() else None)
    covered = np.bincount(levels, system.marginal(np.zeros(importance.size)))
    wanted = np.bincount(levels, importance)
    ratios = np.divide(covered, wanted, out=np.zeros(covered.size), where=wanted > 0)
    target = ratios[levels] * importance
    reachable = float(covered[wanted > 0].sum())
    return DualProblem(system, target, ~idle, idle, levels), ratios, reachable
