"""What a problem's race came to: rows of a table, checks, requirements and observations."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks import evaluate
from benchmarks.evaluate import ROUNDING, Answer, Floats
from benchmarks.measure import Contender
from benchmarks.problems import ExplicitProblem, IndependentProblem


@dataclass(frozen=True)
class Row:
    """One contender's line of a table; what does not apply is None."""

    contender: str
    role: str
    seconds: float | None
    ratio: float | None
    residual: float | None
    ok: bool | None
    note: str


@dataclass(frozen=True)
class Requirement:
    """A figure that has to be at least, or at most, so much; None if it could not be measured."""

    text: str
    measured: float | None
    bound: float
    at_least: bool

    @property
    def passed(self) -> bool | None:
        """Whether the figure is on the right side of the bound; None if there is none."""
        if self.measured is None:
            return None
        if self.at_least:
            return self.measured >= self.bound
        return self.measured <= self.bound


@dataclass
class Outcome:
    """Everything measured on one problem.

    Attributes
    ----------
    title : str
    rows, requirements, checks, observations
        What `report` shows.
    checked : str
        What the rows' residuals are.
    rounds : int or None
        For how many rounds of training the rows' seconds are.
    """

    title: str
    rows: list[Row] = field(default_factory=list)
    requirements: list[Requirement] = field(default_factory=list)
    checks: dict[str, bool] = field(default_factory=dict)
    observations: list[str] = field(default_factory=list)
    checked: str = "checked L1"
    rounds: int | None = None

    def at_least(self, text: str, measured: float | None, bound: float) -> None:
        """Require a figure of at least ``bound``."""
        figure = None if measured is None else float(measured)
        self.requirements.append(Requirement(text, figure, bound, True))

    def at_most(self, text: str, measured: float, bound: float) -> None:
        """Require a figure of at most ``bound``."""
        self.requirements.append(Requirement(text, float(measured), bound, False))

    @property
    def passed(self) -> bool:
        """Whether no requirement is missed and every check of our own answers holds."""
        missed = any(requirement.passed is False for requirement in self.requirements)
        return not missed and all(self.checks.values())

    @property
    def unmeasured(self) -> int:
        """How many requirements could not be measured."""
        return sum(requirement.passed is None for requirement in self.requirements)

    def as_dict(self) -> dict[str, Any]:
        """Return what goes into the results file."""
        return {
            "title": self.title,
            "rounds": self.rounds,
            "rows": [vars(row) for row in self.rows],
            "requirements": [
                vars(requirement) | {"passed": requirement.passed}
                for requirement in self.requirements
            ],
            "checks": self.checks,
            "observations": self.observations,
        }


def tabulate(
    outcome: Outcome,
    problem: ExplicitProblem | IndependentProblem,
    contenders: Sequence[Contender],
    target: Floats | None = None,
) -> None:
    """Check every contender's answer, and add its row.

    Parameters
    ----------
    outcome : Outcome
        Gets the rows, and a check for each answer of ours.
    problem : ExplicitProblem or IndependentProblem
    contenders : sequence of Contender
        Timed; the first of role "ours" is what the others are compared with.
    target : float array, shape (n_clients,), optional
        What the marginal should be; the importance by default.
    """
    ours = next(contender for contender in contenders if contender.role == "ours")
    wanted = problem.importance if target is None else target
    for contender in contenders:
        residual, ok = None, None
        if contender.answer is not None:
            residual = residual_of(problem, contender.answer, wanted)
            ok = residual <= problem.tol + ROUNDING
            if contender.role == "ours":
                outcome.checks[f"{contender.name}: the answer meets the target"] = ok
        outcome.rows.append(
            Row(
                contender.name,
                contender.role,
                contender.seconds,
                contender.seconds / ours.seconds,
                residual,
                ok,
                contender.answer.note if contender.answer else "",
            )
        )


def residual_of(
    problem: ExplicitProblem | IndependentProblem, answer: Answer, wanted: Floats
) -> float:
    """Return the L1 distance of an answer's marginal from what is wanted.

    A plan's cohorts have to add up too, and its negative entries count.
    """
    if isinstance(problem, IndependentProblem):
        marginal = evaluate.marginal_of_independent(problem.probabilities, answer.potentials)
        return float(np.abs(marginal - wanted).sum())
    if answer.plan is not None:
        marginal = evaluate.marginal_of_plan(problem.members, answer.plan, wanted.size)
        cohorts = np.abs(answer.plan.sum(axis=1) - problem.probabilities).sum()
        wrong = cohorts + np.maximum(-answer.plan, 0.0).sum()
        return float(np.abs(marginal - wanted).sum() + wrong)
    marginal = evaluate.marginal_of_cohorts(
        problem.members, problem.probabilities, answer.potentials, answer.levels
    )
    return float(np.abs(marginal - wanted).sum())


def best_peer(outcome: Outcome) -> Row:
    """Return the fastest peer whose answer is right."""
    peers = [row for row in outcome.rows if row.role == "peer" and row.ok]
    return min(peers, key=lambda row: row.seconds)
