"""Logs of rows: what is read is what a plain reading of the file gives, however it is written."""

import csv
import gzip
import io
import json
import subprocess
import sys
from datetime import datetime, timedelta
from unittest import mock

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedavot.audit import read_log
from fedavot.audit.reading.files import blocks
from fedavot.errors import FileFormatError, OptionError

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5)
ODD = st.sampled_from(
    ["007", "7", 'a "b"', "a,b", "😀", "<b>x</b>", "two\nlines", " x", "NA", "#1"]
)
CLIENTS = st.one_of(ODD, NAMES).filter(
    lambda name: name.strip() not in blocks.NULLS and "\r" not in name
)
ROWS = st.lists(st.tuples(st.integers(-3, 12), CLIENTS), min_size=1, max_size=30)


def written(tmp_path, content, name="log.csv"):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def table(rows, header=("round", "client"), **options):
    stream = io.StringIO(newline="")
    csv.writer(stream, **options).writerows([header, *rows])
    return stream.getvalue()


def cohorts(log):
    return [{log.clients[i] for i in log.cohort(t)} for t in range(log.n_rounds)]


def by_round(rows):
    """Return the cohorts in the rounds' order, by a dictionary of sets."""
    found = {}
    for label, client in rows:
        found.setdefault(label, set()).add(client)
    return [found[label] for label in sorted(found)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


@given(rows=ROWS, block=st.integers(3, 200), ends=st.sampled_from(["\n", "\r\n"]))
def test_csv_is_read_as_a_plain_reading_gives_it_at_any_block_size(folder, rows, block, ends):
    path = written(folder, table(rows, lineterminator=ends))
    with mock.patch.object(blocks, "BLOCK", block):
        log = read_log(path)
    with path.open(encoding="utf-8", newline="") as stream:
        plain = [(int(row[0]), row[1]) for row in list(csv.reader(stream))[1:]]
    assert cohorts(log) == by_round(plain) == by_round(rows)
    assert set(log.clients) == {client for _, client in rows}
    repeats = len(rows) - len(set(rows))
    assert any("a round and client: dropped" in note for note in log.notes) == (repeats > 0)


@given(rows=ROWS)
def test_every_format_gives_the_same_log(folder, rows):
    text = table(rows)
    lines = "".join(f"{json.dumps({'round': t, 'client': name})}\n" for t, name in rows)
    frame = pl.DataFrame(rows, schema={"round": pl.Int64, "client": pl.String}, orient="row")
    frame.write_parquet(folder / "log.parquet")
    logs = [
        read_log(written(folder, text)),
        read_log(written(folder, gzip.compress(text.encode()), "packed.csv.gz")),
        read_log(written(folder, lines, "log.jsonl")),
        read_log(written(folder, gzip.compress(lines.encode()), "packed.jsonl")),
        read_log(folder / "log.parquet"),
        read_log(written(folder, table(rows, delimiter=";"), "semicolons.csv")),
        read_log(written(folder, table(rows, delimiter="\t"), "tabs.tsv")),
    ]
    assert all(log.clients == logs[0].clients for log in logs)
    assert all(log.offsets.tolist() == logs[0].offsets.tolist() for log in logs)
    assert all(log.members.tolist() == logs[0].members.tolist() for log in logs)


@given(rows=ROWS, order=st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(folder, rows, order):
    first = read_log(written(folder, table(rows)))
    shuffled = list(rows)
    order.shuffle(shuffled)
    second = read_log(written(folder, table(shuffled)))
    assert first.clients == second.clients
    assert first.members.tolist() == second.members.tolist()


def test_clients_that_are_numbers_are_in_order_of_size(tmp_path):
    assert read_log(written(tmp_path, "round,client\n1,10\n1,9\n")).clients == ("9", "10")


def test_leading_zeros_make_a_client_text(tmp_path):
    log = read_log(written(tmp_path, "round,client\n1,007\n1,7\n1,10\n"))
    assert log.clients == ("007", "10", "7")


def test_round_labels_that_are_whole_numbers_are_ordered_by_size_and_gaps_noted(tmp_path):
    log = read_log(written(tmp_path, "round,client\n10,a\n9,b\n09.0,c\n7,d\n"))
    assert cohorts(log) == [{"d"}, {"b", "c"}, {"a"}]
    assert "1 round number between 7 and 10 does not appear" in log.notes[0]


def test_round_numbers_too_long_for_a_machine_stay_apart(tmp_path):
    large = 10**30
    log = read_log(written(tmp_path, f"round,client\n{large + 1},b\n{large},a\n7,c\n"))
    assert cohorts(log) == [{"c"}, {"a"}, {"b"}]


def test_lines_that_repeat_the_header_are_dropped_and_noted(tmp_path):
    part = "round,client\n1,a\n2,b\n"
    log = read_log(written(tmp_path, part + part.replace("1", "3") + "round,client\n"))
    assert cohorts(log) == [{"a"}, {"b"}, {"a"}]
    assert log.notes == (
        "2 lines repeat the header: dropped",
        "1 row repeats a round and client: dropped",
    )


def test_lines_keep_their_numbers_after_a_header_that_is_repeated(tmp_path):
    path = written(tmp_path, "round,client,time\n1,a,1\nround,client,time\n2,b,soon\n")
    with pytest.raises(FileFormatError, match="line 4: time is 'soon'"):
        read_log(path)


@pytest.mark.parametrize("other", [" a", "a ", "\ta"])
def test_names_that_only_spaces_tell_apart_are_noted(tmp_path, other):
    log = read_log(written(tmp_path, table([(1, "a"), (1, other), (1, "b ")])))
    assert log.n_clients == 3
    assert log.notes == (
        "1 client called like another but for spaces around the name, or for how its accents are "
        f"encoded, such as {other!r}: taken as clients of their own",
    )


def test_names_that_only_the_encoding_of_an_accent_tells_apart_are_noted(tmp_path):
    log = read_log(written(tmp_path, table([(1, "caf\u00e9"), (1, "cafe\u0301")])))
    assert log.n_clients == 2
    assert "for how its accents are encoded" in log.notes[0]


def test_statuses_past_the_first_few_are_counted(tmp_path):
    rows = [(1, f"c{i}", f"error {i}") for i in range(20)]
    log = read_log(
        written(tmp_path, table([*rows, (2, "c0", "ok")], ("round", "client", "status")))
    )
    assert "'error 7' (1 row) and 12 more read as" in log.notes[-1]


def test_whole_numbers_in_parquet_are_names_without_a_point(tmp_path):
    path = tmp_path / "log.parquet"
    pl.DataFrame({"round": [1.0, 2.0], "client": [7.0, 10.0]}).write_parquet(path)
    assert read_log(path).clients == ("7", "10")


def test_dates_in_parquet_that_are_rounds_give_the_times(tmp_path):
    path = tmp_path / "log.parquet"
    moments = [datetime(2024, 1, 2), datetime(2024, 1, 1, 12)]
    pl.DataFrame({"round": moments, "client": ["a", "b"]}).write_parquet(path)
    log = read_log(path)
    assert cohorts(log) == [{"b"}, {"a"}]
    assert log.times.tolist() == [1704110400.0, 1704153600.0]


def test_durations_in_parquet_are_seconds(tmp_path):
    path = tmp_path / "log.parquet"
    frame = {"round": [1, 2], "client": ["a", "a"], "time": [timedelta(0), timedelta(hours=1)]}
    pl.DataFrame(frame).write_parquet(path)
    assert read_log(path).times.tolist() == [0.0, 3600.0]


def test_round_labels_that_are_decimals_are_ordered_by_size(tmp_path):
    log = read_log(written(tmp_path, "round,client\n10.5,a\n9,b\n"))
    assert cohorts(log) == [{"b"}, {"a"}]


def test_round_labels_that_are_dates_give_the_times(tmp_path):
    rows = [("2024-01-02", "a"), ("2024-01-01T12:00:00", "b")]
    log = read_log(written(tmp_path, table(rows)))
    assert cohorts(log) == [{"b"}, {"a"}]
    assert log.times.tolist() == [1704110400.0, 1704153600.0]


def test_other_round_labels_come_as_they_first_appear(tmp_path):
    log = read_log(written(tmp_path, "round,client\nwarm,a\n2,b\nalpha,c\nwarm,d\n02,e\n"))
    assert cohorts(log) == [{"a", "d"}, {"b", "e"}, {"c"}]
    assert log.notes == (
        "not all round labels are numbers ('warm' is not): rounds are in the order in which they "
        "first appear",
    )


def test_the_time_of_a_round_is_its_earliest_row(tmp_path):
    log = read_log(written(tmp_path, "time,client,round\n7,a,1\n5,b,1\n3,a,2\n"))
    assert log.times.tolist() == [5.0, 3.0]
    assert log.notes == ("1 round begins before the round that precedes it",)


def test_times_in_iso_are_seconds_since_1970(tmp_path):
    rows = [(1, "a", "1970-01-01T01:00:00+01:00"), (2, "a", "1970-01-01 00:00:01.5Z")]
    log = read_log(written(tmp_path, table(rows, ("round", "client", "timestamp"))))
    assert log.times.tolist() == [0.0, 1.5]
    assert log.notes == ()


def test_times_in_parquet_may_be_datetimes(tmp_path):
    frame = pl.DataFrame({"round": [1], "client": ["a"], "time": ["1970-01-01T00:01:00"]})
    frame.with_columns(pl.col("time").str.to_datetime()).write_parquet(tmp_path / "log.parquet")
    assert read_log(tmp_path / "log.parquet").times.tolist() == [60.0]


@pytest.mark.parametrize(
    ("unit", "zeros"), [("milliseconds", 3), ("microseconds", 6), ("nanoseconds", 9)]
)
def test_numbers_too_large_for_seconds_are_read_in_their_unit_and_noted(tmp_path, unit, zeros):
    times = [f"17000000{tens}0{'0' * zeros}" for tens in range(3)]
    rows = [(t, "a", time) for t, time in enumerate(times)]
    log = read_log(written(tmp_path, table(rows, ("round", "client", "time"))))
    assert log.times.tolist() == [1700000000.0, 1700000010.0, 1700000020.0]
    assert log.notes == (f"times go up to {float(times[-1]):.6g}: taken to be {unit}",)


def test_one_time_of_many_that_is_too_large_does_not_change_the_others(tmp_path):
    rows = [(1, "a", 5), (2, "a", 6), (3, "a", "1e300")]
    log = read_log(written(tmp_path, table(rows, ("round", "client", "time"))))
    assert log.times.tolist() == [5.0, 6.0, 1e300]
    assert log.notes == ("times go up to 1e+300: read as seconds, as most are smaller",)


def test_dates_without_offset_are_noted(tmp_path):
    log = read_log(written(tmp_path, "round,client,time\n1,a,2024-01-01\n"))
    assert log.notes == ("the times have no offset: taken to be in UTC",)


def test_a_status_tells_who_took_part_who_was_there_and_who_is_unknown(tmp_path):
    rows = [(1, "a", "OK"), (1, "b", "timeout"), (1, "c", "offline"), (1, "d", "unknown")]
    rows += [(2, "b", "failed"), (2, "b", "ok"), (3, "a", "late")]
    log = read_log(written(tmp_path, table(rows, ("round", "client", "status"))))
    assert cohorts(log) == [{"a"}, {"b"}, set()]
    assert [log.available.row(t).tolist() for t in range(3)] == [[0, 1], [1], [0]]
    assert [log.unknown.row(t).tolist() for t in range(3)] == [[3], [], []]
    assert "'OK' (1 row) and 'ok' (1 row) read as 'took part'" in log.notes[0]
    assert log.notes[1] == "1 row repeats a round and client: dropped"


def test_statuses_of_which_none_took_part_are_refused(tmp_path):
    path = written(tmp_path, "round,client,status\n1,a,gut\n")
    with pytest.raises(FileFormatError, match=r"'gut' \(1 row\)"):
        read_log(path)
    with pytest.raises(FileFormatError, match=r"no status means .* 'gut' \(1 row\)"):
        read_log(path, statuses={"gut": "failed"})
    assert cohorts(read_log(path, columns={"status": ""})) == [{"a"}]


def test_columns_may_be_named(tmp_path):
    path = written(tmp_path, "x,Y,client\n3,a,no\n")
    assert cohorts(read_log(path, columns={"round": "x", "client": "y"})) == [{"a"}]


def test_a_byte_order_mark_and_blank_lines_are_passed_over(tmp_path):
    path = written(tmp_path, b"\xef\xbb\xbf\nround,client\n\n1,a\n\n2,b\n")
    assert cohorts(read_log(path)) == [{"a"}, {"b"}]


def test_json_values_may_be_of_any_plain_type(tmp_path):
    rows = [
        {"round": 1, "client": 7, "status": True},
        {"round": 2.0, "client": "é", "status": False},
    ]
    text = "\n\n".join(
        json.dumps(row) for row in [*rows, {"round": 2, "client": 7, "status": None}]
    )
    log = read_log(written(tmp_path, text + "\n", "log.jsonl"))
    assert log.clients == ("7", "é")
    assert cohorts(log) == [{"7"}, set()]
    assert log.available.row(1).tolist() == [1]
    assert log.unknown.row(1).tolist() == [0]


def test_one_client_in_one_round_is_a_log(tmp_path):
    assert cohorts(read_log(written(tmp_path, "round,client\n1,a"))) == [{"a"}]


def test_progress_is_told_in_bytes_and_ends_at_the_file_size(tmp_path):
    path = written(tmp_path, "round,client\n" + "1,a\n" * 1000)
    calls = []
    with mock.patch.object(blocks, "BLOCK", 500):
        read_log(path, progress=lambda done, total: calls.append((done, total)))
    assert len(calls) == 9
    assert calls == sorted(calls)
    assert calls[-1] == (path.stat().st_size,) * 2


def test_options_of_intervals_are_refused_for_rows(tmp_path):
    path = written(tmp_path, "round,client\n1,a\n")
    with pytest.raises(OptionError, match="has rounds of its own; leave out period"):
        read_log(path, period=10)
    with pytest.raises(OptionError, match="only applies to interval logs"):
        read_log(path, cohort_size=10)


def test_importing_the_library_does_not_import_the_audit():
    code = "import sys, fedavot; print('fedavot.audit' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
