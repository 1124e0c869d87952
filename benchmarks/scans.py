"""Federated training as a bare ``lax.scan`` over rounds, written by hand for the problem.

What JAX can do when there is no library: no checks, no records, no choice of rule, data and
cohorts on the device before the clock starts. There are several ways to write a round, and which
is fastest depends on the problem and the machine, so all of them run:

* with automatic gradients, members in a ``vmap``, by ``lax.map``, or written out;
* with explicit gradients, both members in one batched product, or written out.

A last variant of softmax regression holds its matrix with features first, (784, 10), as one would
without having tried: XLA's products for the CPU are then half as fast.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.federated import FederatedProblem, Model

Local = Callable[[Any, Any], Any]
"""Local training: (model, batch) to the model after it."""
Turn = Callable[[Any, Any, Any, Any], Any]
"""One round: (model, data, clients, weights) to the next model."""
Variants = dict[str, tuple[Callable[[], Any], Callable[[Any], Model]]]
"""By name, what trains and waits for the last model, and what reads that."""


def square(model: Any, batch: Any) -> Any:
    """Return mean (xᵀθ − y)²."""
    import jax.numpy as jnp

    features, targets = batch
    return jnp.mean((features @ model[0] - targets) ** 2)


def cross_entropy(model: Any, batch: Any) -> Any:
    """Return mean −log softmax(Wx + b)_y, y as unit vectors."""
    import jax
    import jax.numpy as jnp

    (features, targets), (matrix, bias) = batch, model
    logs = jax.nn.log_softmax(features @ matrix.T + bias)
    return -jnp.mean(jnp.sum(targets * logs, axis=1))


def cross_entropy_features_first(model: Any, batch: Any) -> Any:
    """Return mean −log softmax(xᵀW + b)_y, y as class numbers."""
    import jax
    import jax.numpy as jnp

    (features, targets), (matrix, bias) = batch, model
    logs = jax.nn.log_softmax(features @ matrix + bias)
    return -jnp.mean(jnp.take_along_axis(logs, targets[:, None], axis=1))


def variants(problem: FederatedProblem) -> Variants:
    """Return every variant for a problem, ready to run."""
    return _softmax(problem) if problem.n_classes else _regression(problem)


def _regression(problem: FederatedProblem) -> Variants:
    turns = _automatic(problem, square) | {
        "by hand, batched": _abreast(_square_batched(problem)),
        "by hand, unrolled": _one_by_one(_square_singly(problem)),
    }
    data, start = (problem.features, problem.targets), problem.start()
    return {name: (_scan(problem, turn, data, start), tuple) for name, turn in turns.items()}


def _softmax(problem: FederatedProblem) -> Variants:
    turns = _automatic(problem, cross_entropy) | {
        "by hand, batched": _abreast(_cross_entropy_batched(problem)),
        "by hand, unrolled": _one_by_one(_cross_entropy_singly(problem)),
    }
    data, start = (problem.features, problem.one_hot), problem.start()
    found: Variants = {
        name: (_scan(problem, turn, data, start), tuple) for name, turn in turns.items()
    }
    turn = _automatic(problem, cross_entropy_features_first)["vmap over members"]
    data, start = (problem.features, problem.targets), (start[0].T, start[1])
    found["vmap, features first"] = (
        _scan(problem, turn, data, start),
        lambda model: (model[0].T, model[1]),
    )
    return found


def _scan(
    problem: FederatedProblem, turn: Turn, data: tuple[Any, Any], start: Model
) -> Callable[[], Any]:
    """Compile all rounds; the data are arguments, lest XLA should fold them in as constants."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def play(model: Any, data: Any, members: Any, weights: Any) -> Any:
        def one(model: Any, cohort: Any) -> tuple[Any, None]:
            return turn(model, data, *cohort), None

        return jax.lax.scan(one, model, (members, weights))[0]

    arguments = jax.tree.map(jnp.asarray, (start, data))
    members = jnp.asarray(problem.members, jnp.int32)
    weights = jnp.asarray(problem.weights, jnp.float32)
    return lambda: jax.block_until_ready(play(*arguments, members, weights))


def _automatic(problem: FederatedProblem, loss: Any) -> dict[str, Turn]:
    """Return the variants with automatic gradients."""
    import jax

    slope = jax.grad(loss)

    def local(model: Any, batch: Any, *, unroll: int) -> Any:
        def one(model: Any, _: None) -> tuple[Any, None]:
            moved = jax.tree.map(lambda a, g: a - problem.step * g, model, slope(model, batch))
            return moved, None

        return jax.lax.scan(one, model, length=problem.local_steps, unroll=unroll)[0]

    def rolled(model: Any, batch: Any) -> Any:
        return local(model, batch, unroll=1)

    def unrolled(model: Any, batch: Any) -> Any:
        return local(model, batch, unroll=problem.local_steps)

    def by_map(model: Any, batches: Any) -> Any:
        return jax.lax.map(lambda batch: unrolled(model, batch), batches)

    return {
        "vmap over members": _abreast(jax.vmap(rolled, (None, 0))),
        "vmap, steps unrolled": _abreast(jax.vmap(unrolled, (None, 0))),
        "lax.map over members": _abreast(by_map),
        "all unrolled": _one_by_one(unrolled),
    }


def _abreast(local: Local) -> Turn:
    """Return a round that trains its members together, as a leading axis."""
    import jax
    import jax.numpy as jnp

    def turn(model: Any, data: Any, clients: Any, weights: Any) -> Any:
        trained = local(model, jax.tree.map(lambda leaf: leaf[clients], data))
        return jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, axes=1), trained)

    return turn


def _one_by_one(local: Local) -> Turn:
    """Return a round with its members written out, each slicing its own data."""
    import jax

    def turn(model: Any, data: Any, clients: Any, weights: Any) -> Any:
        total = jax.tree.map(lambda leaf: 0.0, model)
        for place in range(clients.shape[0]):
            client, weight = clients[place], weights[place]
            trained = local(model, jax.tree.map(lambda leaf, at=client: leaf[at], data))
            total = jax.tree.map(lambda sum_, leaf, w=weight: sum_ + w * leaf, total, trained)
        return total

    return turn


def _square_batched(problem: FederatedProblem) -> Local:
    import jax.numpy as jnp

    def local(model: Any, batch: Any) -> Any:
        features, targets = batch
        rate = 2.0 * problem.step / features.shape[1]
        theta = jnp.broadcast_to(model[0], (len(features), *model[0].shape))
        for _ in range(problem.local_steps):
            errors = jnp.einsum("knd,kd->kn", features, theta) - targets
            theta = theta - rate * jnp.einsum("knd,kn->kd", features, errors)
        return (theta,)

    return local


def _square_singly(problem: FederatedProblem) -> Local:
    def local(model: Any, batch: Any) -> Any:
        (features, targets), (theta,) = batch, model
        rate = 2.0 * problem.step / len(features)
        for _ in range(problem.local_steps):
            theta = theta - rate * ((features @ theta - targets) @ features)
        return (theta,)

    return local


def _cross_entropy_batched(problem: FederatedProblem) -> Local:
    import jax
    import jax.numpy as jnp

    def local(model: Any, batch: Any) -> Any:
        features, targets = batch
        rate, size = problem.step / features.shape[1], len(features)
        matrix, bias = (jnp.broadcast_to(leaf, (size, *leaf.shape)) for leaf in model)
        for _ in range(problem.local_steps):
            scores = jnp.einsum("knd,kcd->knc", features, matrix) + bias[:, None]
            errors = rate * (jax.nn.softmax(scores) - targets)
            matrix = matrix - jnp.einsum("knc,knd->kcd", errors, features)
            bias = bias - errors.sum(axis=1)
        return matrix, bias

    return local


def _cross_entropy_singly(problem: FederatedProblem) -> Local:
    import jax

    def local(model: Any, batch: Any) -> Any:
        (features, targets), (matrix, bias) = batch, model
        rate = problem.step / len(features)
        for _ in range(problem.local_steps):
            errors = rate * (jax.nn.softmax(features @ matrix.T + bias) - targets)
            matrix = matrix - errors.T @ features
            bias = bias - errors.sum(axis=0)
        return matrix, bias

    return local
