"""Find the levels of laws without a list of cohorts, by soft alignment.

With softness ρ and a pull weighted by the logarithmic mean of target and present weight, the
potential of a client in a level of ratio λ is −log(λ)/ρ above the mean: ever smaller ρ separates
ever closer levels. Each pass aligns softly within the present levels and reads them again; once
they stay the same, the exact target has to be met within them, which proves them right. Potentials
only move a client from one level to the next, so where the law allows it, clients are first
exchanged between all levels by their own ratios.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._law import SolvableLaw
from fedavot.solve._numeric import logarithmic_mean
from fedavot.solve._problem import DualProblem, Iterate, Pull
from fedavot.solve.climbing import Solution, StoppingRule, go_on, met, within
from fedavot.solve.exchanging import exchanged, first_levels
from fedavot.solve.levels import Partition, gathered, one_level, reread

_LEAST_SOFTNESS = 1e-13
_ORDERED = 0.01
"""Relative error of a soft alignment that is used for its order alone."""
_PROBE = 6
"""Evaluations after which a climb within levels must have come three times closer."""


@dataclass(frozen=True)
class _Schedule:
    """How softness falls.

    ``first`` are the passes before levels are read for the first time. Afterwards a pass that
    changed the levels divides the softness by ``unsettled``, one that did not by ``settled``.
    ``exchanging`` says whether clients are also moved between levels by their own ratios.
    """

    first: tuple[float, ...]
    unsettled: float
    settled: float
    exchanging: bool


_HASTY = _Schedule(first=(0.3,), unsettled=5.0, settled=5.0, exchanging=True)
_PATIENT = _Schedule(first=(1.0, 0.3, 0.1), unsettled=1.2, settled=10.0, exchanging=False)


def by_softening(
    importance: Floats, law: SolvableLaw, stop: StoppingRule, evaluations: int
) -> Solution:
    """Separate levels by ever smaller softness: quickly first, slowly where that fails."""
    hasty = _softening(importance, law, stop, _HASTY, evaluations)
    if met(within(importance, law, hasty.partition), hasty.iterate, stop):
        return hasty
    patient = _softening(importance, law, stop, _PATIENT, hasty.iterate.evaluations)
    best = min(patient, hasty, key=lambda found: found.iterate.residual)
    return replace(best, iterate=replace(best.iterate, evaluations=patient.iterate.evaluations))


def _softening(
    importance: Floats, law: SolvableLaw, stop: StoppingRule, schedule: _Schedule, evaluations: int
) -> Solution:
    """Align softly within the present levels and read them again, until the target is met."""
    begin = first_levels if schedule.exchanging else one_level
    split = begin(importance, law)
    problem = within(importance, law, split)
    iterate = go_on(problem, Iterate.zero(split.target, evaluations), stop, budget=1)
    best = Solution(split, iterate)
    for softness in schedule.first:
        iterate = _soften(problem, iterate, softness, stop)
    while softness >= _LEAST_SOFTNESS and iterate.evaluations < stop.max_iter:
        found = _read(importance, law, split.levels, iterate.potentials, schedule)
        settled = np.array_equal(found.levels, split.levels)
        if settled:
            iterate = _exactly(problem, iterate, stop)
            if iterate.residual < best.iterate.residual:
                best = Solution(split, iterate)
            if met(problem, iterate, stop):
                return best
            # In a level that cannot meet its target potentials diverge, which may show its split.
            found = _read(importance, law, split.levels, iterate.potentials, schedule)
        softness /= schedule.settled if settled else schedule.unsettled
        iterate = replace(iterate, potentials=gathered(iterate.potentials, found.levels))
        split, problem = found, within(importance, law, found)
        iterate = _soften(problem, iterate, softness, stop)
    return Solution(best.partition, replace(best.iterate, evaluations=iterate.evaluations))


def _read(
    importance: Floats,
    law: SolvableLaw,
    levels: Integers,
    potentials: Floats,
    schedule: _Schedule,
) -> Partition:
    """Read the levels off the potentials, and exchange clients if the schedule says so."""
    found = reread(importance, law, levels, potentials)
    return exchanged(importance, law, found, potentials) if schedule.exchanging else found


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
