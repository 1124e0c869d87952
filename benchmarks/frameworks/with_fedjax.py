"""FedJAX 0.0.17, on its jit backend with its own SGD.

`prepare` runs ``fedjax.algorithms.fed_avg.federated_averaging``. It weighs by numbers of examples,
so its datasets say how much they are to count, and it gets all examples in order, H times.
`prepare_bare` is the same round on `fedjax.for_each_client`, less what need not be: batches lie
ready on the device, and there are no random keys and no norms of updates.

Patched: FedJAX's sums over trees call ``jax.tree_map``, which JAX has removed; it is put back as
``jax.tree_util.tree_map``.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.federated import FederatedProblem, Model

if not hasattr(jax, "tree_map"):
    jax.tree_map = jax.tree_util.tree_map

import fedjax
from fedjax.algorithms import fed_avg

DISTRIBUTION = "fedjax"


def prepare(problem: FederatedProblem) -> Callable[[], Model]:
    """Return what plays every round by FedJAX's federated averaging."""
    slope = jax.grad(_loss(problem))
    batches = fedjax.ShuffleRepeatBatchHParams(
        batch_size=problem.features.shape[1],
        num_epochs=None,
        num_steps=problem.local_steps,
        skip_shuffle=True,
    )
    algorithm = fed_avg.federated_averaging(
        lambda model, batch, key: slope(model, batch),
        fedjax.optimizers.sgd(problem.step),
        fedjax.optimizers.sgd(1.0),
        batches,
    )
    datasets = [fedjax.ClientDataset(examples) for examples in _examples(problem)]
    shares, key = problem.shares.tolist(), jax.random.PRNGKey(0)

    def solve() -> Model:
        state = algorithm.init(_start(problem))
        for members, row in zip(problem.members.tolist(), shares, strict=True):
            cohort = [
                (client, _Counting(datasets[client], share), key)
                for client, share in zip(members, row, strict=True)
            ]
            state, _ = algorithm.apply(state, cohort)
        return tuple(map(np.asarray, state.params))

    return solve


def prepare_bare(problem: FederatedProblem) -> Callable[[], Model]:
    """Return what plays every round by `fedjax.for_each_client` alone."""
    clients, server = fedjax.optimizers.sgd(problem.step), fedjax.optimizers.sgd(1.0)
    slope = jax.grad(_loss(problem))

    def begin(model: Any, _: Any) -> Any:
        return {"params": model, "opt_state": clients.init(model)}

    def step(state: Any, batch: Any) -> Any:
        gradient = slope(state["params"], batch)
        opt_state, params = clients.apply(gradient, state["opt_state"], state["params"])
        return {"params": params, "opt_state": opt_state}

    def end(model: Any, state: Any) -> Any:
        return jax.tree_util.tree_map(lambda a, b: a - b, model, state["params"])

    train = fedjax.for_each_client(begin, step, end)
    batches = [
        [jax.tree_util.tree_map(jnp.asarray, examples)] * problem.local_steps
        for examples in _examples(problem)
    ]

    def solve() -> Model:
        model = _start(problem)
        opt_state = server.init(model)
        for members, weights in zip(problem.members, problem.weights, strict=True):
            shares = dict(zip(members.tolist(), weights.tolist(), strict=True))
            asked = [(client, batches[client], ()) for client in shares]
            total = fedjax.tree_util.tree_zeros_like(model)
            for client, update in train(model, asked):
                weighted = fedjax.tree_util.tree_weight(update, shares[client])
                total = fedjax.tree_util.tree_add(total, weighted)
            opt_state, model = server.apply(total, opt_state, model)
        return tuple(map(np.asarray, model))

    return solve


class _Counting:
    """A client's dataset that says how much it is to count."""

    def __init__(self, dataset: fedjax.ClientDataset, share: int) -> None:
        self._share = share
        self.shuffle_repeat_batch = dataset.shuffle_repeat_batch

    def __len__(self) -> int:
        return self._share


def _examples(problem: FederatedProblem) -> Iterable[dict[str, Any]]:
    targets = problem.one_hot if problem.n_classes else problem.targets
    for features, wanted in zip(problem.features, targets, strict=True):
        yield {"x": features, "y": wanted}


def _start(problem: FederatedProblem) -> Any:
    return tuple(map(jnp.asarray, problem.start()))


def _loss(problem: FederatedProblem) -> Callable[[Any, Any], Any]:
    return _cross_entropy if problem.n_classes else _square


def _square(model: Any, batch: Any) -> Any:
    return jnp.mean((batch["x"] @ model[0] - batch["y"]) ** 2)


def _cross_entropy(model: Any, batch: Any) -> Any:
    logs = jax.nn.log_softmax(batch["x"] @ model[0].T + model[1])
    return -jnp.mean(jnp.sum(batch["y"] * logs, axis=1))
