"""Rounds as one compiled program: a scan over rounds, with all seeds in parallel.

In each round the clients asked train from the global model and the rule aggregates their updates
into the next model; after every ``record_every`` rounds the objective F(θ) = Σ p_i f_i(θ) is
recorded. The carry is what the next round needs; everything else is output of the program.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedavot.errors import RuleError
from fedavot.rules._rule import Report
from fedavot.rules._trees import WRITTEN_OUT
from fedavot.training.local import LocalTraining, batch_key, client_loss, train_client
from fedavot.training.task import Params

PARTS = 4
"""Number of parts that the places of padded rounds are cut into on an accelerator."""


@dataclass(frozen=True)
class Program:
    """Everything that determines how a round is compiled; equal programs are compiled once.

    Attributes
    ----------
    local : LocalTraining
        Local training of a client.
    padded : bool
        Whether some round asks fewer clients than another.
    parallel : bool
        Whether the clients of a round train in parallel, as suits accelerators. Training one after
        another is faster on a CPU, where the matrix products of one client fill the cache.
    aggregate, start, correct, proximal, needs_losses
        As in `Rule`.
    """

    local: LocalTraining
    padded: bool
    parallel: bool
    aggregate: Callable[..., Any]
    start: Callable[..., Any] | None
    correct: Callable[..., Any] | None
    proximal: float
    needs_losses: bool


class ClientData(NamedTuple):
    """The clients' data on the device."""

    data: Any
    """Pytree of arrays, each of shape (n_clients, n_examples, ...)."""
    counts: Any
    """Examples of each client, shape (n_clients,)."""
    importance: Any
    """Shape (n_clients,)."""


class Carry(NamedTuple):
    """What the next round needs."""

    params: Params
    average: Params
    """Mean of the models after each round so far."""
    state: Any


class Shared(NamedTuple):
    """What all seeds share in a round.

    This is its number, from 1, its step size, and in a padded program the largest number of clients
    that any seed asks in it.
    """

    number: Any
    step: Any
    size: Any


class Own(NamedTuple):
    """The clients a round asks, by seed (n_clients in empty places), and their weights."""

    members: Any
    weights: Any


Turn = tuple[Shared, Own]


def run_round(program: Program, clients: ClientData, key: Any, carry: Carry, turn: Turn) -> Carry:
    """Run one round."""
    shared, own = turn
    n_clients = clients.counts.shape[0]
    sources = own.members
    if program.padded:
        # Padding trains a client that is present (any client in an empty round), with weight 0.
        first = jnp.minimum(own.members[0], n_clients - 1)
        sources = jnp.where(own.members < n_clients, own.members, first)

    def train(client: Any) -> tuple[Params, Any]:
        start, fixed = carry.params, None
        if program.start is not None:
            start = program.start(carry.params, carry.state, client)
        if program.correct is not None:
            fixed = program.correct(carry.params, carry.state, client)

        def drift(params: Params) -> Params:
            """Return what the rule adds to the gradient at a local model."""
            if not program.proximal:
                return fixed
            pull = jax.tree.map(lambda leaf, base: program.proximal * (leaf - base), params, start)
            return pull if fixed is None else jax.tree.map(jnp.add, pull, fixed)

        data = jax.tree.map(lambda leaf: leaf[client], clients.data)
        count = clients.counts[client]
        loss = client_loss(program.local, start, data, count) if program.needs_losses else None
        end = train_client(
            program.local,
            start,
            data,
            count=count,
            step=shared.step,
            key_of=lambda number: batch_key(key, shared.number, client, number),
            drift=drift if program.correct is not None or program.proximal else None,
        )
        return jax.tree.map(jnp.subtract, end, start), loss

    updates, losses = _train_all(program, train, sources, shared.size)
    if program.padded:
        # A weight of 0 is not enough: values that are not finite stay so when multiplied by 0.
        present = own.members < n_clients
        updates = jax.tree.map(
            lambda leaf: jnp.where(present.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, 0), updates
        )
    report = Report(own.members, own.weights, updates, losses, shared.step, program.local.steps)
    params, state = _aggregated(program, carry, report)
    if program.local.projection is not None:
        params = program.local.projection(params)
    average = jax.tree.map(
        lambda mean, leaf: mean + (leaf - mean) / shared.number, carry.average, params
    )
    return Carry(params, average, state)


def _aggregated(program: Program, carry: Carry, report: Report) -> tuple[Params, Any]:
    """Return the next model and state; what a rule's aggregate gets wrong is an error of the rule.

    JAX's own messages name neither the rule nor the model.
    """
    name = getattr(program.aggregate, "__name__", type(program.aggregate).__name__)
    called = f"the rule's aggregate, {name!r},"
    try:
        returned = program.aggregate(carry.params, carry.state, report)
        pair = tuple(returned) if isinstance(returned, list) else returned
        shapes = jax.tree.map(_described, pair)
    except RuleError:
        raise
    except Exception as cause:
        remedy = ""
        if isinstance(cause, jax.errors.JAXTypeError):
            remedy = "; it is compiled: use jax.numpy instead of numpy, jnp.where instead of if"
        elif "NoneType" in str(cause) and report.losses is None:
            remedy = "; report.losses is None unless the rule has needs_losses=True"
        said = str(cause).partition("\n")[0]
        raise RuleError(
            f"{called} fails on a model of shapes {jax.tree.map(_described, carry.params)} "
            f"({type(cause).__name__}: {said}){remedy}"
        ) from cause
    needed = jax.tree.map(_described, (carry.params, carry.state))
    if shapes != needed:
        raise RuleError(
            f"{called} returned {shapes}; it must return two things, the next model and the next "
            f"state, like those of the round before, {needed}"
        )
    return pair


def _described(leaf: Any) -> str:
    """Return an array's type and shape."""
    return f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}"


def _train_all(program: Program, train: Callable[[Any], Any], sources: Any, size: Any) -> Any:
    """Return the results of ``train`` for every place of a round; the first ``size`` count.

    On a CPU a few places are unrolled, each reading its own data in place; many run in a loop,
    because the program grows with their number. On an accelerator all train in parallel. In padded
    rounds a loop ends with the last place that counts; the others stay zero.
    """
    places = sources.shape[0]
    together = jax.vmap(train) if program.parallel else functools.partial(jax.lax.map, train)
    if not program.padded:
        if program.parallel or places > WRITTEN_OUT:
            return together(sources)
        return jax.tree.map(lambda *leaf: jnp.stack(leaf), *map(train, sources))
    width = -(-places // PARTS) if program.parallel else 1
    filled = jnp.pad(sources, (0, -places % width), mode="edge")

    def part(number: Any, done: Any) -> Any:
        at = number * width
        trained = together(jax.lax.dynamic_slice_in_dim(filled, at, width))
        put = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=at, axis=0)
        return jax.tree.map(put, done, trained)

    nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(jax.vmap(train), filled))
    trained = jax.lax.fori_loop(0, -(-size // width), part, nothing)
    return jax.tree.map(lambda leaf: leaf[:places], trained)


@functools.partial(jax.jit, static_argnums=0)
def advance(program: Program, clients: ClientData, keys: Any, carry: Carry, turns: Turn) -> Any:
    """Run blocks of rounds for every seed, and record the objective after each block.

    Leaves of the carry have a leading axis of seeds. Those of ``turns`` have shape (n_blocks,
    n_rounds, ...), after the axis of seeds in `Own`. Return the carry after the last round, and the
    objective after each block, shape (n_seeds, n_blocks).
    """

    def seed(key: Any, carry: Carry, shared: Shared, own: Own) -> Any:
        def one(carry: Carry, turn: Turn) -> tuple[Carry, None]:
            return run_round(program, clients, key, carry, turn), None

        def block(carry: Carry, turns: Turn) -> tuple[Carry, Any]:
            carry, _ = jax.lax.scan(one, carry, turns)
            losses = _client_losses(program.local, clients, carry.params)
            # The loss of a client of importance zero may be infinite.
            counted = jnp.where(clients.importance > 0, losses, 0)
            return carry, clients.importance @ counted

        return jax.lax.scan(block, carry, (shared, own))

    shared, own = turns
    if keys.shape[0] > 1:
        return jax.vmap(seed, (0, 0, None, 0))(keys, carry, shared, own)
    # A single seed gets no axis: batched products, even of length one, are slower on a CPU.
    key, start, asked = jax.tree.map(lambda leaf: leaf[0], (keys, carry, own))
    return jax.tree.map(lambda leaf: leaf[None], seed(key, start, shared, asked))


def _client_losses(local: LocalTraining, clients: ClientData, params: Params) -> Any:
    return jax.vmap(lambda data, count: client_loss(local, params, data, count))(
        clients.data, clients.counts
    )


client_losses = jax.jit(jax.vmap(_client_losses, (None, None, 0)), static_argnums=0)
"""f_i(θ) of every seed's model and every client, shape (n_seeds, n_clients)."""
