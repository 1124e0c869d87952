"""Train: Algorithm 2 of the paper, with any rule as its aggregation.

A round is H local steps of every client asked, then the rule's aggregation. (The paper counts the
aggregation as one of its H time steps; here H counts local steps.) A run is cut into about ten
pieces of equal length, so that one compiled program serves all of them. Between pieces it can be
interrupted, is saved on request, and is checked for a model that is no longer finite: the piece is
then run again, round by round, to find where that began. Pieces are the same program in a resumed
run, whose result is therefore bit for bit that of an uninterrupted one.
"""

import functools
import itertools
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedavot import __version__
from fedavot._checks import Floats
from fedavot._files import PathLike
from fedavot.errors import RuleError, TaskError
from fedavot.rules._rule import Rule, no_state
from fedavot.training.checkpoint import Checkpoint, Piece, fingerprint
from fedavot.training.local import LocalTraining
from fedavot.training.model import as_models, check_loss, first_models
from fedavot.training.options import Training
from fedavot.training.rounds import Carry, ClientData, Own, Program, Shared, advance, client_losses
from fedavot.training.run import Ending, Run
from fedavot.training.schedule import Schedule, schedule
from fedavot.training.task import Params, Problem, Task, leaves

Progress = Callable[[int, int], None]
"""A function of (rounds done, total rounds)."""
PIECES = 10
"""Smallest number of pieces that a run is cut into, if its records allow."""
MOST_PIECES = 100
"""Largest number of pieces, chosen so that all have equal length."""
_keys_of = jax.jit(jax.vmap(jax.random.key))
_on_device: weakref.WeakKeyDictionary[Task, tuple[Any, Any]] = weakref.WeakKeyDictionary()
"""The data and the numbers of examples of the last task trained, so that rules compared on one task
move its data once."""


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
        refused if it belongs to another run.

    Returns
    -------
    Run
        Models, records and how the run ended. Ctrl-C ends it after the last complete piece; a model
        or objective that is not finite ends it before the round in which that happened. The results
        up to that point are returned.
    """
    return finish(prepare(problem, rule, training), progress=progress, checkpoint=checkpoint)


def prepare(problem: Problem, rule: Rule, training: Training) -> "ActiveRun":
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
        losses = client_losses(local, clients_of(problem), as_models(task, params))
        finite = np.where(problem.shares > 0, np.asarray(losses, dtype=np.float64), 0.0)
        return np.asarray(finite @ problem.shares)


class ActiveRun:
    """A run in progress: the clients that each round asks, the next round's input, and records."""

    def __init__(self, problem: Problem, rule: Rule, training: Training, plan: Schedule) -> None:
        task = problem.task
        self.task, self.rule, self.training, self.plan = task, rule, training, plan
        self.importance = problem.shares
        self.steps = training.step_sizes(task.dtype)
        self.clients = clients_of(problem)
        own = (training.local_steps, training.batch_size, training.projection)
        local = LocalTraining(task.loss, task.counts is not None, *own)
        hooks = (rule.aggregate, rule.start, rule.correct, rule.proximal, rule.needs_losses)
        self.program = Program(local, plan.padded, jax.default_backend() != "cpu", *hooks)
        keys = _keys_of(np.asarray(training.seeds, dtype=np.uint32))
        start = first_models(task, training, keys)
        check_loss(task, start, self.clients.data, training.batch_size)
        # Seeds that ask the same clients, use all examples and start from the same model end with
        # the same model: run only one.
        parts = (plan.members, plan.weights, *leaves(start))
        full = len(training.seeds) > 1 and training.batch_size is None
        if full and all(bool((part == part[:1]).all()) for part in parts):
            keys, start = keys[:1], jax.tree.map(lambda leaf: leaf[:1], start)
        self.keys = keys
        members, weights = plan.members[: keys.size], plan.weights[: keys.size]
        self.asked = Own(members, weights.astype(task.dtype))
        state: Any = ()
        if rule.init is not no_state:
            state = jax.vmap(lambda params: rule.init(params, task.n_clients))(start)
        self.carry = Carry(start, start, state)
        self.recorded: list[int] = []
        self.losses: list[Floats] = []
        self.seconds = 0.0

    @property
    def done(self) -> int:
        """Number of rounds completed."""
        return self.recorded[-1] if self.recorded else 0

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of all that decides the result, to be read before the run starts."""
        functions = (*vars(self.program).values(), *vars(self.program.local).values())
        options = (str(self.rule.name), self.training.record_every, tuple(self.training.seeds))
        inputs = (self.asked, self.steps, self.clients, self.carry)
        return fingerprint(__version__, options, functions, inputs)

    def pieces(self) -> list[tuple[int, int]]:
        """Return the pieces still to run, as pairs of rounds."""
        every, rounds = self.training.record_every, self.training.rounds
        blocks = rounds // every
        # Pieces of equal length are compiled once; a shorter last piece is a separate program.
        most, least = max(blocks // PIECES, 1), max(blocks // MOST_PIECES, 1)
        size = next((n for n in range(most, least - 1, -1) if blocks % n == 0), most)
        ends = [*range(size * every, blocks * every, size * every), blocks * every, rounds]
        return list(itertools.pairwise(sorted({end for end in (0, *ends) if end >= self.done})))

    def advance(self, at: int, to: int) -> Piece:
        """Run rounds at+1..to from the run's carry, and record after whole blocks of rounds."""
        every = min(self.training.record_every, to - at)
        turns = self.turns(at, to, ((to - at) // every, every))
        carry, losses = advance(self.program, self.clients, self.keys, self.carry, turns)
        return Piece(carry, np.asarray(losses, np.float64), list(range(at + every, to + 1, every)))

    def turns(self, at: int, to: int, shape: tuple[int, ...]) -> tuple[Shared, Own]:
        """Return the clients, weights and steps of rounds at+1..to, in blocks of this shape."""
        numbers = np.arange(at + 1, to + 1, dtype=np.int32).reshape(shape)
        cut = (self.keys.size, *shape, -1)
        sizes = self.plan.sizes[at:to].reshape(shape) if self.program.padded else None
        return (
            Shared(numbers, self.steps[at:to].reshape(shape), sizes),
            Own(*(part[:, at:to].reshape(cut) for part in self.asked)),
        )

    def keep(self, piece: Piece) -> None:
        """Make a piece, or the rounds of a checkpoint, part of the run."""
        self.recorded += piece.recorded
        self.losses += list(piece.losses.T)
        self.carry = piece.carry

    def keep_until_it_fails(self, at: int, to: int) -> int:
        """Run a failed piece again, round by round; return the first that is not finite.

        The rounds before it are kept, with the records among them and that of the last.
        """
        for number in range(at + 1, to + 1):
            after = self.advance(number - 1, number)
            if number == to or not is_finite(after):
                break
            if self.done % self.training.record_every:
                del self.recorded[-1], self.losses[-1]
            self.keep(after)
        return number

    def result(self, ending: Ending, message: str) -> Run:
        """Return the results so far, as NumPy arrays over all seeds."""
        n_seeds = len(self.training.seeds)

        def spread(leaf: Any) -> Any:
            array = np.asarray(leaf)
            return np.broadcast_to(array, (n_seeds, *array.shape[1:]))

        return Run(
            rule=self.rule.name,
            seeds=tuple(int(seed) for seed in self.training.seeds),
            params=jax.tree.map(spread, self.carry.params),
            average=jax.tree.map(spread, self.carry.average),
            recorded=np.array(self.recorded, dtype=np.int64),
            losses=spread(np.reshape(self.losses, (len(self.losses), self.keys.size)).T),
            weights=self.plan.realised(self.done),
            unseen=~self.plan.trained(self.done) & (self.importance > 0),
            rounds=self.done,
            seconds=self.seconds,
            ending=ending,
            message=message,
            clients=None if self.task.clients is None else tuple(self.task.clients),
        )


def finish(
    run: ActiveRun, *, progress: Progress | None = None, checkpoint: PathLike | None = None
) -> Run:
    """Run a prepared run, with the progress and the checkpoint of `train`."""
    begin = time.perf_counter()
    ending, message, total = Ending.FINISHED, "", run.training.rounds
    file = None
    if checkpoint is not None:
        with precision(run.task):
            file = Checkpoint(checkpoint, run.fingerprint, run.carry)
            past = file.load()
        if past is not None:
            run.keep(past)
    try:
        for at, to in run.pieces():
            with precision(run.task):
                piece = run.advance(at, to)
                failed = 0 if is_finite(piece) else run.keep_until_it_fails(at, to)
            if failed:
                # In the first round the loss itself is suspect, and no step size would help.
                advice = "check the loss and its gradient at the first model, or "
                ending, message = (
                    Ending.DIVERGED,
                    (
                        f"rule {run.rule.name!r} diverged in round {failed}: the model or the "
                        f"objective is not finite; the run keeps its first {run.done} rounds; "
                        f"{advice if failed == 1 else ''}lower the step size"
                    ),
                )
                break
            run.keep(piece)
            if file is not None:
                file.save(run.carry, run.recorded, np.array(run.losses).T)
            if progress is not None:
                progress(to, total)
    except KeyboardInterrupt:
        ending, message = Ending.INTERRUPTED, f"interrupted after round {run.done} of {total}"
    run.seconds += time.perf_counter() - begin
    return run.result(ending, message)


def is_finite(piece: Piece) -> bool:
    """Return whether the models and all records are finite."""
    arrays = (piece.losses, *leaves(piece.carry.params))
    return all(bool(np.isfinite(np.asarray(array)).all()) for array in arrays)


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


def precision(task: Task) -> AbstractContextManager[Any]:
    """Return a context in which JAX computes in the task's precision."""
    context: AbstractContextManager[Any] = jax.enable_x64(task.dtype == np.float64)
    return context


def clients_of(problem: Problem) -> ClientData:
    """Return the problem's data on the device, floats in the task's precision.

    The compiled programs move the importance themselves, which is faster for so few numbers.
    """
    task = problem.task
    on_device = _on_device.get(task)
    if on_device is None:
        _on_device.clear()

        def move(leaf: Any) -> Any:
            real = jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
            return jnp.asarray(leaf, task.dtype if real else None)

        on_device = jax.tree.map(move, task.data), jnp.asarray(task.sizes, dtype=np.int32)
        _on_device[task] = on_device
    return ClientData(*on_device, problem.shares.astype(task.dtype))
