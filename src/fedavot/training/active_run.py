"""A run in progress: its preparation, its progress, and its result.

Rounds are run in pieces of equal length, so that one compiled program serves all of them.
"""

import functools
import itertools
import re
import weakref
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedavot._checks import Floats
from fedavot.rules._rule import Rule, no_state
from fedavot.training.checkpoint import Piece, fingerprint
from fedavot.training.local import LocalTraining
from fedavot.training.model import check_loss, first_models
from fedavot.training.options import Training
from fedavot.training.rounds import Carry, ClientData, Own, Program, Shared, Turn, advance
from fedavot.training.run import Ending, Run
from fedavot.training.schedule import Schedule
from fedavot.training.task import Problem, Task, leaves

PIECES = 10
"""Smallest number of pieces that a run is cut into, if its records allow."""
MOST_PIECES = 100
"""Largest number of pieces, chosen so that all have equal length."""
_keys_of = jax.jit(jax.vmap(jax.random.key))
_on_device: weakref.WeakKeyDictionary[Task, tuple[Any, Any]] = weakref.WeakKeyDictionary()
"""The data and the numbers of examples of the last task trained, so that rules compared on one task
move its data once."""


class ActiveRun:
    """A run in progress, whose plan has the clients that each round asks and their weights."""

    def __init__(self, problem: Problem, rule: Rule, training: Training, plan: Schedule) -> None:
        task = problem.task
        self.task, self.rule, self.training, self.plan = task, rule, training, plan
        self.importance = problem.shares
        self.steps = training.step_sizes(task.dtype)
        self.clients = clients_of(problem)
        own = (training.local_steps, training.batch_size, training.projection)
        local = LocalTraining(task.loss, task.counts is not None, *own)
        self.program = Program.of(rule, local, padded=plan.padded)
        keys = _keys_of(np.asarray(training.seeds, dtype=np.uint32))
        start = first_models(task, training, keys)
        check_loss(task, start, self.clients.data, training.batch_size)
        # Seeds that ask the same clients, use all examples and start from the same model end with
        # the same model: run only one.
        alike = len(training.seeds) > 1 and plan.alike and training.batch_size is None
        alike = alike and all(bool((leaf == leaf[:1]).all()) for leaf in leaves(start))
        self.played = 1 if alike else len(training.seeds)
        self.keys = keys[:1] if alike else keys
        if alike:
            start = jax.tree.map(lambda leaf: leaf[:1], start)
        self.members = plan.members[: self.played]
        self.weights = plan.weights[: self.played].astype(task.dtype)
        self.done = 0
        state: Any = ()
        if rule.init is not no_state:
            state = jax.vmap(lambda params: rule.init(params, task.n_clients))(start)
        self.carry = Carry(start, start, state)
        self.seconds = 0.0
        self.recorded: list[int] = []
        self.losses: list[Floats] = []

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the program and its inputs, to be read before the run starts.

        The names of functions are not enough: an edited function keeps its name.
        """
        at, to = self.pieces()[0]
        with precision(self.task):
            traced = advance.trace(*self._call(self.carry, at, to)).jaxpr
        # Some functions print with their address, which differs between processes.
        program = re.sub(r" at 0x[0-9a-f]+", "", str(traced))
        words = (self.rule.name, program, str(self.training.record_every))
        seeds = np.asarray(self.training.seeds, dtype=np.int64)
        arrays = (seeds, self.members, self.weights, self.steps, *traced.consts)
        return fingerprint(words, (*arrays, *leaves((self.clients, self.carry))))

    def pieces(self) -> list[tuple[int, int]]:
        """Return the pieces still to run, as pairs of rounds."""
        every, rounds = self.training.record_every, self.training.rounds
        blocks = rounds // every
        # Pieces of equal length are compiled once; a shorter last piece is a separate program.
        most, least = max(blocks // PIECES, 1), max(blocks // MOST_PIECES, 1)
        size = next((n for n in range(most, least - 1, -1) if blocks % n == 0), most)
        ends = [*range(size * every, blocks * every, size * every), blocks * every, rounds]
        return list(itertools.pairwise(sorted({end for end in (0, *ends) if end >= self.done})))

    def advance(self, at: int, to: int, carry: Carry | None = None) -> Piece:
        """Run rounds at+1..to of a piece, from the run's carry unless another is given."""
        every = min(self.training.record_every, to - at)
        after, losses = advance(*self._call(self.carry if carry is None else carry, at, to))
        return Piece(after, np.asarray(losses, np.float64), list(range(at + every, to + 1, every)))

    def _call(self, carry: Carry, at: int, to: int) -> tuple[Any, ...]:
        """Return the arguments of the compiled program, for whole blocks of rounds."""
        every = min(self.training.record_every, to - at)
        turns = self.turns(at, to, ((to - at) // every, every))
        return self.program, self.clients, self.keys, carry, turns

    def turns(self, at: int, to: int, shape: tuple[int, ...]) -> Turn:
        """Return the clients, weights and steps of rounds at+1..to, in blocks of this shape."""
        numbers = np.arange(at + 1, to + 1, dtype=np.int32).reshape(shape)
        cut = (self.played, *shape, -1)
        sizes = self.plan.sizes[at:to].reshape(shape) if self.program.padded else None
        return (
            Shared(numbers, self.steps[at:to].reshape(shape), sizes),
            Own(self.members[:, at:to].reshape(cut), self.weights[:, at:to].reshape(cut)),
        )

    def keep(self, piece: Piece) -> None:
        """Make a piece whose results are finite part of the run."""
        self.recorded += piece.recorded
        self.losses += list(piece.losses.T)
        self.carry, self.done = piece.carry, piece.recorded[-1]

    def resume(self, piece: Piece) -> None:
        """Continue from the rounds of a checkpoint."""
        self.recorded, self.losses = piece.recorded, list(piece.losses.T)
        self.carry, self.done = piece.carry, piece.recorded[-1]

    def result(self, ending: Ending, message: str, seconds: float) -> Run:
        """Return the results so far, as NumPy arrays over all seeds."""
        n_seeds = len(self.training.seeds)

        def spread(leaf: Any) -> Any:
            array = np.asarray(leaf)
            return np.broadcast_to(array, (n_seeds, *array.shape[1:]))

        losses = np.array(self.losses).T if self.losses else np.zeros((self.played, 0))
        return Run(
            rule=self.rule.name,
            seeds=tuple(int(seed) for seed in self.training.seeds),
            params=jax.tree.map(spread, self.carry.params),
            average=jax.tree.map(spread, self.carry.average),
            recorded=np.array(self.recorded, dtype=np.int64),
            losses=spread(losses),
            weights=self.plan.realised(self.done),
            unseen=~self.plan.trained(self.done) & (self.importance > 0),
            rounds=self.done,
            seconds=seconds,
            ending=ending,
            message=message,
            clients=None if self.task.clients is None else tuple(self.task.clients),
        )


def is_finite(piece: Piece) -> bool:
    """Return whether the models and all records are finite."""
    arrays = (piece.losses, *leaves(piece.carry.params))
    return all(bool(np.isfinite(np.asarray(array)).all()) for array in arrays)


def precision(task: Task) -> AbstractContextManager[Any]:
    """Return a context in which JAX computes in the task's precision."""
    context: AbstractContextManager[Any] = jax.enable_x64(task.dtype == np.float64)
    return context


def clients_of(problem: Problem) -> ClientData:
    """Return the problem's data on the device, floats in the task's precision.

    The compiled programs move the importance themselves, which is faster for so few numbers.
    """
    task = problem.task
    held = _on_device.get(task)
    if held is None:
        _on_device.clear()
        data = jax.tree.map(functools.partial(_moved, dtype=task.dtype), task.data)
        held = data, jnp.asarray(task.sizes, dtype=np.int32)
        _on_device[task] = held
    return ClientData(*held, problem.shares.astype(task.dtype))


def _moved(leaf: Any, dtype: np.dtype[Any]) -> Any:
    array = jnp.asarray(leaf)
    return array.astype(dtype) if jnp.issubdtype(array.dtype, jnp.floating) else array
