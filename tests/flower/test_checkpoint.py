"""A checkpoint holds all state of a strategy, and is refused if it belongs to another run."""

import collections
import functools
import json
import logging
import os
import random
import stat
import threading
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM
from grid import Node, app_of, arrays_of, everybody, federation, record_of, rounds_in
from runs import LISTED, N_CLIENTS, N_ROUNDS, Run, aligned, fate, fixed, model, update

import fedavot as fa
from fedavot.errors import CheckpointError, FedavotError, FileFormatError, OptionError
from fedavot.flower import FedAVOT, Weighting
from fedavot.flower.kept import checkpoint
from sealing import seal_archive


class Counter:
    """A callable that counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, *given):
        self.calls += 1


class Keeping(FedAvg):
    """A strategy that keeps one value between rounds, and adds its size to the model."""

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
        [object()],
        {"a": {"b": iter(())}},
        (1, [threading.Lock()]),
        collections.deque([Counter()]),
        np.array([object()]),
        {"a": collections.defaultdict(lambda: 1)},
    ],
    ids=lambda kept: type(kept).__name__,
)
def test_what_a_checkpoint_cannot_hold_is_refused_before_anybody_trains(tmp_path, kept):
    grid = federation(3, update)
    with pytest.raises(CheckpointError, match=r"^Keeping\.kept is "):
        FedAVOT(Keeping(kept), folder=tmp_path).start(grid, record_of(model()), 1)
    assert grid.sent == []


@pytest.mark.parametrize(
    "tool",
    [threading.Lock(), Path("run"), Counter(), object(), [Path("a"), len], logging.getLogger("x")],
    ids=lambda tool: type(tool).__name__,
)
def test_tools_of_a_strategy_are_left_as_the_code_makes_them(tmp_path, caplog, tool):
    caplog.set_level("INFO", "flwr")
    for n_rounds in (1, 2):
        inner = Keeping(tool)
        FedAVOT(inner, folder=tmp_path, resume=True).start(
            federation(2, update), record_of(model()), n_rounds
        )
    assert inner.kept is tool
    named = [it for it in caplog.messages if "Keeping.kept" in it]
    assert len(named) == (0 if isinstance(tool, Path) else 2)


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (Path("a"), lambda kept: kept / "more"),
        (None, lambda kept: (kept or Path("b")) / "more"),
        ([Path("a")], lambda kept: [*kept, kept[-1] / "more"]),
        (PurePosixPath("a"), lambda kept: kept / "more"),
    ],
)
def test_paths_that_change_during_a_run_come_back(tmp_path, before, change):
    class Moving(Keeping):
        def change(self, kept):
            return change(kept)

    wanted = before
    for n_rounds in (2, 5):
        inner = Moving(before)
        FedAVOT(inner, folder=tmp_path, resume=True).start(
            federation(2, update), record_of(model()), n_rounds
        )
    for _ in range(5):
        wanted = change(wanted)
    assert inner.kept == wanted
    assert type(inner.kept) is type(wanted)


def test_what_becomes_unsaveable_is_said_at_once_and_refuses_a_resume(tmp_path, caplog):
    class Filling(Keeping):
        def change(self, kept):
            return [*kept, object()]

    FedAVOT(Filling([]), folder=tmp_path).start(federation(2, update), record_of(model()), 3)
    assert len([it for it in caplog.messages if "Filling.kept" in it]) == 1
    grid = federation(2, update)
    with pytest.raises(CheckpointError, match=r"lacks Filling\.kept"):
        FedAVOT(Filling([]), folder=tmp_path, resume=True).start(grid, record_of(model()), 5)
    assert grid.sent == []


def test_what_an_attribute_says_of_itself_comes_back(tmp_path):
    class Tracker:
        def __init__(self):
            self.lock, self.seen = threading.Lock(), 0

        def state_dict(self):
            return {"seen": self.seen}

        def load_state_dict(self, state):
            self.seen = state["seen"]

    class Tracking(Keeping):
        def change(self, kept):
            kept.seen += 1
            return kept

    for n_rounds in (2, 5):
        inner = Tracking(Tracker())
        FedAVOT(inner, folder=tmp_path, resume=True).start(
            federation(2, update), record_of(model()), n_rounds
        )
    assert inner.kept.seen == 5


def test_a_defaultdict_with_a_default_of_the_users_comes_back(tmp_path):
    class Adding(Keeping):
        def change(self, kept):
            kept["rounds"] += 1
            return kept

    for n_rounds in (2, 5):
        inner = Adding(collections.defaultdict(lambda: 10))
        FedAVOT(inner, folder=tmp_path, resume=True).start(
            federation(2, update), record_of(model()), n_rounds
        )
    assert inner.kept == {"rounds": 15}
    assert inner.kept["new"] == 10


@pytest.mark.parametrize("kind", [np.random.default_rng, random.Random])
def test_a_generator_of_a_strategys_own_continues(tmp_path, kind):
    class Drawing(Keeping):
        def change(self, kept):
            self.drawn = kept.random()
            return kept

    drawn = []
    for folder, stops in (("whole", [4]), ("parts", [2, 4])):
        for n_rounds in stops:
            inner = Drawing(kind(3))
            FedAVOT(inner, folder=tmp_path / folder, resume=True).start(
                federation(2, update), record_of(model()), n_rounds
            )
        drawn.append(inner.drawn)
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    "code",
    [lambda: 1, len, [].append, Counter, Counter().__call__, functools.partial(print, "x")],
    ids=["function", "builtin", "builtin method", "class", "method", "partial"],
)
def test_code_among_what_a_strategy_keeps_is_taken_from_the_code(tmp_path, code):
    for n_rounds in (1, 2):
        inner = Keeping(code)
        FedAVOT(inner, folder=tmp_path, resume=True).start(
            federation(2, update), record_of(model()), n_rounds
        )
    assert inner.kept is code


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
        {"kind": "Counter", "of": []},
        {1, 2},
        frozenset({"a"}),
        collections.Counter("abca"),
        collections.OrderedDict([("b", 1), ("a", 2)]),
        collections.defaultdict(list, {"a": [1]}),
        collections.defaultdict(None, {"a": [1]}),
        collections.deque([1, 2], maxlen=3),
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


def test_a_strategy_that_says_only_half_is_refused(tmp_path):
    class Half(Keeping):
        def state_dict(self):
            return {}

    with pytest.raises(CheckpointError, match=r"Half .*load_state_dict"):
        FedAVOT(Half(1), folder=tmp_path).start(federation(2, update), record_of(model()), 1)


@pytest.mark.parametrize("kind", [FedAdam, FedAvgM])
def test_flowers_part_of_a_strategy_is_saved_beside_what_it_says_itself(tmp_path, kind):
    class Own(kind):  # type: ignore[misc, valid-type]
        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    options = {"server_momentum": 0.9} if kind is FedAvgM else {}
    ends = []
    for folder, stops in (("whole", [5]), ("parts", [2, 5])):
        for n_rounds in stops:
            strategy = FedAVOT(everybody(Own, **options), folder=tmp_path / folder, resume=True)
            result = strategy.start(federation(3, update), record_of(model()), n_rounds)
        ends.append(arrays_of(result.arrays))
    for key, value in ends[0].items():
        np.testing.assert_array_equal(ends[1][key], value)


def test_configurations_that_change_from_round_to_round_continue(tmp_path):
    class Decaying(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            config["lr"] = config["lr"] / 2
            config["seen"] = [*config.get("seen", []), server_round]
            config.pop("first", None)
            return super().configure_train(server_round, arrays, config, grid)

    heard = {}
    for folder, stops in (("whole", [5]), ("parts", [2, 5])):
        for n_rounds in stops:

            def listen(arrays, config, node, folder=folder):
                heard.setdefault(folder, {})[config["server-round"]] = config
                return arrays, {"num-examples": 1}

            start = ConfigRecord({"lr": 1.0, "first": True, "epochs": n_rounds})
            FedAVOT(everybody(Decaying), folder=tmp_path / folder, resume=True).start(
                federation(1, listen), record_of(model()), n_rounds, train_config=start
            )
    # What the strategy does not change is a setting, and may differ from start to start.
    for configs in heard.values():
        assert {config.pop("epochs") for config in configs.values()} <= {2, 5}
    assert heard["parts"] == heard["whole"]
    assert heard["whole"][5] == {"lr": 1 / 32, "seen": [1, 2, 3, 4, 5], "server-round": 5}


def test_a_folder_in_use_is_refused_without_resume(tmp_path):
    Run("FedAvg", tmp_path).start(2)
    run = Run("FedAvg", tmp_path)
    with pytest.raises(CheckpointError, match=r"checkpoint\.npz .*resume=True"):
        run.start()
    assert run.grid.sent == []
    assert len(rounds_in(tmp_path)) == 2


@pytest.mark.parametrize("kind", ["FedAvg", "memory"])
def test_a_folder_whose_run_was_stopped_before_its_first_round_is_free(tmp_path, kind):
    def stop(server_round, arrays):
        raise KeyboardInterrupt("stopped")

    with pytest.raises(KeyboardInterrupt, match="stopped"):
        Run(kind, tmp_path, evaluate=stop).start()
    assert rounds_in(tmp_path) == []
    Run(kind, tmp_path).start(2)
    assert len(rounds_in(tmp_path)) == 2


def test_what_was_refused_once_is_refused_again(tmp_path):
    Run("FedAvg", tmp_path).start(2)
    run = Run("FedAvg", tmp_path)
    for _ in range(2):
        with pytest.raises(CheckpointError, match="resume=True"):
            run.start()
    assert run.grid.sent == []


def test_memory_of_an_earlier_run_is_refused_without_resume(tmp_path):
    Run("memory", tmp_path).start(2)
    for name in ("checkpoint.npz", "participation.jsonl"):
        (tmp_path / name).unlink()
    with pytest.raises(CheckpointError, match=r"memory\.json .*resume=True"):
        Run("memory", tmp_path).start()


def other(**changes):
    return {key: value for key, value in (model() | changes).items() if value is not None}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (other(b=None), "array 'b'"),
        (other(extra=np.zeros(2)), "array 'extra'"),
        (other(b=np.zeros(4)), r"array 'b' is \[\[5\]"),
        (other(w=model()["w"].astype(np.float64)), "array 'w'"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(tmp_path, arrays, message):
    Run("FedAvg", tmp_path).start(2)
    run = Run("FedAvg", tmp_path, resume=True)
    with pytest.raises(CheckpointError, match=f"another model: {message}"):
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
        ({"importance": "examples"}, "importance .*'listed'.*'examples'"),
        ({"importance": LISTED, "weighting": Weighting(softness=0.1)}, r"softness .*2\.0.*0\.1"),
        # What a client is owed is counted in steps: with another the potentials would jump.
        ({"importance": LISTED, "weighting": Weighting(step=0.5)}, r"step .*1\.0.*0\.5"),
        ({"importance": LISTED, "memory": True}, "without memory"),
        ({"weighting": aligned()}, "from an online aligner"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, options, message):
    Run("FedAvg", tmp_path).start(2)
    with pytest.raises(CheckpointError, match=message):
        resumed(tmp_path, **options)


CHANGES = {
    "importance changed: '0'": LISTED | {"0": 9.0},
    "clients joined: 'new'": LISTED | {"new": 9.0},
    "clients left: '1'": {name: amount for name, amount in LISTED.items() if name != "1"},
}


@pytest.mark.parametrize("event", CHANGES)
def test_importance_and_clients_may_change_on_resume_and_the_log_says_so(tmp_path, caplog, event):
    importance = CHANGES[event]
    Run("FedAvg", tmp_path).start(2)
    grid, seen = federation(N_CLIENTS, update), []
    grid.nodes[107] = Node(app_of(update), {"partition-id": "new"})
    strategy = FedAVOT(
        everybody(), importance=importance, folder=tmp_path, resume=True, on_round=seen.append
    )
    strategy.start(grid, record_of(model()), 60)
    total = sum(importance.values())
    shares = {name: amount / total for name, amount in importance.items()}
    found = {name: share for name, share in strategy.importance.items() if share > 0}
    assert found == pytest.approx(shares)
    assert [it.events for it in seen[:2]] == [[event], []]
    assert ["events" in line for line in rounds_in(tmp_path)][:4] == [False, False, True, False]
    assert any(event in it for it in caplog.messages)
    if "left" in event:
        assert all("1" not in record.asked for record in seen)
        assert "'1'" in next(iter(seen[0].refused.values()))
    else:
        for name, share in shares.items():
            if name in seen[-1].weights:
                assert seen[-1].weights[name] == pytest.approx(share, abs=0.1)


def test_a_run_that_resumes_with_the_same_importance_has_no_event(tmp_path):
    Run("FedAvg", tmp_path).start(2)
    Run("FedAvg", tmp_path, resume=True).start(3)
    assert not any("events" in line for line in rounds_in(tmp_path))


def test_a_checkpoint_with_memory_is_refused_without(tmp_path):
    Run("memory", tmp_path).start(2)
    with pytest.raises(CheckpointError, match="with memory"):
        resumed(tmp_path, importance=LISTED)


@pytest.mark.parametrize(
    "inner",
    [everybody(FedAdam), fixed(everybody()), everybody(FedAvgM)],
    ids=["FedAdam", "DP", "FedAvgM"],
)
def test_a_checkpoint_of_another_strategy_is_refused(tmp_path, inner):
    Run("FedAvg", tmp_path).start(2)
    with pytest.raises(CheckpointError, match=f"FedAvg.*{type(inner).__name__}"):
        resumed(tmp_path, inner, importance=LISTED)


def aligned_to(importance, availability):
    """Return weights computed beforehand for the importance, by name."""
    alignment = fa.align(importance, fa.IndependentClients(availability))
    return Weighting(alignment=alignment, clients=[str(i) for i in range(N_CLIENTS)])


@pytest.mark.parametrize(
    ("importance", "availability", "message"),
    [
        (np.arange(1, 7) / 21, [0.5] * 6, "another alignment"),
        (fa.importance.uniform(6), [0.5] * 6, "another alignment"),
    ],
)
def test_a_checkpoint_of_another_alignment_is_refused(tmp_path, importance, availability, message):
    Run("an alignment", tmp_path).start(2)
    with pytest.raises(CheckpointError, match=message):
        resumed(tmp_path, weighting=aligned_to(importance, availability))


def test_a_run_resumes_with_the_same_alignment_computed_again(tmp_path):
    Run("an alignment", tmp_path).start(2)
    _, lines, _, _ = Run("an alignment", tmp_path, resume=True).start(3)
    assert [line["round"] for line in lines] == [1, 2, 3]


def damage(folder, how):
    path = folder / "checkpoint.npz"
    data = path.read_bytes()
    path.write_bytes({"cut": data[:-100], "empty": b"", "foreign": b"not an archive"}[how])


@pytest.mark.parametrize("how", ["cut", "empty", "foreign"])
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path, how):
    Run("FedAvg", tmp_path).start(2)
    damage(tmp_path, how)
    with pytest.raises(FileFormatError, match=r"checkpoint\.npz is damaged"):
        resumed(tmp_path, importance=LISTED)


def test_an_archive_of_something_else_is_refused(tmp_path):
    text = np.frombuffer(json.dumps({"format": "x", "version": 1}).encode(), np.uint8)
    seal_archive(tmp_path / "checkpoint.npz", {"meta": text})
    with pytest.raises(FileFormatError, match="holds 'x' version 1"):
        resumed(tmp_path)


def test_a_checkpoint_with_a_changed_array_is_refused(tmp_path):
    Run("FedAvg", tmp_path).start(2)
    path = tmp_path / "checkpoint.npz"
    with np.load(path) as archive:
        held = dict(archive)
    np.savez(path, **(held | {"model/0": held["model/0"] + 1}))
    with pytest.raises(FileFormatError, match="checksum"):
        resumed(tmp_path, importance=LISTED)


def meta_of(folder):
    with np.load(folder / "checkpoint.npz") as archive:
        return json.loads(archive["meta"].tobytes())


def as_array(meta):
    return np.frombuffer(json.dumps(meta).encode(), np.uint8)


@pytest.mark.parametrize("version", [1, 2, 99])
def test_a_checkpoint_of_another_version_is_refused_with_what_to_do(tmp_path, version):
    Run("FedAvg", tmp_path).start(2)
    path = tmp_path / "checkpoint.npz"
    with np.load(path) as archive:
        held = dict(archive)
    seal_archive(path, held | {"meta": as_array(meta_of(tmp_path) | {"version": version})})
    with pytest.raises(FileFormatError, match=f"version {version}.*another folder"):
        resumed(tmp_path, importance=LISTED)


@pytest.mark.parametrize(
    "change",
    [
        {"weigher": None},
        {"weigher": {"pairs": [], "kind": "dict"}},
        {"round": "two"},
        {"model": 3},
        {"strategy": [{}]},
        {"strategy": None},
        {"names": {"pairs": [["nodes", 1]], "kind": "dict"}},
        {"inspector": 1.0},
        {"results": {}},
        {"random": {"python": [3, [], None], "numpy": []}},
    ],
    ids=lambda change: f"{next(iter(change))}-{next(iter(change.values()))}",
)
def test_an_edited_checkpoint_with_a_fitting_checksum_is_refused(tmp_path, change):
    Run("FedAvg", tmp_path).start(2)
    path = tmp_path / "checkpoint.npz"
    with np.load(path) as archive:
        held = dict(archive)
    seal_archive(path, held | {"meta": as_array(meta_of(tmp_path) | change)})
    with pytest.raises(CheckpointError, match="the checkpoint in "):
        resumed(tmp_path, importance=LISTED)


@pytest.mark.parametrize("kind", ["weigher", "memory"])
def test_complex_numbers_in_the_place_of_ours_are_refused(tmp_path, kind):
    Run("memory", tmp_path).start(2)
    path = tmp_path / "checkpoint.npz"
    with np.load(path) as archive:
        held = dict(archive)
    names = [name for name in held if name.startswith(f"{kind}/")]
    assert names
    for name in names:
        seal_archive(path, held | {name: held[name].astype(np.complex128)})
        with pytest.raises(CheckpointError, match="the checkpoint in "):
            Run("memory", tmp_path, resume=True).start(3)


@pytest.mark.parametrize("importance", ["examples", LISTED], ids=["examples", "listed"])
def test_arrays_without_one_number_per_client_are_refused(tmp_path, importance):
    grid = federation(N_CLIENTS, update, fate=fate)
    strategy = FedAVOT(everybody(), importance=importance, folder=tmp_path)
    strategy.start(grid, record_of(model()), 2)
    path = tmp_path / "checkpoint.npz"
    with np.load(path) as archive:
        held = dict(archive)
    ours = {name: it for name, it in held.items() if name.startswith("weigher/")}
    numbers = {name: it for name, it in ours.items() if it.dtype.kind == "f" and it.size}
    assert len(numbers) > 1
    for name, right in numbers.items():
        for wrong in (right[:0], right[:-1], np.full(right.shape, np.nan)):
            seal_archive(path, held | {name: wrong})
            with pytest.raises(FedavotError, match="checkpoint"):
                resumed(tmp_path, importance=importance)


def test_with_memory_a_checkpoint_whose_model_has_other_arrays_is_refused(tmp_path):
    Run("memory", tmp_path).start(2)
    path, meta = tmp_path / "checkpoint.npz", meta_of(tmp_path)
    with np.load(path) as archive:
        held = dict(archive)
    names = ["other", *meta["model"][1:]]
    seal_archive(path, held | {"meta": as_array(meta | {"model": names})})
    with pytest.raises(CheckpointError, match="array 'other' is in its model"):
        Run("memory", tmp_path, resume=True).start(3)


def test_a_log_that_lacks_rounds_of_the_checkpoint_is_refused(tmp_path):
    Run("FedAvg", tmp_path).start(3)
    path = tmp_path / "participation.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:1]))
    with pytest.raises(CheckpointError, match="has 1 of the 3 rounds"):
        resumed(tmp_path, importance=LISTED)


@pytest.mark.parametrize(
    "line",
    [
        b"edited by hand",
        b'{"round": 3}',
        b'{"round": 2.0}',
        b'{"round": 2, "round": 2}',
        b'{"round": 1e999}',
        b'{"round": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b"[2]",
    ],
    ids=range(8),
)
def test_a_log_whose_last_line_is_none_of_ours_is_refused(tmp_path, line):
    Run("FedAvg", tmp_path).start(3)
    path = tmp_path / "participation.jsonl"
    *first, _ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*first, line + b"\n"]))
    with pytest.raises(CheckpointError, match="has 2 of the 3 rounds"):
        resumed(tmp_path, importance=LISTED)


def test_an_alignments_checkpoint_is_refused_by_an_aligner_and_the_other_way_round(tmp_path):
    shares = aligned().alignment.importance.tolist()
    importance = {str(client): share for client, share in enumerate(shares)}
    ways = {
        "an alignment": {"weighting": aligned()},
        "an online aligner": {"importance": importance},
    }
    for (first, options), others in zip(ways.items(), reversed(ways.values()), strict=True):
        grid = federation(N_CLIENTS, update, fate=fate)
        FedAVOT(everybody(), folder=tmp_path / first, **options).start(grid, record_of(model()), 2)
        with pytest.raises(CheckpointError, match=f"from {first}; continue as it began"):
            resumed(tmp_path / first, **others)


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
        grid = federation(
            2, lambda a, c, n: ({key: v + 1 for key, v in a.items()}, {"num-examples": 1})
        )
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


def test_memory_without_a_folder_is_refused():
    with pytest.raises(OptionError, match="memory needs a folder"):
        FedAVOT(everybody(), memory=True)


def test_inside_another_wrapper_there_is_a_log_and_no_checkpoint(tmp_path):
    strategy = fixed(FedAVOT(everybody(), folder=tmp_path), noise=0.0)
    strategy.start(federation(4, update), record_of(model()), 3)
    assert {it.name for it in tmp_path.iterdir()} == {"lock", "participation.jsonl"}
    assert [line["round"] for line in rounds_in(tmp_path)] == [1, 2, 3]


def test_a_checkpoint_is_flushed_before_it_gets_its_name_and_its_folder_after(
    tmp_path, monkeypatch
):
    told = []
    flush, rename = os.fsync, os.replace

    def flushing(number):
        told.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file")
        flush(number)

    def renaming(source, target):
        told.append(Path(target).name)
        rename(source, target)

    Run("FedAvg", tmp_path).start(1)
    monkeypatch.setattr(os, "fsync", flushing)
    monkeypatch.setattr(os, "replace", renaming)
    checkpoint.save(tmp_path, *checkpoint.load(tmp_path))
    assert told == ["file", "checkpoint.npz", "folder"]


def test_nothing_temporary_is_left_behind(tmp_path):
    Run("memory", tmp_path).start(3)
    names = {it.name for it in tmp_path.iterdir()}
    assert names == {"checkpoint.npz", "lock", "memory.json", "memory.rows", "participation.jsonl"}
