"""Training on a user's own task over the rounds of a log, by the engine.

The file is what ``fedavot simulate`` takes: an .npz of ``features``, ``targets`` and ``clients``,
the client's name in the log for each example. Integer targets are labels of a softmax regression,
others are fitted by least squares. Of all that an audit does, this alone needs JAX.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedavot._checks import Floats, Integers, quoted
from fedavot.audit.replay.problems import SEEDS
from fedavot.audit.replay.scene import Way
from fedavot.audit.statistics.rules import FULL
from fedavot.audit.statistics.window import Window
from fedavot.errors import TaskError
from fedavot.rules import full, steady
from fedavot.rules._rule import Asked, Rule, add_updates
from fedavot.training import Problem, Training, constant
from fedavot.training.examples import read_examples
from fedavot.training.sweep import Steps, sweep
from fedavot.training.task import Task
from fedavot.training.tasks.classifiers import softmax_task
from fedavot.training.tasks.linear import linear_task

BATCH = 8
"""Largest number of examples per local step."""
RECORDS = 60


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
