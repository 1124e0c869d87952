"""A run that was stopped anywhere ends as the run that was not, bit for bit."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from flwr.app import MetricRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedYogi,
    QFedAvg,
)
from grid import arrays_of, everybody, federation, record_of, rounds_in

import fedavot as fa
from fedavot.errors import CheckpointError, FileFormatError, OptionError
from fedavot.flower import FedAVOT, Weighting

N_CLIENTS, N_ROUNDS, CRASH = 6, 8, 4


class Crash(BaseException):
    """What no handler of errors catches, like a power cut."""


def model():
    rng = np.random.default_rng(7)
    return {
        "w": rng.normal(size=(4, 3)).astype(np.float32),
        "b": rng.normal(size=5),
        "steps": np.array(0, np.int64),
    }


def update(arrays, config, node):
    client = int(node["partition-id"])
    new = {
        "w": arrays["w"] + np.float32(0.3) * (np.float32(np.sin(client)) - arrays["w"]),
        "b": arrays["b"] + 0.3 * (np.cos(client) - arrays["b"]),
        "steps": arrays["steps"] + 1 + client,
    }
    loss = float(1 + client + np.abs(new["b"]).mean())
    return new, {"num-examples": 10 + 3 * client, "train_loss": loss}


def fate(node, message):
    """Return what becomes of a message, from the round and the node alone."""
    number = int(next(iter(message.content.config_records.values()))["server-round"])
    if node == 105 and number < 3:
        return "silent"  # joins late
    chance = (node * 7 + number * 13) % 10
    return {0: "error", 1: "dead", 2: "silent"}.get(chance, "reply")


def fixed(inner, noise=0.3):
    return DifferentialPrivacyServerSideFixedClipping(inner, noise, 0.5, 4)


def adaptive(inner):
    return DifferentialPrivacyServerSideAdaptiveClipping(inner, 0.3, 4, clipped_count_stddev=1.0)


def aligned():
    law = fa.IndependentClients([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    return Weighting(
        alignment=fa.align(fa.importance.uniform(6), law), clients=[str(i) for i in range(6)]
    )


LISTED = {str(i): 1.0 + i for i in range(N_CLIENTS)}
KINDS = {
    "FedAvg": lambda: (everybody(), {"importance": LISTED}),
    "FedAdam": lambda: (everybody(FedAdam), {}),
    "FedYogi": lambda: (everybody(FedYogi), {}),
    "FedAvgM": lambda: (everybody(FedAvgM, server_momentum=0.9, server_learning_rate=0.7), {}),
    "QFedAvg": lambda: (everybody(QFedAvg, client_learning_rate=0.3), {}),
    "adaptive clipping": lambda: (adaptive(everybody()), {}),
    "fixed clipping of FedAdam": lambda: (fixed(everybody(FedAdam)), {}),
    "fixed clipping of FedAvgM": lambda: (fixed(everybody(FedAvgM, server_momentum=0.9)), {}),
    "sampling": lambda: (everybody(fraction_train=0.5), {}),
    "clipping of a sample": lambda: (
        fixed(everybody(fraction_train=0.5, fraction_evaluate=0.5)),
        {},
    ),
    "selection": lambda: (everybody(), {"weighting": Weighting(cohort_size=3, seed=5)}),
    "soft": lambda: (everybody(), {"weighting": Weighting(softness=0.5)}),
    "memory": lambda: (everybody(), {"weighting": Weighting(memory=True), "importance": LISTED}),
    "memory of a growing roster": lambda: (
        everybody(FedAvgM, server_momentum=0.5),
        {"weighting": Weighting(memory=True, softness=0.2), "importance": "examples"},
    ),
    "selection by counts": lambda: (
        everybody(),
        {"weighting": Weighting(cohort_size=2), "importance": "examples"},
    ),
    "an alignment": lambda: (everybody(), {"weighting": aligned()}),
    "evaluation": lambda: (FedAvg(min_available_nodes=1, fraction_evaluate=0.5), {}),
}


def evaluate(number, arrays):
    return MetricRecord({"norm": float(np.abs(arrays_of(arrays)["w"]).sum()), "round": number})


class Run:
    """One start of a run in a folder, that may be stopped."""

    def __init__(self, kind, folder, *, resume=False, on_round=None, evaluate=evaluate):
        inner, options = KINDS[kind]()
        self.strategy = FedAVOT(inner, folder=folder, resume=resume, on_round=on_round, **options)
        self.grid = federation(N_CLIENTS, update, fate=fate)
        self.folder = folder
        self.evaluate = evaluate

    def start(self, n_rounds=N_ROUNDS, initial=None):
        result = self.strategy.start(
            self.grid, record_of(initial or model()), n_rounds, evaluate_fn=self.evaluate
        )
        return outcome(self.folder, result)


def outcome(folder, result):
    """Return all that a run leaves, but the times."""
    arrays = {key: (a.dtype.str, a.tobytes()) for key, a in arrays_of(result.arrays).items()}
    lines = rounds_in(folder)
    for line in lines:
        del line["time"]
    metrics = {
        kind: {number: dict(record) for number, record in getattr(result, kind).items()}
        for kind in (
            "train_metrics_clientapp",
            "evaluate_metrics_clientapp",
            "evaluate_metrics_serverapp",
        )
    }
    memory = folder / "memory.bin"
    return arrays, lines, metrics, memory.read_bytes() if memory.exists() else None


def seed(number):
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return what the uninterrupted run of a kind leaves."""
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


def at_replacing(name, *, before):
    def arrange(run, monkeypatch):
        real, count = os.replace, [0]

        def crashing(source, target):
            hit = Path(target).name == name
            count[0] += hit
            if hit and count[0] == CRASH and before:
                raise Crash
            real(source, target)
            if hit and count[0] == CRASH:
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
def test_a_run_stopped_about_the_memorys_journal_ends_as_if_it_had_not_been(
    tmp_path, monkeypatch, whole, before
):
    wanted = whole("memory")
    stopped = Run("memory", tmp_path)
    with monkeypatch.context() as patch:
        at_replacing("memory.journal.npz", before=before)(stopped, patch)
        with pytest.raises(Crash):
            stopped.start()
    assert Run("memory", tmp_path, resume=True).start() == wanted


def test_a_run_stopped_once_the_memorys_rows_are_written_ends_as_if_it_had_not_been(
    tmp_path, monkeypatch, whole
):
    wanted = whole("memory")
    stopped = Run("memory", tmp_path)
    real, count = Path.unlink, [0]

    def crashing(path, missing_ok=False):
        count[0] += path.name == "memory.journal.npz"
        if count[0] == CRASH:
            raise Crash
        real(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", crashing)
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
    with pytest.raises(OptionError, match="has run already; make a new one"):
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


def test_a_step_changed_between_the_starts_is_refused(tmp_path):
    # What a client is owed is counted in steps: with another step the potentials would jump.
    Run("FedAvg", tmp_path).start(2)
    with pytest.raises(CheckpointError, match=r"step is 2\.0, not 0\.5"):
        resumed(tmp_path, importance=LISTED, weighting=Weighting(step=0.5))


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


class Keeping(FedAvg):
    """A strategy that keeps one thing between rounds, and adds its size to the model."""

    def __init__(self, kept):
        super().__init__(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
        self.kept = kept
        self.loaded = None

    def aggregate_train(self, server_round, replies):
        self.kept = self.change(self.kept)
        return super().aggregate_train(server_round, replies)

    def change(self, kept):
        return kept


@pytest.mark.parametrize(
    "kept",
    [
        {1, 2},
        object(),
        np.random.default_rng(0),
        [object()],
        {"a": {"b": iter(())}},
        np.array([object()]),
        Path("x"),
    ],
    ids=lambda kept: type(kept).__name__,
)
def test_what_a_checkpoint_cannot_hold_is_refused_before_anybody_trains(tmp_path, kept):
    grid = federation(3, update)
    with pytest.raises(CheckpointError, match=r"Keeping\.kept is .*"):
        FedAVOT(Keeping(kept), folder=tmp_path).start(grid, record_of(model()), 1)
    assert grid.sent == []


def test_without_a_folder_a_strategy_may_keep_anything():
    FedAVOT(Keeping({1, 2})).start(federation(3, update), record_of(model()), 1)


@pytest.mark.parametrize(
    "value",
    [
        np.float64(0.1) * 3,
        np.float32(0.1),
        np.int64(5),
        np.bool_(True),
        b"\x00\xff",
        (1, [2, (3,)], {"a": None}),
        {1: "int key", "1": "text key", (1, 2): "pair"},
        np.arange(3),
        np.array(2.5, np.float16),
        np.zeros((0, 2)),
        float("inf"),
        float("-inf"),
        2**80,
        "naïve 🚑",
        {},
        [],
        (),
        {"array": 1, "kind": "scalar"},
        {"list": [1]},
        {"pairs": [], "kind": "dict"},
        MetricRecord({"a": [1.0]}),
    ],
    ids=repr,
)
def test_what_a_strategy_keeps_comes_back_as_it_was(tmp_path, value):
    class Fresh(Keeping):
        def change(self, kept):
            return value if kept is None else kept

    Fresh.__name__ = "Keeping"
    grid = federation(2, update)
    FedAVOT(Fresh(None), folder=tmp_path).start(grid, record_of(model()), 1)
    inner = Fresh(None)
    FedAVOT(inner, folder=tmp_path, resume=True).start(grid, record_of(model()), 1)
    assert type(inner.kept) is type(value)
    if isinstance(value, np.ndarray | np.generic):
        assert inner.kept.dtype == value.dtype
        np.testing.assert_array_equal(inner.kept, value)
    else:
        assert inner.kept == value


def test_arrays_that_come_back_can_be_written_to(tmp_path):
    class Counting(Keeping):
        def change(self, kept):
            kept = np.zeros(2) if kept is None else kept
            kept += 1
            return kept

    for n_rounds in (2, 4):
        inner = Counting(None)
        FedAVOT(inner, folder=tmp_path, resume=True).start(
            federation(2, update), record_of(model()), n_rounds
        )
    assert inner.kept.tolist() == [4.0, 4.0]


def test_a_strategy_can_say_itself_what_it_keeps(tmp_path):
    class Own(Keeping):
        def change(self, kept):
            return {*kept, len(kept)}

        def state_dict(self):
            return {"kept": sorted(self.kept)}

        def load_state_dict(self, state):
            self.kept = set(state["kept"])

    for n_rounds in (2, 4):
        inner = Own(set())
        FedAVOT(inner, folder=tmp_path, resume=True).start(
            federation(2, update), record_of(model()), n_rounds
        )
    assert inner.kept == {0, 1, 2, 3}


def test_a_folder_in_use_is_refused_without_resume(tmp_path):
    Run("FedAvg", tmp_path).start(2)
    run = Run("FedAvg", tmp_path)
    with pytest.raises(CheckpointError, match=r"of an earlier run; go on with it by resume=True"):
        run.start()
    assert run.grid.sent == []
    assert len(rounds_in(tmp_path)) == 2


def test_what_was_refused_once_is_refused_again(tmp_path):
    Run("FedAvg", tmp_path).start(2)
    run = Run("FedAvg", tmp_path)
    for _ in range(2):
        with pytest.raises(CheckpointError, match="of an earlier run"):
            run.start()
    assert run.grid.sent == []


def test_memory_of_an_earlier_run_is_refused_without_resume(tmp_path):
    Run("memory", tmp_path).start(2)
    for name in ("checkpoint.npz", "participation.jsonl"):
        (tmp_path / name).unlink()
    with pytest.raises(CheckpointError, match="memory"):
        Run("memory", tmp_path).start()


def test_resuming_without_a_checkpoint_forgets_what_memory_is_there(tmp_path, whole):
    Run("memory", tmp_path).start(3)
    (tmp_path / "checkpoint.npz").unlink()
    assert Run("memory", tmp_path, resume=True).start() == whole("memory")


def other(**changes):
    return {key: value for key, value in (model() | changes).items() if value is not None}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (other(b=None), "array 'b'"),
        (other(extra=np.zeros(2)), "array 'extra'"),
        (other(b=np.zeros(4)), r"array 'b' is \(\(5,\)"),
        (other(w=model()["w"].astype(np.float64)), "array 'w'"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(tmp_path, arrays, message):
    Run("FedAvg", tmp_path).start(2)
    run = Run("FedAvg", tmp_path, resume=True)
    with pytest.raises(CheckpointError, match=f"of another model: {message}"):
        run.start(initial=arrays)
    assert run.grid.sent == []


def resumed(folder, inner=None, **options):
    grid = federation(N_CLIENTS, update, fate=fate)
    try:
        FedAVOT(inner or everybody(), folder=folder, resume=True, **options).start(
            grid, record_of(model()), N_ROUNDS
        )
    finally:
        assert grid.sent == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "its importance is 'listed', not 'uniform'"),
        ({"importance": "examples"}, "its importance is 'listed', not 'examples'"),
        ({"importance": LISTED | {"0": 9.0}}, r"client '0' has importance 1\.0, not 9\.0"),
        ({"importance": LISTED | {"new": 9.0}}, "client 'new' has importance None, not 9"),
        ({"importance": {"0": 1.0}}, "names client '1', who has no importance now"),
        ({"importance": LISTED, "weighting": Weighting(softness=0.1)}, "softness is 0.0, not 0.1"),
        ({"importance": LISTED, "weighting": Weighting(memory=True)}, "made without memory"),
        ({"weighting": aligned()}, "importance|alignment"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, options, message):
    Run("FedAvg", tmp_path).start(2)
    with pytest.raises(CheckpointError, match=message):
        resumed(tmp_path, **options)


def test_a_checkpoint_with_memory_is_refused_without(tmp_path):
    Run("memory", tmp_path).start(2)
    with pytest.raises(CheckpointError, match="made with memory"):
        resumed(tmp_path, importance=LISTED)


@pytest.mark.parametrize(
    "inner",
    [everybody(FedAdam), fixed(everybody()), everybody(FedAvgM)],
    ids=["FedAdam", "DP", "FedAvgM"],
)
def test_a_checkpoint_of_another_strategy_is_refused(tmp_path, inner):
    Run("FedAvg", tmp_path).start(2)
    with pytest.raises(CheckpointError, match=f"is of FedAvg, and this is {type(inner).__name__}"):
        resumed(tmp_path, inner, importance=LISTED)


def test_a_checkpoint_of_another_alignment_is_refused(tmp_path):
    Run("an alignment", tmp_path).start(2)
    law = fa.IndependentClients([0.5] * 6)
    clients = [str(i) for i in range(6)]
    uneven = np.arange(1, 7) / 21
    with pytest.raises(CheckpointError, match="client '0' has importance"):
        resumed(tmp_path, weighting=Weighting(alignment=fa.align(uneven, law), clients=clients))


def damage(folder, how):
    path = folder / "checkpoint.npz"
    data = path.read_bytes()
    path.write_bytes({"cut": data[:-100], "empty": b"", "foreign": b"not an archive"}[how])


@pytest.mark.parametrize("how", ["cut", "empty", "foreign"])
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path, how):
    Run("FedAvg", tmp_path).start(2)
    damage(tmp_path, how)
    with pytest.raises(FileFormatError, match=r"checkpoint\.npz is not a checkpoint, or cut off"):
        resumed(tmp_path, importance=LISTED)


def test_an_archive_of_something_else_is_refused(tmp_path):
    text = np.frombuffer(json.dumps({"format": "x", "version": 1}).encode(), np.uint8)
    np.savez(tmp_path / "checkpoint.npz", meta=text)
    with pytest.raises(FileFormatError, match="holds 'x' version 1, not"):
        resumed(tmp_path)


def test_a_newer_checkpoint_is_refused(tmp_path):
    text = json.dumps({"format": "fedavot-flower-checkpoint", "version": 99}).encode()
    np.savez(tmp_path / "checkpoint.npz", meta=np.frombuffer(text, np.uint8))
    with pytest.raises(FileFormatError, match="version 99"):
        resumed(tmp_path)


def test_a_log_that_lacks_rounds_of_the_checkpoint_is_refused(tmp_path):
    Run("FedAvg", tmp_path).start(3)
    path = tmp_path / "participation.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:1]))
    with pytest.raises(CheckpointError, match="has 1 of the 3 rounds"):
        resumed(tmp_path, importance=LISTED)


def test_a_log_with_a_line_that_is_none_of_ours_is_refused(tmp_path):
    Run("FedAvg", tmp_path).start(3)
    path = tmp_path / "participation.jsonl"
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, b"edited by hand\n", *rest]))
    with pytest.raises(CheckpointError, match="has 1 of the 3 rounds"):
        resumed(tmp_path, importance=LISTED)


def test_an_alignments_checkpoint_is_refused_by_an_aligner(tmp_path):
    Run("an alignment", tmp_path).start(2)
    shares = aligned().alignment.importance.tolist()
    importance = {str(client): share for client, share in enumerate(shares)}
    with pytest.raises(CheckpointError, match="its weights come from an alignment"):
        resumed(tmp_path, importance=importance)


def test_a_log_of_rounds_no_checkpoint_covers_is_cut(tmp_path):
    Run("FedAvg", tmp_path).start(3)
    path = tmp_path / "participation.jsonl"
    whole = path.read_bytes()
    last = whole.splitlines(keepends=True)[-1].replace(b'"round": 3', b'"round": 4')
    path.write_bytes(whole + last + b'{"round": 5, "avai')
    Run("FedAvg", tmp_path, resume=True).start(3)
    assert path.read_bytes() == whole


def test_arrays_may_have_any_names(tmp_path):
    names = [
        "",
        "a/b",
        "w.npy",
        "meta",
        "file",
        "strategy/0",
        "memory",
        "../up",
        "naïve 🚑",
        "W",
        "w",
    ]
    arrays = {name: np.full(2, float(place)) for place, name in enumerate(names)}
    for n_rounds in (1, 2):
        grid = federation(2, lambda a, c, n: ({key: v + 1 for key, v in a.items()}, {}))
        result = FedAVOT(
            everybody(FedAvgM, server_momentum=0.5), folder=tmp_path, resume=True
        ).start(grid, record_of(arrays), n_rounds)
    found = arrays_of(result.arrays)
    assert list(found) == names
    for place, name in enumerate(names):
        np.testing.assert_allclose(found[name], place + 2.5)


def test_metrics_that_are_no_numbers_come_back(tmp_path):
    def report(arrays, config, node):
        return arrays, {"num-examples": 1, "loss": float("nan"), "many": [1.0, float("inf")]}

    for n_rounds in (1, 2):
        result = FedAVOT(everybody(), folder=tmp_path, resume=True).start(
            federation(2, report), record_of(model()), n_rounds
        )
    assert sorted(result.train_metrics_clientapp) == [1, 2]
    first = result.train_metrics_clientapp[1]
    assert np.isnan(first["loss"])
    assert first["many"] == [1.0, float("inf")]


def test_no_rounds_at_all_return_the_initial_model(tmp_path):
    arrays, lines, metrics, _ = Run("FedAvg", tmp_path).start(0)
    assert arrays["b"][1] == model()["b"].tobytes()
    assert lines == []
    assert list(metrics["evaluate_metrics_serverapp"]) == [0]


def test_resume_without_a_folder_is_refused():
    with pytest.raises(OptionError, match="resume needs a folder"):
        FedAVOT(everybody(), resume=True)


def test_memory_without_a_folder_is_refused():
    with pytest.raises(OptionError, match="memory needs a folder"):
        FedAVOT(everybody(), weighting=Weighting(memory=True))


def test_resume_inside_another_wrapper_is_refused(tmp_path):
    grid = federation(3, update)
    strategy = fixed(FedAVOT(everybody(), folder=tmp_path, resume=True), noise=0.0)
    with pytest.raises(OptionError, match="resume needs FedAVOT outermost"):
        strategy.start(grid, record_of(model()), 1)
    assert grid.sent == []


def test_inside_another_wrapper_there_is_a_log_and_no_checkpoint(tmp_path):
    strategy = fixed(FedAVOT(everybody(), folder=tmp_path), noise=0.0)
    strategy.start(federation(4, update), record_of(model()), 3)
    assert {it.name for it in tmp_path.iterdir()} == {"lock", "participation.jsonl"}
    assert [line["round"] for line in rounds_in(tmp_path)] == [1, 2, 3]


def test_nothing_temporary_is_left_behind(tmp_path):
    Run("memory", tmp_path).start(3)
    names = {it.name for it in tmp_path.iterdir()}
    assert names == {"checkpoint.npz", "lock", "memory.bin", "participation.jsonl"}
