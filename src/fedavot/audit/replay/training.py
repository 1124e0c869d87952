"""Training over the rounds of a log, with all rules, step sizes and problems side by side.

In a round, the clients of a cohort take local steps from the model, and the rule aggregates what
they return; all rules see the same noise. For rules that are weights this is NumPy on hundreds of
small models at once, and nothing is compiled; the steady rule is the library's own. Arrays of
models have the axes (dimension, rule, step size, problem), and arrays of updates have the clients
of the cohort behind these.

For the steady rule, JAX compiles one round for all step sizes and problems. The numbers of clients
and of places in a round are padded with empty ones to the next power of two, so that most logs
share one program.

A user's own task is trained by the engine. Its file is what ``fedavot simulate`` takes: an .npz of
``features``, ``targets`` and ``clients``, the client's name in the log for each example. Integer
targets are labels of a softmax regression, others are fitted by least squares.
"""

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers, quoted
from fedavot.audit.replay.problems import DIMENSION, SEEDS, Problems
from fedavot.audit.replay.scene import Way
from fedavot.audit.statistics.rules import FULL
from fedavot.audit.statistics.window import Window
from fedavot.errors import TaskError
from fedavot.rules import full, steady
from fedavot.rules._rule import Asked, Report, Rule, add_updates
from fedavot.training import Problem, Training, constant
from fedavot.training.examples import read_examples
from fedavot.training.sweep import Steps, sweep
from fedavot.training.task import Task
from fedavot.training.tasks.linear import linear_task
from fedavot.training.tasks.softmax import softmax_task

CLIENTS, PLACES = 64, 8
"""Smallest number of clients, and of places in a round."""
BATCH = 8
"""Largest number of examples per local step."""
RECORDS = 60


class Memory:
    """The state of the steady rule, for every step size and problem."""

    def __init__(self, importance: Floats, of: Problems) -> None:
        self._importance, self._of = importance, of
        self._n_clients = _rounded(importance.size, CLIENTS)
        rule = steady(np.pad(importance, (0, self._n_clients - importance.size)))
        self._hooks = (rule.aggregate, rule.correct)
        n_models = of.span.size * of.n_problems
        self._models = np.zeros((n_models, DIMENSION), dtype=np.float32)
        self._state = jax.tree.map(
            lambda leaf: np.broadcast_to(np.asarray(leaf), (n_models, *leaf.shape)),
            rule.init(self._models[0], self._n_clients),
        )
        # For aggregation, a round is a single step over the whole span.
        self._spans = np.repeat(of.span[:, 0], of.n_problems).astype(np.float32)

    def round(self, cohort: NDArray[np.int32], updates: Floats) -> Floats:
        """Aggregate a round and return the models, shape (DIMENSION, n_steps, n_problems).

        Parameters
        ----------
        cohort : int array, shape (size,)
            The clients that train.
        updates : float array, shape (DIMENSION, n_steps, n_problems, size)
            What they return without the rule's correction.
        """
        counted = self._importance[cohort] > 0
        length = _rounded(cohort.size, PLACES)
        members = np.full(length, self._n_clients, dtype=np.int32)
        shares = np.zeros(length, dtype=np.float32)
        members[: cohort.size][counted] = cohort[counted]
        shares[: cohort.size][counted] = 1.0 / max(int(counted.sum()), 1)
        tables = [_by_model(table, length) for table in (updates, self._of.bend[..., cohort])]
        turn = (members, shares, *tables, self._spans)
        # Small arrays gain nothing on an accelerator.
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            self._models, self._state = _round(self._hooks, self._models, self._state, turn)
        found = np.asarray(self._models, dtype=np.float64)
        return found.reshape(*updates.shape[1:3], DIMENSION).transpose(2, 0, 1)


def _rounded(size: int, least: int) -> int:
    """Return the next power of two, at least ``least``."""
    return max(least, 1 << (size - 1).bit_length())


def _by_model(table: Floats, length: int) -> NDArray[np.float32]:
    """Return entries by model, place and dimension, with empty places added."""
    room = [(0, 0)] * 3 + [(0, length - table.shape[3])]
    padded = np.pad(table, room).astype(np.float32).transpose(1, 2, 3, 0)
    return padded.reshape(-1, length, DIMENSION)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def _round(hooks: Any, models: Any, state: Any, turn: Any) -> Any:
    aggregate, correct = hooks
    members, shares, updates, bends, spans = turn
    n_clients = jax.tree.leaves(state.last)[0].shape[1]

    def one(model: Any, own: Any, changes: Any, bend: Any, span: Any) -> Any:
        drift = jax.vmap(lambda client: correct(model, own, client))(members)
        moved = jnp.where((members < n_clients)[:, None], changes - bend * drift, 0.0)
        return aggregate(model, own, Report(members, shares, moved, None, span, 1))

    return jax.vmap(one)(models, state, updates, bends, spans)


def train(
    of: Problems, ways: Sequence[Way], importance: Floats, rng: np.random.Generator
) -> dict[str, Floats]:
    """Train with all ways that share the same cohorts.

    Returns
    -------
    dict from rule to ndarray of shape (n_rounds, n_steps, n_problems)
        The excess loss after every round.
    """
    cohorts = ways[0].cohorts
    ordered = sorted(ways, key=lambda way: way.remembers)
    averages = [way for way in ordered if not way.remembers]
    memory = Memory(importance, of) if len(averages) < len(ordered) else None
    models = np.zeros((DIMENSION, len(ordered), of.span.size, of.n_problems))
    change = np.zeros_like(models[:, : len(averages)])
    kept = np.array([way.momentum for way in averages])[:, None, None]
    found = np.empty((cohorts.n_cohorts, *models.shape[1:]))
    for number, (first, last) in enumerate(itertools.pairwise(cohorts.offsets.tolist())):
        cohort = cohorts.members[first:last]
        drawn = rng.standard_normal((DIMENSION, 1, of.n_problems, cohort.size))
        pull = of.pull[..., cohort]
        towards = of.noise[..., cohort] * drawn + pull * of.minimum[..., cohort]
        updates = towards[:, None] - pull[:, None] * models[..., None]
        weights = np.stack([way.weights[first:last] for way in averages])
        mean = np.einsum("dwspk,wk->dwsp", updates[:, : len(averages)], weights)
        change = kept * change + (1.0 - kept) * mean
        models[:, : len(averages)] += change
        if memory is not None:
            models[:, -1] = memory.round(cohort, updates[:, -1])
        found[number] = of.excess(models)
    return {way.rule: found[:, place] for place, way in enumerate(ordered)}


def train_all(of: Problems, importance: Floats, n_rounds: int, rng: np.random.Generator) -> Floats:
    """Train with all clients in every round, weighted by importance.

    Returns
    -------
    ndarray of shape (n_rounds, n_steps, n_problems)
        The excess loss after every round.
    """
    kept, target = 1.0 - of.pull @ importance, (of.pull * of.minimum) @ importance
    spread = np.sqrt(of.noise**2 @ importance**2)
    models = np.zeros_like(kept)
    found = np.empty((n_rounds, *kept.shape[1:]))
    for number in range(n_rounds):
        drawn = rng.standard_normal((DIMENSION, 1, of.n_problems))
        models = kept * models + target + spread * drawn
        found[number] = of.excess(models)
    return found


def read_task(path: Path, clients: Sequence[str]) -> Task:
    """Read the examples of these clients, each of which must have at least one."""
    examples = read_examples(path)
    if examples.clients is None:
        raise TaskError(
            f"{path} has no array 'clients'; give the client of each example, by its name in the "
            "log"
        )
    owners = examples.clients.astype(str)
    order = np.argsort(owners, kind="stable")
    names, starts = np.unique(owners[order], return_index=True)
    parts = dict(zip(names.tolist(), np.split(order, starts[1:]), strict=True))
    lacking = next((name for name in clients if name not in parts), None)
    if lacking is not None:
        raise TaskError(
            f"{path} has no example of client {quoted(lacking)}; give every client of the log at "
            "least one"
        )
    data = examples.of([parts[name] for name in clients])
    if np.issubdtype(examples.targets.dtype, np.integer):
        return softmax_task(path.name, data, max(int(examples.targets.max()) + 1, 2))
    return linear_task(path.name, data)


def train_task(
    task: Task, window: Window, ways: Sequence[Way], steps: Floats, local_steps: int
) -> tuple[Integers, dict[str, Floats]]:
    """Train on the rounds of a log.

    Returns
    -------
    rounds : int array, shape (n_records,)
        The rounds after which losses are recorded.
    losses : dict from rule to float array, shape (n_records, n_steps, SEEDS)
        Relative to the largest loss in the first record of full participation.
    """
    cohorts, shares = window.incidence, window.importance
    every = -(-window.n_rounds // RECORDS)
    # Empty rounds at the end change nothing, and make the number of rounds a multiple of ``every``.
    n_rounds = -(-window.n_rounds // every) * every
    listed = _listed(cohorts.members.astype(np.int64), cohorts.offsets, n_rounds)
    problem = Problem(task, shares, lambda rng, count: listed)
    training = Training(
        n_rounds,
        constant(steps[0]),
        local_steps=local_steps,
        batch_size=min(BATCH, int(task.sizes.min())),
        seeds=range(SEEDS),
        record_every=every,
    )
    rules = {FULL: (full(shares), 0.0)}
    for way in ways:
        own = steady(shares) if way.remembers else _given(way, n_rounds)
        rules[way.rule] = own, way.momentum
    losses = {}
    for name, (rule, momentum) in rules.items():
        choices = [Steps(constant(step), 1.0, momentum) for step in steps.tolist()]
        losses[name] = sweep(problem, rule, training, choices).transpose(2, 0, 1)
    rounds = np.minimum(np.arange(every, n_rounds + 1, every), window.n_rounds)
    first = float(np.nanmax(losses[FULL][0]))
    return rounds, {name: found / first for name, found in losses.items()}


def _listed(entries: Integers, offsets: Integers, n_rounds: int) -> list[Integers]:
    """Return the entries of every round, with empty rounds added at the end."""
    parts = np.split(entries, offsets[1:-1])
    return [*parts, *[entries[:0]] * (n_rounds - len(parts))]


def _given(way: Way, n_rounds: int) -> Rule:
    """Return the rule with the weights of a way."""
    offsets = way.cohorts.offsets
    members = _listed(way.cohorts.members.astype(np.int64), offsets, n_rounds)
    weights = np.split(way.weights, offsets[1:-1])
    weights += [way.weights[:0]] * (n_rounds - len(weights))
    asked = [Asked(*pair) for pair in zip(members, weights, strict=True)]
    return Rule(way.rule, "", "", lambda cohorts, rng: asked, add_updates)
