"""A name belongs to one node at a time: registered, or asked for once, never taken on trust."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from grid import LocalGrid, Node, app_of, everybody, record_of

from fedavot.errors import OptionError
from fedavot.flower import Clients, FedAVOT, Weighting, introduce

MODEL = {"w": np.zeros(2)}
APP = app_of(lambda arrays, config, node: (arrays, {"num-examples": 1}))


def named(name):
    """Return a node that says this name when asked."""
    return Node(APP, {"partition-id": name})


def registered(name):
    return Node(APP, {"partition-id": "what it says of itself"}, name=name)


def mute():
    """Return a node whose app was never introduced."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        record = record_of(MODEL)
        content = RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    return Node(app, {"partition-id": "mute"})


class Watched:
    """A run whose nodes change between rounds."""

    def __init__(self, nodes, **options):
        self.grid = LocalGrid(dict(nodes))
        self.seen = []
        options = {"importance": "uniform"} | options
        self.strategy = FedAVOT(everybody(), on_round=self._on_round, **options)
        self.changes = {}

    def _on_round(self, record):
        self.seen.append(record)
        change = self.changes.get(record.round)
        if change:
            change(self.grid.nodes)

    def run(self, n_rounds, changes=None):
        self.changes = changes or {}
        self.strategy.start(self.grid, record_of(MODEL), n_rounds)
        return self.seen

    @property
    def questions(self):
        return [
            it.metadata.dst_node_id
            for it in self.grid.sent
            if it.metadata.message_type == "query.fedavot"
        ]


def test_registered_names_are_used_and_nobody_is_asked():
    run = Watched({7: registered("berlin"), 8: registered("lyon")})
    seen = run.run(3)
    assert seen[-1].replied == ["berlin", "lyon"]
    assert run.questions == []


@pytest.mark.parametrize("names", ["auto", "asked"])
def test_each_new_node_is_asked_once(names):
    run = Watched({7: named("a"), 8: named("b")}, clients=Clients(names=names))
    seen = run.run(4, {2: lambda nodes: nodes.update({9: named("c")})})
    assert run.questions == [7, 8, 9]
    assert [record.available for record in seen] == [["a", "b"]] * 2 + [["a", "b", "c"]] * 2


def test_a_node_that_did_not_answer_is_asked_again():
    run = Watched({7: named("a"), 8: mute()})
    run.run(3)
    assert run.questions.count(7) == 1
    assert run.questions.count(8) >= 3


def test_the_key_that_is_asked_for_can_be_chosen():
    run = Watched({7: Node(APP, {"site": "oslo"})}, clients=Clients(key="site"))
    assert run.run(1)[0].replied == ["oslo"]


def test_a_number_in_the_node_configuration_is_a_name():
    run = Watched({7: named(12), 8: named(1.5), 9: named(True)})
    assert run.run(1)[0].replied == ["1.5", "12", "True"]


def test_a_newcomer_with_a_name_in_use_is_refused():
    run = Watched({7: named("a"), 8: named("b")})
    seen = run.run(3, {1: lambda nodes: nodes.update({5: named("a")})})
    assert run.grid.nodes[5].asked == 1
    assert seen[1].refused == {"node 5": "node 5 claims the name 'a', which node 7 has"}
    assert run.grid.nodes[7].asked == 4
    assert seen[2].weights.keys() == {"a", "b"}


def test_two_newcomers_with_one_name_are_both_refused_until_one_is_left():
    run = Watched({7: named("a"), 8: named("a"), 9: named("b")})
    seen = run.run(3, {2: lambda nodes: nodes.pop(7)})
    assert [record.available for record in seen] == [["b"], ["b"], ["a", "b"]]
    assert seen[0].refused.keys() == {"node 7", "node 8"}
    assert "which [7, 8] all claim" in seen[0].refused["node 8"]
    assert seen[2].refused == {}


def test_a_restarted_node_takes_its_name_over_once_the_old_id_is_gone():
    run = Watched({7: named("a"), 8: named("b")})
    seen = run.run(
        4,
        {
            1: lambda nodes: nodes.update({70: named("a")}),
            2: lambda nodes: nodes.pop(7),
        },
    )
    assert [record.available for record in seen] == [["a", "b"]] * 4
    assert "node 70" in seen[1].refused
    assert seen[2].refused == {}
    assert run.grid.nodes[70].asked > 1


def test_the_weights_of_a_client_follow_its_name_to_a_new_node():
    def lose(nodes):
        nodes.pop(7)
        nodes[70] = named("a")

    moved = Watched({7: named("a"), 8: named("b")}, importance={"a": 3, "b": 1})
    still = Watched({7: named("a"), 8: named("b")}, importance={"a": 3, "b": 1})
    assert [it.weights for it in moved.run(5, {2: lose})] == [it.weights for it in still.run(5)]


def test_an_incumbent_that_was_away_for_a_round_finds_its_name_taken():
    def leave(nodes):
        nodes[7].online = False
        nodes[70] = named("a")

    def back(nodes):
        nodes[7].online = True

    run = Watched({7: named("a"), 8: named("b")})
    seen = run.run(3, {1: leave, 2: back})
    assert seen[2].refused.keys() == {"node 7"}


def test_a_registered_name_beats_a_claim():
    run = Watched(
        {7: named("a"), 8: named("b")}, clients=Clients(names="asked"), importance={"a": 1, "b": 1}
    )
    seen = run.run(3, {1: lambda nodes: nodes.update({9: registered("a")})})
    assert "node 7" in seen[1].refused
    assert run.grid.nodes[9].asked == 2
    assert seen[2].weights.keys() == {"a", "b"}


def test_once_names_are_registered_claims_are_not_believed():
    run = Watched({7: registered("a"), 8: named("b")})
    seen = run.run(2)
    assert seen[0].available == ["a"]
    assert "register it with flwr supernode register" in seen[0].refused["node 8"]
    assert run.questions == []


def test_claims_are_not_believed_while_all_registered_nodes_are_away():
    run = Watched({7: registered("a"), 8: named("a"), 9: registered("c")})

    def away(nodes):
        nodes[7].online = False

    seen = run.run(2, {1: away})
    assert seen[1].available == ["c"]
    assert run.questions == []


def test_registered_mode_refuses_whoever_has_no_registered_name():
    run = Watched({7: registered("a"), 8: named("b")}, clients=Clients(names="registered"))
    seen = run.run(1)
    assert seen[0].available == ["a"]
    assert list(seen[0].refused) == ["node 8"]


def test_a_node_without_introduce_is_refused_with_the_remedy(caplog):
    run = Watched({7: named("a"), 8: mute()})
    seen = run.run(1)
    assert "fedavot.flower.introduce(app)" in seen[0].refused["node 8"]
    assert "'partition-id'" in seen[0].refused["node 8"]
    assert any("introduce(app)" in it.message for it in caplog.records)
    assert seen[0].asked == ["a"]


def test_a_node_without_the_key_is_refused_with_the_remedy():
    run = Watched({7: named("a"), 8: Node(APP, {"site": "x"})})
    assert "'partition-id' in its node configuration" in run.run(1)[0].refused["node 8"]


def test_node_ids_can_be_the_names():
    run = Watched({7: named("a"), 8: registered("b")}, clients=Clients(names="node-id"))
    assert run.run(1)[0].replied == ["7", "8"]
    assert run.questions == []


def test_an_empty_name_is_no_name():
    seen = Watched({7: named("a"), 8: named("")}).run(1)
    assert list(seen[0].refused) == ["node 8"]
    assert seen[0].available == ["a"]


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"fedavot": ConfigRecord({})},
        {"fedavot": ConfigRecord({"name": 5})},
        {"fedavot": ConfigRecord({"name": ["a"]})},
        {"fedavot": ConfigRecord({"name": b"a"})},
        {"fedavot": MetricRecord({"name": 1})},
        {"fedavot": record_of(MODEL)},
    ],
)
def test_an_answer_that_is_no_name_is_no_answer(content):
    app = ClientApp()

    @app.query("fedavot")
    def answer(message, context):
        return Message(RecordDict(dict(content)), reply_to=message)

    run = Watched({7: named("a"), 8: Node(app)})
    assert list(run.run(1)[0].refused) == ["node 8"]


def test_a_node_cannot_answer_for_another():
    run = Watched({7: named("a"), 8: named("b")})
    original = run.grid._answer

    def forge(message):
        reply = original(message)
        if message.metadata.message_type == "query.fedavot" and message.metadata.dst_node_id == 8:
            reply.metadata.__dict__["_src_node_id"] = 555
        return reply

    run.grid._answer = forge
    seen = run.run(1)
    assert seen[0].available == ["a"]
    assert list(seen[0].refused) == ["node 8"]


@pytest.mark.parametrize(
    "name", ['say "hi"', "a,b;c", "naïve 🚑", "line\nbreak", "\u2028", "\\", "0" * 3000]
)
def test_any_text_is_a_name(tmp_path, name):
    run = Watched({7: named(name), 8: named("b")}, importance={name: 1, "b": 3}, folder=tmp_path)
    assert set(run.run(2)[1].weights) == {name, "b"}


def test_nodes_that_come_and_go_between_two_looks_are_asked_or_not_but_never_mixed_up():
    rng = np.random.default_rng(0)
    everyone = {i: named(f"client {i}") for i in range(12)}
    run = Watched(everyone)
    look = run.grid.get_nodes

    def flickering():
        for node, it in run.grid.nodes.items():
            it.online = node < 3 or rng.random() < 0.7
        return look()

    run.grid.get_nodes = flickering
    run.strategy.strategy.fraction_train = 0.2
    for record in run.run(40):
        assert set(record.asked) <= set(record.available)
        assert set(record.asked) == {
            *record.replied,
            *record.failed,
            *record.late,
            *record.excluded,
        }


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
    """A strategy that looks at the nodes again after it has sampled, when one has gone."""

    def configure_train(self, server_round, arrays, config, grid):
        messages = super().configure_train(server_round, arrays, config, grid)
        self.leave()
        list(grid.get_node_ids())
        list(grid.get_nodes())
        return messages


def test_a_node_gone_when_the_strategy_looks_again_is_still_one_that_was_asked():
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


def test_a_grid_that_knows_no_names_is_asked_for_ids():
    class Old:
        """The grid of an older Flower."""

        def __init__(self, grid):
            self.get_node_ids = grid.get_node_ids
            self.send_and_receive = grid.send_and_receive

    run = Watched({7: named("a"), 8: named("b")})
    run.strategy.start(Old(run.grid), record_of(MODEL), 2)
    assert run.seen[1].replied == ["a", "b"]
    assert run.questions == [7, 8]


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


def test_evaluation_asks_named_nodes_only():
    run = Watched({7: named("a"), 8: mute()})
    run.strategy.strategy.fraction_evaluate = 1.0
    run.run(2)
    asked = {
        it.metadata.dst_node_id for it in run.grid.sent if it.metadata.message_type == "evaluate"
    }
    assert asked == {7}


def test_introduce_returns_the_same_app():
    app = ClientApp()
    assert introduce(app) is app


def test_introduce_says_what_the_node_configuration_lacks():
    app = introduce(ClientApp())
    question = Message(RecordDict({"fedavot": ConfigRecord({"key": "site"})}), 7, "query.fedavot")
    context = Context(0, 7, {"partition-id": 1}, RecordDict(), {})
    with pytest.raises(Exception, match="no 'site'; it has 'partition-id'"):
        app(question, context)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": "claimed"}, "names is 'claimed'; it must be one of 'auto', 'registered'"),
        ({"names": None}, "names is None"),
        ({"key": ""}, "key is ''"),
        ({"key": 5}, "key is 5"),
        ({"unlisted": -1}, "unlisted is -1"),
        ({"unlisted": float("nan")}, "unlisted is nan"),
        ({"unlisted": "x"}, "unlisted must be a number"),
        ({"norm_limit": 1.0}, "norm_limit is 1.0; it must be above 1"),
        ({"norm_limit": float("nan")}, "norm_limit is nan"),
        ({"norm_limit": "big"}, "norm_limit"),
    ],
)
def test_bad_options_of_clients_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        Clients(**options)
