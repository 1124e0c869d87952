"""Parquet is read by a process of its own, whose end is an error of the library's and no more."""

import datetime
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedavot.audit import read_log
from fedavot.audit.reading.files import parquet
from fedavot.errors import FileFormatError, TooLargeError

ABORTING = sorted(Path(__file__).parents[3].glob("shared/attacks/parquet/*.parquet"))
"""Damaged files on which Polars aborts; they lie beside the checkout, or they do not."""


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.parquet"
    frame = pl.DataFrame({"round": [1, 1, 2], "client": ["a", "b", "a"], "other": [1.0, 2.0, 3.0]})
    frame.write_parquet(path)
    return path


def instead(monkeypatch, tmp_path, code):
    """Put a program in the child's place."""
    program = tmp_path / "program.py"
    program.write_text(code)
    monkeypatch.setattr(parquet, "CHILD", str(program))


@pytest.mark.parametrize(
    ("code", "error", "match"),
    [
        ("import os; os.abort()", FileFormatError, "log.parquet is damaged .* status -6"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", TooLargeError, "memory"),
        ("", FileFormatError, "ended with status 0"),
        ("import sys; sys.stdout.write('H')", FileFormatError, "ended with status 0"),
        ("raise SystemExit(3)", FileFormatError, "ended with status 3"),
    ],
)
def test_a_reader_that_ends_is_an_error_with_the_file(
    log, tmp_path, monkeypatch, code, error, match
):
    instead(monkeypatch, tmp_path, code)
    with pytest.raises(error, match=match):
        read_log(log)


AFTER_ONE_BATCH = """
import os, sys
import polars as pl
sys.path.insert(0, {folder!r})
import parquet_child
batches, send = [], parquet_child.send
def counted(kind, content):
    if kind == b"B":
        batches.append(kind)
        if len(batches) > 1:
            {end}
    send(kind, content)
parquet_child.send, parquet_child.BATCH = counted, 1
pl.LazyFrame.collect_batches = lambda frame, chunk_size: frame.collect().iter_slices(chunk_size)
parquet_child.main(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("end", "error"),
    [("os.abort()", FileFormatError), ("os.kill(os.getpid(), 9)", TooLargeError)],
)
def test_a_reader_that_ends_between_batches_is_an_error(log, tmp_path, monkeypatch, end, error):
    folder = str(Path(parquet.CHILD).parent)
    instead(monkeypatch, tmp_path, AFTER_ONE_BATCH.format(folder=folder, end=end))
    with pytest.raises(error, match=r"log\.parquet"):
        read_log(log)


def test_a_file_whose_columns_are_refused_leaves_no_process(log, monkeypatch):
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess,
        "Popen",
        lambda *args, **more: started.append(popen(*args, **more)) or started[-1],
    )
    with pytest.raises(FileFormatError, match="no column 'nobody'"):
        read_log(log, columns={"client": "nobody"})
    assert [process.returncode is not None for process in started] == [True]


def test_columns_of_every_kind_come_over_as_they_are(tmp_path):
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    times = [start + datetime.timedelta(hours=hour) for hour in range(4)]
    frame = pl.DataFrame({"round": [1, 2, 3, 4], "client": ["a", None, "b", "ü"], "time": times})
    frame = frame.with_columns(client=pl.col("client").fill_null("c").cast(pl.Categorical))
    path = tmp_path / "log with a space.parquet"
    frame.write_parquet(path)
    log = read_log(path)
    assert log.clients == ("a", "b", "c", "ü")
    assert log.times.tolist() == [time.timestamp() for time in times]


def test_a_file_of_many_batches_is_read_whole(tmp_path):
    rng = np.random.default_rng(0)
    rounds = np.sort(rng.integers(0, 500, 1_200_000))
    path = tmp_path / "log.parquet"
    clients = np.arange(rounds.size) % 997
    pl.DataFrame({"round": rounds, "client": clients}).write_parquet(path, row_group_size=100_000)
    done = []
    log = read_log(path, progress=lambda read, total: done.append(read / total))
    assert log.n_rounds == 500
    assert log.members.size == np.unique(rounds * 997 + clients).size
    assert done == sorted(done)
    assert done[-1] == 1


@pytest.mark.skipif(not ABORTING, reason="the damaged files are not here")
@pytest.mark.parametrize("path", ABORTING, ids=lambda path: path.stem)
def test_files_on_which_the_reader_aborts_are_refused(tmp_path, path):
    done = subprocess.run(
        [sys.executable, "-m", "fedavot", "audit", path, "--out", tmp_path / "o"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"{path} is damaged" in done.stderr
    assert "panic" not in done.stderr
    assert not (tmp_path / "o").exists()
