"""The Flower strategy's own log, written by hand here so that Flower need not be installed."""

import json

import numpy as np
import pytest

from fedavot.audit import read_log
from fedavot.errors import FileFormatError, OptionError


def line(number, available, weights, **changes):
    content = {
        "format": "fedavot-participation",
        "version": 1,
        "round": number,
        "available": available,
        "asked": available,
        "replied": list(weights),
        "weights": weights,
        "time": f"2024-01-01T00:00:{number:02d}+00:00",
        **changes,
    }
    return json.dumps(content, ensure_ascii=False) + "\n"


def saved(tmp_path, *lines):
    path = tmp_path / "participation.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_who_replied_took_part_with_the_weights_used(tmp_path):
    log = read_log(
        saved(
            tmp_path,
            line(1, ["süd", "north", "x, y"], {"süd": 0.75, "north": 0.25}),
            line(2, ["x, y"], {}),
        )
    )
    assert log.clients == ("north", "süd", "x, y")
    assert [log.cohort(t).tolist() for t in range(2)] == [[0, 1], []]
    assert log.applied.tolist() == [0.25, 0.75]
    # Who was asked and did not reply could not have taken part.
    assert [log.available.row(t).tolist() for t in range(2)] == [[0, 1], []]
    assert np.diff(log.times).tolist() == [1.0]
    assert log.notes == ()


def test_weights_follow_their_clients_whatever_order_names_come_in(tmp_path):
    weights = {"9": 0.5, "10": 0.3, "2": 0.2}
    log = read_log(saved(tmp_path, line(1, ["10"], {"10": 1.0}), line(2, ["2"], weights)))
    found = {log.clients[i]: w for i, w in zip(log.cohort(1), log.applied[1:], strict=True)}
    assert found == weights


def counted(number, new, weights, **changes):
    """Return a line of a federation with many clients: their number, and names once."""
    there = {"count": 5, "sha256": "0" * 64, "new": new}
    content = json.loads(line(number, there, weights, version=2, **changes))
    del content["asked"], content["replied"]
    return json.dumps(content) + "\n"


def test_a_log_that_counts_the_available_has_all_clients_and_who_took_part(tmp_path):
    log = read_log(
        saved(
            tmp_path,
            counted(1, ["a", "b", "c", "d", "e"], {"d": 0.75, "b": 0.25}),
            counted(2, [], {"a": 1.0}),
        )
    )
    assert log.clients == ("a", "b", "c", "d", "e")
    assert [log.cohort(t).tolist() for t in range(2)] == [[1, 3], [0]]
    assert log.applied.tolist() == [0.25, 0.75, 1.0]
    assert log.available is None
    assert not log.all_available
    assert any("2 of 2 rounds" in note for note in log.notes)


def test_a_log_may_list_the_available_in_some_rounds_and_count_them_in_others(tmp_path):
    lines = line(1, ["a", "b"], {"a": 1.0}), counted(2, ["c"], {"b": 1.0})
    log = read_log(saved(tmp_path, *lines))
    assert log.clients == ("a", "b", "c")
    assert [log.cohort(t).tolist() for t in range(2)] == [[0], [1]]
    assert log.available is None


def test_both_versions_of_a_line_with_names_are_read_alike(tmp_path):
    logs = [
        read_log(saved(tmp_path, line(1, ["a", "b"], {"a": 1.0}, version=version)))
        for version in (1, 2)
    ]
    assert logs[0].available.row(0).tolist() == logs[1].available.row(0).tolist()
    assert logs[0].clients == logs[1].clients


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"available": {"count": 5}}, "line 2: .*no 'new'"),
        ({"available": {"count": 5, "new": "abc"}}, "line 2: .*not a list of names"),
        ({"weights": ["a"]}, "line 2: .*weights do not belong"),
    ],
)
def test_a_line_that_counts_the_available_wrongly_is_refused(tmp_path, changes, words):
    second = json.loads(counted(2, [], {"a": 1.0})) | changes
    with pytest.raises(FileFormatError, match=words):
        read_log(saved(tmp_path, line(1, ["a"], {"a": 1.0}), json.dumps(second) + "\n"))


def test_rounds_that_are_missing_are_noted(tmp_path):
    log = read_log(saved(tmp_path, line(1, ["a"], {"a": 1.0}), line(4, ["a"], {"a": 1.0})))
    assert log.notes == (
        "2 round numbers between 1 and 4 do not appear: taken as not logged, not as rounds in "
        "which nobody took part",
    )


def test_a_round_run_again_counts_as_it_was_last(tmp_path):
    lines = line(2, ["a"], {"a": 1.0}), line(1, ["a"], {}), line(2, ["b"], {"b": 1.0})
    log = read_log(saved(tmp_path, *lines))
    assert [log.cohort(t).tolist() for t in range(2)] == [[], [1]]
    assert log.notes == ("1 round occurs more than once: the later line counts",)


def test_a_last_line_that_is_cut_off_is_dropped(tmp_path):
    log = read_log(saved(tmp_path, line(1, ["a"], {"a": 1.0}), line(2, ["a"], {"a": 1.0})[:-9]))
    assert log.n_rounds == 1
    assert log.notes == ("line 2, the last, is cut off: dropped",)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (
            line(2, ["a"], {"a": 1e308}),
            r"line 2: .*weight of 'a' is 1e\+308, not a .* to 1,000,000",
        ),
        (line(2, ["a"], {"a": -0.5}), r"line 2: .*weight of 'a' is -0\.5, not a .* to 1,000,000"),
        (line(2, ["a"], {"a": 10**400}), "line 2: .*401 digits"),
        (line(2, ["a"], {"a": 1.0}, round=10**400), "line 2: .*401 digits"),
        (line(2, ["a"], {"a": 1.0}, round=-(2**63)), "line 2: .*round is -9223372036854775808"),
        (line(2, ["a"], {}, replied=["a"]), "line 2: .*weights do not belong"),
        (line(2, ["a"], {"a": 1.0}, version=3), "line 2: .*version 3; .*reads up to 2"),
        (line(2, ["a"], {"a": 1.0}, round="x"), "line 2: .*round is 'x'"),
        (line(2, 7, {"a": 1.0}), "line 2: .*not a line of a 'fedavot-participation' log"),
        (line(2, ["a"], {"a": None}), "line 2: .*not a line of a 'fedavot-participation' log"),
        (line(2, [7], {}), "line 2: .*the clients are not a list of names"),
        (line(2, ["a", ""], {"a": 1.0}), "line 2: .*a client has no name"),
        ('{"round": 2}\n', "line 2: .*format is None"),
        ('{"format": "fedavot-participation", "version": 1}\n', "line 2: .*no 'round'"),
        ("[1]\n", "line 2: a list, not a JSON object"),
    ],
)
def test_a_line_that_is_not_of_such_a_log_is_refused(tmp_path, second, words):
    with pytest.raises(FileFormatError, match=words):
        read_log(saved(tmp_path, line(1, ["a"], {"a": 1.0}), second))


def test_a_log_without_clients_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="has no clients in its 1 rounds"):
        read_log(saved(tmp_path, line(1, [], {})))


def test_rounds_without_times_have_none(tmp_path):
    log = read_log(saved(tmp_path, line(1, ["a"], {"a": 1.0}, time="")))
    assert log.times is None
    assert log.notes == ("the rounds' times are missing or not dates: left out",)


def test_options_of_intervals_are_refused(tmp_path):
    with pytest.raises(OptionError, match="has rounds of its own"):
        read_log(saved(tmp_path, line(1, ["a"], {"a": 1.0})), period=5)
