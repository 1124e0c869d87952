"""The participation log accounts for every client asked, in every round, whatever happened."""

import contextlib
import hashlib
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Error, Message
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping
from grid import LocalGrid, Node, app_of, arrays_of, everybody, federation, only, record_of
from grid import rounds_in as rounds
from hypothesis import given, settings
from hypothesis import strategies as st

from fedavot._reading import parse_json
from fedavot.errors import AggregateError, CheckpointError, OptionError
from fedavot.flower import FedAVOT, Round, Weighting
from fedavot.flower.kept.log import ParticipationLog

MODEL = {"w": np.zeros(3, np.float32)}
FIELDS = {
    *("format", "version", "round", "time", "available", "asked", "replied", "failed", "late"),
    *("excluded", "refused", "weights", "applied", "gap", "effective_cohort_size", "metrics"),
}
FATES = ["reply", "error", "dead", "lost", "expired", "silent", "nan", "shape", "metrics"]


def update(arrays, config, node):
    return {"w": arrays["w"] + np.float32(0.5)}, {"num-examples": 1, "loss": 0.25}


def unusable(kind):
    def tamper(node, reply):
        if not reply.has_error():
            record = reply.content["arrays"]
            if kind == "nan":
                record["w"] = record_of({"w": np.full(3, np.nan, np.float32)})["w"]
            elif kind == "shape":
                record["w"] = record_of({"w": np.zeros(4, np.float32)})["w"]
            else:
                reply.content["metrics"]["surprise"] = 1.0
        return [reply]

    return tamper


def scripted(script):
    """Return fate and tamper by a script of fates, (round, client)."""

    def at(node, number):
        return script[number - 1][node - 100]

    def fate(node, message):
        number = int(message.content.config_records["config"]["server-round"])
        found = at(node, number)
        now[node] = found
        return "reply" if found in ("nan", "shape", "metrics") else found

    def tamper(node, reply):
        return [reply] if now[node] == "reply" else unusable(now[node])(node, reply)

    now = {}
    return {"fate": fate, "tamper": tamper}


scripts = st.integers(1, 5).flatmap(
    lambda n: st.lists(
        st.lists(st.sampled_from(FATES), min_size=n, max_size=n), min_size=1, max_size=5
    )
)


@settings(max_examples=60)
@given(script=scripts, cohort_size=st.none() | st.integers(1, 4))
def test_everybody_asked_has_exactly_one_fate(script, cohort_size):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        strategy = FedAVOT(everybody(), weighting=Weighting(cohort_size=cohort_size), folder=folder)
        grid = federation(len(script[0]), update, **scripted(script))
        with contextlib.suppress(AggregateError):  # a script in which nobody ever replies
            strategy.start(grid, record_of(MODEL), len(script))
        lines = rounds(folder)
    assert [line["round"] for line in lines] == list(range(1, len(script) + 1))
    for line, fates in zip(lines, script, strict=True):
        assert line.keys() - {"known", "unknown"} == FIELDS
        parts = [*line["replied"], *line["failed"], *line["late"], *line["excluded"]]
        assert sorted(parts) == line["asked"]
        assert set(line["asked"]) <= set(line["available"])
        assert list(line["weights"]) == line["replied"]
        if line["replied"]:
            assert sum(line["weights"].values()) == pytest.approx(1.0, abs=1e-12)
        for client in line["asked"]:
            fate = fates[int(client)]
            assert (client in line["late"]) == (fate in ("silent", "lost", "expired"))
            assert (client in line["failed"]) == (fate in ("error", "dead"))
            assert (client in line["excluded"]) == (fate in ("nan", "shape"))


def test_a_line_has_the_documented_fields(tmp_path):
    before = datetime.now(UTC)
    FedAVOT(everybody(), folder=tmp_path).start(federation(3, update), record_of(MODEL), 1)
    text = (tmp_path / "participation.jsonl").read_text()
    assert text.count("\n") == 1
    (line,) = rounds(tmp_path)
    assert (line["format"], line["version"], line["round"]) == ("fedavot-participation", 2, 1)
    assert before <= datetime.fromisoformat(line["time"]) <= datetime.now(UTC)
    assert line["available"] == line["asked"] == line["replied"] == ["0", "1", "2"]
    assert line["weights"] == pytest.approx(dict.fromkeys("012", 1 / 3))
    assert line["effective_cohort_size"] == pytest.approx(3.0)
    assert line["gap"] == pytest.approx(0.0, abs=1e-12)
    assert line["metrics"] == pytest.approx({"loss": 0.25})


def test_the_gap_is_between_the_importance_and_the_mean_weights(tmp_path):
    importance = {"0": 0.5, "1": 0.3, "2": 0.2}
    cohorts = [[0, 1], [2], [1, 2], [0, 1, 2], [0]]
    grid = federation(3, update, fate=only(cohorts))
    FedAVOT(everybody(), importance=importance, folder=tmp_path).start(grid, record_of(MODEL), 5)
    total = dict.fromkeys(importance, 0.0)
    for count, line in enumerate(rounds(tmp_path), 1):
        for name, weight in line["weights"].items():
            total[name] += weight
        gap = sum(abs(total[name] / count - share) for name, share in importance.items()) / 2
        assert line["gap"] == pytest.approx(gap, abs=1e-12)
        squares = sum(weight**2 for weight in line["weights"].values())
        assert line["effective_cohort_size"] == pytest.approx(1 / squares)


def test_a_round_is_in_the_file_before_on_round_hears_of_it(tmp_path):
    counts = []
    FedAVOT(
        everybody(), folder=tmp_path, on_round=lambda record: counts.append(len(rounds(tmp_path)))
    ).start(federation(2, update), record_of(MODEL), 3)
    assert counts == [1, 2, 3]


def test_on_round_and_the_file_tell_the_same(tmp_path):
    heard = []
    script = [["reply", "error", "dead"], ["silent", "nan", "reply"]]
    FedAVOT(everybody(), folder=tmp_path, on_round=heard.append).start(
        federation(3, update, **scripted(script)), record_of(MODEL), 2
    )
    assert all(isinstance(it, Round) for it in heard)
    assert [json.loads(it.line()) for it in heard] == rounds(tmp_path)


def test_the_three_ways_of_not_replying_are_distinguished(tmp_path):
    script = [["error", "dead", "silent", "reply", "lost", "expired"]]
    FedAVOT(everybody(), folder=tmp_path).start(
        federation(6, update, **scripted(script)), record_of(MODEL), 1
    )
    (line,) = rounds(tmp_path)
    assert line["failed"] == {
        "0": "error 2: RuntimeError: out of luck",
        "1": "error 5: node unavailable",
    }
    # A client whose message expired is late.
    assert line["late"] == ["2", "4", "5"]
    assert line["replied"] == ["3"]


@pytest.mark.parametrize("code", range(10))
def test_an_error_of_the_clients_own_is_a_failure_whatever_its_code(tmp_path, code):
    grid = federation(2, update)
    answer = grid._answer

    def failing(message):
        own = message.metadata.dst_node_id == 100 and message.metadata.message_type == "train"
        return Message(Error(code, "as it says"), reply_to=message) if own else answer(message)

    grid._answer = failing
    FedAVOT(everybody(), folder=tmp_path).start(grid, record_of(MODEL), 1)
    (line,) = rounds(tmp_path)
    assert line["failed"] == {"0": f"error {code}: as it says"}
    assert line["late"] == []


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("Traceback (most recent call last):\n  File x\nValueError: bad\n\n", "ValueError: bad"),
        ("<class 'ClientAppError'>:<'\nMessage: no function 'f''>", "Message: no function 'f'"),
        ("<class 'ZeroDivisionError'>:<'by zero'>", "<class 'ZeroDivisionError'>:<'by zero'>"),
        ("x" * 5000, "x" * 300),
        ("", "no reason given"),
        (None, "no reason given"),
        (" \n ", "no reason given"),
        ('say "hi", ok?', 'say "hi", ok?'),
        ("naïve 🚑", "naïve 🚑"),
        ("half of a pair: \udc80", "half of a pair: \\udc80"),
    ],
)
def test_the_reason_of_a_failure_is_brief(tmp_path, reason, shown):
    grid = federation(2, update)
    answer = grid._answer

    def failing(message):
        if message.metadata.dst_node_id == 100 and message.metadata.message_type == "train":
            return Message(Error(3, reason), reply_to=message)
        return answer(message)

    grid._answer = failing
    FedAVOT(everybody(), folder=tmp_path).start(grid, record_of(MODEL), 1)
    (line,) = rounds(tmp_path)
    assert line["failed"]["0"] == f"error 3: {shown}"


@pytest.mark.parametrize("fate", ["error", "dead", "silent"])
def test_a_round_that_nobody_answers_keeps_the_model_and_is_logged(tmp_path, caplog, fate):
    grid = federation(3, update, fate=only([[0, 1], [], [2]], others=fate))
    result = FedAVOT(everybody(), folder=tmp_path).start(grid, record_of(MODEL), 3)
    empty = rounds(tmp_path)[1]
    assert (empty["replied"], empty["weights"], empty["metrics"]) == ([], {}, {})
    assert empty["effective_cohort_size"] == 0.0
    np.testing.assert_array_equal(arrays_of(result.arrays)["w"], np.full(3, 1.0, np.float32))
    assert sorted(result.train_metrics_clientapp) == [1, 3]
    assert any("round 2" in it.message for it in caplog.records if it.levelname == "WARNING")


def test_an_empty_round_does_not_change_the_weights_to_come(tmp_path):
    weights = []
    for cohorts in ([[0, 1], [], [1, 2]], [[0, 1], [1, 2]]):
        seen = []
        grid = federation(3, update, fate=only(cohorts))
        FedAVOT(everybody(), importance={"0": 5, "1": 3, "2": 2}, on_round=seen.append).start(
            grid, record_of(MODEL), len(cohorts)
        )
        weights.append(seen[-1].weights)
    assert weights[0] == weights[1]


def test_a_strategy_that_trains_nobody_logs_rounds_in_which_nobody_was_asked(tmp_path):
    result = FedAVOT(everybody(fraction_train=0.0), folder=tmp_path).start(
        federation(3, update), record_of(MODEL), 2
    )
    assert [line["asked"] for line in rounds(tmp_path)] == [[], []]
    np.testing.assert_array_equal(arrays_of(result.arrays)["w"], MODEL["w"])


def test_numbers_that_json_does_not_have_are_null(tmp_path):
    def report(arrays, config, node):
        return arrays, {"num-examples": 1, "loss": float("nan"), "many": [1.0, float("inf")]}

    FedAVOT(everybody(), folder=tmp_path).start(federation(2, report), record_of(MODEL), 1)

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    text = (tmp_path / "participation.jsonl").read_text()
    line = json.loads(text, parse_constant=refuse)
    assert line["metrics"] == {"loss": None, "many": [1.0, None]}


def large(n_clients, n_rounds, folder, *, resume=False, fraction=0.05, **options):
    """Run a federation in which a few of many clients take part; return the records."""
    seen = []
    strategy = FedAVOT(
        everybody(fraction_train=fraction), folder=folder, resume=resume, on_round=seen.append
    )
    strategy.start(federation(n_clients, update, **options), record_of(MODEL), n_rounds)
    return seen


def test_a_line_of_a_large_federation_has_a_count_and_a_hash_and_each_name_once(tmp_path):
    seen = large(300, 3, tmp_path)
    for place, (line, record) in enumerate(zip(rounds(tmp_path), seen, strict=True)):
        names = "".join(f"{name}\n" for name in record.available).encode()
        assert line["available"] == {
            "count": 300,
            "sha256": hashlib.sha256(names).hexdigest(),
            "new": [] if place else record.available,
        }
        assert line.keys() - {"known", "unknown"} == FIELDS - {"asked", "replied"}
        assert line["weights"] == record.weights
        assert list(line["weights"]) == record.replied
        assert record.asked == record.replied


def test_the_length_of_a_line_does_not_depend_on_how_many_clients_are_known(tmp_path):
    lengths = []
    for n_clients in (200, 2000):
        large(n_clients, 3, tmp_path / str(n_clients), fraction=10 / n_clients)
        lines = (tmp_path / str(n_clients) / "participation.jsonl").read_bytes().splitlines()
        lengths.append(max(map(len, lines[1:])))
    assert max(lengths) < 2000


def test_clients_that_join_a_large_federation_are_named_when_they_do(tmp_path):
    grid = federation(150, update)
    late = grid.nodes.pop(149)
    del grid.nodes[148]

    def join(record):
        grid.nodes[149] = late

    strategy = FedAVOT(everybody(fraction_train=0.1), folder=tmp_path, on_round=join)
    strategy.start(grid, record_of(MODEL), 3)
    found = [line["available"] for line in rounds(tmp_path)]
    assert [it["count"] for it in found] == [148, 149, 149]
    assert [len(it["new"]) for it in found] == [148, 1, 0]


def test_a_resumed_log_of_a_large_federation_names_its_clients_again(tmp_path):
    large(120, 2, tmp_path)
    large(120, 4, tmp_path, resume=True)
    found = [line["available"] for line in rounds(tmp_path)]
    assert [len(it["new"]) for it in found] == [120, 0, 120, 0]
    assert len({it["sha256"] for it in found}) == 1


def test_refusals_beyond_a_hundred_are_counted(tmp_path):
    importance = {str(i): 1.0 for i in range(3)}
    FedAVOT(everybody(), importance=importance, folder=tmp_path).start(
        federation(150, update), record_of(MODEL), 1
    )
    (line,) = rounds(tmp_path)
    assert line["refused"] == {"count": 147}


def logged(path, numbers):
    """Write lines of these rounds, and return the log."""
    log = ParticipationLog(path)
    for number in numbers:
        log.append(Round(round=number, available=["a"], asked=["a"]))
    return log


@pytest.mark.parametrize("tail", [b"", b'{"format"', b"damaged\n", b'{"round": 3}\n'])
@pytest.mark.parametrize("last", [0, 1, 3, 5])
def test_a_log_is_cut_after_the_last_round_of_the_checkpoint(tmp_path, last, tail):
    log = logged(tmp_path / "log", range(1, 6))
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + tail)
    log.cut(last)
    assert log.path.read_bytes() == b"".join(whole.splitlines(keepends=True)[:last])


def test_only_the_end_of_a_log_is_read_to_cut_it(tmp_path, monkeypatch):
    log = logged(tmp_path / "log", range(1, 201))
    read = []

    def parse(line):
        read.append(line)
        return parse_json(line)

    monkeypatch.setattr("fedavot.flower.kept.log.parse_json", parse)
    log.cut(198)
    assert len(read) == 3
    assert len(log.path.read_bytes().splitlines()) == 198


@pytest.mark.parametrize("numbers", [[], [1], [1, 2, 4], [4]])
def test_a_log_without_the_last_round_of_the_checkpoint_is_not_cut(tmp_path, numbers):
    log = logged(tmp_path / "log", numbers)
    before = log.path.read_bytes()
    with pytest.raises(CheckpointError, match="of the 3 rounds"):
        log.cut(3)
    assert log.path.read_bytes() == before


NAMES = ['"quoted"', "a,b", "naïve 🚑", "new\nline", "\u2028", "back\\slash", "\x00", "client"]


def test_any_name_survives_the_log(tmp_path):
    app = app_of(update)
    grid = LocalGrid({i: Node(app, {"partition-id": name}) for i, name in enumerate(NAMES, 1)})
    FedAVOT(everybody(), importance=dict.fromkeys(NAMES, 1), folder=tmp_path).start(
        grid, record_of(MODEL), 2
    )
    lines = rounds(tmp_path)
    assert len(lines) == 2
    assert lines[0]["replied"] == sorted(NAMES)
    assert set(lines[1]["weights"]) == set(NAMES)


def test_a_round_an_outer_wrapper_throws_away_is_logged_as_unanswered(tmp_path):
    # Flower's privacy wrapper drops the whole round when one client fails.
    inner = FedAVOT(everybody(), folder=tmp_path)
    strategy = DifferentialPrivacyServerSideFixedClipping(inner, 0.0, 1.0, 2)
    grid = federation(2, update, fate=only([[0, 1], [0], [0, 1]], others="error"))
    strategy.start(grid, record_of(MODEL), 3)
    lines = rounds(tmp_path)
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert [len(line["weights"]) for line in lines] == [2, 0, 2]
    assert lines[1]["late"] == ["0", "1"]


def test_the_last_round_an_outer_wrapper_throws_away_is_logged_too(tmp_path):
    inner = FedAVOT(everybody(), folder=tmp_path)
    strategy = DifferentialPrivacyServerSideFixedClipping(inner, 0.0, 1.0, 2)
    grid = federation(2, update, fate=only([[0, 1], [0]], others="error"))
    strategy.start(grid, record_of(MODEL), 2)
    assert [line["round"] for line in rounds(tmp_path)] == [1, 2]


def refused_before_training(folder, error, match):
    grid = federation(2, update)
    with pytest.raises(error, match=match):
        FedAVOT(everybody(), folder=folder).start(grid, record_of(MODEL), 1)
    assert grid.sent == []


def test_a_folder_that_is_a_file_stops_the_run_before_it_trains(tmp_path):
    path = tmp_path / "run"
    path.write_text("in the way")
    refused_before_training(path, FileExistsError, "File exists")


def test_a_folder_inside_a_file_stops_the_run_before_it_trains(tmp_path):
    (tmp_path / "run").write_text("in the way")
    refused_before_training(tmp_path / "run" / "deeper", NotADirectoryError, "Not a directory")


def test_a_folder_that_cannot_be_written_to_stops_the_run_before_it_trains(tmp_path, monkeypatch):
    # By other means than permissions, which do not bind every user.
    opened = Path.open

    def refusing(path, mode="r", *given, **options):
        if path.parent == tmp_path and mode != "r":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, mode, *given, **options)

    monkeypatch.setattr(Path, "open", refusing)
    refused = r"Permission denied: .*participation\.jsonl"
    refused_before_training(tmp_path, PermissionError, refused)


def test_a_log_that_is_a_folder_stops_the_run_before_it_trains(tmp_path):
    (tmp_path / "participation.jsonl").mkdir()
    grid = federation(2, update)
    with pytest.raises(IsADirectoryError, match=r"Is a directory: .*participation\.jsonl"):
        FedAVOT(everybody(), folder=tmp_path, resume=True).start(grid, record_of(MODEL), 1)
    assert grid.sent == []


def test_the_folder_is_made_with_its_parents(tmp_path):
    folder = tmp_path / "a" / "b"
    FedAVOT(everybody(), folder=str(folder)).start(federation(2, update), record_of(MODEL), 1)
    assert len(rounds(folder)) == 1


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FedAVOT(everybody()).start(federation(2, update), record_of(MODEL), 1)
    assert list(tmp_path.iterdir()) == []


def test_an_on_round_that_fails_is_reported_and_does_not_stop_the_run(caplog):
    heard = []

    def failing(record):
        raise RuntimeError("no disk")

    FedAVOT(everybody(), on_round=[failing, heard.append]).start(
        federation(2, update), record_of(MODEL), 2
    )
    assert len(heard) == 2
    assert any("on_round failed in round 1" in it.message for it in caplog.records)


@pytest.mark.parametrize("on_round", [5, "print", [print, None]])
def test_an_on_round_that_is_no_function_is_refused(on_round):
    with pytest.raises(OptionError, match="must be a function of a Round"):
        FedAVOT(everybody(), on_round=on_round)


def test_aggregation_without_configuration_is_refused():
    with pytest.raises(OptionError, match="configure_train"):
        FedAVOT(everybody()).aggregate_train(1, [])
