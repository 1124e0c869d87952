"""A strategy asks only admitted nodes, however nodes come and go while it samples."""

from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import FedAvg
from grid import LocalGrid, Node, app_of, everybody, record_of
from watched import APP, Watched, mute, named, registered

from fedavot.errors import OptionError
from fedavot.flower import Admission, FedAVOT, Weighting


class Restless:
    """Twelve clients that come, go and restart under new ids between any two calls.

    Client i adds one to the i-th number of the model: what a round adds to it are the weights that
    were really applied.
    """

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.trained = {}
        app = app_of(self.update)
        self.grid = LocalGrid({i: Node(app, {"partition-id": f"client {i}"}) for i in range(12)})
        self.look, self.grid.get_nodes = self.grid.get_nodes, self.flicker
        self.next = 100

    def update(self, arrays, config, node):
        self.trained.setdefault(config["server-round"], set()).add(node["partition-id"])
        arrays["w"][int(node["partition-id"].removeprefix("client "))] += 1.0
        return arrays, {"num-examples": 1}

    def flicker(self):
        nodes = self.grid.nodes
        found = self.look()
        for node in list(nodes):
            nodes[node].online = self.rng.random() < 0.7
            if self.rng.random() < 0.1:
                nodes[self.next] = nodes.pop(node)
                self.next += 1
        next(iter(nodes.values())).online = True
        return found


@pytest.mark.parametrize("seed", [0, 1])
def test_nodes_that_come_and_go_between_two_looks_are_asked_or_not_but_never_mixed_up(
    monkeypatch, seed
):
    monkeypatch.setattr("fedavot.flower.who.admission.CACHE_SECONDS", -1.0)  # no caching
    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", lambda seconds: None)
    restless, seen, models = Restless(seed), [], []
    strategy = FedAVOT(everybody(fraction_train=0.5), on_round=seen.append)
    strategy.start(
        restless.grid,
        record_of({"w": np.zeros(12)}),
        40,
        evaluate_fn=lambda number, arrays: models.append(arrays["w"].numpy()),
    )
    for record, applied in zip(seen, np.diff(models, axis=0), strict=True):
        weights = [record.weights.get(f"client {i}", 0.0) for i in range(12)]
        np.testing.assert_allclose(applied, weights, atol=1e-12)
        assert set(record.replied) == restless.trained.get(record.round, set())
    assert np.sum([len(record.replied) for record in seen]) > 40
    assert any(record.failed for record in seen)


def test_a_node_that_leaves_while_nodes_are_sampled_does_not_hold_up_the_run(monkeypatch):
    # FedAvg counts the nodes, looks again, and waits until there are as many as it counted.
    def wait(seconds):
        raise AssertionError("waiting for a node that is gone")

    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", wait)
    run = Watched({7: registered("a"), 8: registered("b"), 9: registered("c")})
    look = run.grid.get_nodes

    def leaving():
        found = look()
        run.grid.nodes[8].online = False
        return found

    run.grid.get_nodes = leaving
    seen = run.run(2)
    assert [record.replied for record in seen] == [["a", "c"]] * 2


class LookingTwice(FedAvg):
    """A strategy that lists the nodes again after sampling, when one has left."""

    leave: Callable[[], None]

    def configure_train(self, server_round, arrays, config, grid):
        messages = super().configure_train(server_round, arrays, config, grid)
        self.leave()
        list(grid.get_node_ids())
        list(grid.get_nodes())
        return messages


def test_a_node_gone_when_the_strategy_looks_again_is_still_one_that_was_asked(monkeypatch):
    monkeypatch.setattr("fedavot.flower.who.admission.CACHE_SECONDS", -1.0)
    run = Watched({7: named("a"), 8: named("b")})
    inner = everybody(LookingTwice)
    inner.leave = lambda: run.grid.nodes.update({8: Node(APP, online=False)})
    run.strategy = FedAVOT(inner, on_round=run.seen.append)
    seen = run.run(1)
    assert seen[0].asked == ["a", "b"]
    assert list(seen[0].failed) == ["b"]


def test_a_node_gone_between_sampling_and_sending_has_failed():
    run = Watched({7: named("a"), 8: named("b")})
    send = run.grid.send_and_receive

    def late_departure(messages, *, timeout=None):
        messages = list(messages)
        if any(it.metadata.message_type == "train" for it in messages):
            run.grid.nodes[8].online = False
        return send(messages, timeout=timeout)

    run.grid.send_and_receive = late_departure
    seen = run.run(1)
    assert list(seen[0].failed) == ["b"]
    assert seen[0].weights == {"a": 1.0}


class Overstepping(FedAvg):
    """A strategy that asks a node which is not admitted."""

    def configure_train(self, server_round, arrays, config, grid):
        *others, last = super().configure_train(server_round, arrays, config, grid)
        return [*others, Message(last.content, 8, "train")]


def test_a_strategy_that_asks_a_node_it_was_not_shown_is_stopped():
    run = Watched({7: named("a"), 8: mute(), 9: named("c")})
    run.strategy = FedAVOT(everybody(Overstepping))
    with pytest.raises(OptionError, match=r"node 8.*get_node_ids"):
        run.run(1)
    assert {it.metadata.message_type for it in run.grid.sent} == {"query.fedavot"}


class Greeting(FedAvg):
    """A strategy that sends messages of its own before it samples."""

    def configure_train(self, server_round, arrays, config, grid):
        grid.set_run(grid.run)
        self.known = [node.node_id for node in grid.get_nodes()]
        content = RecordDict({"fedavot": ConfigRecord({"key": "partition-id"})})
        greetings = [
            grid.create_message(content, "query.fedavot", node, "greetings")
            for node in grid.get_node_ids()
        ]
        sent = grid.push_messages(greetings)
        self.pulled = len(list(grid.pull_messages(sent)))
        self.received = len(list(grid.send_and_receive(greetings, timeout=1.0)))
        return super().configure_train(server_round, arrays, config, grid)


def test_a_strategy_can_send_messages_of_its_own_to_the_nodes_it_sees():
    run = Watched({7: named("a"), 8: mute()})
    inner = everybody(Greeting)
    run.strategy = FedAVOT(inner, on_round=run.seen.append)
    assert run.run(1)[0].replied == ["a"]
    assert (inner.known, inner.pulled, inner.received) == ([7], 1, 1)


def test_a_selection_waits_for_as_many_nodes_as_the_strategy_does(monkeypatch):
    run = Watched({7: named("a"), 8: named("b")})
    run.strategy = FedAVOT(
        everybody(min_available_nodes=3),
        weighting=Weighting(cohort_size=1),
        on_round=run.seen.append,
    )
    waits = []

    def appear(seconds):
        waits.append(seconds)
        run.grid.nodes[9] = named("c")

    monkeypatch.setattr("time.sleep", appear)
    seen = run.run(1)
    assert len(waits) == 1
    assert seen[0].available == ["a", "b", "c"]
    assert len(seen[0].asked) == 1


@pytest.mark.parametrize("cohort_size", [None, 1])
def test_waiting_for_nodes_that_stay_refused_ends_with_the_reason(monkeypatch, cohort_size):
    monkeypatch.setattr("fedavot.flower.who.admission.CACHE_SECONDS", -1.0)
    monkeypatch.setattr("fedavot.flower.who.admission.MOST_LOOKS", 20)
    waits = []
    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", waits.append)
    monkeypatch.setattr("time.sleep", waits.append)
    run = Watched({7: named("a"), 8: mute()})
    run.strategy = FedAVOT(
        everybody(min_available_nodes=2), weighting=Weighting(cohort_size=cohort_size)
    )
    with pytest.raises(OptionError, match="node 8 gave no name"):
        run.run(1)
    assert 15 <= len(waits) <= 25


@pytest.mark.parametrize(
    ("nodes", "options", "message"),
    [
        ({7: mute(), 8: mute()}, {}, r"each of 2 nodes \(7 and 8\) gave no name.*introduce"),
        (
            {7: named("a"), 8: named("b")},
            {"importance": {"c": 1, "d": 1}},
            r"each of 2 clients \('a' and 'b'\) has no importance.*'c' and 'd'",
        ),
        (
            {7: mute(), 8: named("b")},
            {"admission": Admission(identity="registered")},
            "each of 2 nodes .* no registered name",
        ),
        ({7: mute(), 8: named("b")}, {"importance": {"c": 1}}, "node 7 gave no name.*client 'b'"),
    ],
)
@pytest.mark.parametrize("cohort_size", [None, 1])
def test_waiting_ends_early_if_every_node_said_why_it_cannot_be_asked(
    monkeypatch, nodes, options, message, cohort_size
):
    monkeypatch.setattr("fedavot.flower.who.admission.CACHE_SECONDS", -1.0)
    waits = []
    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", waits.append)
    monkeypatch.setattr("time.sleep", waits.append)
    run = Watched(nodes)
    weighting = Weighting(cohort_size=cohort_size)
    run.strategy = FedAVOT(everybody(min_available_nodes=2), weighting=weighting, **options)
    with pytest.raises(OptionError, match=message):
        run.run(1)
    assert 25 <= len(waits) <= 35


@pytest.mark.parametrize("hope", ["too few", "silent", "disputed"])
def test_waiting_does_not_end_early_while_there_is_hope(monkeypatch, hope):
    monkeypatch.setattr("fedavot.flower.who.admission.CACHE_SECONDS", -1.0)
    monkeypatch.setattr("fedavot.flower.who.admission.MOST_LOOKS", 60)
    run = Watched({7: mute()})
    if hope != "too few":
        run.grid.nodes |= {8: named("b"), 9: named("b")}
    if hope == "silent":
        del run.grid.nodes[9]
        answer = run.grid._answer

        def silent(message):
            return None if message.metadata.dst_node_id == 8 else answer(message)

        run.grid._answer = silent
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 50:
            run.grid.nodes |= {10: named("c"), 11: named("d")}

    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", wait)
    run.strategy = FedAVOT(everybody(min_available_nodes=2), on_round=run.seen.append)
    assert run.run(1)[0].available == ["c", "d"]
    assert len(waits) == 50


def test_nodes_that_are_refused_for_one_reason_are_one_line_of_the_log(caplog):
    Watched({7: named("a")} | {i: mute() for i in range(8, 13)}).run(1)
    (line,) = [it for it in caplog.messages if "gave no name" in it]
    assert "5 nodes" in line


@pytest.mark.parametrize("change", ["joins", "nothing is refused"])
def test_waiting_goes_on_while_nodes_come_or_none_is_refused(monkeypatch, change):
    monkeypatch.setattr("fedavot.flower.who.admission.CACHE_SECONDS", -1.0)
    monkeypatch.setattr("fedavot.flower.who.admission.MOST_LOOKS", 5)
    run = Watched({7: named("a")} | ({8: mute()} if change == "joins" else {}))
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if change == "joins" and len(waits) % 3 == 0:
            run.grid.nodes[100 + len(waits)] = mute()
        if len(waits) == 30:
            run.grid.nodes[9] = named("c")

    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", wait)
    run.strategy = FedAVOT(everybody(min_available_nodes=2), on_round=run.seen.append)
    assert run.run(1)[0].available == ["a", "c"]
    assert len(waits) == 30


def test_evaluation_asks_named_nodes_only():
    run = Watched({7: named("a"), 8: mute()})
    inner = run.strategy.strategy
    assert isinstance(inner, FedAvg)
    inner.fraction_evaluate = 1.0
    run.run(2)
    asked = {
        it.metadata.dst_node_id for it in run.grid.sent if it.metadata.message_type == "evaluate"
    }
    assert asked == {7}
