"""Find the levels of laws without a list of cohorts, by soft alignment.

With softness ρ and a pull weighted by the logarithmic mean of target and present weight, the
potential of a client in a level of ratio λ is −log(λ)/ρ above the mean: ever smaller ρ separates
ever closer levels. Each pass aligns softly within the present levels and reads them again; once
they stay the same, the exact target has to be met within them, which proves them right. Potentials
only move a client from one level to the next, so where the law allows it, clients are first
exchanged between all levels by their own ratios. Where all this fails, `least_norm` has the levels.
"""

from dataclasses import replace

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._law import SolvableLaw
from fedavot.solve._numeric import logarithmic_mean
from fedavot.solve._problem import DualProblem, Iterate, Pull
from fedavot.solve.climbing import Solution, StoppingRule, climb_until, go_on, met, within
from fedavot.solve.exchanging import exchanged, first_levels
from fedavot.solve.least_norm import least_norm_order
from fedavot.solve.levels import Partition, gathered, partition, reread

_FIRST_SOFTNESS, _LEAST_SOFTNESS = 0.3, 1e-13
_FALL = 5.0
"""Factor by which softness falls from one pass to the next."""
_ORDERED = 0.01
"""Relative error of a soft alignment that is used for its order alone."""
_PROBE = 6
"""Evaluations after which a climb within levels must have come three times closer."""


def by_softening(
    importance: Floats, law: SolvableLaw, stop: StoppingRule, evaluations: int
) -> Solution:
    """Separate levels by ever smaller softness; where that fails, by the base of least norm."""
    found = _softening(importance, law, stop, evaluations)
    spent = found.iterate.evaluations
    if met(within(importance, law, found.partition), found.iterate, stop) or spent >= stop.max_iter:
        return found
    order = np.argsort(found.partition.levels, kind="stable")
    split = partition(importance, law, least_norm_order(importance, law, order))
    start = Iterate.zero(split.target, spent)
    sure = Solution(split, climb_until(within(importance, law, split), start, stop))
    best = min(sure, found, key=lambda one: one.iterate.residual)
    return replace(best, iterate=replace(best.iterate, evaluations=sure.iterate.evaluations))


def _softening(
    importance: Floats, law: SolvableLaw, stop: StoppingRule, evaluations: int
) -> Solution:
    """Align softly within the present levels and read them again, until the target is met."""
    split = first_levels(importance, law)
    problem = within(importance, law, split)
    iterate = go_on(problem, Iterate.zero(split.target, evaluations), stop, budget=1)
    best, softness = Solution(split, iterate), _FIRST_SOFTNESS
    iterate = _soften(problem, iterate, softness, stop)
    while softness >= _LEAST_SOFTNESS and iterate.evaluations < stop.max_iter:
        found = _read(importance, law, split.levels, iterate.potentials)
        if np.array_equal(found.levels, split.levels):
            iterate = _exactly(problem, iterate, stop)
            if iterate.residual < best.iterate.residual:
                best = Solution(split, iterate)
            if met(problem, iterate, stop):
                return best
            # In a level that cannot meet its target potentials diverge, which may show its split.
            found = _read(importance, law, split.levels, iterate.potentials)
        softness /= _FALL
        iterate = replace(iterate, potentials=gathered(iterate.potentials, found.levels))
        split, problem = found, within(importance, law, found)
        iterate = _soften(problem, iterate, softness, stop)
    return Solution(best.partition, replace(best.iterate, evaluations=iterate.evaluations))


def _read(importance: Floats, law: SolvableLaw, levels: Integers, potentials: Floats) -> Partition:
    """Read the levels off the potentials, and exchange clients between them."""
    return exchanged(importance, law, reread(importance, law, levels, potentials), potentials)


def _soften(problem: DualProblem, iterate: Iterate, softness: float, stop: StoppingRule) -> Iterate:
    """Climb with a pull weighted by the logarithmic mean of target and present weight.

    It puts a client −log(λ)/ρ above the mean, whatever the order of magnitude of λ.
    """
    weights = np.where(problem.free, logarithmic_mean(problem.target, iterate.marginal), 0.0)
    pull = Pull(softness, weights, problem.parts)
    goal = replace(stop, tol=_ORDERED * softness, relative=_ORDERED * softness)
    return go_on(problem, iterate, goal, pull=pull)


def _exactly(problem: DualProblem, iterate: Iterate, stop: StoppingRule) -> Iterate:
    """Climb without a pull as long as the residual falls quickly."""
    iterate, before = go_on(problem, iterate, stop, budget=_PROBE), np.inf
    while iterate.residual < 0.3 * before and not met(problem, iterate, stop):
        before = iterate.residual
        iterate = go_on(problem, iterate, stop, budget=_PROBE)
    return iterate
