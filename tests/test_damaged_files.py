"""Damaged, foreign and old files: every flipped bit is refused or harmless, old files are noted."""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

import fedavot as fa
from fedavot import _files
from fedavot.errors import FedavotWarning, FileFormatError
from sealing import sealed, unsealed

MAKERS: dict[str, tuple[type[Any], Any]] = {
    "alignment": (fa.Alignment, fa.align([0.5, 0.3, 0.2], fa.UniformCohorts(3, 2))),
    "online": (fa.OnlineAligner, fa.OnlineAligner([0.5, 0.3, 0.2], softness=0, step=0.3)),
    "soft": (fa.OnlineAligner, fa.OnlineAligner([0.5, 0.5], softness=0.1, step=0.3)),
}


@pytest.fixture(params=MAKERS)
def saved(request, tmp_path):
    """Return a class that loads, and a file of it."""
    kind, thing = MAKERS[request.param]
    thing.save(tmp_path / "it.json")
    return kind, tmp_path / "it.json"


def test_every_flipped_bit_is_refused_or_changes_no_content(saved):
    kind, path = saved
    data = path.read_bytes()
    harmless = 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            kind.load(path)
        except FileFormatError:
            continue
        # White space for white space, or an exponent's E for e.
        assert json.loads(flipped) == json.loads(data)
        harmless += 1
    assert harmless < 0.01 * 8 * len(data)


def test_a_file_of_version_1_is_read_with_a_note(saved):
    kind, path = saved
    content = json.loads(path.read_text())
    path.write_text(unsealed(content))
    with pytest.warns(FedavotWarning, match=r"it\.json has no checksum") as told:
        found = kind.load(path)
    assert told[0].filename == __file__
    found.save(path)
    assert json.loads(path.read_text()) == content


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda held: held.pop("checksum"), "does not match its checksum"),
        (lambda held: held.update(checksun=held.pop("checksum")), "does not match its checksum"),
        (lambda held: held.update(version=1), "has a checksum, which version 1 .* has not"),
        (lambda held: held.update(checksum=None), "does not match its checksum"),
        (lambda held: held.update(checksum=[]), "does not match its checksum"),
        (lambda held: held.update(comment="x"), "does not match its checksum"),
    ],
)
def test_a_file_that_lost_its_checksum_is_no_old_file(saved, change, match):
    kind, path = saved
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=match):
        kind.load(path)


def test_white_space_and_the_order_of_keys_are_not_content(saved):
    kind, path = saved
    content = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(content.items())), indent=4))
    kind.load(path)


@pytest.mark.parametrize("kept", [0, 1, 100, -3])
def test_a_truncated_file_is_refused(saved, kept):
    kind, path = saved
    path.write_text(path.read_text()[:kept])
    with pytest.raises(FileFormatError, match=r"it\.json is not a complete JSON document"):
        kind.load(path)


@pytest.mark.parametrize(
    ("version", "match"),
    [
        (4, r"version 4 of 'fedavot-.*', and this library reads up to [23]; upgrade"),
        (0, r"version 0; expected a positive integer"),
        ("1", r"version '1'"),
        (True, r"version True"),
        (None, r"version None"),
        (1.0, r"version 1\.0"),
    ],
)
def test_a_version_the_library_does_not_read_is_refused(saved, version, match):
    kind, path = saved
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": version}))
    with pytest.raises(FileFormatError, match=match):
        kind.load(path)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"\x80\x04\x95\xff\xfe", "byte 0 is not UTF-8"),
        (b"PK\x03\x04", "not a complete JSON document"),
        (b"[1, 2, 3]", "holds 'list', not 'fedavot-"),
        (b"null", "holds 'NoneType'"),
        (b'{"weights": [1]}', "holds None, not 'fedavot-"),
        (b'{"format": "fedavot-other", "version": 1}', "holds 'fedavot-other'"),
        (b'{"format": "x", "format": "x"}', "'format' occurs more than once"),
        (b'{"a": {"b": 1, "b": 1}}', "'b' occurs more than once"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": 1e999}', "not JSON compliant"),
        (b'{"a": ' + b"9" * 5000 + b"}", "an integer has 5000 digits, more than 300"),
        (b'{"a": ' + b"9" * 301 + b"}", "an integer has 301 digits, more than 300"),
        (b"[" * 100_000, "recursion"),
        (b"\xef\xbb\xbf{}", "BOM|Expecting"),
        (b'{"format": "' + b"x" * 10**6 + b'"}', r"holds 'xxxx.{0,100}, not"),
    ],
    ids=range(16),
)
def test_what_is_no_document_of_ours_is_refused(saved, data, match):
    kind, path = saved
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=match):
        kind.load(path)


def test_numbers_that_json_cannot_hold_are_refused_before_anything_is_written(tmp_path):
    content = {"a": float("nan")}
    with pytest.raises(FileFormatError, match="was not written: its content has a number"):
        _files.write_document(tmp_path / "x.json", format="x", version=2, content=content)
    assert os.listdir(tmp_path) == []


def test_an_archive_whose_header_was_made_shorter_is_refused(tmp_path):
    # NumPy reads as many bytes as the header says, and never comes to the archive's own checksum.
    path = tmp_path / "a.npz"
    _files.write_archive(path, {"w": np.arange(3300.0)})
    data = path.read_bytes()
    assert data.count(b"(3300,)") == 1
    path.write_bytes(data.replace(b"(3300,)", b"(1300,)"))
    with np.load(path) as archive:
        assert archive["w"].size == 1300
    with pytest.raises(_files.ARCHIVE_FAILURES, match="CRC"):
        _files.read_archive(path)


def test_the_checksum_of_a_document_is_the_documented_one(saved):
    _, path = saved
    content = json.loads(path.read_text())
    assert json.loads(sealed(content)) == content


KILLED = """
import os, sys, time
from fedavot._files import write_whole
def write(stream):
    stream.write(b"half")
    stream.flush()
    print("writing", flush=True)
    time.sleep(600)
write_whole(sys.argv[1], write)
"""


@pytest.fixture
def writer(tmp_path):
    """Return a process that is writing a file and does not come to an end."""
    command = [sys.executable, "-c", KILLED, str(tmp_path / "a.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        yield process
        process.kill()


def write(path, content=b"whole"):
    _files.write_whole(path, lambda stream: stream.write(content))


def test_what_a_killed_write_left_is_removed_by_the_next_of_the_same_file(tmp_path, writer):
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    (left,) = os.listdir(tmp_path)
    assert left.startswith(".a.")
    write(tmp_path / "b.json")
    assert left in os.listdir(tmp_path)
    write(tmp_path / "a.json")
    assert sorted(os.listdir(tmp_path)) == ["a.json", "b.json"]


def test_a_write_under_way_is_left_alone_by_others_of_the_same_file(tmp_path, writer):
    (under_way,) = os.listdir(tmp_path)
    write(tmp_path / "a.json")
    assert sorted(os.listdir(tmp_path)) == sorted([under_way, "a.json"])


def test_files_that_only_look_like_leftovers_are_kept(tmp_path):
    digits = "0123456789abcdef"
    kept = [f".a.{digits}.txt", f".b.{digits}.json", f"a.{digits}.json", f".a.{digits[:-1]}.json"]
    for name in kept:
        (tmp_path / name).write_text("mine")
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / f".a.{digits[::-1]}.json").symlink_to(tmp_path / "elsewhere")
    (tmp_path / f".a.{'0' * 16}.json").mkdir()
    before = set(os.listdir(tmp_path))
    write(tmp_path / "a.json")
    assert set(os.listdir(tmp_path)) == before | {"a.json"}


def test_where_files_cannot_be_locked_leftovers_go_after_an_hour(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "_lock", lambda number: None)
    for number, age in ((0, 10), (1, 4000)):
        path = tmp_path / f".a.{number:016x}.json"
        path.write_text("half")
        os.utime(path, (time.time() - age,) * 2)
    write(tmp_path / "a.json")
    assert sorted(os.listdir(tmp_path)) == [".a.0000000000000000.json", "a.json"]


def test_a_file_taken_for_a_leftover_before_it_was_locked_is_begun_anew(tmp_path, monkeypatch):
    lock, removed = _files._lock, []

    def late(number):
        if not removed:
            removed.extend(tmp_path.glob(".a.*"))
            removed[0].unlink()
        return lock(number)

    monkeypatch.setattr(_files, "_lock", late)
    write(tmp_path / "a.json")
    assert os.listdir(tmp_path) == ["a.json"]
    assert (tmp_path / "a.json").read_bytes() == b"whole"


def test_a_link_in_place_of_the_target_is_replaced_and_not_followed(tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "a.json").symlink_to(other)
    write(tmp_path / "a.json")
    assert other.read_text() == "mine"
    assert not (tmp_path / "a.json").is_symlink()
    assert (tmp_path / "a.json").read_bytes() == b"whole"


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
