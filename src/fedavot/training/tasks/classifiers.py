"""Classifiers: multinomial logistic regression, a hidden layer, and a small convolutional network.

    f_i(θ) = (1/n_i) Σ_k [log Σ_c exp(z_kc) − z_k,label],   z_k = scores(θ, x_k)

The logarithm of the sum is taken relative to the largest score, so that no score overflows. The
scores, and the layers of a model, which is a dict of dicts of ``weights`` and ``bias`` (of the
regression, the only layer itself):

    softmax   Wᵀx + b; convex, zero before training
    mlp       W₂ᵀ max(0, W₁ᵀx + b₁) + b₂, layers ``hidden`` and ``output``
    cnn       for 28×28 images, 5,258 parameters: ``first``, a 3×3 convolution to 8 channels, ReLU
              and 2×2 max pooling; ``second``, the same to 16 channels; ``dense``, from those 5×5×16
              numbers to the classes

Networks train in single precision, and their weights are drawn with variance 2/fan-in (He et al.
2015), biases zero. Losses of one kind compare equal, so that tasks share compiled programs.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedavot._checks import Floats, as_seed, as_size
from fedavot.errors import TaskError
from fedavot.training.examples import Pairs, examples_of
from fedavot.training.task import Task, from_clients

Scores = Callable[[Any, Any], Any]
"""A function of (params, features) that gives scores, shape (n_batch, n_classes)."""
SIDE = 28
WINDOW = 3
CHANNELS = (1, 8, 16)
POOLED = 5
"""Side of the image after two convolutions and poolings: 28, 26, 13, 11, 5."""


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


def softmax_task(
    name: str, data: Pairs, n_classes: int = 10, *, clients: Sequence[str] | None = None
) -> Task:
    """Return multinomial logistic regression on labelled features.

    Parameters
    ----------
    name : str
        Name of the task in tables and messages.
    data : sequence of pairs
        Client i's features, shape (n_i, n_features), and integer labels from 0 to
        n_classes − 1, shape (n_i,).
    n_classes : int
        Number of classes, at least 2; a client need not hold all of them.
    clients : sequence of str, optional
        The clients' names.
    """
    return _task(name, data, n_classes, softmax_scores, zero_model, clients)


def mlp_task(
    name: str,
    data: Pairs,
    n_classes: int = 10,
    *,
    n_hidden: int = 64,
    clients: Sequence[str] | None = None,
) -> Task:
    """Return the task of a network with one hidden layer, in single precision.

    Parameters
    ----------
    name, data, n_classes, clients
        As in `softmax_task`.
    n_hidden : int
        Number of hidden units.
    """
    model = functools.partial(mlp_model, as_size(n_hidden, what="n_hidden", low=1))
    return _task(name, data, n_classes, mlp_scores, model, clients, single=True)


def cnn_task(
    name: str, data: Pairs, n_classes: int = 10, *, clients: Sequence[str] | None = None
) -> Task:
    """Return the convolutional network's task on labelled images, in single precision.

    Parameters
    ----------
    name, n_classes, clients
        As in `softmax_task`.
    data : sequence of pairs
        Client i's images, shape (n_i, 784), row by row, and labels, shape (n_i,).
    """
    task = _task(name, data, n_classes, cnn_scores, cnn_model, clients, single=True)
    pixels = task.data[0].shape[2]
    if pixels != SIDE**2:
        raise TaskError(f"task {name!r} has images of {pixels} pixels; the network takes {SIDE**2}")
    return task


def heterogeneous_softmax(
    *,
    n_clients: int = 100,
    n_features: int = 10,
    n_examples: int = 30,
    n_classes: int = 10,
    seed: int = 0,
) -> Task:
    """Return multinomial logistic regression on clients with different mixes of classes.

    Features are standard normal, and labels have the largest of the scores Wᵀx + 4 b_i, where W is
    common to all clients and b_i is the client's own; both are standard normal. All data are drawn
    at once in single precision, so that a million clients take seconds.

    Parameters
    ----------
    n_clients, n_features, n_examples, n_classes : int
        Number of clients, of features, of examples per client, and of classes, at least 2.
    seed : int
        Seed for drawing the data.
    """
    clients = as_size(n_clients, what="n_clients", low=1)
    width = as_size(n_features, what="n_features", low=1)
    examples = as_size(n_examples, what="n_examples", low=1)
    classes = as_size(n_classes, what="n_classes", low=2)
    rng = np.random.default_rng(as_seed(seed))
    features = rng.standard_normal((clients, examples, width), dtype=np.float32)
    common = rng.standard_normal((width, classes), dtype=np.float32)
    own = rng.standard_normal((clients, 1, classes), dtype=np.float32)
    labels = (features @ common + 4.0 * own).argmax(axis=2).astype(np.int32)
    init = functools.partial(zero_model, width, classes)
    loss, accuracy = CrossEntropy(softmax_scores), Accuracy(softmax_scores)
    return Task(
        "heterogeneous softmax regression", (features, labels), loss, init, accuracy=accuracy
    )


def softmax_scores(params: Any, features: Any) -> Any:
    """Return Wᵀx + b for every example, shape (n_batch, n_classes).

    XLA's products of single precision for a CPU take up to 1.6 times as long if the classes, of
    which there are few, are the last axis, so the weights are turned around first. The barrier
    keeps XLA from undoing that; the results are the same.
    """
    import jax

    weights = params["weights"]
    if weights.dtype == np.float32 and jax.default_backend() == "cpu":
        weights = jax.lax.optimization_barrier(weights.T).T
    return features @ weights + params["bias"]


def mlp_scores(params: Any, features: Any) -> Any:
    """Return the hidden layer's scores, shape (n_batch, n_classes)."""
    import jax

    return _affine(params["output"], jax.nn.relu(_affine(params["hidden"], features)))


def cnn_scores(params: Any, images: Any) -> Any:
    """Return the scores of images, shapes (n_batch, n_classes) and (n_batch, 784)."""
    import jax
    import jax.numpy as jnp

    hidden = images.reshape(-1, SIDE, SIDE, 1)
    for layer in ("first", "second"):
        # A product of patches and weights: clients train different weights side by side, and a
        # product can be batched over them, while a convolution would have to be grouped.
        side = hidden.shape[1] - WINDOW + 1
        shifts = np.ndindex(WINDOW, WINDOW)
        patches = [hidden[:, row : row + side, start : start + side] for row, start in shifts]
        hidden = jax.nn.relu(_affine(params[layer], jnp.concatenate(patches, axis=-1)))
        # The maximum of each 2×2 block; an odd last row and column are left out.
        half, even = side // 2, side - side % 2
        blocks = hidden[:, :even, :even].reshape(-1, half, 2, half, 2, hidden.shape[3])
        hidden = blocks.max(axis=(2, 4))
    return _affine(params["dense"], hidden.reshape(hidden.shape[0], -1))


def zero_model(n_features: int, n_classes: int, key: Any) -> dict[str, Floats]:
    """Return the regression before training, whatever the key: zeros."""
    return {"weights": np.zeros((n_features, n_classes)), "bias": np.zeros(n_classes)}


def mlp_model(n_hidden: int, n_features: int, n_classes: int, key: Any) -> dict[str, Any]:
    """Draw the network with a hidden layer before training from a JAX key."""
    return _layers(key, hidden=(n_features, n_hidden), output=(n_hidden, n_classes))


def cnn_model(n_features: int, n_classes: int, key: Any) -> dict[str, Any]:
    """Draw the convolutional network before training from a JAX key."""
    first, second = ((WINDOW**2 * CHANNELS[at], CHANNELS[at + 1]) for at in (0, 1))
    return _layers(key, first=first, second=second, dense=(POOLED**2 * CHANNELS[2], n_classes))


def _task(
    name: str,
    data: Pairs,
    n_classes: int,
    scores: Scores,
    model: Callable[[int, int, Any], Any],
    clients: Sequence[str] | None,
    *,
    single: bool = False,
) -> Task:
    """Return the task of a classifier, in single precision whatever the features if ``single``."""
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


def _layers(key: Any, **shapes: tuple[int, int]) -> dict[str, Any]:
    """Draw layers of these shapes, (fan-in, fan-out)."""
    import jax
    import jax.numpy as jnp

    def layer(own: Any, shape: tuple[int, int]) -> dict[str, Any]:
        spread = np.float32((2 / shape[0]) ** 0.5)
        weights = jax.random.normal(own, shape, jnp.float32) * spread
        return {"weights": weights, "bias": jnp.zeros(shape[1], jnp.float32)}

    keys = jax.random.split(key, len(shapes))
    return {
        name: layer(own, shape) for own, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def _affine(layer: Any, inputs: Any) -> Any:
    """Return Wᵀx + b of a layer, along the last axis."""
    return inputs @ layer["weights"] + layer["bias"]
