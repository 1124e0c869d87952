"""A small convolutional network for 28×28 images: 5,258 parameters.

3×3 convolution to 8 channels and 2×2 max pooling; 3×3 convolution to 16 channels and pooling again;
a dense layer from those 5×5×16 numbers to the classes. ReLU after each convolution. A model is a
dict of ``first``, ``second`` and ``dense``, each with ``weights`` and ``bias``.
"""

from collections.abc import Sequence
from typing import Any

from fedavot.errors import TaskError
from fedavot.training.task import Task
from fedavot.training.tasks._classification import affine, classification_task, he_layers
from fedavot.training.tasks._examples import Examples

SIDE = 28
WINDOW = 3
CHANNELS = (1, 8, 16)
POOLED = 5
"""Side of the image after two convolutions and poolings: 28, 26, 13, 11, 5."""


def class_scores(params: Any, images: Any) -> Any:
    """Return the scores of images, shapes (n_batch, n_classes) and (n_batch, 784)."""
    import jax

    hidden = images.reshape(-1, SIDE, SIDE, 1)
    for layer in ("first", "second"):
        hidden = _halve(jax.nn.relu(_convolve(hidden, params[layer])))
    return affine(params["dense"], hidden.reshape(hidden.shape[0], -1))


def he_model(n_features: int, n_classes: int, key: Any) -> dict[str, dict[str, Any]]:
    """Draw the network before training from a JAX key."""
    shapes = {
        "first": (WINDOW**2 * CHANNELS[0], CHANNELS[1]),
        "second": (WINDOW**2 * CHANNELS[1], CHANNELS[2]),
        "dense": (POOLED**2 * CHANNELS[2], n_classes),
    }
    return he_layers(shapes, key)


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
    name, n_classes, clients
        As in `softmax_task`.
    data : sequence of pairs
        Client i's images, shape (n_i, 784), row by row, and labels, shape (n_i,).
    """
    task = classification_task(
        name, data, n_classes, scores=class_scores, model=he_model, clients=clients, single=True
    )
    pixels = task.data[0].shape[2]
    if pixels != SIDE**2:
        raise TaskError(
            f"task {name!r} has images of {pixels} pixels; the network takes {SIDE}×{SIDE} = "
            f"{SIDE**2}"
        )
    return task


def _convolve(images: Any, layer: Any) -> Any:
    """Convolve without padding, as one product of patches and weights.

    Clients train different weights side by side: a matrix product can be batched over them, while a
    convolution would have to be grouped.
    """
    import jax.numpy as jnp

    side = images.shape[1] - WINDOW + 1
    patches = [
        images[:, row : row + side, column : column + side]
        for row in range(WINDOW)
        for column in range(WINDOW)
    ]
    return affine(layer, jnp.concatenate(patches, axis=-1))


def _halve(images: Any) -> Any:
    """Take the maximum of each 2×2 block; an odd last row and column are left out."""
    count, side, _, channels = images.shape
    half = side // 2
    blocks = images[:, : 2 * half, : 2 * half].reshape(count, half, 2, half, 2, channels)
    return blocks.max(axis=(2, 4))
