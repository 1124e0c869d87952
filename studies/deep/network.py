"""A small convolutional network with group norm.

Each layer is a 3 × 3 convolution that keeps the side, group norm, ReLU and 2 × 2 max pooling; a
dense layer gives the class scores. Convolutions are products of patches and weights: clients train
different weights side by side, and a matrix product can be batched over them.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, dict[str, Any]]
IN_GROUP = 8
"""Channels that are normalised together."""
EPSILON = 1e-5


@dataclass(frozen=True)
class Network:
    """The network for images of one side and number of colours; equal ones share programs."""

    side: int
    colours: int
    channels: tuple[int, ...]
    n_classes: int = 10

    def init(self, key: Any) -> Params:
        """Draw weights of variance 2/fan-in (He et al. 2015) for ReLU, zero biases."""
        keys = jax.random.split(key, len(self.channels) + 1)
        params: Params = {}
        below, side = self.colours, self.side
        for number, (own, width) in enumerate(zip(keys, self.channels, strict=False)):
            params[f"layer{number}"] = {
                **_dense(own, 9 * below, width),
                "scale": jnp.ones(width, jnp.float32),
                "shift": jnp.zeros(width, jnp.float32),
            }
            below, side = width, side // 2
        params["dense"] = _dense(keys[-1], side * side * below, self.n_classes)
        return params

    def scores(self, params: Params, images: Any) -> Any:
        """Return class scores, shape (n_images, n_classes)."""
        hidden = images
        for number in range(len(self.channels)):
            layer = params[f"layer{number}"]
            hidden = _patches(hidden) @ layer["weights"] + layer["bias"]
            hidden = _halved(jax.nn.relu(_normed(hidden) * layer["scale"] + layer["shift"]))
        flat = hidden.reshape(hidden.shape[0], -1)
        return flat @ params["dense"]["weights"] + params["dense"]["bias"]

    def losses(self, params: Params, batch: Any) -> Any:
        """Return the cross-entropy of every example."""
        images, labels = batch
        scores = self.scores(params, images)
        right = jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
        return jax.nn.logsumexp(scores, axis=1) - right

    def __call__(self, params: Params, batch: Any) -> Any:
        """Return the mean cross-entropy of a batch, the loss of a task."""
        return self.losses(params, batch).mean()


def _dense(key: Any, inputs: int, outputs: int) -> dict[str, Any]:
    spread = np.float32((2 / inputs) ** 0.5)
    weights = jax.random.normal(key, (inputs, outputs), jnp.float32) * spread
    return {"weights": weights, "bias": jnp.zeros(outputs, jnp.float32)}


def _patches(images: Any) -> Any:
    """Return the 3 × 3 patch around every pixel, zeros beyond the edge."""
    side = images.shape[1]
    padded = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [
        padded[:, row : row + side, column : column + side]
        for row in range(3)
        for column in range(3)
    ]
    return jnp.concatenate(shifted, axis=-1)


def _normed(hidden: Any) -> Any:
    """Normalise each image's groups of channels."""
    count, side, _, width = hidden.shape
    groups = hidden.reshape(count, side * side, width // IN_GROUP, IN_GROUP)
    mean = groups.mean(axis=(1, 3), keepdims=True)
    centred = groups - mean
    variance = jnp.square(centred).mean(axis=(1, 3), keepdims=True)
    return (centred * jax.lax.rsqrt(variance + EPSILON)).reshape(hidden.shape)


def _halved(images: Any) -> Any:
    """Take the maximum of each 2 × 2 block; an odd last row and column are left out."""
    count, side, _, width = images.shape
    half = side // 2
    blocks = images[:, : 2 * half, : 2 * half].reshape(count, half, 2, half, 2, width)
    return blocks.max(axis=(2, 4))
