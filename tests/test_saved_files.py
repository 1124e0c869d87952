"""Saved files: what is damaged is refused, what is written comes back, and nothing is half written.

`MAKERS` has every kind of saved thing: documents and archives.
"""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from attacks.campaign import settled
from attacks.saved_files import MAKERS, plain, saved

import fedavot as fa
from fedavot import _files
from fedavot.errors import FileFormatError
from sealing import seal_archive, sealed

BIT = 0.02
"""Share of the bits that are flipped; the documents are small, and all of theirs are."""


@pytest.fixture(params=MAKERS)
def made(request, tmp_path):
    """Return a good file of every kind."""
    return MAKERS[request.param](tmp_path)


@pytest.fixture(params=["alignment", "online", "outcome"])
def document(request, tmp_path):
    """Return a good document, and its content."""
    made = MAKERS[request.param](tmp_path)
    return made, json.loads(made.data)


def is_document(made):
    return made.data.startswith(b"{")


@pytest.mark.parametrize("length", [0, 1, 100, -3, -70])
def test_a_file_that_was_cut_is_refused(made, length):
    with pytest.raises(FileFormatError, match=r"\.json|\.npz"):
        made.read(made.data[:length])


def test_every_flipped_bit_is_refused_or_changes_no_content(made):
    n_bits, harmless = 8 * len(made.data), 0
    bits = range(n_bits)
    if not is_document(made):
        bits = np.random.default_rng(0).choice(n_bits, int(BIT * n_bits), replace=False).tolist()
    good = plain(made.read(made.data))
    for bit in bits:
        data = bytearray(made.data)
        data[bit // 8] ^= 1 << bit % 8
        try:
            read = made.read(bytes(data))
        except FileFormatError:
            continue
        assert plain(read) == good  # white space for white space, or an exponent's E for e
        harmless += 1
    assert harmless <= (0.01 * n_bits if is_document(made) else 0)


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"\x80\x04\x95\xff\xfe",
            b"PK\x03\x04",
            b"[1, 2, 3]",
            b"null",
            b'{"weights": [1]}',
            b"{}",
        ),
        *(b'{"format": "fedavot-other", "version": 1}', b'{"format": "x", "format": "x"}'),
        *(b'{"a": NaN}', b'{"a": 1e999}', b'{"a": ' + b"9" * 5000 + b"}", b"[" * 100_000),
    ],
    ids=range(12),
)
def test_another_kind_of_file_is_refused(made, data):
    with pytest.raises(FileFormatError, match=r"\.json|\.npz"):
        made.read(data)


def test_an_archive_that_numpy_wrote_is_none_of_ours(made, tmp_path):
    np.savez(tmp_path / "mine.npz", w=np.ones(3))
    with pytest.raises(FileFormatError, match=r"\.json|\.npz"):
        made.read((tmp_path / "mine.npz").read_bytes())
    seal_archive(tmp_path / "mine.npz", {"w": np.ones(3)})
    with pytest.raises(FileFormatError, match=r"\.json|\.npz"):
        made.read((tmp_path / "mine.npz").read_bytes())


@pytest.mark.parametrize("version", [0, 99, "1", True, None, 1.0])
def test_a_version_that_the_library_does_not_read_is_refused(document, version):
    made, content = document
    with pytest.raises(FileFormatError, match=f"version {version!r}"):
        made.read(sealed(content | {"version": version}).encode())


@pytest.mark.parametrize("kind", ["aggregator", "training", "flower"])
def test_an_archive_of_another_version_is_refused(kind, tmp_path):
    made = MAKERS[kind](tmp_path)
    path = next(tmp_path.glob("*.npz"))
    with np.load(path) as archive:
        arrays = dict(archive)
    if kind == "training":
        arrays["format"] = np.array("fedavot-training-99")
    else:
        name = {"aggregator": "header", "flower": "meta"}[kind]
        text = arrays[name].tobytes().decode() if kind == "flower" else str(arrays[name])
        header = json.dumps(json.loads(text) | {"version": 99})
        as_bytes = np.frombuffer(header.encode(), np.uint8)
        arrays[name] = as_bytes if kind == "flower" else np.array(header)
    seal_archive(path, arrays)
    with pytest.raises(FileFormatError, match="version"):
        made.read(path.read_bytes())


def test_a_document_without_a_key_is_refused(document):
    made, content = document
    for key in content.keys() - {"checksum", "clients", "steps", "groups", "around"}:
        rest = {name: value for name, value in content.items() if name != key}
        with pytest.raises(FileFormatError, match=f"{key}|None"):
            made.read(sealed(rest).encode())


@pytest.mark.parametrize("change", [{"checksum": None}, {"checksum": []}, {"comment": "x"}, {}])
def test_a_document_without_its_own_checksum_is_refused(document, change):
    made, content = document
    if not change:
        del content["checksum"]
    with pytest.raises(FileFormatError, match="does not match its checksum"):
        made.read(json.dumps(content | change).encode())


def test_white_space_the_order_of_keys_and_new_keys_are_no_content(document):
    made, content = document
    good = plain(made.read(made.data))
    swapped = json.dumps(dict(reversed(content.items())), indent=4).encode()
    assert plain(made.read(swapped)) == good
    assert plain(made.read(sealed(content | {"comment": "from the weekend"}).encode())) == good
    assert json.loads(sealed(content)) == content  # the checksum is the documented one


@pytest.mark.parametrize("kind", ["alignment", "online"])
def test_the_attack_would_find_a_reader_that_checks_nothing(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("fedavot._files._checksum", lambda content: "any")
    judge = saved(tmp_path, [kind])
    assert f"another object in place of {kind}" in {settled(judge, 0, n) for n in range(500)}


def test_numbers_that_json_cannot_hold_are_refused_before_anything_is_written(tmp_path):
    content = {"a": float("nan")}
    with pytest.raises(FileFormatError, match="was not written: its content has a number"):
        _files.write_document(tmp_path / "x.json", format="x", version=2, content=content)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("step", ["os.replace", "os.fsync", "numpy.savez"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    path = tmp_path / "a.npz"
    path.write_text("old")

    def fail(*_, **__):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(step, fail)
        with pytest.raises(OSError, match="disk full"):
            fa.Aggregator({"a": 1}).save(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.npz"]


def test_what_cannot_be_written_to_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere/a\.json"):
        write(tmp_path / "nowhere" / "a.json")


def test_a_new_file_has_the_permissions_the_user_asked_for(tmp_path):
    before = os.umask(0o027)
    try:
        write(tmp_path / "a.json")
    finally:
        os.umask(before)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o640


def write(path, content=b"whole"):
    _files.write_whole(path, lambda stream: stream.write(content))


def test_a_link_in_place_of_the_target_is_replaced_and_not_followed(tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "a.json").symlink_to(other)
    write(tmp_path / "a.json")
    assert other.read_text() == "mine"
    assert not (tmp_path / "a.json").is_symlink()
    assert (tmp_path / "a.json").read_bytes() == b"whole"


KILLED = """
import sys, time
from fedavot._files import write_whole
def write(stream):
    stream.write(b"half")
    stream.flush()
    print("writing", flush=True)
    time.sleep(600)
write_whole(sys.argv[1], write)
"""


def test_what_a_killed_write_left_is_removed_an_hour_later(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "a.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "writing\n"
        (leftover,) = tmp_path.iterdir()
        write(tmp_path / "a.json")  # another process may be writing it still
        assert leftover.exists()
        writer.send_signal(signal.SIGKILL)
    os.utime(leftover, (time.time() - 4000,) * 2)
    write(tmp_path / "b.json")
    assert leftover.exists()
    write(tmp_path / "a.json")
    assert sorted(os.listdir(tmp_path)) == ["a.json", "b.json"]


def test_files_that_only_look_like_leftovers_stay(tmp_path):
    digits = "0123456789abcdef"
    names = [f".a.{digits}.txt", f".b.{digits}.json", f"a.{digits}.json", f".a.{digits[:-1]}.json"]
    for name in names:
        (tmp_path / name).write_text("mine")
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / f".a.{digits[::-1]}.json").symlink_to(tmp_path / names[0])
    (tmp_path / f".a.{'0' * 16}.json").mkdir()
    before = set(os.listdir(tmp_path))
    write(tmp_path / "a.json")
    assert set(os.listdir(tmp_path)) == before | {"a.json"}


def test_many_processes_write_the_same_file_and_none_loses_its_own(tmp_path):
    code = (
        "import sys; from fedavot._files import write_whole\n"
        "for at in range(60): write_whole(sys.argv[1], lambda s: s.write(sys.argv[2].encode()*999))"
    )
    path = tmp_path / "a.json"
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(path), name], stderr=subprocess.PIPE)
        for name in "xyz"
    ]
    for process in running:
        _, problem = process.communicate()
        assert (process.returncode, problem) == (0, b"")
    assert os.listdir(tmp_path) == ["a.json"]
    assert path.read_bytes() in [name * 999 for name in (b"x", b"y", b"z")]
