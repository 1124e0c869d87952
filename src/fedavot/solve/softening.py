"""Levels of laws without a list of cohorts: soft alignment tells them apart.

With softness ρ and a pull by the logarithmic mean of wanted and present weight, a client whose
level has the ratio λ stands −log(λ)/ρ above the mean: ever smaller ρ tells ever closer levels
apart. Each pass softens inside the levels at hand and reads them again; once they stay the same,
the exact target has to be met inside them, which proves them right. Potentials only move a client
from one level to the next, so wherever the law allows it, clients are first exchanged between all
levels by their own ratios.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedavot._checks import Floats
from fedavot.laws._law import SolvableLaw
from fedavot.solve._problem import Problem, Pull, Run
from fedavot.solve.climbing import (
    Effort,
    Solution,
    from_zero,
    gathered,
    go_on,
    met,
    one_level,
    reread,
    within,
)
from fedavot.solve.direction import logarithmic_mean
from fedavot.solve.exchanging import exchanged, first_levels
from fedavot.solve.levels import Partition

_LEAST_SOFTNESS = 1e-13
_ORDERED = 0.01
"""Relative error of a soft alignment that is used for its order alone."""
_PROBE = 6
"""Evaluations after which a climb inside levels must have come three times closer."""


@dataclass(frozen=True)
class _Schedule:
    """Softness before any levels are told apart, and what it is divided by after each look.

    ``exchanging`` says whether clients are moved between levels by their own ratios as well.
    """

    first: tuple[float, ...]
    unsettled: float
    settled: float
    exchanging: bool


_HASTY = _Schedule(first=(0.3,), unsettled=5.0, settled=5.0, exchanging=True)
_PATIENT = _Schedule(first=(1.0, 0.3, 0.1), unsettled=1.2, settled=10.0, exchanging=False)


def by_softening(
    importance: Floats, law: SolvableLaw, effort: Effort, evaluations: int
) -> Solution:
    """Tell levels apart by ever smaller softness, in haste first, patiently where that fails."""
    hasty = _softening(importance, law, effort, _HASTY, evaluations)
    if met(within(importance, law, hasty.parts), hasty.run, effort):
        return hasty
    patient = _softening(importance, law, effort, _PATIENT, hasty.run.evaluations)
    best = min(patient, hasty, key=lambda found: found.run.residual)
    return replace(best, run=replace(best.run, evaluations=patient.run.evaluations))


def _softening(
    importance: Floats, law: SolvableLaw, effort: Effort, schedule: _Schedule, evaluations: int
) -> Solution:
    """Soften inside the levels at hand, read them again, and so on until the target is met."""
    begin = first_levels if schedule.exchanging else one_level
    parts = begin(importance, law)
    problem = within(importance, law, parts)
    run = go_on(problem, from_zero(parts, evaluations), effort, budget=1)
    best = Solution(parts, run)
    for softness in schedule.first:
        run = _soften(problem, run, softness, effort)
    while softness >= _LEAST_SOFTNESS and run.evaluations < effort.max_iter:
        found = _read(importance, law, parts, run, schedule)
        settled = np.array_equal(found.levels, parts.levels)
        if settled:
            run = _exactly(problem, run, effort)
            if run.residual < best.run.residual:
                best = Solution(parts, run)
            if met(problem, run, effort):
                return best
            # Levels out of reach drive their clients apart, which may show where they split.
            found = _read(importance, law, parts, run, schedule)
        softness /= schedule.settled if settled else schedule.unsettled
        run = replace(run, potentials=gathered(run.potentials, found.levels))
        parts, problem = found, within(importance, law, found)
        run = _soften(problem, run, softness, effort)
    return Solution(best.parts, replace(best.run, evaluations=run.evaluations))


def _read(
    importance: Floats, law: SolvableLaw, parts: Partition, run: Run, schedule: _Schedule
) -> Partition:
    """Read the levels off the potentials, and exchange clients between them if asked to."""
    found = reread(importance, law, parts, run)
    return exchanged(importance, law, found, run.potentials) if schedule.exchanging else found


def _soften(problem: Problem, run: Run, softness: float, effort: Effort) -> Run:
    """Climb with a pull by the logarithmic mean of wanted and present weight.

    With it a client stands −log(λ)/ρ above the mean, whatever the order of magnitude of λ.
    """
    weights = np.where(problem.free, logarithmic_mean(problem.target, run.marginal), 0.0)
    pull = Pull(softness, weights, problem.parts)
    goal = replace(effort, tol=_ORDERED * softness, relative=_ORDERED * softness)
    return go_on(problem, run, goal, pull=pull)


def _exactly(problem: Problem, run: Run, effort: Effort) -> Run:
    """Climb without a pull as long as that leads somewhere."""
    run, before = go_on(problem, run, effort, budget=_PROBE), np.inf
    while run.residual < 0.3 * before and not met(problem, run, effort):
        before = run.residual
        run = go_on(problem, run, effort, budget=_PROBE)
    return run
