"""What the server's log says of every round, and of the run at its end."""

import numpy as np
import pytest
from grid import everybody, federation, only, record_of, rounds_in

from fedavot.errors import AggregateError
from fedavot.flower import FedAVOT

MODEL = {"w": np.zeros(2, np.float32)}


def update(arrays, config, node):
    return {"w": arrays["w"] + 1}, {"num-examples": 1 + node["partition-id"]}


def uncounted(arrays, config, node):
    return arrays, {}


def line_of(caplog, number=1):
    (line,) = [it for it in caplog.messages if it.startswith(f"FedAVOT: round {number}: ")]
    return line


@pytest.fixture(autouse=True)
def told(caplog):
    caplog.set_level("INFO", "flwr")


def never_heard(caplog):
    return [it for it in caplog.messages if "never sent a usable update" in it]


@pytest.mark.parametrize("importance", ["examples", "uniform"])
def test_clients_whose_examples_are_unknown_are_counted_and_named(importance, tmp_path, caplog):
    seen = []
    grid = federation(5, update, fate=only([[0, 1, 2]] * 2))
    strategy = FedAVOT(everybody(), importance=importance, folder=tmp_path, on_round=seen.append)
    strategy.start(grid, record_of(MODEL), 2)
    by_examples = importance == "examples"
    assert [it.unknown for it in seen] == [2 * by_examples] * 2
    assert [it.get("unknown") for it in rounds_in(tmp_path)] == [2 if by_examples else None] * 2
    assert ("the 3 clients whose examples are known" in line_of(caplog)) == by_examples
    assert len(never_heard(caplog)) == by_examples
    assert all("'3'" in it and "'4'" in it and "'2'" not in it for it in never_heard(caplog))


def test_clients_whose_examples_are_unknown_stay_so_after_a_resume(tmp_path, caplog):
    for rounds, n_clients in ((1, 5), (2, 4)):
        grid = federation(n_clients, update, fate=only([[0, 1, 2]] * 2))
        strategy = FedAVOT(everybody(), folder=tmp_path, resume=rounds > 1)
        strategy.start(grid, record_of(MODEL), rounds)
    assert [it["unknown"] for it in rounds_in(tmp_path)] == [2, 2]
    assert "'4'" in never_heard(caplog)[-1]


def test_a_client_that_left_on_a_resume_is_not_listed_among_those_with_importance(tmp_path):
    seen = []
    for rounds, names in ((1, "012"), (2, "01")):
        strategy = FedAVOT(
            everybody(),
            importance=dict.fromkeys(names, 1.0),
            folder=tmp_path,
            resume=True,
            on_round=seen.append,
        )
        strategy.start(federation(3, update), record_of(MODEL), rounds)
    assert "client '2' has no importance" in seen[-1].refused["2"]
    assert seen[-1].refused["2"].endswith("'0' and '1'")


def test_a_run_whose_clients_all_count_ends_without_a_warning(caplog):
    FedAVOT(everybody()).start(federation(3, update), record_of(MODEL), 1)
    assert not never_heard(caplog)
    assert "known" not in line_of(caplog)


def test_with_memory_its_size_is_in_the_log_of_the_server(tmp_path, caplog):
    caplog.set_level("INFO", "flwr")
    strategy = FedAVOT(everybody(), memory=True, folder=tmp_path)
    strategy.start(federation(2, update), record_of(MODEL), 1)
    assert any("8 bytes per client" in it for it in caplog.messages)
    assert rounds_in(tmp_path)[0]["memory"] is True


def test_excluded_updates_are_counted_and_a_round_without_weights_has_no_gap(caplog):
    def some(arrays, config, node):
        done, metrics = update(arrays, config, node)
        wrong = node["partition-id"] == 2 or config["server-round"] == 2
        return {"w": done["w"] * np.nan if wrong else done["w"]}, metrics

    FedAVOT(everybody()).start(federation(3, some), record_of(MODEL), 2)
    assert "2 of 3" in line_of(caplog)
    assert "1 excluded" in line_of(caplog)
    assert "gap" in line_of(caplog)
    assert "3 excluded" in line_of(caplog, 2)
    assert "gap" not in line_of(caplog, 2)


def test_a_run_that_used_no_update_fails_and_says_why(tmp_path, caplog):
    strategy = FedAVOT(everybody(), folder=tmp_path)
    with pytest.raises(AggregateError, match=r"'0'.*no 'num-examples'"):
        strategy.start(federation(2, uncounted), record_of(MODEL), 2)
    again = FedAVOT(everybody(), folder=tmp_path, resume=True)
    again.start(federation(2, update), record_of(MODEL), 2)
    assert any("no update was used" in it for it in caplog.messages)
    mended = FedAVOT(everybody(), folder=tmp_path, resume=True)
    result = mended.start(federation(2, update), record_of(MODEL), 3)
    assert result.arrays["w"].numpy().tolist() == [1.0, 1.0]


@pytest.mark.parametrize("options", [{"fraction_train": 0.0, "min_train_nodes": 0}, {}])
def test_a_run_that_asks_nobody_to_train_does_not_fail(options):
    FedAVOT(everybody(**options)).start(federation(2, update), record_of(MODEL), len(options))


def test_one_usable_update_is_enough_for_a_run_not_to_fail():
    grid = federation(2, update, fate=only([[0], [], []], others="error"))
    result = FedAVOT(everybody()).start(grid, record_of(MODEL), 3)
    assert result.arrays["w"].numpy().tolist() == [1.0, 1.0]
