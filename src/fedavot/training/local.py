"""Local training: H projected gradient steps of one client, and the batches they use.

    θ ← Π_C(θ − η (∇f(θ; ξ) + correction + μ (θ − start)))

A batch ξ of size b is drawn without replacement for every step, with a key that depends only on
(seed, round, client, step), and not on the other clients.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from fedavot.training.options import Projection
from fedavot.training.task import Params

FEW_STEPS, SMALL_MODEL = 8, 10_000
"""Largest number of local steps that are unrolled, and largest number of parameters of a model for
which they are."""


@dataclass(frozen=True)
class LocalTraining:
    """Local training of a client; hashable, so that compiled programs are cached by it.

    The loss comes from the task, and ``uneven`` says whether its clients hold different numbers of
    examples; the number of steps H, the batch size and the projection come from the training.
    """

    loss: Callable[[Params, Any], Any]
    uneven: bool
    steps: int = 1
    batch_size: int | None = None
    projection: Projection | None = None


def batch_positions(key: Any, n_examples: int, count: Any, size: int) -> Any:
    """Draw ``size`` of the first ``count`` of ``n_examples`` positions without replacement."""
    scores = jax.random.uniform(key, (n_examples,), dtype=jnp.float32)
    return jax.lax.top_k(jnp.where(jnp.arange(n_examples) < count, scores, -1.0), size)[1]


def batch_key(seed_key: Any, number: Any, client: Any, step: Any) -> Any:
    """Return the key of one step's batch, from the round's number, the client and the step."""
    for part in (number, client, step):
        seed_key = jax.random.fold_in(seed_key, part)
    return seed_key


def client_loss(training: LocalTraining, params: Params, data: Any, count: Any) -> Any:
    """Return f_i(θ), the mean loss over all of a client's examples."""
    if not training.uneven:
        return training.loss(params, data)
    singly = jax.tree.map(lambda leaf: leaf[:, None], data)
    losses = jax.vmap(training.loss, (None, 0))(params, singly)
    # The padding repeats an example, so its loss is finite if the client's losses are.
    return jnp.where(jnp.arange(losses.size) < count, losses, 0.0).sum() / count


def train_client(
    training: LocalTraining,
    start: Params,
    data: Any,
    *,
    count: Any,
    step: Any,
    key_of: Callable[[Any], Any],
    drift: Callable[[Params], Params] | None,
) -> Params:
    """Return the model after one client's local steps of size ``step`` from ``start``.

    The first ``count`` examples of ``data`` are the client's own, the rest is padding;
    ``key_of(number)`` is the key of a step's batch, and ``drift(params)`` is added to the gradient
    at a model.
    """

    def one(params: Params, number: Any) -> tuple[Params, None]:
        if training.batch_size is None:
            gradient = jax.grad(lambda point: client_loss(training, point, data, count))(params)
        else:
            room = jax.tree.leaves(data)[0].shape[0]
            positions = batch_positions(key_of(number), room, count, training.batch_size)
            batch = jax.tree.map(lambda leaf: leaf[positions], data)
            gradient = jax.grad(training.loss)(params, batch)
        if drift is not None:
            gradient = jax.tree.map(jnp.add, gradient, drift(params))
        moved = jax.tree.map(lambda leaf, slope: leaf - step * slope, params, gradient)
        return (moved if training.projection is None else training.projection(moved)), None

    # A few steps of a small model on all examples take no longer than the iterations of a loop, and
    # are unrolled. Otherwise more than two make no difference, and take longer to compile.
    size = sum(leaf.size for leaf in jax.tree.leaves(start))
    few = training.batch_size is None and training.steps <= FEW_STEPS and size <= SMALL_MODEL
    unroll = training.steps if few else min(2, training.steps)
    return jax.lax.scan(one, start, jnp.arange(training.steps), unroll=unroll)[0]
