"""What classifiers share: cross-entropy and accuracy of class scores, labels, initial weights.

    f_i(θ) = (1/n_i) Σ_k [log Σ_c exp(z_kc) − z_k,label],   z_k = scores(θ, x_k)

The logarithm of the sum is taken relative to the largest score, so that no score overflows.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedavot._checks import as_size
from fedavot.errors import TaskError
from fedavot.training.task import Task, from_clients
from fedavot.training.tasks._examples import Examples, examples_of

Scores = Callable[[Any, Any], Any]
"""A function of (params, features) that gives scores, shape (n_batch, n_classes)."""


@dataclass(frozen=True)
class CrossEntropy:
    """Mean cross-entropy of a model's scores; equal instances share compiled programs."""

    scores: Scores

    def __call__(self, params: Any, batch: Any) -> Any:
        """Return the mean over a batch of features and labels."""
        import jax
        import jax.numpy as jnp

        features, labels = batch
        scores = self.scores(params, features)
        right = jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(scores, axis=1) - right)


@dataclass(frozen=True)
class Accuracy:
    """Share of examples whose label has the top score; equal instances share compiled programs."""

    scores: Scores

    def __call__(self, params: Any, batch: Any) -> Any:
        """Return the share over a batch of features and labels."""
        import jax.numpy as jnp

        features, labels = batch
        return jnp.mean(jnp.argmax(self.scores(params, features), axis=1) == labels)


def classification_task(
    name: str,
    data: Examples,
    n_classes: int,
    *,
    scores: Scores,
    model: Callable[[int, int, Any], Any],
    clients: Sequence[str] | None,
    single: bool = False,
) -> Task:
    """Return the task of a classifier on the data that `softmax_task` takes.

    ``scores`` is a module-level function, ``model(n_features, n_classes, key)`` gives the model
    before training; ``single`` requests single precision whatever the type of the features.
    """
    classes = as_size(n_classes, what="n_classes", low=2)
    pairs = []
    for who, features, labels in examples_of(name, data, clients):
        if not np.issubdtype(labels.dtype, np.integer):
            raise TaskError(f"{who} has labels of type {labels.dtype}; they must be integers")
        foreign = labels[(labels < 0) | (labels >= classes)]
        if foreign.size:
            raise TaskError(
                f"{who} has label {foreign[0]}, but classes run from 0 to {classes - 1}; "
                "give n_classes"
            )
        floats = features.astype(np.float32) if single else features
        pairs.append((floats, labels.astype(np.int32)))
    init = functools.partial(model, pairs[0][0].shape[1], classes)
    loss, accuracy = CrossEntropy(scores), Accuracy(scores)
    return from_clients(name, pairs, loss=loss, init=init, clients=clients, accuracy=accuracy)


def he_layers(shapes: Mapping[str, tuple[int, int]], key: Any) -> dict[str, dict[str, Any]]:
    """Draw float32 weights (fan-in, fan-out) of variance 2/fan-in (He et al. 2015), biases 0."""
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(key, len(shapes))
    return {
        layer: {
            "weights": jax.random.normal(own, shape, jnp.float32)
            * np.float32((2 / shape[0]) ** 0.5),
            "bias": jnp.zeros(shape[1], jnp.float32),
        }
        for own, (layer, shape) in zip(keys, shapes.items(), strict=True)
    }


def affine(layer: Any, inputs: Any) -> Any:
    """Return Wᵀx + b of a layer's ``weights`` and ``bias``, along the last axis."""
    return inputs @ layer["weights"] + layer["bias"]
