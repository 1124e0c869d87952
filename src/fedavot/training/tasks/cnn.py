"""A small convolutional network for 28×28 images: 5,258 parameters.

3×3 convolution to 8 channels, halved by maximum; 3×3 convolution to 16 channels, halved again; a
dense layer from those 5×5×16 numbers to the classes. ReLU after each convolution, weights drawn
with variance 2/fan-in (He et al. 2015), biases zero. The loss is the softmax's mean cross-entropy.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedavot.errors import TaskError
from fedavot.training.task import Task, from_clients, labels_of
from fedavot.training.tasks._examples import Examples
from fedavot.training.tasks.softmax import as_labelled, cross_entropy

SIDE = 28
WINDOW = 3
CHANNELS = (1, 8, 16)
POOLED = 5
"""Side of the image after two convolutions and halvings: 28, 26, 13, 11, 5."""


def cnn_loss(params: Any, batch: Any) -> Any:
    """Return the mean cross-entropy over a batch.

    Parameters
    ----------
    params : dict of dicts
        ``first``, ``second`` and ``dense``, each with ``weights`` and ``bias``.
    batch : pair of arrays
        Images, shape (n_batch, 784), and labels, shape (n_batch,).
    """
    images, labels = batch
    return cross_entropy(class_scores(params, images), labels)


def class_scores(params: Any, images: Any) -> Any:
    """Return the network's scores, shape (n_batch, n_classes).

    Parameters
    ----------
    params : dict of dicts
        As in `cnn_loss`.
    images : array of shape (n_batch, 784)
        Row by row.
    """
    import jax

    hidden = images.reshape(-1, SIDE, SIDE, 1)
    for layer in ("first", "second"):
        hidden = _halve(jax.nn.relu(_convolve(hidden, params[layer])))
    flat = hidden.reshape(hidden.shape[0], -1)
    return flat @ params["dense"]["weights"] + params["dense"]["bias"]


def he_model(n_classes: int, key: Any) -> dict[str, dict[str, Any]]:
    """Draw the network before training from a JAX key, in single precision."""
    import jax
    import jax.numpy as jnp

    shapes = {
        "first": (WINDOW**2 * CHANNELS[0], CHANNELS[1]),
        "second": (WINDOW**2 * CHANNELS[1], CHANNELS[2]),
        "dense": (POOLED**2 * CHANNELS[2], n_classes),
    }
    return {
        layer: {
            "weights": jax.random.normal(own, shape, jnp.float32)
            * np.float32((2 / shape[0]) ** 0.5),
            "bias": jnp.zeros(shape[1], jnp.float32),
        }
        for own, (layer, shape) in zip(jax.random.split(key, 3), shapes.items(), strict=True)
    }


def cnn_task(
    name: str,
    data: Examples,
    n_classes: int = 10,
    *,
    clients: Sequence[str] | None = None,
) -> Task:
    """Return the network's task on labelled images, in single precision.

    Parameters
    ----------
    name : str
        Name of the task in tables and messages.
    data : sequence of pairs
        Client i's images, shape (n_i, 784), row by row, and integer labels from 0 to
        n_classes − 1, shape (n_i,).
    n_classes : int
        Number of classes, at least 2.
    clients : sequence of str, optional
        The clients' names.
    """
    pairs = [
        (images.astype(np.float32), labels)
        for images, labels in as_labelled(name, data, n_classes, clients)
    ]
    for label, (images, _) in zip(labels_of(data, clients), pairs, strict=True):
        if images.shape[1] != SIDE**2:
            raise TaskError(
                f"client {label} of task {name!r} has images of {images.shape[1]} pixels; "
                f"the network takes {SIDE}×{SIDE} = {SIDE**2}"
            )
    init = functools.partial(he_model, n_classes)
    return from_clients(name, pairs, loss=cnn_loss, init=init, clients=clients)


def _convolve(images: Any, layer: Any) -> Any:
    """Convolve without padding, as one product of patches and weights.

    Clients train different weights side by side: a product of matrices batches over them, where a
    convolution has to be grouped.
    """
    import jax.numpy as jnp

    side = images.shape[1] - WINDOW + 1
    patches = [
        images[:, row : row + side, column : column + side]
        for row in range(WINDOW)
        for column in range(WINDOW)
    ]
    return jnp.concatenate(patches, axis=-1) @ layer["weights"] + layer["bias"]


def _halve(images: Any) -> Any:
    """Take the maximum of each 2×2 block; an odd last row and column are left out."""
    count, side, _, channels = images.shape
    half = side // 2
    blocks = images[:, : 2 * half, : 2 * half].reshape(count, half, 2, half, 2, channels)
    return blocks.max(axis=(2, 4))
