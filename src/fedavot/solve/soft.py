"""Soft alignment: a price on the spread of the potentials, whatever their range.

Maximise D(x) − (ρ/2) Σ p_i (x_i − x̄)², x̄ = Σ p_i x_i. At the optimum m_i = p_i (1 − ρ (x_i − x̄)),
so clients that cannot get their importance end up about (1 − λ)/ρ above the mean, λ being the ratio
of their level: for small ρ thousands or 10^13 apart, where the differences that matter within a
level would be lost to rounding. So potentials far apart are split into levels, which get weight one
after the other, and the potentials of each level are kept relative to its mean. The mean itself is
known: the total weight of a level is fixed, λ_b p(B), hence x̄_b = x̄ + (1 − λ_b)/ρ, and what remains
is soft alignment of every level by itself with target λ_b p.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._law import LEVEL_GAP, SolvableLaw
from fedavot.solve.dual import DualProblem, Iterate, Pull, StoppingRule
from fedavot.solve.levels import Partition, partition
from fedavot.solve.newton import newton
from fedavot.solve.search import decompose

# Range of potentials up to which one level is enough: differences keep twelve decimals.
_FAR = 1e3
# Evaluations between two checks of how far apart the potentials are.
_STEPS = 12
# Evaluations after which soft alignment starts again from the exact levels.
_PATIENCE = 40
# Error up to which potentials that are far apart are kept in one vector, without levels.
_ROUNDING = 1e-10


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

    def gradient(self, importance: Floats, marginal: Floats, softness: float) -> Floats:
        """Return the gradient of the soft dual, zero for clients without importance."""
        pulled = importance * (self.totals - importance @ self.totals)
        gradient = self.reachable * importance - marginal - softness * pulled
        return np.where(importance > 0, gradient, 0.0)


def align_softly(
    importance: Floats, law: SolvableLaw, softness: float, stop: StoppingRule
) -> SoftSolution:
    """Maximise the soft dual, in one level if a single vector of potentials is accurate enough."""
    start, first = Iterate.start(np.zeros(importance.size)), stop
    if (order := law.worst_order(importance)) is not None:
        split = partition(importance, law, order)
        start = Iterate.start(_first_guess(split, importance, softness))
    else:
        first = replace(stop, max_iter=min(stop.max_iter, _PATIENCE))
    solution = _soften(importance, law, softness, start, first)
    if not solution.iterate.residual <= stop.tol:
        # Levels are too far apart: start from where the exact ones put them.
        exact = decompose(importance, law, stop)
        spent = solution.iterate.evaluations + exact.iterate.evaluations
        guess = _first_guess(exact.partition, importance, softness) + exact.iterate.potentials
        start = Iterate.start(guess, spent)
        solution = _soften(importance, law, softness, start, stop)
    iterate, idle = solution.iterate, (importance == 0).astype(np.int64)
    marginal = law.system(idle if idle.any() else None).marginal(solution.totals)
    residual = float(np.abs(solution.gradient(importance, marginal, softness)).sum())
    if residual <= max(iterate.residual, min(iterate.residual + _ROUNDING, stop.tol)):
        joined = Iterate(solution.totals, marginal, residual, iterate.evaluations + 1)
        return replace(solution, levels=idle, iterate=joined)
    return solution


def _first_guess(split: Partition, importance: Floats, softness: float) -> Floats:
    """Return a first guess at the potentials of each level: (1 − λ)/ρ."""
    ratios = np.where(importance > 0, split.ratios[split.levels], 1.0)
    return np.asarray((1.0 - ratios) / softness)


def _soften(
    importance: Floats, law: SolvableLaw, softness: float, start: Iterate, stop: StoppingRule
) -> SoftSolution:
    """Maximise the soft dual from a start of any range."""
    idle, active = importance == 0, importance > 0
    levels, totals = _apart(start.potentials, idle), start.potentials
    evaluations = start.evaluations
    while True:
        system = law.system(levels if levels.any() else None)
        covered = np.bincount(levels, system.marginal(np.zeros(importance.size)))
        mass = np.bincount(levels, importance)
        ratios = np.divide(covered, mass, out=np.zeros(covered.size), where=mass > 0)
        reachable = float(covered[mass > 0].sum())
        problem = DualProblem(system, ratios[levels] * importance, active, idle, levels)
        begin = Iterate.start(_relative(totals, importance, levels), evaluations + 1)
        pull = Pull(softness, importance, levels)
        iterate = newton(problem, begin, stop, budget=_STEPS, pull=pull)
        inner = _relative(iterate.potentials, importance, levels)
        totals = np.where(idle, 0.0, ((reachable - ratios) / softness)[levels] + inner)
        apart = _apart(totals, idle)
        stable = np.array_equal(apart, levels)
        if (stable and iterate.residual <= stop.tol) or iterate.evaluations >= stop.max_iter:
            # A residual within levels that are still changing means nothing.
            residual = iterate.residual if stable else np.inf
            iterate = replace(iterate, potentials=inner, residual=residual)
            return SoftSolution(levels, totals, reachable, iterate)
        levels, evaluations = apart, iterate.evaluations


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
