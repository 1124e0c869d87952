"""A run that is interrupted at any point ends like an uninterrupted one, bit for bit."""

import os
import random
from pathlib import Path

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAdam, FedAvg
from grid import (
    LocalGrid,
    Node,
    app_of,
    arrays_of,
    everybody,
    federation,
    record_of,
    rounds_in,
)
from runs import KINDS, N_CLIENTS, N_ROUNDS, Run, fate, fixed, model, update

from fedavot.errors import CheckpointError, OptionError
from fedavot.flower import Admission, ExactNoise, FedAVOT

CRASH = 4


class Crash(BaseException):
    """An exception that no error handler catches, like a power cut."""


def seed(number):
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the results of the uninterrupted run of a kind."""
    known = {}

    def get(kind):
        if kind not in known:
            seed(1)
            known[kind] = Run(kind, tmp_path_factory.mktemp("whole")).start()
        return known[kind]

    return get


def round_of(message):
    return int(next(iter(message.content.config_records.values()))["server-round"])


def in_configure(run, monkeypatch):
    look = run.grid.get_nodes

    def crashing():
        if len(rounds_in(run.folder)) == CRASH - 1:
            raise Crash
        return look()

    run.grid.get_nodes = crashing


def in_the_clients(run, monkeypatch):
    send = run.grid.send_and_receive

    def crashing(messages, *, timeout=None):
        messages = list(messages)
        types = {it.metadata.message_type for it in messages}
        if "train" in types and round_of(messages[0]) == CRASH:
            raise Crash
        return send(messages, timeout=timeout)

    run.grid.send_and_receive = crashing


def in_aggregation(run, monkeypatch):
    leaf = run.strategy
    while hasattr(leaf, "strategy"):
        leaf = leaf.strategy
    average, count = leaf.train_metrics_aggr_fn, [0]

    def crashing(records, key):
        count[0] += 1
        if count[0] == CRASH:
            raise Crash
        return average(records, key)

    leaf.train_metrics_aggr_fn = crashing


def after_the_log_line(run, monkeypatch):
    def crash(record):
        if record.round == CRASH:
            raise Crash

    run.strategy._callbacks.append(crash)


def in_evaluation(run, monkeypatch, at=CRASH):
    inner = run.evaluate

    def crashing(number, arrays):
        if number == at:
            raise Crash
        return inner(number, arrays)

    run.evaluate = crashing


def at_replacing(name, *, before, at=CRASH):
    def arrange(run, monkeypatch):
        real, count = os.replace, [0]

        def crashing(source, target):
            hit = Path(target).name == name
            count[0] += hit
            if hit and count[0] == at and before:
                raise Crash
            real(source, target)
            if hit and count[0] == at:
                raise Crash

        monkeypatch.setattr(os, "replace", crashing)

    return arrange


def in_a_log_line(run, monkeypatch):
    after_the_log_line(run, monkeypatch)

    def cut(record):
        if record.round == CRASH:
            path = run.folder / "participation.jsonl"
            path.write_bytes(path.read_bytes()[:-40])

    run.strategy._callbacks.insert(0, cut)


POINTS = {
    "in configure": in_configure,
    "in the clients": in_the_clients,
    "in aggregation": in_aggregation,
    "in a log line": in_a_log_line,
    "after the log line": after_the_log_line,
    "in evaluation": in_evaluation,
    "before the checkpoint is in place": at_replacing("checkpoint.npz", before=True),
    "once the checkpoint is in place": at_replacing("checkpoint.npz", before=False),
}


RICH = ("adaptive clipping", "clipping of a sample", "memory of a growing roster")
"""Kinds to be stopped at every point; the others at two."""


TWO = ("in aggregation", "once the checkpoint is in place")


@pytest.mark.parametrize(
    ("kind", "point"),
    [(kind, point) for kind in KINDS for point in (POINTS if kind in RICH else TWO)],
)
def test_a_run_stopped_anywhere_ends_as_if_it_had_not_been(
    tmp_path, monkeypatch, whole, kind, point
):
    wanted = whole(kind)
    seed(1)
    stopped = Run(kind, tmp_path)
    with monkeypatch.context() as patch:
        POINTS[point](stopped, patch)
        with pytest.raises(Crash):
            stopped.start()
    seed(2)
    assert Run(kind, tmp_path, resume=True).start() == wanted


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("time", [CRASH, CRASH + 1])
def test_a_run_stopped_about_the_memorys_marks_ends_as_if_it_had_not_been(
    tmp_path, monkeypatch, whole, before, time
):
    """The marks are written before each checkpoint, and after it."""
    wanted = whole("memory")
    stopped = Run("memory", tmp_path)
    with monkeypatch.context() as patch:
        at_replacing("memory.json", before=before, at=time)(stopped, patch)
        with pytest.raises(Crash):
            stopped.start()
    assert Run("memory", tmp_path, resume=True).start() == wanted


@pytest.mark.parametrize("kind", ["FedAvg", "adaptive clipping", "memory"])
def test_a_run_stopped_after_every_round_ends_as_if_it_had_not_been(tmp_path, whole, kind):
    wanted = whole(kind)
    seed(1)
    for last in range(1, N_ROUNDS + 1):
        found = Run(kind, tmp_path, resume=True).start(last)
        seed(last + 10)
    assert found == wanted


@pytest.mark.parametrize("kind", ["FedAvg", "memory", "sampling"])
def test_a_run_stopped_in_its_first_round_starts_anew(tmp_path, whole, kind):
    wanted = whole(kind)
    stopped = Run(kind, tmp_path)
    in_evaluation(stopped, None, at=1)
    with pytest.raises(Crash):
        stopped.start()
    assert len(rounds_in(tmp_path)) == 1
    seed(1)
    assert Run(kind, tmp_path, resume=True).start() == wanted


class Shown:
    """A run with noise whose models are evaluated by clients; it may be interrupted there."""

    def __init__(self, folder, *, resume=False):
        self.noise = ExactNoise(
            everybody(fraction_evaluate=1.0), noise_multiplier=1.0, clipping_norm=1.0
        )
        self.strategy = FedAVOT(self.noise, folder=folder, resume=resume)
        self.grid = federation(3, update)
        self.grid.send_and_receive = self._send
        self.sent = []
        self.stop = None

    def _send(self, messages, *, timeout=None):
        messages = list(messages)
        found = self.grid.pull_messages(self.grid.push_messages(messages))
        for message in messages:
            kind = message.metadata.message_type
            if kind in ("train", "evaluate"):
                record = next(iter(message.content.array_records.values()))
                self.sent.append((kind, round_of(message), record["w"].data))
        if self.sent and self.sent[-1][:2] == self.stop:
            raise Crash
        return found


def test_a_private_model_that_was_shown_to_clients_is_not_made_again(tmp_path):
    stopped = Shown(tmp_path)
    stopped.stop = ("evaluate", 2)
    with pytest.raises(Crash):
        stopped.strategy.start(stopped.grid, record_of(model()), 3)
    again = Shown(tmp_path, resume=True)
    result = again.strategy.start(again.grid, record_of(model()), 3)
    assert [(kind, number) for kind, number, _ in again.sent[::3]] == [
        ("evaluate", 2),
        ("train", 3),
        ("evaluate", 3),
    ]
    shown = {
        data
        for kind, number, data in stopped.sent + again.sent
        if (kind, number) == ("evaluate", 2)
    }
    assert len(shown) == 1
    assert again.noise.releases == 3
    assert sorted(result.evaluate_metrics_clientapp) == [1, 2, 3]
    assert [line["round"] for line in rounds_in(tmp_path)] == [1, 2, 3]


def test_resuming_a_finished_run_returns_it(tmp_path, whole):
    Run("FedAvg", tmp_path).start()
    run = Run("FedAvg", tmp_path, resume=True)
    assert run.start() == whole("FedAvg")
    assert run.grid.sent == []


def test_asking_for_fewer_rounds_than_are_done_returns_what_is_done(tmp_path, whole):
    Run("FedAvg", tmp_path).start()
    run = Run("FedAvg", tmp_path, resume=True)
    assert run.start(2) == whole("FedAvg")
    assert run.grid.sent == []


@pytest.mark.parametrize("resume", [False, True])
def test_a_strategy_starts_once(tmp_path, resume):
    run = Run("FedAvg", tmp_path, resume=resume)
    run.start(2)
    with pytest.raises(OptionError, match="started before"):
        run.start(4)
    assert len(rounds_in(tmp_path)) == 2


def test_two_runs_do_not_write_to_one_folder_at_a_time(tmp_path):
    errors = []

    def intrude(record):
        other = Run("FedAvg", tmp_path, resume=True)
        with pytest.raises(CheckpointError, match="another run is writing to"):
            other.start()
        errors.append(len(other.grid.sent))

    run = Run("FedAvg", tmp_path, on_round=intrude)
    run.start(2)
    assert errors == [0, 0]
    Run("FedAvg", tmp_path, resume=True).start(3)


def test_a_refusal_that_is_remembered_does_not_keep_the_folder(tmp_path):
    # As in a notebook, which keeps the last exception, and with it all that it went through.
    Run("FedAvg", tmp_path).start(2)
    with pytest.raises(CheckpointError, match="of an earlier run") as kept:
        Run("FedAvg", tmp_path).start(3)
    assert len(Run("FedAvg", tmp_path, resume=True).start(3)[1]) == 3
    assert kept.value is not None


def test_a_resumed_run_asks_no_node_for_its_name_again(tmp_path):
    Run("FedAvg", tmp_path).start(3)
    run = Run("FedAvg", tmp_path, resume=True)
    run.start()
    assert not [it for it in run.grid.sent if it.metadata.message_type.startswith("query")]


def test_a_run_resumed_in_another_federation_says_so(tmp_path, caplog):
    said = []
    for first, n_rounds in ((100, 2), (100, 3), (200, 4)):
        nodes = {
            first + i: Node(app_of(update), {"site": f"{first}-{i}", "partition-id": i})
            for i in range(3)
        }
        caplog.clear()
        strategy = FedAVOT(
            everybody(), folder=tmp_path, resume=True, admission=Admission(key="site")
        )
        strategy.start(LocalGrid(nodes), record_of(model()), n_rounds)
        said.append([it.message for it in caplog.records if "federation" in it.message])
    assert said[:2] == [[], []]
    (warning,) = said[2]
    assert "'100-0'" in warning


def test_a_setting_changed_between_the_starts_is_the_new_one(tmp_path):
    finals = []
    for name, first, then in (("a", 0.1, 0.1), ("b", 0.1, 0.5)):
        folder = tmp_path / name
        for eta, n_rounds in ((first, 3), (then, 4)):
            strategy = FedAVOT(everybody(FedAdam, eta=eta), folder=folder, resume=True)
            result = strategy.start(
                federation(N_CLIENTS, update, fate=fate), record_of(model()), n_rounds
            )
            if n_rounds == 3:
                before = arrays_of(result.arrays)["b"]
        finals.append(arrays_of(result.arrays)["b"] - before)
    np.testing.assert_allclose(finals[1], 5 * finals[0], rtol=1e-9)


class Scheduled(FedAvg):
    """A strategy with settings in a list, and a count it keeps."""

    def __init__(self, rates):
        super().__init__(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
        self.rates = rates
        self.rounds = 0
        self.used = []

    def aggregate_train(self, server_round, replies):
        self.rounds += 1
        self.used = [*self.used, self.rates[0]]
        return super().aggregate_train(server_round, replies)


def test_a_setting_in_a_list_is_taken_from_the_code_and_state_from_the_checkpoint(tmp_path):
    for rates, n_rounds in (([0.1], 2), ([0.5], 3)):
        inner = Scheduled(rates)
        FedAVOT(inner, folder=tmp_path, resume=True).start(
            federation(3, update), record_of(model()), n_rounds
        )
    assert inner.rounds == 3
    assert inner.used == [0.1, 0.1, 0.5]


def test_resuming_without_a_checkpoint_forgets_what_memory_is_there(tmp_path, whole):
    Run("memory", tmp_path).start(3)
    (tmp_path / "checkpoint.npz").unlink()
    assert Run("memory", tmp_path, resume=True).start() == whole("memory")


def test_a_log_of_rounds_no_checkpoint_covers_is_cut(tmp_path):
    Run("FedAvg", tmp_path).start(3)
    path = tmp_path / "participation.jsonl"
    whole = path.read_bytes()
    last = whole.splitlines(keepends=True)[-1].replace(b'"round": 3', b'"round": 4')
    path.write_bytes(whole + last + b'{"round": 5, "avai')
    Run("FedAvg", tmp_path, resume=True).start(3)
    assert path.read_bytes() == whole


def test_no_rounds_at_all_return_the_initial_model(tmp_path):
    arrays, lines, metrics, _ = Run("FedAvg", tmp_path).start(0)
    assert arrays["b"][1] == model()["b"].tobytes()
    assert lines == []
    assert list(metrics["evaluate_metrics_serverapp"]) == [0]


def test_resume_without_a_folder_is_refused():
    with pytest.raises(OptionError, match="resume needs a folder"):
        FedAVOT(everybody(), resume=True)


def test_resume_inside_another_wrapper_is_refused(tmp_path):
    grid = federation(3, update)
    strategy = fixed(FedAVOT(everybody(), folder=tmp_path, resume=True), noise=0.0)
    with pytest.raises(OptionError, match="resume .*outermost"):
        strategy.start(grid, record_of(model()), 1)
    assert grid.sent == []
