"""The O(1/√T) theorem, measured: nonsmooth losses, the averaged iterate, every cohort size.

Importance p ∝ 101 − i over uniform cohorts of K of 100 clients, attainable for every K ≥ 2, so
that FedAVOT optimises F = Σ p_i f_i itself. The f_i are mean absolute deviations (``lad``) or mean
hinge losses (``hinge``) of clients that differ, or absolute deviations from one model that all
clients share (``sharp``); batches are 10 of a client's 30 examples, models stay in the ball
of twice the norm R of the optimum, which linear programming gives exactly. One horizon T is one
setting, since the step depends on it. Data are the same for all seeds: the theorem's expectation is
over cohorts and batches.

No step was tuned. With G² = Σ p_i mean_k ‖x_ik‖², which bounds the mean square of stochastic
subgradients anywhere, a round of H local steps of size η from the start 0 gives

    2ηH (F(θ) − F*) ≤ E‖θ − θ*‖² − E‖θ⁺ − θ*‖² + η²G²H²

(the last term collects H steps and the drift between them), hence for the average of T rounds

    excess ≤ R²/(2ηHT) + ηG²H/2 = RG/√T   at   η = R/(GH√T) = c/√(TH),   c = R/(G√H):

one constant for a loss, the same for every K and every rule, and a bound without K. (It is a bound
for the mean over θ_0..θ_{T−1}; the average here is over θ_1..θ_T, as in the paper's algorithm.)

A bound is not a rate: an average of 3,000 deviations or hinges is nearly smooth at the scale of
the steps, where the averaged iterate does better, so slopes well below −1/2 are to be expected.
In ``sharp`` every corner meets in θ*, and there the slope is −1/2: the theorem's rate is attained.
Rules whose expected weights are not p level off at `biases`, which no number of rounds removes.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedavot._checks import Floats
from fedavot.experiments.outcome import row
from fedavot.experiments.paper import Given, feasible
from fedavot.experiments.study import Instance, Setting
from fedavot.rules import Known, RuleName, build
from fedavot.training import Ball, Problem, Task, Training, inverse_root, objective
from fedavot.training.tasks.linear import (
    heterogeneous_classification,
    heterogeneous_regression,
    linear_task,
    mean_deviation,
    optimum,
)

HORIZONS = (100, 320, 1000, 3200, 10_000)
"""Numbers of rounds: two decades, in steps of about √10, all divisible by ten."""

SIZES = (2, 5, 10, 50, 100)
RULES = (RuleName.FULL, RuleName.FEDAVOT, RuleName.SELF_NORMALISED_IPW, RuleName.FEDAVG)
LOCAL_STEPS = 5
BATCH_SIZE = 10


@dataclass(frozen=True, eq=False)
class Objective:
    """A nonsmooth objective, its exact optimum, and the constants of its bound.

    Attributes
    ----------
    name : str
        How its settings begin.
    task : Task
        Features and targets, and a loss whose subgradients are at most ‖x‖.
    importance : float array of shape (n_clients,)
        p.
    minimiser : float array of shape (n_features,)
        θ*.
    least : float
        F(θ*).
    """

    name: str
    task: Task
    importance: Floats
    minimiser: Floats
    least: float

    @classmethod
    def of(cls, name: str, task: Task, importance: Floats) -> "Objective":
        """Return a task's objective, with its optimum."""
        return cls(name, task, importance, *optimum(task, importance))

    @property
    def distance(self) -> float:
        """R, from the start at zero to the optimum."""
        return float(np.linalg.norm(self.minimiser))

    @property
    def steepness(self) -> float:
        """G, the root mean square of the examples' norms."""
        features = np.asarray(self.task.data[0])
        return float(np.sqrt(self.importance @ (features**2).sum(axis=2).mean(axis=1)))

    @property
    def ball(self) -> Ball:
        """Where models are kept; start and optimum lie well inside."""
        return Ball(2 * self.distance)

    def bound(self, rounds: int) -> float:
        """Return RG/√T."""
        return self.distance * self.steepness / float(np.sqrt(rounds))

    def training(self, rounds: int, seeds: Sequence[int]) -> Training:
        """Return the theorem's training, with the step that minimises the bound."""
        constant = self.distance / (self.steepness * np.sqrt(LOCAL_STEPS))
        return Training(
            rounds,
            inverse_root(constant),
            local_steps=LOCAL_STEPS,
            batch_size=BATCH_SIZE,
            projection=self.ball,
            seeds=tuple(seeds),
            record_every=max(rounds // 10, 1),
        )


def settings(
    seeds: Sequence[int],
    *,
    sizes: Sequence[int] = (2,),
    rules: Sequence[str] = RULES,
    quick: bool = False,
) -> list[Setting]:
    """Return every objective with these rules and cohort sizes, for all horizons.

    If quick, there are three horizons, a tenth as long.
    """
    horizons = tuple(rounds // 10 for rounds in HORIZONS[::2]) if quick else HORIZONS
    laws = [feasible(size) for size in sizes]
    return [
        setting
        for one in objectives()
        for given in laws
        for setting in horizon_settings(one, given, rules, horizons=horizons, seeds=seeds)
    ]


def horizon_settings(
    one: Objective,
    given: Given,
    rules: Sequence[str],
    *,
    horizons: Sequence[int],
    seeds: Sequence[int],
) -> list[Setting]:
    """Return one setting per horizon, named like "lad, K=2, T=1000".

    The law must have cohorts of one size.
    """
    importance, law = given
    inclusion = law.inclusion()
    known = Known(importance, law)
    built = tuple(build(name, known) for name in rules)
    problem = Problem(one.task, importance, law.sample)
    return [
        Setting(
            f"{one.name}, K={round(float(inclusion.sum()))}, T={rounds}",
            (Instance(problem, tuple(seeds), one.least),),
            built,
            one.training(rounds, seeds),
            tail=max(rounds // 2, 1),
            inclusion=inclusion,
            averaged=True,
        )
        for rounds in horizons
    ]


@functools.cache
def objectives() -> tuple[Objective, ...]:
    """Return the three objectives under the importance of the feasible setting."""
    importance = feasible(2)[0]
    lad = Objective.of("lad", heterogeneous_regression(loss=mean_deviation), importance)
    return (
        lad,
        Objective.of("hinge", heterogeneous_classification(), importance),
        Objective.of("sharp", _without_noise(lad), importance),
    )


def _without_noise(lad: Objective) -> Task:
    """Return the features of a task with targets that one model, its minimiser, meets exactly."""
    features = np.asarray(lad.task.data[0])
    data = [(own, own @ lad.minimiser) for own in features]
    return linear_task("sharp", data, loss=mean_deviation)


@functools.cache
def biases() -> tuple[dict[str, Any], ...]:
    """Return rows with the limit of the excess as T → ∞, for rules whose weights do not average p.

    F at the optimum of Σ E[w_i] f_i, less F*, at cohorts of two.
    """
    importance, law = feasible(2)
    potentials = {
        RuleName.SELF_NORMALISED_IPW: np.log(importance / law.inclusion()),
        RuleName.FEDAVG: np.zeros(importance.size),
    }
    found = []
    for one in objectives():
        problem = Problem(one.task, importance, law.sample)
        for rule, values in potentials.items():
            aimed_at = optimum(one.task, law.expected_weights(values))[0]
            bias = objective(problem, aimed_at[None]) - one.least
            found.append(row(f"{one.name}, K=2", rule, "bias", bias, 1))
    return tuple(found)
