"""Search for the levels of a law, and for the potentials that meet the target within them.

Laws with a worst order have their levels in it. For the others, as the potentials climb towards the
optimum, clients that cannot get their importance rise above the others, so the order of the
potentials reveals the levels long before any marginal has converged. Each round of the search
climbs for a while, orders the clients by level and potential, and reads the levels off that order
again. Once they stop changing, Newton's method has to meet the target within every level; only that
ends the search. Levels that are still wrong are split by max-flow where cohorts are listed; where
they are not, by softening and the base of least norm.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._law import SolvableLaw
from fedavot.laws._quadrature import place_nodes, scaled_times
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.independent import IndependentClients
from fedavot.laws.successive import SuccessiveDraws, explicit_cohorts
from fedavot.solve.dual import DualProblem, Iterate, Solution, StoppingRule
from fedavot.solve.ipfp import accelerated, ipfp
from fedavot.solve.levels import gathered, one_level, partition, reread
from fedavot.solve.maxflow import split_by_flow
from fedavot.solve.newton import CLIMBS, climb, climb_until, newton
from fedavot.solve.softening import by_softening

# Sweeps between two readings of the levels, and readings after which max-flow finds them more
# cheaply.
_SORTING_SWEEPS, _SORTS = 15, 4
# Number of clients up to which draws of pairs are listed for a max-flow.
_LISTED_CLIENTS = 1_000
# Independent clients from which on a guess pays, its types of clients, and its evaluations.
_MANY, _TYPES, _GUESSES = 50_000, 2_048, 40


def decompose(importance: Floats, law: SolvableLaw, stop: StoppingRule) -> Solution:
    """Find levels and potentials whose marginal is the nearest attainable importance."""
    order = law.worst_order(importance)
    if order is not None:
        split = partition(importance, law, order)
        problem = DualProblem.within(importance, law, split)
        guess = np.zeros(importance.size)
        if isinstance(law, IndependentClients) and split.ratios.size == 1:
            guess = _first_guess(importance, law, order)
        return Solution(split, climb_until(problem, Iterate.start(guess), stop))
    split = one_level(importance, law)
    iterate = Iterate.start(np.zeros(importance.size))
    # A client whose target exceeds its inclusion probability shows at once that levels are needed.
    sorting = bool(np.any(split.target > law.inclusion() + 1e-12))
    if sorting and not _has_short_list(law):
        return by_softening(importance, law, stop, 0)
    sorts = climbs = 0
    while True:
        problem = DualProblem.within(importance, law, split)
        if sorting:
            # Sweep for a while, so that the potentials find their order.
            budget = min(_SORTING_SWEEPS, stop.max_iter - iterate.evaluations)
            iterate = ipfp(problem, iterate, stop, budget=budget)
        else:
            iterate = climb(problem, iterate, stop, climbs)
        sorts, climbs = sorts + sorting, climbs + (not sorting)
        if (problem.met(iterate, stop) and not sorting) or iterate.evaluations >= stop.max_iter:
            return Solution(split, iterate)
        again = reread(importance, law, split.levels, iterate.potentials)
        sorting = not np.array_equal(again.levels, split.levels)
        sort = sorts < _SORTS and _has_short_list(law)
        if not (sort if sorting else climbs < len(CLIMBS)):
            return resolve(importance, law, stop, Solution(again, iterate))
        if sorting:
            iterate = replace(iterate, potentials=gathered(iterate.potentials, again.levels))
        split = again


def resolve(importance: Floats, law: SolvableLaw, stop: StoppingRule, begin: Solution) -> Solution:
    """Find the levels by a method that does not fail: max-flow if cohorts are listed, or softening.

    Max-flow starts from the levels of ``begin``.
    """
    iterate = begin.iterate
    cohorts = explicit_cohorts(law) if _has_short_list(law) else None
    if cohorts is None:
        return by_softening(importance, law, stop, iterate.evaluations)
    split = split_by_flow(importance, cohorts, begin.partition, iterate.potentials)
    start = Iterate.start(np.zeros(importance.size), iterate.evaluations)
    problem = DualProblem.within(importance, law, split)
    return Solution(split, climb_until(problem, start, stop))


def refine(
    importance: Floats, law: SolvableLaw, solution: Solution, stop: StoppingRule
) -> Solution:
    """Read the levels once more, and meet the target within them if they have changed."""
    levels, iterate = solution.partition.levels, solution.iterate
    split = reread(importance, law, levels, iterate.potentials)
    if np.array_equal(split.levels, levels):
        return solution
    start = replace(iterate, potentials=gathered(iterate.potentials, split.levels))
    problem = DualProblem.within(importance, law, split)
    return Solution(split, newton(problem, start, stop, budget=CLIMBS[0]))


def _has_short_list(law: SolvableLaw) -> bool:
    """Say whether the law has a list of cohorts short enough for a max-flow."""
    if isinstance(law, SuccessiveDraws):
        return law.size > 2 or law.n_clients <= _LISTED_CLIENTS or not law.exact
    return isinstance(law, Cohorts)


class _Point(NamedTuple):
    """Expected weights of types, and expected squared weights, shape (n_types,)."""

    marginal: Floats
    squares: Floats


@dataclass(frozen=True, eq=False)
class _Types:
    """Types of clients with their mean numbers in a round, shape (n_types,).

    Of a type with π clients on average a Poisson number takes part, so that its expected weight is
    ∫ t u π e^{−tu} exp(Σ_k π_k (e^{−t u_k} − 1)) dt/t, as in `laws._quadrature`.
    """

    numbers: Floats

    def marginal(self, potentials: Floats) -> Floats:
        marginal: Floats = self.curvature(potentials).marginal
        return marginal

    def curvature(self, potentials: Floats) -> Any:
        values = potentials - potentials.max()
        high = np.log(max(float(np.exp(values) @ self.numbers), 1.0))
        nodes = place_nodes(float(values.min()), high)
        scale = scaled_times(values, nodes)
        weights = nodes.steps * np.exp(self.numbers @ np.expm1(-scale))
        mass = scale * np.exp(-scale)
        sums = self.numbers * np.stack((mass @ weights, (mass * scale) @ weights))
        return _Point(*(sums / sums[0].sum()))


def _first_guess(importance: Floats, law: IndependentClients, order: Integers) -> Floats:
    """Return potentials to start from, interpolated between a few types of clients.

    Independent clients with the same probability and the same importance have the same potential,
    and for small probabilities the potential depends on p_i/π_i alone. So the clients are grouped
    into types along the worst order, which sorts them by that ratio, and the problem is solved for
    the types.
    """
    chances = law.probabilities[order]
    if order.size < _MANY or min(chances.min(), importance.min()) <= 0 or chances.max() >= 1:
        return np.zeros(importance.size)
    # Types are closer together towards both ends, where ratios are sparse.
    angles = np.linspace(0.0, np.pi, _TYPES, endpoint=False)
    starts = np.unique((order.size * (1.0 - np.cos(angles)) / 2).astype(np.int64))
    numbers = np.add.reduceat(chances, starts)
    target = np.add.reduceat(importance[order], starts)
    free = np.ones(starts.size, dtype=bool)
    problem = DualProblem(_Types(numbers), target, free, ~free, np.zeros(starts.size, np.int64))
    start = Iterate.start(np.zeros(starts.size))
    guess = accelerated(problem, start, StoppingRule(1e-10, _GUESSES), budget=_GUESSES).potentials
    # np.interp needs rising abscissae, and the ratios fall along the worst order.
    ratios, middles = np.log(importance[order] / chances), np.log(target / numbers)
    return np.interp(ratios, middles[::-1], guess[::-1])[np.argsort(order)]
