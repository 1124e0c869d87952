"""Train: Algorithm 2 of the paper, with any rule in the place of its aggregation.

A round is H local steps of every client asked, then the rule's aggregation. (The paper counts the
aggregation as one of its H time steps; here H counts local steps.) Rounds are played in pieces of
a tenth of the run. Between pieces the run can be interrupted and is saved if asked, and a model
that is no longer finite is found: the piece is then played again, slowly, to say in which round
and with whom it went wrong. A piece is the same program whoever asks for it, so a resumed run ends
bit for bit where an uninterrupted one does.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot._files import PathLike
from fedavot.errors import RuleError, TaskError
from fedavot.rules._rule import Rule
from fedavot.training.checkpoint import Checkpoint
from fedavot.training.course import Course, clients_of, local_training
from fedavot.training.diagnosis import diagnose
from fedavot.training.options import Training
from fedavot.training.rounds import compiled
from fedavot.training.run import Ending, Run
from fedavot.training.schedule import schedule
from fedavot.training.task import Params, Problem, Task

Progress = Callable[[int, int], None]
"""A function of (rounds done, rounds in all)."""


def train(
    problem: Problem,
    rule: Rule,
    training: Training,
    *,
    progress: Progress | None = None,
    checkpoint: PathLike | None = None,
) -> Run:
    """Train with one rule, for every seed at once.

    Parameters
    ----------
    problem : Problem
        Task, importance and availability.
    rule : Rule
        Whom to ask and how to aggregate.
    training : Training
        Rounds, steps, batches, seeds.
    progress : function of (rounds done, rounds in all), optional
        Called after every piece of the run.
    checkpoint : path, optional
        A file the run is saved to after every piece, and resumed from where it exists. It is
        refused if it belongs to another run.

    Returns
    -------
    Run
        Models, records and how it ended. Ctrl-C ends the run after the last whole piece, and a
        model or an objective that is not finite before the round in which it became so; both are
        returned.
    """
    begin = time.perf_counter()
    if not isinstance(rule, Rule):
        raise RuleError(f"the rule is {rule!r}; give a Rule, such as rules.fedavg()")
    notify = (lambda done, total: None) if progress is None else _as_outside(progress)
    _check_batches(problem.task, training.batch_size)
    plan = schedule(problem, rule, training.seeds, training.rounds)
    with precision(problem.task):
        course = Course(problem, rule, training, plan)
        saved = None
        if checkpoint is not None:
            saved = Checkpoint(checkpoint, course.fingerprint(), course.carry)
            course.resume(saved)
        ending, message = _play(course, notify, saved)
        return course.run(ending, message, time.perf_counter() - begin)


def identity(problem: Problem, rule: Rule, training: Training) -> str:
    """Return a digest of all that a run follows from: equal only for runs that end alike."""
    plan = schedule(problem, rule, training.seeds, training.rounds)
    with precision(problem.task):
        return Course(problem, rule, training, plan).fingerprint()


def objective(problem: Problem, params: Params) -> Floats:
    """Return Σ p_i f_i at models with a leading axis of seeds, shape (n_seeds,)."""
    with precision(problem.task):
        losses = compiled()[2](local_training(problem.task, None), clients_of(problem), params)
        shares = problem.shares
        counted = np.where(shares > 0, np.asarray(losses, dtype=np.float64), 0.0)
        return np.asarray(counted @ shares)


def precision(task: Task) -> AbstractContextManager[Any]:
    """Return a context in which JAX computes in the task's precision."""
    import jax

    context: AbstractContextManager[Any] = jax.enable_x64(task.dtype == np.float64)
    return context


def _as_outside(progress: Progress) -> Progress:
    """Return the callback as the caller would call it, in the precision set outside."""
    import jax

    double = bool(jax.config.jax_enable_x64)

    def call(done: int, total: int) -> None:
        with jax.enable_x64(double):
            progress(done, total)

    return call


def _play(course: Course, progress: Progress, saved: Checkpoint | None) -> tuple[Ending, str]:
    """Play the pieces that are left; return how it ended."""
    total = course.training.rounds
    try:
        for at, to in course.pieces():
            piece = course.advance(at, to)
            if not piece.finite:
                number, what = diagnose(course, piece)
                # In the first round the loss itself is suspect, and no step size would help.
                advice = "check the loss and its gradient at the first model, or "
                return Ending.DIVERGED, (
                    f"rule {course.rule.name!r} diverged in round {number}: {what}; "
                    f"the run keeps its first {course.done} rounds; "
                    f"{advice if number == 1 else ''}lower the step size"
                )
            course.keep(piece)
            if saved is not None:
                course.save(saved)
            progress(to, total)
    except KeyboardInterrupt:
        return Ending.INTERRUPTED, f"interrupted after round {course.done} of {total}"
    return Ending.FINISHED, ""


def _check_batches(task: Task, size: int | None) -> None:
    counts: Integers = np.array([task.n_examples]) if task.counts is None else task.counts
    if size is not None and size > counts.min():
        client = int(counts.argmin())
        raise TaskError(
            f"batches of {size} need as many examples, and client {client} of task "
            f"{task.name!r} has {counts.min()}; use smaller batches, or leave batch_size out to "
            "use all of a client's examples"
        )
