"""Logs of intervals: every round's instant is checked against every interval, one by one."""

import csv
import json
import re
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedavot._incidence import Incidence
from fedavot.audit import read_log
from fedavot.audit.participation import ONE_BY_ONE, some_of
from fedavot.audit.reading import intervals
from fedavot.audit.reading.intervals import MOST_ROUNDS
from fedavot.errors import FileFormatError, OptionError

TIMES = st.integers(0, 60)
SPANS = st.lists(
    st.tuples(st.sampled_from("abcd"), TIMES, TIMES).map(lambda s: (s[0], *sorted(s[1:]))),
    min_size=1,
    max_size=15,
).filter(lambda spans: any(start < end for _, start, end in spans))
WINDOWS = st.dictionaries(st.sampled_from("abcde"), st.tuples(TIMES, TIMES).map(sorted), min_size=1)
PERIODS = st.sampled_from([1, 3, 7.5, 0.3, 100])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("intervals")


def saved(folder, rows, header=("client", "start", "end"), name="intervals.csv"):
    path = folder / name
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


def there(spans, client, t):
    return any(name == client and start <= t < end for name, start, end in spans)


def states(log, t):
    """Return the available and the unknown of a round, by name."""
    unknown = [] if log.unknown is None else log.unknown.row(t)
    return {log.clients[i] for i in log.available.row(t)}, {log.clients[i] for i in unknown}


@given(spans=SPANS, period=PERIODS, slab=st.integers(1, 20))
def test_who_is_available_is_who_has_an_interval_around_the_instant(folder, spans, period, slab):
    with mock.patch.object(intervals, "SLAB", slab):
        log = read_log(saved(folder, spans), period=period)
    lengths = [span for span in spans if span[1] < span[2]]
    first, last = min(span[1] for span in lengths), max(span[2] for span in lengths)
    assert log.times[0] == first
    assert log.times[-1] < last <= first + log.n_rounds * period
    assert log.clients == tuple(sorted({span[0] for span in spans}))
    assert log.unknown is None
    for t, time in enumerate(log.times):
        expected = {client for client in log.clients if there(spans, client, time)}
        assert states(log, t) == (expected, set())
        assert {log.clients[i] for i in log.cohort(t)} == expected
    noted = any("overlap" in note or "an interval: dropped" in note for note in log.notes)
    assert noted or not any_overlap(lengths)


def any_overlap(spans):
    return any(
        one[0] == two[0] and max(one[1], two[1]) < min(one[2], two[2])
        for i, one in enumerate(spans)
        for two in spans[:i]
    )


@given(spans=SPANS, windows=WINDOWS, period=PERIODS)
def test_outside_its_coverage_a_client_is_unknown_and_never_offline(folder, spans, windows, period):
    assume(not windows.keys().isdisjoint(client for client, _, _ in spans))
    rows = [(client, *window) for client, window in windows.items()]
    coverage = saved(folder, rows, ("client", "obs_start_s", "last_event_s"), "coverage.csv")
    log = read_log(saved(folder, spans), period=period, observed=coverage)
    known = {client: list(windows.get(client, (np.inf, -np.inf))) for client in log.clients}
    for client, start, end in spans:
        if start < end:
            known[client] = [min(start, known[client][0]), max(end, known[client][1])]
    for t, time in enumerate(log.times):
        available = {client for client in log.clients if there(spans, client, time)}
        unknown = {c for c, (start, end) in known.items() if not start <= time < end}
        assert states(log, t) == (available, unknown)
        assert not available & unknown


def test_a_coverage_without_beginnings_knows_clients_from_the_start(tmp_path):
    path = saved(tmp_path, [("a", 10, 20), ("b", 0, 30)])
    coverage = saved(tmp_path, [("a", 20), ("b", 30)], ("client", "last_event_s"), "coverage.csv")
    log = read_log(path, period=10, observed=coverage)
    assert [states(log, t) for t in range(3)] == [
        ({"b"}, set()),
        ({"a", "b"}, set()),
        ({"b"}, {"a"}),
    ]
    np.testing.assert_array_equal(log.inclusion(), [0.5, 1.0])


def test_without_coverage_the_log_says_that_clients_are_taken_to_be_known(tmp_path):
    log = read_log(saved(tmp_path, [("a", 0, 1)]), period=1)
    assert log.notes[0].startswith("no coverage")


def test_rounds_with_nobody_are_kept(tmp_path):
    log = read_log(saved(tmp_path, [("a", 0, 1), ("a", 3, 4)]), period=1)
    assert [log.cohort(t).tolist() for t in range(4)] == [[0], [], [], [0]]


def test_a_cohort_is_drawn_from_the_available_by_seed_and_round(tmp_path):
    path = saved(tmp_path, [(i, 0, 500) for i in range(8)] + [(8, 0, 2), (9, 499, 501)])
    log = read_log(path, period=1, cohort_size=3, seed=4)
    assert {log.cohort(t).size for t in range(500)} == {3}
    assert log.cohort(500).tolist() == [9]
    assert all(set(log.cohort(t)) <= set(log.available.row(t)) for t in range(501))
    same, other = (read_log(path, period=1, cohort_size=3, seed=seed) for seed in (4, 5))
    assert log.members.tolist() == same.members.tolist()
    assert log.members.tolist() != other.members.tolist()
    # 500 rounds, chance 3/8: five standard deviations are 54.
    assert np.all(np.abs(np.bincount(log.members, minlength=10)[:8] - 187.5) < 54)


def test_a_draw_does_not_depend_on_the_rounds_after_it(tmp_path):
    rows = [(i, 0, 20) for i in range(8)]
    short = read_log(saved(tmp_path, rows), period=1, cohort_size=2)
    longer = read_log(saved(tmp_path, [*rows, (0, 20, 40)]), period=1, cohort_size=2)
    assert short.members.tolist() == longer.rounds_between(0, 20).members.tolist()


def test_one_state_of_several_must_be_chosen(tmp_path):
    rows = [("a", "charging", 0, 5), ("b", "idle", 0, 9)]
    path = saved(tmp_path, rows, ("client", "state", "start_s", "end_s"))
    with pytest.raises(OptionError, match=r"2 states: 'charging' \(1 row\) and 'idle' \(1 row\)"):
        read_log(path, period=1)
    with pytest.raises(OptionError, match="no state 'on'; it has 'charging'"):
        read_log(path, period=1, state="on")
    log = read_log(path, period=1, state="charging")
    assert log.clients == ("a", "b")
    assert log.inclusion().tolist() == [1.0, 0.0]


def test_intervals_may_be_dates_in_json_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    row = {"device": 3, "from": "2024-01-01T00:00:00Z", "to": "2024-01-01T00:01:00Z"}
    path.write_text(json.dumps(row) + "\n")
    log = read_log(path, period=30)
    assert log.times.tolist() == [1704067200.0, 1704067230.0]
    assert log.clients == ("3",)


def test_overlaps_repeats_and_empty_intervals_are_counted(tmp_path):
    rows = [("a", 0, 9), ("a", 2, 3), ("a", 8, 12), ("a", 12, 13), ("a", 2, 3), ("b", 4, 4)]
    log = read_log(saved(tmp_path, rows), period=1)
    assert log.notes[:3] == (
        "1 row repeats an interval: dropped",
        "1 interval has no length: dropped",
        "2 intervals overlap an earlier one of the same client: merged",
    )
    assert log.n_entries == 13


def test_an_interval_that_ends_before_it_starts_is_refused_by_line(tmp_path):
    path = saved(tmp_path, [("a", 0, 1), ("b", 7, 3)])
    with pytest.raises(FileFormatError, match="line 3: the end, 3, is before the start, 7"):
        read_log(path, period=1)


def test_a_last_interval_that_is_cut_off_is_dropped(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("client,start,end\na,0,100\nb,50,1")
    log = read_log(path, period=50)
    assert log.clients == ("a",)
    assert log.notes[0] == "line 3, the last, is cut off: dropped"


def test_intervals_without_a_period_or_any_length_are_refused(tmp_path):
    with pytest.raises(OptionError, match="intervals; .*period=600"):
        read_log(saved(tmp_path, [("a", 0, 1)]))
    with pytest.raises(FileFormatError, match="no interval longer than 0"):
        read_log(saved(tmp_path, [("a", 1, 1)]), period=1)


def test_a_client_covered_twice_is_refused_by_line(tmp_path):
    coverage = saved(tmp_path, [("a", 5), ("a", 6)], ("client", "last_event_s"), "coverage.csv")
    with pytest.raises(FileFormatError, match="line 3: client 'a' a second time"):
        read_log(saved(tmp_path, [("a", 0, 1)]), period=1, observed=coverage)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "coverage.csv has a header and no rows; add a line for each client"),
        ([("b", 5)], "coverage.csv has no client of the log: it has 'b', the log 'a'"),
    ],
    ids=["nobody", "nobody of the log"],
)
def test_a_coverage_of_nobody_is_refused(tmp_path, rows, words):
    coverage = saved(tmp_path, rows, ("client", "last_event_s"), "coverage.csv")
    with pytest.raises(FileFormatError, match=words):
        read_log(saved(tmp_path, [("a", 0, 1)]), period=1, observed=coverage)


def test_a_table_that_is_no_coverage_is_not_called_a_log(tmp_path):
    path = saved(tmp_path, [("a", 0, 1)])
    with pytest.raises(FileFormatError, match="a coverage table needs client and known_until"):
        read_log(path, period=1, observed=path)


def test_a_state_of_intervals_that_have_none_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(OptionError, match="no column of states"):
        read_log(saved(tmp_path, [("a", 0, 1)]), period=1, state="charging")


def test_intervals_in_milliseconds_give_rounds_in_seconds(tmp_path):
    start = 1_700_000_000_000
    log = read_log(saved(tmp_path, [("a", start, start + 30_000)]), period=10)
    assert np.diff(log.times).tolist() == [10.0, 10.0]


def test_a_coverage_on_another_clock_is_refused(tmp_path):
    rows = [("a", "2024-01-01")]
    coverage = saved(tmp_path, rows, ("client", "last_event_s"), "coverage.csv")
    with pytest.raises(FileFormatError, match="coverage.csv, line 2: .* write all in one way"):
        read_log(saved(tmp_path, [("a", 0, 1)]), period=1, observed=coverage)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"period": 0}, "period is 0.0; it must be finite and above 0"),
        ({"period": "x"}, "period must be a number"),
        ({"period": 1, "cohort_size": 0}, "cohort_size is 0; it must be at least 1"),
        ({"period": 1, "seed": -1}, "seed is -1; it must be at least 0"),
    ],
)
def test_wrong_options_are_refused_by_name(tmp_path, options, words):
    with pytest.raises(OptionError, match=words):
        read_log(saved(tmp_path, [("a", 0, 1)]), **options)


def test_draws_of_many_rounds_are_uniform_and_do_not_depend_on_later_rounds(tmp_path):
    last = ONE_BY_ONE + 4000
    rows = [(i, 0, last) for i in range(8)] + [(8, ONE_BY_ONE + 500, ONE_BY_ONE + 502)]
    log = read_log(saved(tmp_path, rows), period=1, cohort_size=3, seed=4)
    assert np.all(np.diff(log.offsets) == 3)
    late = log.rounds_between(ONE_BY_ONE, last)
    # 4,000 rounds, chance 3/8: five standard deviations are 153.
    assert np.all(np.abs(np.bincount(late.members, minlength=9)[:8] - 1500) < 153)
    assert all(len(set(late.cohort(t))) == 3 for t in range(0, 4000, 7))
    assert all(set(late.cohort(t)) <= set(late.available.row(t)) for t in range(490, 510))
    longer = read_log(
        saved(tmp_path, [*rows, (0, last, last + 50)]), period=1, cohort_size=3, seed=4
    )
    assert log.members.tolist() == longer.rounds_between(0, last).members.tolist()
    pairs = {tuple(late.cohort(t)) for t in range(4000)}
    assert len(pairs) == 56  # all cohorts of three of eight


@pytest.mark.parametrize(("slab", "size"), [(1, 2), (7, 2), (1 << 20, 1)])
def test_some_of_each_round_are_drawn_in_slabs_of_any_size(monkeypatch, slab, size):
    monkeypatch.setattr("fedavot.audit.participation.SLAB", slab)
    offsets = np.array([0, 3, 3, 5, 9])
    available = Incidence(np.array([0, 4, 6, 1, 2, 0, 1, 2, 9], dtype=np.int32), offsets, 10)
    sizes = np.minimum(np.diff(offsets), size)
    members = some_of(available, sizes, np.random.default_rng(0))
    assert members.size == sizes.sum()
    for row, there in zip(np.split(members, np.cumsum(sizes)[:-1]), range(4), strict=True):
        assert np.all(np.diff(row) > 0)
        assert set(row) <= set(available.row(there))


def test_a_period_that_makes_too_many_rounds_is_refused_with_their_number(tmp_path):
    path = saved(tmp_path, [("a", 0, 31_536_000), ("b", 5, 1000)])
    words = r"makes 3,153,600,001 rounds .* use period=([0-9.]+)"
    with pytest.raises(OptionError, match=words) as caught:
        read_log(path, period=0.01)
    found = re.search(words, str(caught.value))
    assert 31_536_000 / float(found[1]) < MOST_ROUNDS - 1
    with pytest.raises(OptionError, match=r"makes inf rounds"):
        read_log(path, period=5e-324)
