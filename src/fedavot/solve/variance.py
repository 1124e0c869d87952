"""The plan of least variance: the Euclidean counterpart of the softmax plan.

Among plans with the same marginal, E‖Y_A‖² is least for weights Y_A = projection of x_A onto the
simplex. The potentials maximise D(x) = Σ p̃_i x_i − E_A ψ(x_A), ψ(v) = max_{y∈Δ} ⟨y,v⟩ − ½‖y‖²,
concave and piecewise quadratic, with flat pieces next to steep ones. The method is that of
proximal points: maximise D(x) − Σ π_i (x_i − c_i)²/(2t) with π_i = P(i ∈ A), move the centre c to
the maximum, and let the reach t grow. In this metric the curvature of D is at most one, whatever
the probabilities, and each inner problem is strongly concave: Newton's method with an exact line
search solves it in finitely many steps. Clients without weight are raised by `admit`. Levels
and target are those of the entropic plan: no plan with marginal p̃ puts weight across levels.
"""

import itertools
from dataclasses import dataclass, replace

import numpy as np

from fedavot._checks import LARGEST_POTENTIAL, Floats, Integers
from fedavot._incidence import Incidence, total_by
from fedavot.laws._law import SolvableLaw
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.successive import SuccessiveDraws, explicit_cohorts
from fedavot.solve.dual import Iterate, Solution, StoppingRule
from fedavot.solve.levels import one_level
from fedavot.solve.maxflow import split_by_flow
from fedavot.solve.quadratic import Point, Projections, admit
from fedavot.solve.search import decompose

# Tolerance of an entropic plan that is only used for its levels.
_ROUGH = 1e-3
# Factor by which the reach grows, and its largest value for which the Cholesky factors of a
# singular Hessian are more than rounding.
_GROWTH, _LONGEST_REACH = 10.0, 1e10
# Newton steps after which the reach of an inner problem counts as too long.
_INNER_STEPS = 15
# Gradient, as a share of the pull towards the centre, at which the centre moves.
_SETTLED = 0.2
# Slope, as a share of the first, at which a line search ends.
_FLAT = 0.3
_LONGEST_SEARCH = 60
# Newton steps between two checks that the target is attainable, and without a smaller residual
# after which the solver gives up.
_LOOK, _PATIENCE = 10, 200


def align_with_least_variance(importance: Floats, law: SolvableLaw, stop: StoppingRule) -> Solution:
    """Find levels, and the plan of least variance within them.

    Meeting the target proves the levels right, whatever the weights. So a rough entropic plan is
    enough to guess them, because softmaxes may need infinite potentials for what projections meet
    easily. Levels that turn out wrong are found again by a method that does not fail.
    """
    cohorts = explicit_cohorts(law)
    assert cohorts is not None  # which `align` has checked
    rough = replace(stop, tol=max(stop.tol, _ROUGH), max_iter=max(1, stop.max_iter // 4))
    guess = decompose(importance, law, rough)
    first = least_variance(importance, cohorts, guess, stop, sure=False)
    spent = first.iterate.evaluations
    if first.iterate.residual <= stop.tol or spent >= stop.max_iter:
        return first
    rest = replace(stop, max_iter=stop.max_iter - spent)
    if isinstance(law, SuccessiveDraws) and law.size == 2:
        # The list of pairs is too long for a max-flow.
        half = replace(rest, max_iter=max(1, rest.max_iter // 2))
        levels = decompose(importance, law, half)
    else:
        start, zeros = one_level(importance, cohorts), np.zeros(importance.size)
        split = split_by_flow(importance, cohorts, start, zeros)
        levels = Solution(split, Iterate.start(zeros))
    again = least_variance(importance, cohorts, levels, rest)
    best = min(again, first, key=lambda solution: solution.iterate.residual)
    spent += again.iterate.evaluations
    return replace(best, iterate=replace(best.iterate, evaluations=spent))


@dataclass(frozen=True, eq=False)
class _Choice:
    """The cohorts that leave a choice: those with several members of their lowest level.

    ``clients`` are those in such cohorts; all else numbers them from 0. ``target`` has the expected
    weights to reach in these cohorts, ``parts`` the part of each client, from 0: no chain of
    cohorts links clients of different parts.
    """

    clients: Integers
    projections: Projections
    target: Floats
    parts: Integers

    def by_part(self, values: Floats) -> Floats:
        """Sum values over each part, shape (n_parts,)."""
        return total_by(self.parts, values, 1)

    def out_of_reach(self, point: Point) -> float:
        """Return the largest target less coverage of any set of clients above some potential.

        Where it is positive, no weights attain the target.
        """
        order = np.argsort(-point.potentials)
        first = self.projections.incidence.minimum(np.argsort(order))
        covered = total_by(first, self.projections.probabilities, order.size)
        return float(np.cumsum(self.target[order] - covered).max())


def least_variance(
    importance: Floats, law: Cohorts, solution: Solution, stop: StoppingRule, *, sure: bool = True
) -> Solution:
    """Find the plan of least variance within the levels of a solution.

    If the levels are not ``sure`` to be right, stop as soon as they are found to be wrong.
    """
    target, potentials = solution.partition.target, np.zeros(importance.size)
    choice, marginal = _reduce(importance, law, solution)
    evaluations = solution.iterate.evaluations
    error = target - marginal
    error[choice.clients] -= choice.target
    elsewhere = float(np.abs(error[importance > 0]).sum())
    if choice.clients.size and (sure or elsewhere <= stop.tol):
        # The error that no choice can reduce counts towards the tolerance.
        tol = max(stop.tol - elsewhere, stop.tol / 2)
        point, spent = _climb(choice, tol, stop.max_iter - evaluations, sure)
        potentials[choice.clients] = point.potentials
        marginal[choice.clients] += point.marginal
        evaluations += spent
    residual = float(np.abs(target - marginal)[importance > 0].sum())
    return Solution(solution.partition, Iterate(potentials, marginal, residual, evaluations))


def _reduce(importance: Floats, law: Cohorts, solution: Solution) -> tuple[_Choice, Floats]:
    """Return the cohorts that leave a choice, and what the others contribute to the marginal.

    In those others, of one member or of clients without importance, all members share equally.
    """
    incidence = law.incidence.within(solution.partition.levels)
    sizes, probabilities = incidence.sizes, law.probabilities
    first = incidence.members[incidence.offsets[:-1]]
    several = (sizes > 1) & (probabilities > 0) & (importance[first] > 0)
    others = np.repeat(np.where(several, 0.0, probabilities / sizes), sizes)
    fixed = total_by(incidence.members, others, incidence.n_clients)
    open_ = incidence.chosen(several)
    clients, members = np.unique(open_.members, return_inverse=True)
    reduced = Incidence(members.astype(np.int32), open_.offsets, clients.size)
    projections = Projections(reduced, probabilities[several])
    # After rounding elsewhere the target may exceed what a rare cohort has: potentials would
    # diverge for an error that they cannot reduce.
    target = np.clip((solution.partition.target - fixed)[clients], 0.0, projections.inclusion)
    return _Choice(clients.astype(np.int64), projections, target, reduced.components()), fixed


def _climb(choice: _Choice, tol: float, budget: int, sure: bool) -> tuple[Point, int]:
    """Return the best point found, and the number of evaluations."""
    target, parts, inclusion = choice.target, choice.parts, choice.projections.inclusion
    # A client's mean weight when it takes part: the right scale for cohorts of every size.
    centre = target / inclusion
    # The reach of each part, and the Newton steps since its centre moved.
    reach = np.ones(int(parts.max(initial=-1)) + 1)
    steps = np.zeros(reach.size, dtype=np.int64)
    point = best = choice.projections.at(centre)
    least, evaluations, idle = np.inf, 1, 0
    for step in itertools.count(1):
        residual, idle = float(np.abs(target - point.marginal).sum()), idle + 1
        if residual < least:
            best, least, idle = point, residual, 0
        if least <= tol or evaluations >= budget or idle > _PATIENCE:
            break
        if not sure and step % _LOOK == 0 and choice.out_of_reach(point) > tol:
            break
        # Move the centres of parts whose inner problem is solved or failed, and admit idle clients.
        # While its centre moves, a client is not pulled and may rise as far as it has to.
        ridge = inclusion / reach[parts]
        pull = ridge * (point.potentials - centre)
        left = choice.by_part(np.abs(target - point.marginal - pull))
        over = left <= _SETTLED * choice.by_part(np.abs(pull))
        lost = ~over & (steps >= _INNER_STEPS)
        reach = np.where(over, np.minimum(_GROWTH * reach, _LONGEST_REACH), reach)
        reach = np.where(lost, reach / _GROWTH, reach)
        steps = np.where(over | lost, 0, steps + 1)
        moving = (over | lost)[parts]
        centre = np.where(moving, point.potentials, centre)
        moved = admit(point, target, np.where(moving, 0.0, ridge), centre)
        evaluations += moved is not point
        centre, ridge = np.where(moving, moved.potentials, centre), inclusion / reach[parts]
        gradient = _inner(choice, moved, ridge, centre)
        # Parts that are done do not move: a long reach would amplify the rounding of the gradient.
        open_ = choice.by_part(np.abs(gradient)) > 1e-2 * tol / reach.size
        gradient = np.where(open_[parts], gradient, 0.0)
        point, spent = _line_search(choice, moved, gradient, ridge, centre)
        evaluations += spent
    return best, evaluations


def _line_search(
    choice: _Choice, point: Point, gradient: Floats, ridge: Floats, centre: Floats
) -> tuple[Point, int]:
    """Search along the Newton direction, part by part, for where the slope is nearly zero.

    Along a direction the slope falls and is piecewise linear, so Newton's method within a bracket
    takes only a few steps.
    """
    direction = point.solve(ridge, gradient)
    slope = choice.by_part(direction * gradient)
    length, low, high = np.ones_like(slope), np.zeros_like(slope), np.full_like(slope, np.inf)
    moved, spent = point, 0
    while spent < _LONGEST_SEARCH:
        ahead = point.potentials + length[choice.parts] * direction
        moved, spent = choice.projections.at(ahead, moved), spent + 1
        end = choice.by_part(direction * _inner(choice, moved, ridge, centre))
        done = (np.abs(end) <= _FLAT * slope) | (slope <= 0)
        if done.all():
            break
        low = np.where(~done & (end > 0), length, low)
        high = np.where(~done & (end < 0), length, high)
        bend = choice.by_part(direction * (moved.product(direction) + ridge * direction))
        step = length + end / np.where(bend > 0, bend, np.inf)
        middle = (low + np.minimum(high, LARGEST_POTENTIAL)) / 2
        middle = np.where(np.isinf(high), 4 * length, middle)
        length = np.where(done, length, np.where((step > low) & (step < high), step, middle))
    return moved, spent


def _inner(choice: _Choice, point: Point, ridge: Floats, centre: Floats) -> Floats:
    """Return the gradient of the inner problem: target − marginal − ridge ∘ (x − centre)."""
    return np.asarray(choice.target - point.marginal - ridge * (point.potentials - centre))
