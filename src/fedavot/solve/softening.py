"""Find the levels of laws without a list of cohorts, by soft alignment.

With softness ρ and a pull weighted by the logarithmic mean of target and present weight, the
potential of a client in a level of ratio λ is −log(λ)/ρ above the mean: ever smaller ρ separates
ever closer levels. Each pass aligns softly within the present levels and reads them again; once
they stay the same, the exact target has to be met within them, which proves them right. Potentials
only move a client from one level to the next, so where the law allows it, clients are first
exchanged between all levels by their own ratios. Where all this fails, `least_norm` has the levels.

*Exchange.* Levels come from a chain of sets: for each ratio λ the set I_λ of all levels up to it,
which should minimise f(I) − λ p(I). The tangents of the coverage (`laws.tangents`) bound
f(J) − λ p(J) from above by a sum over clients that is exact at J = I_λ and least for the set of
clients whose slope is below λ p_i. Taking that set never raises f − λ p, at any λ; and as slopes
fall along the chain, the new sets form a chain again. So a client in the wrong level moves to the
right one in a single step, however many levels lie in between. What no single move improves, such
as the separation of tight sets, is left to the potentials.
"""

from dataclasses import replace

import numpy as np

from fedavot._checks import Floats
from fedavot.laws._law import SolvableLaw
from fedavot.laws.tangents import slopes_along
from fedavot.solve.climbing import CLIMBS, climb_until
from fedavot.solve.direction import logarithmic_mean
from fedavot.solve.dual import DualProblem, Iterate, Pull, Solution, StoppingRule
from fedavot.solve.least_norm import least_norm_order
from fedavot.solve.levels import Partition, gathered, partition, reread
from fedavot.solve.newton import newton

# Softness of the first and of the last pass, and the factor by which it falls between two.
_FIRST_SOFTNESS, _LEAST_SOFTNESS, _FALL = 0.3, 1e-13, 5.0
# Relative error of a soft alignment that is used for its order alone.
_ORDERED = 0.01
# Evaluations after which a climb within levels must have come three times closer.
_PROBE = 6
# Relative difference of ratios from which on a client counts as being in the wrong level.
_CLEARLY = 1e-9
_MOST_EXCHANGES = 30


def by_softening(
    importance: Floats, law: SolvableLaw, stop: StoppingRule, evaluations: int
) -> Solution:
    """Separate levels by ever smaller softness; where that fails, by the base of least norm."""
    best = _softening(importance, law, stop, evaluations)
    spent = best.iterate.evaluations
    problem = DualProblem.within(importance, law, best.partition)
    if problem.met(best.iterate, stop) or spent >= stop.max_iter:
        return best
    order = np.argsort(best.partition.levels, kind="stable")
    split = partition(importance, law, least_norm_order(importance, law, order))
    start = Iterate.start(np.zeros(importance.size), spent)
    iterate = climb_until(DualProblem.within(importance, law, split), start, stop)
    if iterate.residual <= best.iterate.residual:
        return Solution(split, iterate)
    return replace(best, iterate=replace(best.iterate, evaluations=iterate.evaluations))


def _softening(
    importance: Floats, law: SolvableLaw, stop: StoppingRule, evaluations: int
) -> Solution:
    """Align softly within the present levels and read them again, until the target is met."""
    split = first_levels(importance, law)
    problem = DualProblem.within(importance, law, split)
    iterate = newton(problem, Iterate.start(np.zeros(importance.size), evaluations), stop, budget=1)
    best, softness = Solution(split, iterate), _FIRST_SOFTNESS
    while True:
        # With this pull a client is −log(λ)/ρ above the mean, whatever the order of magnitude of λ.
        weights = np.where(problem.free, logarithmic_mean(problem.target, iterate.marginal), 0.0)
        rough = replace(stop, tol=_ORDERED * softness, relative=_ORDERED * softness)
        pull = Pull(softness, weights, problem.parts)
        iterate = newton(problem, iterate, rough, budget=CLIMBS[0], pull=pull)
        if softness < _LEAST_SOFTNESS or iterate.evaluations >= stop.max_iter:
            return replace(best, iterate=replace(best.iterate, evaluations=iterate.evaluations))
        again = reread(importance, law, split.levels, iterate.potentials)
        again = exchanged(importance, law, again, iterate.potentials)
        if np.array_equal(again.levels, split.levels):
            # Climb without a pull as long as the residual falls quickly.
            before, iterate = np.inf, newton(problem, iterate, stop, budget=_PROBE)
            while iterate.residual < 0.3 * before and not problem.met(iterate, stop):
                before, iterate = iterate.residual, newton(problem, iterate, stop, budget=_PROBE)
            if iterate.residual < best.iterate.residual:
                best = Solution(split, iterate)
            if problem.met(iterate, stop):
                return best
            # In a level that cannot meet its target potentials diverge, which may show its split.
            again = reread(importance, law, split.levels, iterate.potentials)
            again = exchanged(importance, law, again, iterate.potentials)
        softness /= _FALL
        iterate = replace(iterate, potentials=gathered(iterate.potentials, again.levels))
        split, problem = again, DualProblem.within(importance, law, again)


def first_levels(importance: Floats, law: SolvableLaw) -> Partition:
    """Return levels to start from, by the ratio P(i ∈ A)/p_i that each client has by itself."""
    ratios = np.full(importance.size, np.inf)
    with np.errstate(over="ignore"):
        np.divide(law.inclusion(), importance, out=ratios, where=importance > 0)
    split = partition(importance, law, np.argsort(ratios))
    return exchanged(importance, law, split, np.zeros_like(importance))


def exchanged(
    importance: Floats, law: SolvableLaw, split: Partition, potentials: Floats
) -> Partition:
    """Move clients between levels until nobody is clearly in the wrong one.

    Clients of one level are ordered by falling potentials. Levels of laws without tangents are
    returned as they are.
    """
    mass = np.where(importance > 0, importance, 1.0)
    for _ in range(_MOST_EXCHANGES):
        slopes = slopes_along(law, split.levels)
        if slopes is None:
            break
        levels, ratios = split.levels, split.ratios
        stays = (importance == 0) | (
            (slopes(levels + 1) <= split.target * (1.0 + _CLEARLY))
            & (slopes(levels) >= split.target * (1.0 - _CLEARLY))
        )
        if stays.all():
            break
        # The fewest levels after which a client's slope is below the next ratio: slopes fall,
        # ratios rise, so halving finds it.
        above = np.append(ratios, np.inf)
        low, high = np.zeros_like(levels), np.full_like(levels, ratios.size)
        while np.any(low < high):
            middle = (low + high) // 2
            joins = slopes(middle) < above[middle] * mass
            low, high = np.where(joins, low, middle + 1), np.where(joins, middle, high)
            low = np.minimum(low, high)
        with np.errstate(over="ignore"):
            joined = np.maximum(slopes(low) / mass, np.append(0.0, ratios)[low])
        places = np.where(stays, ratios[levels], joined)
        split = partition(importance, law, np.lexsort((-potentials, levels, places)))
    return split
