"""A folder of files is one log; what is larger than memory is counted as it passes by."""

import gzip
import json
import re

import numpy as np
import polars as pl
import pytest

from fedavot.audit import audit, federation_of, read_log
from fedavot.audit.reading import streaming
from fedavot.audit.reading.files import parquet
from fedavot.audit.statistics.window import whole as window_of
from fedavot.errors import FileFormatError

ROUNDING = 1e-12
"""Sums of a few thousand weights in another order."""


def rows(seed=0, n_rows=6_000, n_rounds=240, n_clients=40):
    """Return rows in no order, some of them repeated; rounds are every third number from 5 on."""
    rng = np.random.default_rng(seed)
    rounds = 3 * rng.integers(n_rounds, size=n_rows) + 5
    clients = rng.choice(n_clients, size=n_rows, p=rng.dirichlet(np.full(n_clients, 2.0)))
    late = rng.integers(50, size=n_rows)
    return pl.DataFrame(
        {
            "round": rounds,
            "client": [f"client {number}" for number in clients],
            "time": pl.Series(1_700_000_000_000 + rounds * 60_000 + late).cast(pl.Datetime("ms")),
            "status": rng.choice(["ok", "failed", "offline", "idle"], size=n_rows),
        }
    )


def parts(frame, folder, count=4):
    """Write the rows as so many parts."""
    folder.mkdir()
    for number in range(count):
        frame.gather_every(count, number).write_parquet(folder / f"part-{number}.parquet")
    return folder


@pytest.fixture
def small(monkeypatch):
    """Stream logs of more than a thousand rows, in slabs of about two hundred."""
    monkeypatch.setattr(streaming, "MOST_ROWS", 1_000)
    monkeypatch.setattr(streaming, "SLAB", 200)
    monkeypatch.setattr(streaming, "BINS", 16)


def in_memory(frame, tmp_path, monkeypatch, **options):
    """Return the log that is read from the same rows in one file, whole."""
    path = tmp_path / "log.parquet"
    frame.write_parquet(path)
    with monkeypatch.context() as patch:
        patch.setattr(streaming, "MOST_ROWS", 10**9)
        return read_log(path, **options)


def thinned(log, frame):
    """Return which rounds of a whole log are kept, from the rows themselves."""
    pairs = frame.unique(["round", "client"]).group_by("round").len().sort("round")["len"]
    before = np.concatenate(([0], np.cumsum(pairs.to_numpy())))[:-1]
    segment = -(-frame.height // streaming.STRETCHES)
    chosen = [t for t in range(log.n_rounds) if before[t] % segment < 1_000 // streaming.STRETCHES]
    assert 0 < len(chosen) < log.n_rounds
    return np.array(chosen)


COLUMNS = [
    ["round", "client"],
    ["client", "time", "round"],
    ["round", "client", "status"],
    ["round", "client", "time", "status"],
]


@pytest.mark.parametrize("columns", COLUMNS, ids=" ".join)
def test_a_folder_is_the_log_that_its_rows_are_in_one_file(tmp_path, monkeypatch, columns):
    frame = rows().select(columns)
    log = read_log(parts(frame, tmp_path / "log"))
    one = in_memory(frame, tmp_path, monkeypatch)
    assert (log.clients, log.totals) == (one.clients, None)
    assert log.members.tolist() == one.members.tolist()
    assert log.offsets.tolist() == one.offsets.tolist()
    assert len(log.notes) == len(one.notes)


@pytest.mark.parametrize("columns", COLUMNS, ids=" ".join)
def test_what_is_streamed_is_counted_exactly(small, tmp_path, monkeypatch, columns):
    frame = rows().select(columns)
    log = read_log(parts(frame, tmp_path / "log"))
    one = in_memory(frame, tmp_path, monkeypatch)
    window = window_of(federation_of(one))
    totals = log.totals
    assert log.clients == one.clients
    assert (totals.n_rounds, totals.n_filled) == (one.n_rounds, window.n_rounds)
    assert totals.n_entries == one.n_entries
    assert totals.taken.tolist() == one.cohorts.counts().tolist()
    implied = window.mean_weights(window.plain())
    np.testing.assert_allclose(totals.implied, implied, atol=ROUNDING)
    span = None if one.times is None else (one.times.min(), one.times.max())
    assert totals.span == span


@pytest.mark.parametrize("columns", COLUMNS, ids=" ".join)
def test_the_rounds_kept_are_those_of_the_whole_log(small, tmp_path, monkeypatch, columns):
    frame = rows().select(columns)
    log = read_log(parts(frame, tmp_path / "log"))
    one = in_memory(frame, tmp_path, monkeypatch)
    chosen = thinned(one, frame)
    expected = one.cohorts.rows(chosen)
    assert log.offsets.tolist() == expected.offsets.tolist()
    assert log.members.tolist() == expected.members.tolist()
    assert log.all_available == one.all_available
    if one.available is not None:
        there = one.available.rows(chosen)
        assert log.available.members.tolist() == there.members.tolist()
        assert log.available.offsets.tolist() == there.offsets.tolist()
    if one.times is not None:
        assert log.times.tolist() == one.times[chosen].tolist()
    # All that was noted on the whole log, and that only some of it is kept.
    assert len(log.notes) == len(one.notes) + 1


def test_rounds_that_are_kept_do_not_depend_on_the_parts(small, tmp_path, monkeypatch):
    frame = rows().select("round", "client")
    log = read_log(parts(frame, tmp_path / "four"))
    monkeypatch.setattr(streaming, "SLAB", 1_500)
    other = read_log(parts(frame.reverse(), tmp_path / "seven", count=7))
    one = tmp_path / "one.parquet"
    frame.sort("round").write_parquet(one)
    for same in (other, read_log(one)):
        assert same.members.tolist() == log.members.tolist()
        assert same.offsets.tolist() == log.offsets.tolist()
        assert same.totals.taken.tolist() == log.totals.taken.tolist()


def test_the_gap_of_the_plain_average_is_that_of_all_rounds(small, tmp_path, monkeypatch):
    frame = rows().select("round", "client")
    one = federation_of(in_memory(frame, tmp_path, monkeypatch))
    found = audit(federation_of(read_log(parts(frame, tmp_path / "log"))))
    exact = audit(one)
    assert found.gap.value == pytest.approx(exact.gap.value, abs=ROUNDING)
    assert found.gap.low <= found.gap.value <= found.gap.high
    assert (found.rounds, found.entries) == (exact.rounds, exact.entries)
    np.testing.assert_allclose(found.by_client.implied, exact.by_client.implied, atol=ROUNDING)
    assert found.by_client.inclusion.tolist() == exact.by_client.inclusion.tolist()
    assert found.fit.fitted_rounds + found.fit.held_out_rounds < found.rounds


def test_a_client_of_no_round_that_is_kept_is_not_called_never_seen(small, tmp_path, monkeypatch):
    frame = rows().select("round", "client")
    one = in_memory(frame, tmp_path, monkeypatch)
    number = frame["round"].unique().sort()
    away = int(number[int(np.setdiff1d(np.arange(one.n_rounds), thinned(one, frame))[-1])])
    # In the place of a row that is there already, so that no round moves.
    at = int((frame["round"] == away).arg_max())
    clients = frame["client"].to_list()
    clients[at] = "rare"
    rare = frame.with_columns(client=pl.Series(clients))
    log = read_log(parts(rare, tmp_path / "log"))
    place = log.clients.index("rare")
    assert (log.totals.taken[place], log.cohorts.counts()[place]) == (1, 0)
    found = audit(federation_of(log))
    assert place not in found.reach.never_seen
    assert place not in found.reach.deficient.clients
    absent = dict.fromkeys([*log.clients, "nobody"], 1.0)
    importance = tmp_path / "importance.json"
    importance.write_text(str(absent).replace("'", '"'))
    also = audit(federation_of(log, importance=importance))
    assert [also.clients[client] for client in also.reach.never_seen] == ["nobody"]
    assert also.by_client.implied[also.clients.index("rare")] > 0


@pytest.mark.parametrize(
    "change",
    [
        pl.col("round").cast(pl.String),
        pl.col("round").cast(pl.Float64),
        pl.lit("train").alias("event"),
        pl.lit(3).alias("num_examples"),
        pl.col("time").dt.strftime("%Y-%m-%dT%H:%M:%SZ"),
        pl.col("status").replace("idle", None),
    ],
    ids=["round as text", "round as float", "event", "examples", "time as text", "unknown"],
)
def test_what_could_not_be_counted_is_read_whole(small, tmp_path, monkeypatch, change):
    frame = rows().with_columns(change)
    log = read_log(parts(frame, tmp_path / "log"))
    one = in_memory(frame, tmp_path, monkeypatch)
    assert log.totals is None
    assert log.members.tolist() == one.members.tolist()


@pytest.mark.parametrize("kind", [pl.Int16, pl.UInt32, pl.Categorical, pl.String])
def test_clients_of_any_type_are_streamed_under_their_names(small, tmp_path, monkeypatch, kind):
    frame = rows().select("round", client=pl.col("client").str.slice(7).cast(pl.Int64))
    text = pl.col("client").cast(pl.String)
    as_kind = (text if kind == pl.Categorical else pl.col("client")).cast(kind)
    log = read_log(parts(frame.with_columns(as_kind), tmp_path / "log"))
    one = in_memory(frame, tmp_path, monkeypatch)
    assert log.clients == one.clients
    assert log.totals.taken.tolist() == one.cohorts.counts().tolist()


def test_rounds_far_apart_are_streamed(small, tmp_path, monkeypatch):
    far = pl.col("round") * 10**14
    frame = rows().select(
        "client", round=pl.when(pl.col("round") > 300).then(far).otherwise("round")
    )
    log = read_log(parts(frame, tmp_path / "log"))
    one = in_memory(frame, tmp_path, monkeypatch)
    assert log.totals.n_rounds == one.n_rounds
    assert log.totals.taken.tolist() == one.cohorts.counts().tolist()
    assert log.members.tolist() == one.cohorts.rows(thinned(one, frame)).members.tolist()


def test_marks_beside_the_parts_are_left_alone(tmp_path):
    folder = parts(rows(), tmp_path / "log")
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.parquet.crc").write_bytes(b"crc")
    assert read_log(folder, columns={"status": ""}).n_rounds == 240


def test_rows_of_a_part_are_refused_with_the_part_and_the_row(tmp_path):
    folder = parts(rows(), tmp_path / "log", count=3)
    bad = pl.read_parquet(folder / "part-1.parquet")
    names = bad["client"].to_list()
    names[6] = ""
    bad.with_columns(client=pl.Series(names)).write_parquet(folder / "part-1.parquet")
    with pytest.raises(FileFormatError, match=r"part-1\.parquet, row 7: no client"):
        read_log(folder)


TEXTS = {
    "csv": pl.DataFrame.write_csv,
    "json": pl.DataFrame.write_ndjson,
    "csv.gz": lambda frame, path: path.write_bytes(gzip.compress(frame.write_csv().encode())),
    "json.gz": lambda frame, path: path.write_bytes(gzip.compress(frame.write_ndjson().encode())),
}


def text_parts(frame, folder, kind, count=3):
    """Write the rows as so many parts of text, as Spark names them, with its marks beside them."""
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    (folder / f".part-00000.{kind}.crc").write_bytes(b"crc")
    for number in range(count):
        part = frame.gather_every(count, number)
        TEXTS[kind](part, folder / f"part-{number:05d}.{kind}")
    return folder


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("columns", COLUMNS, ids=" ".join)
def test_a_folder_of_text_is_the_log_that_its_rows_are(tmp_path, monkeypatch, kind, columns):
    frame = rows().select(columns)
    log = read_log(text_parts(frame, tmp_path / "log", kind))
    one = in_memory(frame, tmp_path, monkeypatch)
    assert log.clients == one.clients
    assert log.members.tolist() == one.members.tolist()
    assert log.offsets.tolist() == one.offsets.tolist()


def test_parts_of_text_may_have_their_columns_in_any_order_and_no_rows(tmp_path):
    folder = text_parts(rows().select("round", "client"), tmp_path / "log", "csv")
    whole = read_log(folder)
    second = folder / "part-00001.csv"
    pl.read_csv(second).select("client", "round").write_csv(second, separator=";")
    (folder / "part-00003.csv").write_text("round,client\n")
    (folder / "part-00004.csv").touch()
    log = read_log(folder)
    assert log.members.tolist() == whole.members.tolist()
    assert "1 empty file in the folder: skipped" in log.notes


def test_a_line_of_a_part_of_text_is_named_with_its_part(tmp_path):
    folder = text_parts(rows().select("round", "client"), tmp_path / "log", "csv")
    last = folder / "part-00002.csv"
    text = last.read_text()
    last.write_text(f"{text}{text[:13]}7,\n")
    line = text.count("\n") + 2
    with pytest.raises(FileFormatError, match=rf"part-00002\.csv, line {line}: no client"):
        read_log(folder)
    last.write_text(f"{text}{text[:13]}")
    (note,) = [note for note in read_log(folder).notes if "repeats the header" in note]
    assert note.startswith("part-00002.csv: ")


def test_progress_in_a_folder_of_text_is_that_of_all_parts(tmp_path):
    folder = text_parts(rows().select("round", "client"), tmp_path / "log", "csv")
    size = sum(part.stat().st_size for part in folder.glob("part-*"))
    seen = []
    read_log(folder, progress=lambda *said: seen.append(said))
    assert {total for _, total in seen} == {size}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == size


@pytest.mark.parametrize(
    ("kind", "name", "content", "match"),
    [
        ("csv", "part-00001.csv", b"round,device\n1,a\n", r"00001\.csv has .*'device'.*'client'"),
        ("csv", "part-00001.csv", b"3,a\n4,b\n", r"part-00001\.csv, line 1: the columns are '3'"),
        ("json", "part-00001.json", b'{"round":1,"node":"a"}\n', r"00001\.json has .*'node'"),
        ("csv", "part-00001.json", b'{"round":1,"client":"a"}\n', r"CSV .* and JSON lines \(part"),
        ("csv", "more", None, "more is a folder"),
        ("csv", "data.zip", b"PK\x03\x04xxxx", r"data\.zip is a zip archive"),
    ],
)
def test_a_folder_of_text_that_is_not_one_log_is_refused(tmp_path, kind, name, content, match):
    folder = text_parts(rows().select("round", "client"), tmp_path / "log", kind)
    (folder / name).mkdir() if content is None else (folder / name).write_bytes(content)
    with pytest.raises(FileFormatError, match=match):
        read_log(folder)


@pytest.mark.parametrize(
    "content", [b"", b"\n \n", gzip.compress(b"", mtime=0)], ids=["empty", "blank", "packed"]
)
def test_a_part_without_a_line_is_skipped_with_a_note(tmp_path, content):
    folder = text_parts(rows().select("round", "client"), tmp_path / "log", "csv")
    before = read_log(folder)
    (folder / "part-00009.csv").write_bytes(content)
    after = read_log(folder)
    assert after.members.tolist() == before.members.tolist()
    assert [note for note in after.notes if "1 empty file" in note]


def test_a_folder_of_flower_logs_is_refused(tmp_path):
    line = {"format": "fedavot-participation", "version": 1, "round": 1}
    (tmp_path / "one.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(FileFormatError, match="logs of the Flower strategy; give one of them"):
        read_log(tmp_path)


def test_a_folder_of_empty_files_is_refused(tmp_path):
    (tmp_path / "part-0.csv").touch()
    with pytest.raises(FileFormatError, match="has no file with rows"):
        read_log(tmp_path)


def test_partitions_are_refused_and_what_the_message_says_makes_one_log_of_them(tmp_path):
    frame = rows().select("round", "client").filter(pl.col("round") < 20)
    for (number,), part in frame.partition_by("round", as_dict=True).items():
        (tmp_path / "log" / f"round={number}").mkdir(parents=True)
        part.select("client").write_parquet(tmp_path / "log" / f"round={number}" / "part-0.parquet")
    with pytest.raises(FileFormatError, match=r"round=\d+ is a partition") as refused:
        read_log(tmp_path / "log")
    command = re.search(r"pl\.scan_parquet.*\)", str(refused.value))[0]
    eval(command, {"pl": pl})
    frame.write_parquet(tmp_path / "whole.parquet")
    log, whole = read_log(tmp_path / "log.parquet"), read_log(tmp_path / "whole.parquet")
    assert (log.clients, log.members.tolist()) == (whole.clients, whole.members.tolist())


def emptied(folder):
    for part in folder.iterdir():
        part.unlink()


def renamed(folder):
    pl.DataFrame({"round": [1], "device": ["a"]}).write_parquet(folder / "part-2.parquet")


def retyped(folder):
    pl.DataFrame({"round": ["1"], "client": ["a"]}).write_parquet(folder / "part-2.parquet")


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def damaged(folder):
    path = folder / "part-2.parquet"
    content = bytearray(path.read_bytes())
    content[20:-200] = bytes(len(content) - 220)
    path.write_bytes(content)


def cut(folder):
    path = folder / "part-2.parquet"
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (emptied, "log has no file with rows"),
        (renamed, r"part-2\.parquet has .*'device' \(String\).*part-0\.parquet has .*'client'"),
        (retyped, r"part-2\.parquet has 'round' \(String\).*part-0\.parquet has 'round' \(Int64\)"),
        (written("notes.txt", b"to do"), r"CSV \(notes\.txt\) and Parquet \(part-0\.parquet\)"),
        (written("part-2.parquet", b""), r"part-2\.parquet is empty, not Parquet"),
        (lambda folder: (folder / "more").mkdir(), "more is a folder"),
        (damaged, r"part-2\.parquet is damaged"),
        (cut, r"part-2\.parquet is cut off"),
    ],
)
def test_a_folder_that_is_not_one_log_is_refused(tmp_path, monkeypatch, streamed, spoil, match):
    monkeypatch.setattr(streaming, "MOST_ROWS", 1_000 if streamed else 10**9)
    folder = parts(rows().select("round", "client"), tmp_path / "log")
    spoil(folder)
    with pytest.raises(FileFormatError, match=match):
        read_log(folder)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"round": None}, r"part-1\.parquet: 1 row with no round"),
        ({"time": None}, r"part-1\.parquet: 1 row with no time"),
        ({"client": None}, "rows with no client"),
        ({"client": " "}, "rows with no client"),
    ],
)
def test_a_streamed_row_with_an_empty_field_is_refused(small, tmp_path, change, match):
    folder = parts(rows().select("round", "client", "time"), tmp_path / "log")
    part = folder / "part-1.parquet"
    frame = pl.read_parquet(part)
    ((name, value),) = change.items()
    first = pl.int_range(pl.len()) == 3
    frame.with_columns(
        pl.when(first).then(pl.lit(value)).otherwise(pl.col(name)).alias(name)
    ).write_parquet(part)
    with pytest.raises(FileFormatError, match=match):
        read_log(folder)


def test_a_reader_that_aborts_names_the_part_it_was_reading(tmp_path, monkeypatch):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\nsys.path.insert(0, sys.argv[0].rpartition('/')[0])\n"
        f"sys.path.insert(0, {str(parquet.CHILD).rpartition('/')[0]!r})\n"
        "import parquet_child\nsend = parquet_child.send\n"
        "def ending(kind, content):\n    send(kind, content)\n"
        "    if kind == b'P' and b'part-3' in content: os.abort()\n"
        "parquet_child.send = ending\nparquet_child.main(sys.argv[1])\n"
    )
    folder = parts(rows(), tmp_path / "log")
    monkeypatch.setattr(parquet, "CHILD", str(program))
    with pytest.raises(FileFormatError, match=r"part-3\.parquet is damaged .* status -6"):
        read_log(folder)


def test_of_the_folder_of_a_flower_run_the_log_is_named(tmp_path):
    (tmp_path / "participation.jsonl").write_text('{"round": 1, "clients": ["a"]}\n')
    (tmp_path / "checkpoint.npz").write_bytes(b"PK")
    with pytest.raises(FileFormatError, match=r"Flower run, .* give .*/participation\.jsonl"):
        read_log(tmp_path)
