"""Many runs of one rule in one compiled program: a lane is a setting, importance, seed and step.

A round is that of `fedavot.training.rounds.run_round`: the clients asked train by the engine's
`train_client`, and the rule aggregates. Lanes differ in members, weights, steps, keys and states,
all of them arrays; what is compiled depends on the rule's functions alone. On an accelerator all
lanes and clients train side by side, on a CPU one after another.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from studies.deep.network import Network
from studies.deep.world import Lane, World

from fedavot.rules import Report, Rule
from fedavot.training.local import LocalTraining, batch_key, train_client

RECORDS = 20
BLOCK = 20
"""Largest number of rounds of one call of the compiled program."""
LIGHT = 100, 2_000
"""Training images per client, and test images, of records before the last quarter."""
CHUNK = 500
"""Test images that are evaluated at a time."""
WIDTH = 8
"""Where cohorts have no fixed size, the number of places is a multiple of this."""


@dataclass(frozen=True)
class Loop:
    """What determines how a round is compiled; equal ones are compiled once."""

    local: LocalTraining
    aggregate: Callable[..., Any]
    start: Callable[..., Any] | None
    correct: Callable[..., Any] | None
    parallel: bool

    @classmethod
    def of(cls, rule: Rule, world: World, *, parallel: bool) -> "Loop":
        """Return the loop of a rule."""
        design = world.design
        local = LocalTraining(world.network, False, design.local_steps, design.batch_size)
        return cls(local, rule.aggregate, rule.start, rule.correct, parallel)


class Turn(NamedTuple):
    """A round: its number from 1, step size, the clients asked and their weights."""

    number: Any
    step: Any
    members: Any
    weights: Any


class Records(NamedTuple):
    """What was recorded of every lane, each with leading axes of lanes and records."""

    rounds: NDArray[np.int64]
    losses: NDArray[np.float64]
    """f_i, shape (n_lanes, n_records, n_clients)."""
    accuracies: NDArray[np.float64]
    """Share of each class's test images, shape (n_lanes, n_records, n_classes)."""


class OutOfTimeError(Exception):
    """The time given is over; what was not finished is left out."""


def train_lanes(
    world: World,
    name: str,
    lanes: Sequence[Lane],
    rounds: int,
    *,
    parallel: bool = True,
    until: float = math.inf,
) -> tuple[Records, Any]:
    """Train a rule in all lanes; return the records and the last models.

    Without ``parallel``, lanes and clients train one after another. Raises `OutOfTimeError` if
    `time.perf_counter()` exceeds ``until``.
    """
    if not parallel and len(lanes) > 1:
        singly = [
            train_lanes(world, name, [lane], rounds, parallel=False, until=until) for lane in lanes
        ]
        records, models = (list(part) for part in zip(*singly, strict=True))
        losses, hits = (np.concatenate([one[at] for one in records]) for at in (1, 2))
        joined = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *models)
        return Records(records[0].rounds, losses, hits), joined
    rules = [world.rule(name, lane, rounds) for lane in lanes]
    loop = Loop.of(rules[0], world, parallel=parallel)
    turns = _turns(world, name, lanes, rounds)
    keys = jax.vmap(jax.random.key)(np.array([lane.seed for lane in lanes], np.uint32))
    params = _first_models(world.network, keys)
    n_clients = world.design.n_clients
    states = [
        rule.init(jax.tree.map(lambda leaf, at=at: leaf[at], params), n_clients)
        for at, rule in enumerate(rules)
    ]
    carry = params, jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    every = max(rounds // RECORDS, 1)
    size = math.gcd(every, BLOCK)
    found, recorded = [], []
    for at in range(0, rounds, size):
        done = min(at + size, rounds)
        turn = Turn(*(part[:, at:done] for part in turns))
        carry = advance(loop, world.data, keys, carry, turn)
        if done % every == 0 or done == rounds:
            full = 4 * done > 3 * rounds
            found.append(_measured(world, loop, carry[0], full=full))
            recorded.append(done)
            jax.block_until_ready(found[-1])
            if time.perf_counter() > until:
                raise OutOfTimeError(f"{name}: {done} of {rounds} rounds are lost")
    losses, hits = (np.stack(part, axis=1).astype(np.float64) for part in zip(*found, strict=True))
    return Records(np.array(recorded), losses, hits), carry[0]


@partial(jax.jit, static_argnums=0)
def _first_models(network: Network, keys: Any) -> Any:
    return jax.vmap(network.init)(keys)


@partial(jax.jit, static_argnums=0, donate_argnums=3)
def advance(loop: Loop, data: Any, keys: Any, carry: Any, turns: Turn) -> Any:
    """Run rounds in every lane; leaves of ``carry`` and ``turns`` have a leading axis of lanes."""

    def lane(key: Any, carry: Any, turns: Turn) -> Any:
        return jax.lax.scan(partial(_round, loop, data, key), carry, turns)[0]

    return _each(loop.parallel, lane, (keys, carry, turns))


def _round(loop: Loop, data: Any, key: Any, carry: Any, turn: Turn) -> tuple[Any, None]:
    params, state = carry
    n_clients, count = data[1].shape

    def train(client: Any) -> Any:
        start = params if loop.start is None else loop.start(params, state, client)
        fixed = None if loop.correct is None else loop.correct(params, state, client)
        end = train_client(
            loop.local,
            start,
            jax.tree.map(lambda leaf: leaf[client], data),
            count=count,
            step=turn.step,
            key_of=lambda number: batch_key(key, turn.number, client, number),
            drift=None if fixed is None else lambda params: fixed,
        )
        return jax.tree.map(jnp.subtract, end, start)

    # An absent place trains the last client, and its update is left out.
    sources = jnp.minimum(turn.members, n_clients - 1)
    updates = _each(loop.parallel, train, (sources,))
    present = turn.members < n_clients
    updates = jax.tree.map(
        lambda leaf: jnp.where(present.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, 0), updates
    )
    report = Report(turn.members, turn.weights, updates, None, turn.step, loop.local.steps)
    return loop.aggregate(params, state, report), None


def _measured(world: World, loop: Loop, params: Any, *, full: bool) -> Any:
    most = world.design.examples, world.test[1].size
    images, n_test = most if full else map(min, LIGHT, most)
    return measure(world.network, images, n_test, loop.parallel, world.data, world.test, params)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def measure(
    network: Network, images: int, n_test: int, parallel: bool, data: Any, test: Any, params: Any
) -> Any:
    """Return each client's loss and the accuracy of each class, for the models of all lanes.

    Parameters
    ----------
    network
        The network.
    images, n_test : int
        How many images of each client, and of the test images, are used.
    parallel : bool
        Whether lanes are evaluated side by side.
    data, test, params
        The clients' images, the test images, and models with a leading axis of lanes.
    """
    own = jax.tree.map(lambda leaf: leaf[:, :images], data)
    pixels, labels = (leaf[:n_test] for leaf in test)
    more = -labels.size % CHUNK
    pixels = jnp.pad(pixels, ((0, more), *((0, 0),) * 3)).reshape(-1, CHUNK, *pixels.shape[1:])
    labels = jnp.pad(labels, (0, more), constant_values=-1).reshape(-1, CHUNK)

    def lane(params: Any) -> Any:
        def counted(chunk: Any) -> Any:
            right = network.scores(params, chunk[0]).argmax(axis=1) == chunk[1]
            kinds = jax.nn.one_hot(chunk[1], network.n_classes)
            return (kinds * right[:, None]).sum(axis=0), kinds.sum(axis=0)

        losses = jax.lax.map(partial(network, params), own)
        hits, counts = jax.lax.map(counted, (pixels, labels))
        return losses, hits.sum(axis=0) / jnp.maximum(counts.sum(axis=0), 1)

    return _each(parallel, lane, (params,))


def _each(parallel: bool, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Return the function's results along the leading axis of its arguments."""
    if parallel:
        return jax.vmap(function)(*arguments)
    return jax.lax.map(lambda own: function(*own), arguments)


def _turns(world: World, name: str, lanes: Sequence[Lane], rounds: int) -> Turn:
    """Return all rounds of all lanes, each field with axes of lanes and rounds."""
    asked = [world.asked(name, lane.setting, lane.importance, lane.seed, rounds) for lane in lanes]
    longest = max(members.shape[1] for members, _ in asked)
    places = max(longest, world.design.cohort_size or longest + -longest % WIDTH)
    room = (len(lanes), rounds, places)
    members = np.full(room, world.design.n_clients, np.int32)
    weights = np.zeros(room, np.float32)
    for at, (who, shares) in enumerate(asked):
        members[at, :, : who.shape[1]], weights[at, :, : who.shape[1]] = who, shares
    numbers = np.broadcast_to(np.arange(1, rounds + 1, dtype=np.int32), room[:2])
    steps = np.stack([world.design.step_sizes(lane.step, rounds) for lane in lanes])
    return Turn(numbers, steps, members, weights)
