"""The plan of least variance: the Euclidean counterpart of the softmax plan.

Among plans with the same marginal, E‖Y_A‖² is least for weights Y_A = projection of x_A onto the
simplex. The potentials maximise D(x) = Σ p̃_i x_i − E_A ψ(x_A), ψ(v) = max_{y∈Δ} ⟨y,v⟩ − ½‖y‖², a
concave piecewise quadratic, by a semismooth Newton method: on the members with positive weight the
Hessian is E[diag(1) − 1 1ᵀ/n_A], again a Laplacian. Levels and target are the entropic plan's: a
plan with marginal p̃ cannot cross a level, whatever it minimises.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedavot._checks import Floats
from fedavot._simplex import sparsemax
from fedavot.laws._explicit import laplacian
from fedavot.laws._incidence import Incidence, total_by
from fedavot.laws.cohorts import Cohorts
from fedavot.solve._problem import Problem, Run
from fedavot.solve.decompose import Effort, Solution, within
from fedavot.solve.newton import DENSE_CLIENTS, conjugate_gradients, solve_dense

_LONGEST_SEARCH = 40


@dataclass(frozen=True, eq=False)
class _Point:
    """Projections, their mean and the dual's curvature at one vector of potentials."""

    incidence: Incidence
    probabilities: Floats
    potentials: Floats

    @cached_property
    def weights(self) -> Floats:
        """The projection in every cohort, one number an entry."""
        return sparsemax(self.potentials[self.incidence.members], self.incidence.offsets)

    @cached_property
    def marginal(self) -> Floats:
        mass = self.weights * self.incidence.spread_over_members(self.probabilities)
        return total_by(self.incidence.members, mass, self.incidence.n_clients)

    @cached_property
    def _even(self) -> Floats:
        """√q/n on the members with positive weight, so that its outer products average."""
        inside = self.weights > 0
        count = np.add.reduceat(inside, self.incidence.offsets[:-1], dtype=np.int64)
        return np.where(
            inside, self.incidence.spread_over_members(np.sqrt(self.probabilities / count)), 0.0
        )

    def dense(self) -> Floats:
        pairs = self.incidence.pairs
        starts = self.incidence.offsets[:-1][pairs.cohorts]
        return laplacian(
            self.incidence, self._even[starts] * self._even[starts + 1], lambda: self._even
        )

    @cached_property
    def diagonal(self) -> Floats:
        """The diagonal of the Hessian."""
        root = self.incidence.spread_over_members(np.sqrt(self.probabilities))
        own = np.where(self._even > 0, root**2 - self._even**2, 0.0)
        return total_by(self.incidence.members, own, self.incidence.n_clients)

    def product(self, direction: Floats) -> Floats:
        entries = direction[self.incidence.members]
        total = np.add.reduceat(self._even * entries, self.incidence.offsets[:-1])
        inside = self._even > 0
        mass = np.where(inside, self.incidence.spread_over_members(self.probabilities), 0.0)
        moved = mass * entries - self._even * self.incidence.spread_over_members(total)
        return total_by(self.incidence.members, moved, self.incidence.n_clients)


def least_variance(
    importance: Floats, law: Cohorts, solution: Solution, effort: Effort
) -> Solution:
    """Replace the entropic plan within its levels by the one of least variance."""
    problem = within(importance, law, solution.parts)
    incidence = law.incidence.within(solution.parts.levels)
    start = np.where(problem.free, solution.run.potentials, 0.0)
    # Half the entropic potentials' spread is about where projections give the same weights.
    point = _Point(incidence, law.probabilities, 0.5 * np.clip(start, -2.0, 2.0))
    evaluations = solution.run.evaluations + 1
    while evaluations < effort.max_iter:
        error = problem.error(point.marginal)
        if np.abs(error).sum() <= effort.tol:
            break
        direction = _direction(problem, point, error)
        point, spent = _line_search(problem, point, direction, error)
        evaluations += spent
    residual = float(np.abs(problem.error(point.marginal)).sum())
    run = Run(point.potentials, point.marginal, residual, evaluations)
    return Solution(solution.parts, run)


def _direction(problem: Problem, point: _Point, error: Floats) -> Floats:
    free = problem.free
    # Where no two members share positive weight the dual is linear; a ridge that shrinks with the
    # error keeps such steps finite and vanishes at the solution.
    ridge = problem.target * min(1e-2, float(np.abs(error).sum())) + 1e-15
    direction = np.zeros_like(error)
    if np.count_nonzero(free) <= DENSE_CLIENTS:
        hessian = point.dense()[np.ix_(free, free)]
        hessian[np.diag_indices_from(hessian)] += ridge[free]
        direction[free] = solve_dense(hessian, error[free])
        return direction
    aim = min(0.1, float(np.sqrt(np.abs(error).sum())))
    return conjugate_gradients(
        lambda vector: np.where(free, point.product(vector) + ridge * vector, 0.0),
        np.where(free, error, 0.0),
        np.where(free, point.diagonal + ridge, 1.0),
        aim,
    )


def _line_search(
    problem: Problem, point: _Point, direction: Floats, error: Floats
) -> tuple[_Point, int]:
    """Go along the direction until the dual's slope has fallen by half, either way.

    The slope falls continuously from its start to below zero, so halving between a step too short
    and one too long ends.
    """
    slope = float(error @ direction)
    short, long, length = 0.0, np.inf, 1.0
    spent = 0
    while True:
        moved = _Point(point.incidence, point.probabilities, point.potentials + length * direction)
        end = float(problem.error(moved.marginal) @ direction)
        spent += 1
        if abs(end) <= 0.5 * slope or spent >= _LONGEST_SEARCH:
            return moved, spent
        short, long = (length, long) if end > 0 else (short, length)
        length = 2 * length if np.isinf(long) else (short + long) / 2
