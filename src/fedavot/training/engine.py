"""Train: Algorithm 2 of the paper, with any rule as its aggregation.

A round is H local steps of every client asked, then the rule's aggregation. (The paper counts the
aggregation as one of its H time steps; here H counts local steps.) A run is cut into about ten
pieces. Between pieces it can be interrupted, is saved on request, and is checked for a model that
is no longer finite: the piece is then run again, slowly, to find the round and the client at fault.
Pieces are the same program in a resumed run, whose result is therefore bit for bit that of an
uninterrupted one.
"""

import time
from collections.abc import Callable

import numpy as np

from fedavot._checks import Floats
from fedavot._files import PathLike
from fedavot.errors import RuleError, TaskError
from fedavot.rules._rule import Rule
from fedavot.training.active_run import ActiveRun, clients_of, is_finite, precision
from fedavot.training.checkpoint import Checkpoint
from fedavot.training.diagnosis import diagnose
from fedavot.training.local import LocalTraining
from fedavot.training.model import as_models
from fedavot.training.options import Training
from fedavot.training.rounds import client_losses
from fedavot.training.run import Ending, Run
from fedavot.training.schedule import schedule
from fedavot.training.task import Params, Problem, Task

Progress = Callable[[int, int], None]
"""A function of (rounds done, total rounds)."""


def train(
    problem: Problem,
    rule: Rule,
    training: Training,
    *,
    progress: Progress | None = None,
    checkpoint: PathLike | None = None,
) -> Run:
    """Train with one rule, for all seeds at once.

    Parameters
    ----------
    problem : Problem
        Task, importance and availability.
    rule : Rule
        Which clients to ask, and how to aggregate.
    training : Training
        Rounds, steps, batches, seeds.
    progress : function of (rounds done, total rounds), optional
        Called after every piece of the run, about ten times.
    checkpoint : path, optional
        A file that the run is saved to after every piece, and resumed from if it exists. It is
        refused if it belongs to another run. If saving takes more than a second, it is skipped
        after some pieces, even after the last, so that it takes about a tenth of the time.

    Returns
    -------
    Run
        Models, records and how the run ended. Ctrl-C ends it after the last complete piece; a model
        or objective that is not finite ends it before the round in which that happened. The results
        up to that point are returned.
    """
    return finish(prepare(problem, rule, training), progress=progress, checkpoint=checkpoint)


def prepare(problem: Problem, rule: Rule, training: Training) -> ActiveRun:
    """Check all arguments of `train` and draw the cohorts; return a run that has not started."""
    begin = time.perf_counter()
    if not isinstance(rule, Rule):
        raise RuleError(f"the rule is {rule!r}; give a Rule, such as rules.fedavg()")
    check_batches(problem.task, training.batch_size)
    plan = schedule(problem, rule, training.seeds, training.rounds)
    with precision(problem.task):
        run = ActiveRun(problem, rule, training, plan)
        run.seconds = time.perf_counter() - begin
        return run


def finish(
    run: ActiveRun, *, progress: Progress | None = None, checkpoint: PathLike | None = None
) -> Run:
    """Run a prepared run, with the progress and the checkpoint of `train`."""
    begin = time.perf_counter()
    saved = None
    if checkpoint is not None:
        with precision(run.task):
            saved = Checkpoint(checkpoint, run.fingerprint, run.carry)
            found = saved.load()
        if found is not None:
            run.resume(found)
    ending, message = _run_pieces(run, progress, saved)
    return run.result(ending, message, run.seconds + time.perf_counter() - begin)


def objective(problem: Problem, params: Params) -> Floats:
    """Return the objective Σ p_i f_i at several models, shape (n_seeds,).

    Parameters
    ----------
    problem : Problem
        The clients' data and loss, and their importance.
    params : pytree of arrays
        Models, each leaf with a leading axis of seeds.
    """
    task = problem.task
    with precision(task):
        local = LocalTraining(task.loss, task.counts is not None)
        models = as_models(task, params)
        losses = client_losses(local, clients_of(problem), models)
        shares = problem.shares
        counted = np.where(shares > 0, np.asarray(losses, dtype=np.float64), 0.0)
        return np.asarray(counted @ shares)


def _run_pieces(
    run: ActiveRun, progress: Progress | None, saved: Checkpoint | None
) -> tuple[Ending, str]:
    """Run the remaining pieces; return how the run ended."""
    total = run.training.rounds
    unsaved = False
    try:
        for at, to in run.pieces():
            with precision(run.task):
                piece = run.advance(at, to)
                failure = None if is_finite(piece) else diagnose(run, piece)
            if failure is not None:
                number, what = failure
                # In the first round the loss itself is suspect, and no step size would help.
                advice = "check the loss and its gradient at the first model, or "
                return Ending.DIVERGED, (
                    f"rule {run.rule.name!r} diverged in round {number}: {what}; "
                    f"the run keeps its first {run.done} rounds; "
                    f"{advice if number == 1 else ''}lower the step size"
                )
            run.keep(piece)
            unsaved = saved is not None and not saved.due
            if saved is not None and not unsaved:
                _save(run, saved)
            if progress is not None:
                progress(to, total)
    except KeyboardInterrupt:
        if saved is not None and unsaved:
            _save(run, saved)
        return Ending.INTERRUPTED, f"interrupted after round {run.done} of {total}"
    return Ending.FINISHED, ""


def _save(run: ActiveRun, saved: Checkpoint) -> None:
    saved.save(run.carry, run.recorded, np.array(run.losses).T)


def check_batches(task: Task, size: int | None) -> None:
    """Refuse batches that are larger than some client's data."""
    client = int(task.sizes.argmin())
    fewest = task.sizes[client]
    if size is not None and size > fewest:
        raise TaskError(
            f"batches of {size} need as many examples, and client {task.label(client)} of task "
            f"{task.name!r} has {fewest}; use smaller batches, or leave batch_size out to "
            "use all of a client's examples"
        )
