"""A name belongs to one node at a time: registered, or asked for once, never taken on trust."""

import re
from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from grid import Node, everybody, record_of
from watched import APP, MODEL, Watched, mute, named, registered

from fedavot.errors import ImportanceError, OptionError
from fedavot.flower import Admission, FedAVOT, Weighting, introduce
from fedavot.flower.who import identity


def test_registered_names_are_used_and_nobody_is_asked():
    run = Watched({7: registered("berlin"), 8: registered("lyon")})
    seen = run.run(3)
    assert seen[-1].replied == ["berlin", "lyon"]
    assert run.questions == []


@pytest.mark.parametrize("identity", ["auto", "asked"])
def test_each_new_node_is_asked_once(identity):
    run = Watched({7: named("a"), 8: named("b")}, admission=Admission(identity=identity))
    seen = run.run(4, {2: lambda nodes: nodes.update({9: named("c")})})
    assert run.questions == [7, 8, 9]
    assert [record.available for record in seen] == [["a", "b"]] * 2 + [["a", "b", "c"]] * 2


def test_a_node_that_did_not_answer_is_asked_again_after_a_minute(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(identity, "time", clock)
    run = Watched({7: named("a"), 8: mute()})
    rounds = []

    def wait(nodes):
        rounds.append(run.questions.count(8))
        clock.now += 25.0

    run.run(8, dict.fromkeys(range(1, 9), wait))
    assert run.questions.count(7) == 1
    assert rounds == [1, 1, 1, 2, 2, 2, 3, 3]  # at 0, 75 and 150 seconds


def test_a_node_that_answers_when_asked_again_has_its_name_from_then_on(monkeypatch):
    monkeypatch.setattr(identity, "RETRY", -1.0)
    run = Watched({7: named("a"), 8: mute()})
    seen = run.run(3, {1: lambda nodes: setattr(nodes[8], "app", APP)})
    assert [record.available for record in seen] == [["a"], ["a", "mute"], ["a", "mute"]]
    assert seen[2].refused == {}
    assert run.questions == [7, 8, 8]


def test_many_looks_at_a_silent_node_cost_one_wait():
    run = Watched({7: named("a"), 8: mute()}, weighting=Weighting(cohort_size=1))
    inner = run.strategy.strategy
    assert isinstance(inner, FedAvg)
    inner.fraction_evaluate = 1.0
    run.run(5)
    assert run.questions == [7, 8]


def test_an_answer_to_another_question_is_not_a_name():
    app = ClientApp()

    @app.query("fedavot")
    def answer(message, context):
        told = RecordDict({"fedavot": ConfigRecord({"name": "b"})})
        reply = Message(told, reply_to=message)
        reply.metadata.__dict__["_reply_to_message_id"] = "message-of-an-earlier-run"
        return reply

    run = Watched({7: named("a"), 8: Node(app)})
    (only,) = run.run(1)
    assert only.available == ["a"]
    assert "gave no name when asked" in only.refused["node 8"]


def test_the_key_that_is_asked_for_can_be_chosen():
    run = Watched({7: Node(APP, {"site": "oslo"})}, admission=Admission(key="site"))
    assert run.run(1)[0].replied == ["oslo"]


def test_a_number_in_the_node_configuration_is_a_name():
    run = Watched({7: named(12), 8: named(1.5), 9: named(True)})
    assert run.run(1)[0].replied == ["1.5", "12", "True"]


def test_a_newcomer_with_a_name_in_use_is_refused():
    run = Watched({7: named("a"), 8: named("b")})
    seen = run.run(3, {1: lambda nodes: nodes.update({5: named("a")})})
    assert run.grid.nodes[5].asked == 1
    assert list(seen[1].refused) == ["node 5"]
    assert re.search("node 5 .*'a'.* node 7", seen[1].refused["node 5"])
    assert run.grid.nodes[7].asked == 4
    assert seen[2].weights.keys() == {"a", "b"}


def test_two_newcomers_with_one_name_are_both_refused_until_one_is_left():
    run = Watched({7: named("a"), 8: named("a"), 9: named("b")})
    seen = run.run(3, {2: lambda nodes: nodes.pop(7)})
    assert [record.available for record in seen] == [["b"], ["b"], ["a", "b"]]
    assert seen[0].refused.keys() == {"node 7", "node 8"}
    assert "[7, 8]" in seen[0].refused["node 8"]
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
        {7: named("a"), 8: named("b")},
        admission=Admission(identity="asked"),
        importance={"a": 1, "b": 1},
    )
    seen = run.run(3, {1: lambda nodes: nodes.update({9: registered("a")})})
    assert "node 7" in seen[1].refused
    assert run.grid.nodes[9].asked == 2
    assert seen[2].weights.keys() == {"a", "b"}


def test_once_names_are_registered_claims_are_not_believed():
    run = Watched({7: registered("a"), 8: named("b")})
    seen = run.run(2)
    assert seen[0].available == ["a"]
    assert "flwr supernode register" in seen[0].refused["node 8"]
    assert run.questions == []


@pytest.mark.parametrize("resumed", [False, True])
def test_claims_are_not_believed_while_all_registered_nodes_are_away(
    tmp_path, monkeypatch, resumed
):
    run = Watched({7: registered("a"), 8: named("b")}, folder=tmp_path)
    nodes, waits = run.grid.nodes, []

    def come_back(seconds):
        waits.append(seconds)
        nodes[7].online = True

    monkeypatch.setattr(
        "fedavot.flower.who.admission.CACHE_SECONDS", -1.0
    )  # the wait takes no time
    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", come_back)
    run.run(1 if resumed else 2, {1: lambda nodes: setattr(nodes[7], "online", False)})
    if resumed:
        run = Watched(nodes, folder=tmp_path, resume=True)
        run.run(2)
    assert run.seen[-1].available == ["a"]
    assert len(waits) == 1
    assert run.questions == []


@pytest.mark.parametrize("resumed", [False, True])
def test_a_name_once_registered_is_given_to_no_claim_while_its_node_is_away(tmp_path, resumed):
    def usurp(nodes):
        nodes[7].online = False
        nodes[9] = named("a")

    options = {"admission": Admission(identity="asked"), "folder": tmp_path}
    run = Watched({7: registered("a"), 8: named("b")}, **options)
    if resumed:
        run.run(1)
        usurp(run.grid.nodes)
        later = Watched(run.grid.nodes, resume=True, **options)
        last = later.run(2)[-1]
    else:
        last = run.run(2, {1: usurp})[-1]
    assert last.available == ["b"]
    assert list(last.refused) == ["node 9"]
    assert "'a'" in last.refused["node 9"]


def test_registered_mode_refuses_whoever_has_no_registered_name():
    run = Watched({7: registered("a"), 8: named("b")}, admission=Admission(identity="registered"))
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
    refusal = run.run(1)[0].refused["node 8"]
    assert "'partition-id', but 'site'" in refusal
    assert "Admission(key=...)" in refusal
    admitted = Watched({7: Node(APP, {"site": "x"})}, admission=Admission(key="site"))
    assert admitted.run(1)[0].replied == ["x"]


def needing_arrays(message, context, call_next):
    """A mod that expects a model in every message."""
    assert "arrays" in message.content.array_records
    return call_next(message, context)


def test_mods_are_not_asked_for_the_name():
    app = ClientApp(mods=[needing_arrays])
    introduce(app)

    @app.train()
    def train(message, context):
        metrics = MetricRecord({"num-examples": 1})
        content = RecordDict({"arrays": record_of(MODEL), "metrics": metrics})
        return Message(content, reply_to=message)

    assert Watched({7: Node(app, {"partition-id": "a"})}).run(1)[0].replied == ["a"]


def test_an_apps_own_query_function_finds_the_configuration_where_the_strategy_sends_it():
    seen = []

    def reading(message, context, call_next):
        seen.append(message.content["settings"]["server-round"])
        return call_next(message, context)

    app = ClientApp(mods=[reading])

    @app.query("fedavot")
    def say_name(message, context):
        return Message(RecordDict({"fedavot": ConfigRecord({"name": "a"})}), reply_to=message)

    @app.train()
    def train(message, context):
        metrics = MetricRecord({"num-examples": 1})
        content = RecordDict({"arrays": record_of(MODEL), "metrics": metrics})
        return Message(content, reply_to=message)

    run = Watched({7: Node(app)})
    run.strategy = FedAVOT(everybody(configrecord_key="settings"), on_round=run.seen.append)
    assert run.run(1)[0].replied == ["a"]
    assert seen == [1, 1]


def test_node_ids_can_be_the_names():
    run = Watched({7: named("a"), 8: registered("b")}, admission=Admission(identity="node-id"))
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


def test_an_answer_to_another_nodes_question_is_none():
    run = Watched({7: named("a"), 8: named("b")})
    original = run.grid._answer

    def forge(message):
        reply = original(message)
        if message.metadata.message_type == "query.fedavot" and message.metadata.dst_node_id == 8:
            reply.metadata.__dict__["_src_node_id"] = 7  # and "b" for its name
        return reply

    run.grid._answer = forge
    seen = run.run(1)
    assert seen[0].available == ["a"]
    assert list(seen[0].refused) == ["node 8"]


@pytest.mark.parametrize(
    "name", ['say "hi"', "a,b;c", "naïve 🚑", "line\nbreak", "\u2028", "\\", "0" * 255]
)
def test_any_text_is_a_name(tmp_path, name):
    run = Watched({7: named(name), 8: named("b")}, importance={name: 1, "b": 3}, folder=tmp_path)
    assert set(run.run(2)[1].weights) == {name, "b"}


@pytest.mark.parametrize("kind", [named, registered])
def test_a_name_longer_than_the_limit_is_refused(kind):
    source = Admission(identity="asked")
    run = Watched({7: named("a"), 8: kind("0" * 256)}, admission=source)
    seen = run.run(2)
    assert [record.available for record in seen] == [["a"]] * 2
    assert "256 characters" in seen[0].refused["node 8"]


def test_importance_for_a_name_longer_than_the_limit_is_refused():
    with pytest.raises(ImportanceError, match="256 characters"):
        Watched({}, importance={"0" * 256: 1.0, "b": 1.0})


def test_answers_of_nodes_that_left_long_ago_are_forgotten(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(identity, "time", clock)
    monkeypatch.setattr("fedavot.flower.who.admission.CACHE_SECONDS", -1.0)
    run = Watched({7: named("a")})

    def restart(nodes):
        node = max(nodes)
        nodes[node + 1] = nodes.pop(node)
        clock.now += identity.KEPT / 2

    run.run(20, dict.fromkeys(range(1, 20), restart))
    assert [record.available for record in run.seen] == [["a"]] * 20
    names = run.strategy._rounds.names
    assert names.state_dict()["nodes"].size <= 4
    assert len(names._registered) <= 4


def test_a_node_that_was_away_for_a_while_is_not_asked_again():
    run = Watched({7: named("a"), 8: named("b")})

    def turn(nodes):
        nodes[8].online = not nodes[8].online

    seen = run.run(4, dict.fromkeys(range(1, 4), turn))
    assert [record.available for record in seen] == [["a", "b"], ["a"]] * 2
    assert run.questions == [7, 8]


def test_the_names_of_known_nodes_are_not_listed_again():
    run = Watched({7: registered("a"), 8: registered("b")})
    look, calls = run.grid.get_nodes, []
    ids = [7, 8]
    run.grid.get_node_ids = lambda: list(ids)
    run.grid.get_nodes = lambda: calls.append(1) or look()
    assert len(run.run(5)) == 5
    assert len(calls) == 1


def reading(message, context, call_next):
    """Read the round and the configuration, as mods of Flower's examples do."""
    assert int(message.content["config"]["server-round"]) >= 1
    assert message.content["config"]["lr"] == 0.5
    assert "server-round" in next(iter(message.content.config_records.values()))
    return call_next(message, context)


def test_the_question_for_a_name_survives_mods_that_read_the_configuration():
    app = introduce(ClientApp(mods=[reading]))

    @app.train()
    def train(message, context):
        content = {"arrays": record_of(MODEL), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)

    run = Watched({7: Node(app, {"partition-id": "a"}), 8: Node(app, {"partition-id": "b"})})
    run.strategy.start(run.grid, record_of(MODEL), 2, train_config=ConfigRecord({"lr": 0.5}))
    assert [record.replied for record in run.seen] == [["a", "b"]] * 2


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


def test_introduce_returns_the_same_app():
    app = ClientApp()
    assert introduce(app) is app


def test_introduce_says_what_the_node_configuration_lacks():
    app = introduce(ClientApp())
    question = Message(RecordDict({"fedavot": ConfigRecord({"key": "site"})}), 7, "query.fedavot")
    context = Context(0, 7, {"partition-id": 1}, RecordDict(), {})
    told = app(question, context).content["fedavot"]
    assert dict(told) == {"keys": "'partition-id'"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"identity": "claimed"}, "identity is 'claimed'; it must be one of 'auto', 'registered'"),
        ({"identity": None}, "identity is None"),
        ({"key": ""}, "key is ''"),
        ({"key": 5}, "key is 5"),
        ({"unlisted": -1}, "unlisted is -1"),
        ({"unlisted": float("nan")}, "unlisted is nan"),
        ({"unlisted": "x"}, "unlisted must be a number"),
        ({"norm_limit": 1.0}, "norm_limit is 1.0; it must be above 1"),
        ({"norm_limit": float("nan")}, "norm_limit is nan"),
        ({"norm_limit": "big"}, "norm_limit must be a number"),
    ],
)
def test_bad_options_of_admission_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        Admission(**options)
