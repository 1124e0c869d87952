"""Strategies that users wrote run inside FedAVOT as they run without it."""

import collections
import copy
import random
import re

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, QFedAvg, Result, Strategy
from grid import arrays_of, everybody, federation, only, record_of, rounds_in
from runs import fixed

from fedavot.errors import AggregateError, OptionError
from fedavot.flower import FedAVOT, Weighting

AGREE = 1e-12
MODEL = {"w": np.linspace(-1, 1, 4), "b": np.zeros(2)}
COHORTS = [[0, 1, 2], [1, 2], [0, 2], [1], [0, 1, 2]]
IMPORTANCE = {"0": 5.0, "1": 3.0, "2": 2.0}


def update(arrays, config, node):
    client = int(node["partition-id"])
    new = {key: value + 0.3 * (np.cos(client) - value) for key, value in arrays.items()}
    return new, {"num-examples": 10 + client, "train_loss": 0.5 + client}


def grid_of(**options):
    return federation(3, update, **({"fate": only(COHORTS)} | options))


def avot(inner, **options):
    return FedAVOT(inner, importance=IMPORTANCE, **options)


def plain_run(n_rounds=5, **options):
    """Return the result of FedAVOT around FedAvg, and the rounds."""
    seen = []
    strategy = avot(everybody(), on_round=seen.append, **options)
    return strategy.start(grid_of(), record_of(MODEL), n_rounds), seen


def same_model(left, right):
    assert arrays_of(left).keys() == arrays_of(right).keys()
    for key, value in arrays_of(left).items():
        np.testing.assert_array_equal(value, arrays_of(right)[key])


class Calling(FedAvg):
    """A strategy whose start prepares something and then calls Flower's, with other defaults."""

    def __init__(self, **options):
        super().__init__(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1, **options)
        self.events = []

    def start(self, grid, initial_arrays, num_rounds=2, *, project="none", **options):  # type: ignore[override]
        self.events.append(project)
        result = super().start(grid, initial_arrays, num_rounds=num_rounds, **options)
        self.events.append(len(result.train_metrics_clientapp))
        return result


class OwnLoop(FedAvg):
    """A strategy with a training loop of its own, as in Flower's advanced examples."""

    def __init__(self, **options):
        super().__init__(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1, **options)
        self.models = []

    def start(self, grid, initial_arrays, num_rounds=3, timeout=3600, train_config=None):  # type: ignore[override]
        config, arrays = train_config or ConfigRecord(), initial_arrays
        result = Result()
        for number in range(1, num_rounds + 1):
            messages = self.configure_train(number, arrays, config, grid)
            replies = grid.send_and_receive(messages=messages, timeout=timeout)
            found, metrics = self.aggregate_train(number, replies)
            arrays = arrays if found is None else found
            result.train_metrics_clientapp[number] = metrics
            self.models.append(arrays)
        result.arrays = arrays
        return result


def test_a_start_that_calls_flowers_gets_its_own_parameters_and_our_weights():
    inner, seen = Calling(), []
    strategy = avot(inner, on_round=seen.append)
    result = strategy.start(grid_of(), record_of(MODEL), project="trial", timeout=5.0)
    expected, records = plain_run(2)
    assert inner.events == ["trial", 2]
    assert [it.weights for it in seen] == [it.weights for it in records]
    same_model(result.arrays, expected.arrays)


def test_a_start_that_calls_flowers_resumes(tmp_path):
    for n_rounds in (2, 5):
        inner = Calling()
        strategy = avot(inner, folder=tmp_path, resume=True)
        result = strategy.start(grid_of(), record_of(MODEL), n_rounds)
    same_model(result.arrays, plain_run()[0].arrays)
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3, 4, 5]
    assert [line["round"] for line in rounds_in(tmp_path)] == [1, 2, 3, 4, 5]


def test_a_loop_of_the_users_own_runs_with_our_weights(tmp_path):
    inner = OwnLoop()
    result = avot(inner, folder=tmp_path).start(grid_of(), record_of(MODEL), 5)
    expected, records = plain_run()
    same_model(result.arrays, expected.arrays)
    assert len(inner.models) == 5
    assert [line["weights"] for line in rounds_in(tmp_path)] == [it.weights for it in records]
    assert not (tmp_path / "checkpoint.npz").exists()


def test_a_loop_of_the_users_own_is_not_resumed(tmp_path):
    grid = grid_of()
    with pytest.raises(OptionError, match=r"OwnLoop.*super\(\)\.start"):
        avot(OwnLoop(), folder=tmp_path, resume=True).start(grid, record_of(MODEL), 5)
    assert [it for it in grid.sent if it.metadata.message_type == "train"] == []


def test_a_start_that_calls_the_base_class_by_name_runs_flowers_loop_with_our_weights():
    class Direct(Calling):
        def start(self, *args, **options):
            return Strategy.start(self, *args, **options)

    result = avot(Direct()).start(grid_of(), record_of(MODEL), 5)
    same_model(result.arrays, plain_run()[0].arrays)


def test_a_loop_that_asks_by_the_base_class_is_refused_before_it_trains():
    class ByName(OwnLoop):
        def start(self, grid, initial_arrays, num_rounds=1, **options):  # type: ignore[override]
            messages = FedAvg.configure_train(self, 1, initial_arrays, ConfigRecord(), grid)
            return self.aggregate_train(1, grid.send_and_receive(messages=messages))

    grid = grid_of()
    with pytest.raises(OptionError, match=r"ByName.*self\.configure_train"):
        avot(ByName()).start(grid, record_of(MODEL))
    assert [it for it in grid.sent if it.metadata.message_type == "train"] == []


def test_a_loop_that_aggregates_by_the_base_class_is_refused():
    class Mixed(OwnLoop):
        def start(self, grid, initial_arrays, num_rounds=1, **options):  # type: ignore[override]
            messages = self.configure_train(1, initial_arrays, ConfigRecord(), grid)
            return super().aggregate_train(1, grid.send_and_receive(messages=messages))

    with pytest.raises(OptionError, match=r"Mixed.*self\.aggregate_train"):
        avot(Mixed()).start(grid_of(), record_of(MODEL))


def test_a_loop_that_evaluates_by_the_base_class_runs():
    class Evaluating(Calling):
        def start(self, grid, initial_arrays, num_rounds=1, **options):  # type: ignore[override]
            self.fraction_evaluate = 1.0
            found = FedAvg.configure_evaluate(self, 0, initial_arrays, ConfigRecord(), grid)
            self.events.append(len(list(found)))
            self.fraction_evaluate = 0.0
            return super().start(grid, initial_arrays, num_rounds)

    inner = Evaluating()
    avot(inner).start(grid_of(), record_of(MODEL))
    assert inner.events[0] == 3


@pytest.mark.parametrize("weighed", [False, True])
def test_a_start_that_trains_without_our_steps_is_said_to_have_no_weights(caplog, weighed):
    class Elsewhere(OwnLoop):
        def start(self, grid, initial_arrays, *args, **options):
            if weighed:
                return super().start(grid, initial_arrays, 1)
            return Result(arrays=initial_arrays)

    avot(Elsewhere()).start(grid_of(), record_of(MODEL))
    said = [it for it in caplog.records if it.levelname == "WARNING" and "no weights" in it.msg]
    assert len(said) == (not weighed)


class Rounds(FedAvg):
    """A strategy that overrides every step of a round."""

    def __init__(self):
        super().__init__(min_train_nodes=1, min_available_nodes=1, min_evaluate_nodes=1)
        self.steps = []
        self.seen = None

    def configure_train(self, server_round, arrays, config, grid):
        self.steps.append("configure_train")
        config["lr"] = 0.1 / server_round
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        self.steps.append("aggregate_train")
        arrays, metrics = super().aggregate_train(server_round, replies)
        return arrays, MetricRecord({**metrics, "own": 1.0})

    def configure_evaluate(self, server_round, arrays, config, grid):
        self.steps.append("configure_evaluate")
        return super().configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round, replies):
        self.steps.append("aggregate_evaluate")
        return super().aggregate_evaluate(server_round, replies)

    def evaluate(self, server_round, arrays):
        self.seen = server_round
        return MetricRecord({"mean": float(arrays_of(arrays)["w"].mean())})


def test_every_step_that_a_user_overrides_is_taken():
    inner = Rounds()
    strategy = avot(inner)
    heard = []

    def listen(arrays, config, node):
        heard.append(config["lr"])
        return update(arrays, config, node)

    grid = federation(3, listen, fate=only(COHORTS))
    result = strategy.start(grid, record_of(MODEL), 2, evaluate_fn=strategy.evaluate)
    each = ["configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate"]
    assert inner.steps == each * 2
    assert heard == [0.1] * 3 + [0.05] * 2
    assert result.train_metrics_clientapp[2]["own"] == 1.0
    assert inner.seen == 2
    same_model(result.arrays, plain_run(2)[0].arrays)


def test_attributes_and_methods_are_reached_through_ours():
    class Own(Calling):
        rounds_asked = 4
        scale = 1.0

        def schedule(self, number):
            return self.scale / number

        def run(self, grid):
            return self.start(grid, record_of(MODEL), self.rounds_asked)

    inner = Own()
    inner.scale = 3.0
    strategy = avot(inner)
    assert strategy.scale == 3.0
    assert strategy.schedule(2) == 1.5
    strategy.scale = 5.0
    assert inner.scale == 5.0
    strategy.fraction_train = 0.5
    assert inner.fraction_train == 0.5
    inner.fraction_train = 1.0
    result = strategy.run(grid_of())
    same_model(result.arrays, plain_run(4)[0].arrays)


def test_an_attribute_that_neither_has_is_missing():
    strategy = avot(everybody())
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = strategy.nothing_of_the_kind
    assert copy.copy(strategy).importance == strategy.importance


def test_what_a_start_sets_stays_on_the_users_object():
    class Setting(Calling):
        def start(self, *args, **options):
            self.began = True
            return super().start(*args, **options)

        def aggregate_train(self, server_round, replies):
            self.last = server_round
            return super().aggregate_train(server_round, replies)

    inner = Setting()
    avot(inner).start(grid_of(), record_of(MODEL), 3)
    assert (inner.began, inner.last) == (True, 3)
    assert type(inner) is Setting


def lines_of(caplog, strategy):
    """Return what a run logs, with times blanked."""
    caplog.clear()
    grid = federation(3, lambda arrays, config, node: (arrays, {"num-examples": 1, "loss": 2.0}))
    strategy.start(
        grid,
        record_of(MODEL),
        2,
        train_config=ConfigRecord({"lr": 0.5}),
        evaluate_fn=lambda number, arrays: MetricRecord({"number": number}),
    )
    return [re.sub(r"in \d+\.\d+s", "in a moment", line) for line in caplog.messages]


@pytest.mark.parametrize("kind", [FedAvg, Rounds, Calling], ids=lambda kind: kind.__name__)
def test_a_newcomer_sees_the_lines_of_flowers_own_loop_and_then_ours(caplog, kind):
    caplog.set_level("INFO", "flwr")
    flowers = lines_of(caplog, kind())
    ours = lines_of(caplog, FedAVOT(kind()))
    assert flowers[0] == ours[0] == f"Starting {kind.__name__} strategy:"
    assert len(flowers) > 30
    rest = iter(ours)
    assert [line for line in flowers if line not in rest] == []
    added = collections.Counter(ours) - collections.Counter(flowers)
    settings = ours[ours.index("\t├──> FedAVOT settings:") :][:7]
    assert all(line in settings or line.startswith("FedAVOT: ") for line in added)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("options", [{}, {"weighting": Weighting(cohort_size=2)}])
def test_the_users_objects_are_not_changed(wrapped, options):
    leaf = everybody(QFedAvg, client_learning_rate=0.3, fraction_train=0.7)
    before = dict(vars(leaf))
    inner = fixed(leaf, noise=0.0) if wrapped else leaf
    during = []

    def look(record):
        during.append({name: vars(leaf)[name] for name in before if name != "current_arrays"})

    random.seed(1)
    avot(inner, on_round=look, **options).start(federation(3, update), record_of(MODEL), 2)
    assert vars(leaf).keys() == before.keys()
    assert all(state == {k: v for k, v in before.items() if k in state} for state in during)


def test_a_users_qfedavg_keeps_its_own_step():
    class Halved(QFedAvg):
        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)
            return record_of({k: v / 2 for k, v in arrays_of(arrays).items()}), metrics

    models = []
    for kind in (QFedAvg, Halved):
        strategy = avot(everybody(kind, client_learning_rate=0.3))
        models.append(strategy.start(grid_of(), record_of(MODEL), 1).arrays)
    whole, half = (arrays_of(model) for model in models)
    for key, value in whole.items():
        np.testing.assert_allclose(half[key], value / 2, rtol=AGREE)


def test_a_class_with_slots_is_refused():
    class Slotted(FedAvg):
        __slots__ = ("kept",)

    with pytest.raises(OptionError, match="__slots__.*'kept'"):
        avot(everybody(Slotted))


class Broken(FedAvg):
    """A strategy whose aggregate is not finite from some round on."""

    def __init__(self, bad, at=3):
        super().__init__(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
        self.bad, self.at = bad, at

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is not None and server_round >= self.at:
            arrays["w"] = record_of({"w": np.array([0.0, self.bad, 0.0, 0.0])})["w"]
        return arrays, metrics


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("memory", [False, True])
def test_an_aggregate_that_is_not_finite_stops_the_run_with_the_last_good_checkpoint(
    tmp_path, bad, memory
):
    with pytest.raises(AggregateError, match=r"round 3: array 'w' .*1 of 4"):
        avot(Broken(bad), folder=tmp_path, memory=memory).start(grid_of(), record_of(MODEL), 5)
    mended = avot(Broken(bad, at=9), folder=tmp_path, memory=memory, resume=True)
    result = mended.start(grid_of(), record_of(MODEL), 5)
    whole = avot(Broken(bad, at=9), folder=tmp_path / "whole", memory=memory)
    same_model(result.arrays, whole.start(grid_of(), record_of(MODEL), 5).arrays)


class Reshaping(Broken):
    """A strategy that removes one array and adds another."""

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super(Broken, self).aggregate_train(server_round, replies)
        if server_round == 2:
            del arrays["b"]
            arrays["added"] = record_of({"added": np.ones(3, np.float32)})["added"]
        return arrays, metrics


def test_a_strategy_may_return_fewer_and_other_arrays(tmp_path):
    ends = []
    for folder, stops in (("whole", [4]), ("parts", [3, 4])):
        for n_rounds in stops:
            strategy = avot(Reshaping(0.0), folder=tmp_path / folder, resume=True)
            result = strategy.start(grid_of(), record_of(MODEL), n_rounds)
        ends.append(result.arrays)
        assert [len(line["replied"]) for line in rounds_in(tmp_path / folder)] == [3, 2, 2, 1]
    assert sorted(arrays_of(ends[0])) == ["added", "w"]
    same_model(*ends)


def test_other_arrays_than_the_models_are_refused_with_memory(tmp_path):
    strategy = avot(Reshaping(0.0), folder=tmp_path, memory=True)
    with pytest.raises(AggregateError, match="'added'.*memory"):
        strategy.start(grid_of(), record_of(MODEL), 4)


def test_a_strategy_may_send_some_arrays_only():
    class Part(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            part = record_of({"w": arrays_of(arrays)["w"]})
            return super().configure_train(server_round, part, config, grid)

        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)
            return record_of(arrays_of(arrays) | {"b": np.zeros(2)}), metrics

    seen = []
    result = avot(everybody(Part), on_round=seen.append).start(grid_of(), record_of(MODEL), 2)
    assert [it.excluded for it in seen] == [{}, {}]
    np.testing.assert_array_equal(
        arrays_of(result.arrays)["w"], arrays_of(plain_run(2)[0].arrays)["w"]
    )


class Plain(FedAvg):
    """A strategy that takes the plain mean."""

    def aggregate_train(self, server_round, replies):
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        contents = [reply.content for reply in valid]
        models = [arrays_of(content["arrays"]) for content in contents]
        mean = {key: np.mean([model[key] for model in models], axis=0) for key in models[0]}
        return record_of(mean), self.train_metrics_aggr_fn(contents, self.weighted_by_key)


class Median(FedAvg):
    """A strategy that never looks at the metrics."""

    def aggregate_train(self, server_round, replies):
        models = [arrays_of(reply.content["arrays"]) for reply in replies]
        mean = {key: np.median([model[key] for model in models], axis=0) for key in models[0]}
        return record_of(mean), None


@pytest.mark.parametrize("kind", [Plain, Median])
def test_weights_that_a_strategy_ignores_are_noticed_and_not_logged_as_applied(
    tmp_path, caplog, kind
):
    grid = federation(3, update)
    avot(everybody(kind), folder=tmp_path).start(grid, record_of(MODEL), 3)
    assert len([it for it in caplog.messages if kind.__name__ in it and "num-examples" in it]) == 1
    lines = rounds_in(tmp_path)
    assert [line["applied"] for line in lines] == [False] * 3
    if kind is Plain:
        assert lines[0]["weights"] == pytest.approx(dict.fromkeys("012", 1 / 3))


class Shifted(FedAvg):
    """A strategy with a step of its own on top of the average."""

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, copy.deepcopy(list(replies)))
        return record_of({key: value + 1 for key, value in arrays_of(arrays).items()}), metrics


@pytest.mark.parametrize("kind", [FedAvg, Rounds, Shifted, QFedAvg])
def test_a_strategy_that_averages_by_weight_is_not_suspected(tmp_path, caplog, kind):
    options = {"client_learning_rate": 0.3} if kind is QFedAvg else {}
    inner = Rounds() if kind is Rounds else everybody(kind, **options)
    avot(inner, folder=tmp_path).start(grid_of(), record_of(MODEL), 5)
    assert all(line["applied"] for line in rounds_in(tmp_path))
    warned = [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]
    assert not [it for it in warned if "num-examples" in it]


class Fixed(FedAvg):
    """A strategy that asks the nodes it saw in the first round, and looks no more."""

    cohort = ()

    def configure_train(self, server_round, arrays, config, grid):
        self.cohort = self.cohort or tuple(grid.get_node_ids())
        content = RecordDict(
            {"arrays": arrays, "config": ConfigRecord({"server-round": server_round})}
        )
        return [Message(content, node, "train") for node in self.cohort]


def test_a_strategy_may_ask_a_fixed_cohort():
    grid, seen = federation(3, update), []

    def leave(record):
        seen.append(record)
        grid.nodes[102].online = record.round != 2

    avot(Fixed(fraction_evaluate=0.0), on_round=leave).start(grid, record_of(MODEL), 4)
    assert [it.replied for it in seen] == [["0", "1", "2"]] * 2 + [["0", "1"], ["0", "1", "2"]]
    assert [list(it.refused) for it in seen] == [[], [], ["node 102"], []]


class Choosy(FedAvg):
    """A strategy that averages the replies of some clients only, as Flower's whisper example."""

    def aggregate_train(self, server_round, replies):
        kept = [it for it in replies if it.content["metrics"]["train_loss"] < 2]
        return super().aggregate_train(server_round, kept)


class Late(FedAvg):
    """A strategy that reads all arrays before it chooses."""

    def aggregate_train(self, server_round, replies):
        largest = max(replies, key=lambda it: abs(arrays_of(it.content["arrays"])["w"]).max())
        return super().aggregate_train(server_round, [it for it in replies if it is not largest])


@pytest.mark.parametrize("kind", [Choosy, Late])
def test_a_reply_that_a_strategy_leaves_out_has_no_weight(tmp_path, kind):
    seen = []
    strategy = avot(everybody(kind), folder=tmp_path, on_round=seen.append)
    end = strategy.start(federation(3, update), record_of(MODEL), 1).arrays
    (record,), (line,) = seen, rounds_in(tmp_path)
    (dropped,) = {"0", "1", "2"} - set(record.replied)
    assert dropped == ("2" if kind is Choosy else "0")
    assert dropped in record.excluded
    assert line["applied"]
    assert sum(record.weights.values()) == pytest.approx(1.0)
    assert record.gap == pytest.approx(IMPORTANCE[dropped] / 10)
    models = {name: update(MODEL, {}, {"partition-id": name})[0] for name in record.replied}
    for key, value in arrays_of(end).items():
        wanted = sum(record.weights[name] * model[key] for name, model in models.items())
        np.testing.assert_allclose(value, wanted, atol=AGREE)


def test_memory_is_of_the_replies_that_a_strategy_keeps(tmp_path, caplog):
    """The run is that of a federation in which the client that is left out never replies."""
    grids = [
        federation(3, update, fate=fate)
        for fate in (lambda node, message: "reply", only([[0, 1]] * 4))
    ]
    ends, logs = [], []
    for number, (kind, grid) in enumerate(zip((Choosy, FedAvg), grids, strict=True)):
        seen = []
        options = {"memory": True, "folder": tmp_path / str(number), "on_round": seen.append}
        ends.append(avot(everybody(kind), **options).start(grid, record_of(MODEL), 4).arrays)
        logs.append([record.weights for record in seen])
    for key, value in arrays_of(ends[0]).items():
        np.testing.assert_allclose(value, arrays_of(ends[1])[key], atol=AGREE)
    assert logs[0] == logs[1]
    assert set(logs[0][0]) == {"0", "1"}
    assert "overwritten" not in caplog.text


def test_memory_refuses_a_strategy_that_chooses_after_it_read_the_arrays(tmp_path):
    strategy = avot(everybody(Late), memory=True, folder=tmp_path)
    with pytest.raises(AggregateError, match="round 1: with memory.*pass only these to super"):
        strategy.start(federation(3, update), record_of(MODEL), 2)


class Meter:
    """A tool that counts, without methods for a checkpoint."""

    def __init__(self):
        self.bytes = 0.0


class Metered(FedAvg):
    """A strategy with a meter, as FlowerTune's."""

    def __init__(self, **options):
        super().__init__(**options)
        self.meter, self.idle = Meter(), Meter()

    def aggregate_train(self, server_round, replies):
        kept = list(replies)
        self.meter.bytes += len(kept)
        return super().aggregate_train(server_round, kept)


def test_a_tool_that_changes_is_named_once(tmp_path, caplog):
    avot(everybody(Metered), folder=tmp_path).start(grid_of(), record_of(MODEL), 3)
    warned = [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]
    assert len([it for it in warned if "Metered.meter" in it]) == 1
    assert not [it for it in warned if "idle" in it]
