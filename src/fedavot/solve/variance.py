"""The plan of least variance: the Euclidean counterpart of the softmax plan.

Among plans with the same marginal, E‖Y_A‖² is least for weights Y_A = projection of x_A onto the
simplex. The potentials maximise D(x) = Σ p̃_i x_i − E_A ψ(x_A), ψ(v) = max_{y∈Δ} ⟨y,v⟩ − ½‖y‖²,
concave and piecewise quadratic, with flat pieces next to steep ones. The method is that of
proximal points: maximise D(x) − Σ π_i (x_i − c_i)²/(2t) with π_i = P(i ∈ A), move the centre c to
the maximum, and let the reach t grow. In this metric the curvature of D is at most one, whatever
the probabilities, and each inner problem is strongly concave: Newton's method with an exact line
search solves it in finitely many steps. Clients without weight are raised by `admission`. Levels
and target are those of the entropic plan: no plan with marginal p̃ puts weight across levels.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedavot._checks import LARGEST_POTENTIAL, Floats, Integers
from fedavot._incidence import Incidence, total_by
from fedavot.laws.cohorts import Cohorts
from fedavot.solve._problem import Iterate
from fedavot.solve.admission import admit
from fedavot.solve.climbing import Solution, StoppingRule
from fedavot.solve.quadratic import Point, Projections, linked

_GROWTH = 10.0
_LONGEST_REACH = 1e10
"""Largest reach for which the Cholesky factors of a singular Hessian are more than rounding."""
_INNER_STEPS = 15
"""Newton steps after which the reach of an inner problem counts as too long."""
_SETTLED = 0.2
"""Gradient, as a share of the pull towards the centre, at which the centre moves."""
_FLAT = 0.3
"""Slope, as a share of the first, at which a line search ends."""
_LONGEST_SEARCH = 60
_GROUP_SEARCH = 4
_LOOK = 10
"""Newton steps between two checks that the target is attainable."""
_PATIENCE = 200
"""Newton steps without a smaller residual after which the solver gives up."""


@dataclass(frozen=True, eq=False)
class _Choice:
    """The cohorts that leave a choice: those with several members of their lowest level.

    All attributes number the ``clients`` in such cohorts from 0. ``target`` has the expected
    weights to reach in these cohorts, ``parts`` the part of each client, from 0: no chain of
    cohorts links clients of different parts.
    """

    clients: Integers
    projections: Projections
    target: Floats
    parts: Integers

    @cached_property
    def n_parts(self) -> int:
        """Number of parts."""
        return int(self.parts.max(initial=-1)) + 1

    def by_part(self, values: Floats) -> Floats:
        """Sum values over each part, shape (n_parts,)."""
        return total_by(self.parts, values, self.n_parts)

    def out_of_reach(self, point: Point) -> float:
        """Return the largest target less coverage of any set of clients above some potential.

        Where it is positive, no weights attain the target.
        """
        incidence, count = self.projections.incidence, self.target.size
        order = np.argsort(-point.potentials)
        place = np.empty(count, dtype=np.int64)
        place[order] = np.arange(count)
        covered = total_by(incidence.minimum(place), self.projections.probabilities, count)
        return float(np.cumsum(self.target[order] - covered).max())


@dataclass(frozen=True, eq=False)
class _Inner:
    """One proximal problem: maximise D(x) − ½ Σ ridge_i (x_i − centre_i)²."""

    choice: _Choice
    ridge: Floats
    centre: Floats

    def gradient(self, point: Point) -> Floats:
        """Return target − marginal − ridge ∘ (x − centre)."""
        pull = self.ridge * (point.potentials - self.centre)
        return np.asarray(self.choice.target - point.marginal - pull)

    def bend(self, point: Point, direction: Floats) -> Floats:
        """Return the Hessian times a direction, shape (n_members,)."""
        return np.asarray(point.product(direction) + self.ridge * direction)


@dataclass(frozen=True, eq=False)
class _Course:
    """State of the proximal points: centre of each client, reach and Newton steps of each part."""

    centre: Floats
    reach: Floats
    steps: Integers

    def ridge(self, choice: _Choice) -> Floats:
        """Return the strength of the pull towards the centre, shape (n_members,)."""
        return np.asarray(choice.projections.inclusion / self.reach[choice.parts])


def least_variance(
    importance: Floats, law: Cohorts, solution: Solution, stop: StoppingRule, *, sure: bool = True
) -> Solution:
    """Find the plan of least variance within the levels of a solution.

    If the levels are not ``sure`` to be right, stop as soon as they are found to be wrong.
    """
    choice, marginal = _reduce(importance, law, solution)
    wanted = importance > 0
    target = solution.partition.target
    potentials = np.zeros(importance.size)
    evaluations = solution.iterate.evaluations
    error = target - marginal
    error[choice.clients] -= choice.target
    elsewhere = float(np.abs(error[wanted]).sum())
    if choice.clients.size and (sure or elsewhere <= stop.tol):
        # The error that no choice can reduce counts towards the tolerance.
        tol = max(stop.tol - elsewhere, stop.tol / 2)
        point, spent = _climb(choice, tol, stop.max_iter - evaluations, sure)
        potentials[choice.clients] = point.potentials
        marginal[choice.clients] += point.marginal
        evaluations += spent
    residual = float(np.abs(target - marginal)[wanted].sum())
    return Solution(solution.partition, Iterate(potentials, marginal, residual, evaluations))


def _reduce(importance: Floats, law: Cohorts, solution: Solution) -> tuple[_Choice, Floats]:
    """Return the cohorts that leave a choice, and what the others contribute to the marginal.

    In those others, of one member or of clients without importance, all members share equally.
    """
    incidence = law.incidence.within(solution.partition.levels)
    sizes, probabilities = incidence.sizes, law.probabilities
    first = incidence.members[incidence.offsets[:-1]]
    several = (sizes > 1) & (probabilities > 0) & (importance[first] > 0)
    kept = np.repeat(several, sizes)
    shares = np.repeat(probabilities / sizes, sizes)
    fixed = total_by(incidence.members[~kept], shares[~kept], incidence.n_clients)
    clients, members = np.unique(incidence.members[kept], return_inverse=True)
    offsets = np.concatenate(([0], np.cumsum(sizes[several])))
    reduced = Incidence(members.astype(np.int32), offsets, clients.size)
    projections = Projections(reduced, probabilities[several])
    # After rounding elsewhere the target may exceed what a rare cohort has: potentials would
    # diverge for an error that they cannot reduce.
    target = np.clip((solution.partition.target - fixed)[clients], 0.0, projections.inclusion)
    return _Choice(clients.astype(np.int64), projections, target, reduced.components()), fixed


def _climb(choice: _Choice, tol: float, budget: int, sure: bool) -> tuple[Point, int]:
    """Return the best point found, and the number of evaluations."""
    # A client's mean weight when it takes part: the right scale for cohorts of every size.
    centre = choice.target / choice.projections.inclusion
    course = _Course(centre, np.ones(choice.n_parts), np.zeros(choice.n_parts, dtype=np.int64))
    point = best = choice.projections.at(centre)
    least, evaluations, idle = np.inf, 1, 0
    for step in itertools.count(1):
        residual, idle = float(np.abs(choice.target - point.marginal).sum()), idle + 1
        if residual < least:
            best, least, idle = point, residual, 0
        if least <= tol or evaluations >= budget or idle > _PATIENCE:
            break
        if not sure and step % _LOOK == 0 and choice.out_of_reach(point) > tol:
            break
        moved, course = _onward(choice, point, course)
        evaluations += moved is not point
        inner = _Inner(choice, course.ridge(choice), course.centre)
        gradient = inner.gradient(moved)
        # Parts that are done do not move: a long reach would amplify the rounding of the gradient.
        open_ = choice.by_part(np.abs(gradient)) > 1e-2 * tol / choice.n_parts
        gradient = np.where(open_[choice.parts], gradient, 0.0)
        direction = moved.solve(inner.ridge, gradient)
        point, spent = _line_search(inner, moved, direction, gradient)
        evaluations += spent
    return best, evaluations


def _onward(choice: _Choice, point: Point, course: _Course) -> tuple[Point, _Course]:
    """Move the centres of parts whose inner problem is solved or failed, and admit idle clients.

    While its centre moves, a client is not pulled and may rise as far as it has to.
    """
    ridge, parts = course.ridge(choice), choice.parts
    pull = ridge * (point.potentials - course.centre)
    left = choice.by_part(np.abs(choice.target - point.marginal - pull))
    over = left <= _SETTLED * choice.by_part(np.abs(pull))
    lost = ~over & (course.steps >= _INNER_STEPS)
    longer = np.minimum(_GROWTH * course.reach, _LONGEST_REACH)
    reach = np.where(over, longer, np.where(lost, course.reach / _GROWTH, course.reach))
    steps = np.where(over | lost, 0, course.steps + 1)
    moving = (over | lost)[parts]
    centre = np.where(moving, point.potentials, course.centre)
    ridge = np.where(moving, 0.0, ridge)
    moved = admit(point, choice.target, ridge, centre)
    return moved, _Course(np.where(moving, moved.potentials, centre), reach, steps)


def _line_search(
    inner: _Inner, point: Point, direction: Floats, gradient: Floats
) -> tuple[Point, int]:
    """Search along the direction, part by part, for where the slope is nearly zero.

    A part whose supports fall into groups, as in a chain, would stop at the first new support of
    any group. So groups first get step lengths of their own; a search along the resulting direction
    then corrects for groups that do interact.
    """
    parts = inner.choice.parts
    moved = point.projections.at(point.potentials + direction, point)
    slope, end = (inner.choice.by_part(direction * at) for at in (gradient, inner.gradient(moved)))
    spent = 1
    if np.all(np.abs(end) <= _FLAT * slope):
        return moved, spent
    groups = linked(point, moved)
    if groups.max() >= inner.choice.n_parts:
        moved, lengths, tried = _lengths(
            inner, (point, moved), direction, gradient, groups, _GROUP_SEARCH
        )
        direction = lengths * direction
        spent += tried
    moved, _, tried = _lengths(inner, (point, moved), direction, gradient, parts, _LONGEST_SEARCH)
    return moved, spent + tried


def _lengths(
    inner: _Inner,
    ends: tuple[Point, Point],
    direction: Floats,
    gradient: Floats,
    labels: Integers,
    budget: int,
) -> tuple[Point, Floats, int]:
    """Search for one step length per label, starting from the second of the ends, of length one.

    Along a direction the slope falls and is piecewise linear, so Newton's method within a bracket
    takes only a few steps.
    """
    count = int(labels.max()) + 1
    start, moved = ends
    slope = total_by(labels, direction * gradient, count)
    length, low, high = np.ones(count), np.zeros(count), np.full(count, np.inf)
    for spent in range(budget + 1):
        end = total_by(labels, direction * inner.gradient(moved), count)
        done = (np.abs(end) <= _FLAT * slope) | (slope <= 0)
        if done.all() or spent == budget:
            break
        low = np.where(~done & (end > 0), length, low)
        high = np.where(~done & (end < 0), length, high)
        bend = total_by(labels, direction * inner.bend(moved, direction), count)
        step = length + end / np.where(bend > 0, bend, np.inf)
        middle = np.where(
            np.isinf(high), 4 * length, (low + np.minimum(high, LARGEST_POTENTIAL)) / 2
        )
        within = (step > low) & (step < high)
        length = np.where(done, length, np.where(within, step, middle))
        moved = start.projections.at(start.potentials + length[labels] * direction, moved)
    return moved, length[labels], spent
