"""Memories on the clients give the run of memories on the server, whatever becomes of replies."""

import gc
import tracemalloc

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM
from grid import LocalGrid, Node, app_of, arrays_of, everybody, federation, only, record_of

from fedavot._files import write_archive
from fedavot.errors import AggregateError, CheckpointError, OptionError
from fedavot.flower import FedAVOT, Memory, introduce
from fedavot.flower.client import ABOUT, Store
from fedavot.flower.memory import wire
from fedavot.flower.memory.on_clients import OnClients
from fedavot.flower.memory.wire import Layout
from fedavot.flower.options import Weighting
from fedavot.flower.worth.weigher import Weigher

AGREE = 1e-12
"""Relative agreement of float64 sums over some rounds in another order."""
N, ROUNDS = 6, 25
IMPORTANCE = {str(i): 1.0 + i for i in range(N)}
MODEL = {"w": np.linspace(-1, 1, 7), "b": np.zeros((2, 2)), "n": np.array(3)}


def update(arrays, config, node):
    """Return steps towards the client's own target, of another size in every round."""
    client, number = int(node["partition-id"]), config["server-round"]
    new = {
        key: value + (0.2 + 0.1 * np.sin(number)) * (np.cos(client + value) + client - value)
        if value.dtype.kind == "f"
        else value
        for key, value in arrays.items()
    }
    return new, {"num-examples": 1 + client, "round": number}


def run(memory, *, inner=None, n_rounds=ROUNDS, grid=None, model=MODEL, **options):
    """Return the last model of a run, and its rounds."""
    seen = []
    where = memory.where if isinstance(memory, Memory) else memory
    grid = grid or federation(N, update, memory=where == "clients", **chaos())
    strategy = FedAVOT(
        inner or everybody(),
        **{"importance": IMPORTANCE, "memory": memory, "on_round": seen.append, **options},
    )
    result = strategy.start(grid, record_of(model), n_rounds)
    return arrays_of(result.arrays), seen


def chaos(seed=0):
    """Return what happens to messages and replies, a function of the round and the node alone."""

    def draw(node, number):
        return np.random.default_rng([seed, node, number]).random()

    def fate(node, message):
        number = int(message.content["config"]["server-round"])
        chance = draw(node, number)
        fates = ((0.2, "silent"), (0.3, "error"), (0.4, "dead"))
        return next((what for below, what in fates if chance < below), "reply")

    def tamper(node, reply):
        # The client has trained, and its reply is lost or arrives damaged.
        if reply.has_error():
            return [reply]
        chance = draw(node, 1000 + int(reply.content["metrics"]["round"]))
        if chance < 0.15:
            return []
        if chance < 0.3:
            broken = record_of({**arrays_of(reply.content["arrays"]), "w": np.full(7, np.nan)})
            reply.content["arrays"] = broken
        return [reply]

    return {"fate": fate, "tamper": tamper}


def assert_same(one, other, tol=AGREE):
    assert one.keys() == other.keys()
    for key, value in one.items():
        np.testing.assert_allclose(value, other[key], rtol=tol, atol=tol)


INNER = {
    "FedAvg": everybody,
    "FedAvgM": lambda: everybody(FedAvgM, server_momentum=0.5, server_learning_rate=0.7),
    "FedAdam": lambda: everybody(FedAdam),
}


@pytest.mark.parametrize("inner", INNER)
def test_with_replies_lost_or_damaged_the_run_is_that_of_the_server_side(tmp_path, inner):
    here, seen = run("clients", inner=INNER[inner]())
    there, other = run("server", inner=INNER[inner](), folder=tmp_path)
    assert [it.replied for it in seen] == [it.replied for it in other]
    assert sum(len(it.excluded) for it in seen) > 5
    assert sum(len(it.late) for it in seen) > 5
    assert_same(here, there)


@pytest.mark.parametrize("options", [{"trust": 1.0}, {"trust": 0.4}, {"half_life": 3.0}], ids=str)
def test_constants_are_those_of_the_server_side(tmp_path, options):
    here, _ = run(Memory("clients", **options))
    there, _ = run(Memory("server", **options), folder=tmp_path)
    assert_same(here, there)


def test_clients_that_join_are_counted_as_on_the_server(tmp_path):
    here, _ = run("clients", importance="examples")
    there, _ = run("server", importance="examples", folder=tmp_path)
    assert_same(here, there)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_lower_precision_agrees_to_its_rounding(tmp_path, dtype):
    model = {"w": np.linspace(-1, 1, 7, dtype=dtype)}
    calm = {"fate": only([[t % N, (2 * t + 1) % N] for t in range(ROUNDS)])}

    def low(arrays, config, node):
        new, metrics = update(arrays, config, node)
        return {key: value.astype(dtype) for key, value in new.items()}, metrics

    ends = {}
    for where in ("clients", "server"):
        grid = federation(N, low, memory=where == "clients", **calm)
        ends[where], _ = run(where, grid=grid, model=model, folder=tmp_path / where)
    # Each round rounds the model once, in both.
    assert_same(ends["clients"], ends["server"], tol=ROUNDS * 8 * float(np.finfo(dtype).eps))
    assert ends["clients"]["w"].dtype == dtype


class Stopping(FedAvg):
    """A strategy that dies in the round after a given one."""

    def __init__(self, after=10**6, **options):
        super().__init__(**options)
        self.after = after

    def aggregate_train(self, server_round, replies):
        if server_round > self.after:
            raise KeyboardInterrupt
        return super().aggregate_train(server_round, replies)


def calm_grid():
    cohorts = [[(3 * t) % N, (t + 1) % N, (t * t) % N] for t in range(ROUNDS)]
    return federation(N, update, memory=True, fate=only(cohorts))


@pytest.mark.parametrize("folder", [False, True])
def test_either_side_may_be_restarted_if_clients_have_a_folder(tmp_path, caplog, folder):
    whole, _ = run("clients", grid=calm_grid(), folder=tmp_path / "whole")
    grid = calm_grid()
    if folder:
        for node in grid.nodes.values():
            node.config["fedavot-folder"] = str(tmp_path / "clients")
    options = {"grid": grid, "folder": tmp_path / "server", "resume": True}
    for after in (4, 9, 15):
        with pytest.raises(KeyboardInterrupt):
            run("clients", inner=everybody(Stopping, after=after), **options)
        grid._contexts.clear()  # as when SuperNodes are restarted, or a new run begins
    end, _ = run("clients", inner=everybody(Stopping), **options)
    assert ("begin anew" in caplog.text) is not folder
    assert "biases the model" not in caplog.text
    if folder:
        assert_same(end, whole)
    else:
        assert np.abs(end["w"] - whole["w"]).max() > 1e-6
        assert np.isfinite(end["w"]).all()


@pytest.mark.parametrize("resume", [True, False])
def test_a_run_stopped_before_its_first_checkpoint_leaves_no_files_of_clients(tmp_path, resume):
    whole, _ = run("clients", grid=calm_grid(), folder=tmp_path / "whole")
    grid = calm_grid()
    for node in grid.nodes.values():
        node.config["fedavot-folder"] = str(tmp_path / "clients")
    options = {"grid": grid, "folder": tmp_path / "server"}
    with pytest.raises(KeyboardInterrupt):
        run("clients", inner=everybody(Stopping, after=0), resume=True, **options)
    before = {path.name for path in (tmp_path / "clients").iterdir()}
    end, _ = run("clients", inner=everybody(Stopping), resume=resume, **options)
    assert_same(end, whole)
    after = {path.name for path in (tmp_path / "clients").iterdir()}
    assert before
    # A run that does not resume is another training, and shares nothing with the one before.
    assert len(after) == (N if resume else N + len(before))


@pytest.mark.parametrize("damage", ["", "0123", "g" * 32, "\xe9" * 32])
def test_the_name_of_a_training_that_cannot_be_read_is_drawn_anew(tmp_path, damage):
    run("clients", grid=calm_grid(), folder=tmp_path, n_rounds=2)
    (tmp_path / "checkpoint.npz").unlink()
    path = tmp_path / "training.txt"
    path.write_bytes(damage.encode("latin-1"))
    whole, _ = run("clients", grid=calm_grid(), folder=tmp_path / "whole")
    end, _ = run("clients", grid=calm_grid(), folder=tmp_path, resume=True)
    assert_same(end, whole)
    assert len(bytes.fromhex(path.read_text())) == 16


def test_clients_forget_a_training_whose_checkpoint_was_removed(tmp_path):
    whole, _ = run("clients", grid=calm_grid(), folder=tmp_path / "whole")
    grid = calm_grid()
    for node in grid.nodes.values():
        node.config["fedavot-folder"] = str(tmp_path / "clients")
    options = {"grid": grid, "folder": tmp_path / "server", "resume": True}
    run("clients", n_rounds=7, **options)
    (tmp_path / "server" / "checkpoint.npz").unlink()
    assert_same(run("clients", **options)[0], whole)


@pytest.mark.parametrize("half_life", [None, 5.0])
def test_who_lost_its_memory_is_named_once_unless_memories_fade(caplog, half_life):
    grid = calm_grid()

    def forget(record):
        if record.round in (8, 16):
            del grid._contexts[min(grid._contexts)]

    run(Memory("clients", half_life=half_life), grid=grid, on_round=forget)
    lines = [it.getMessage() for it in caplog.records if "biases the model" in it.getMessage()]
    named = [name for line in lines for name in IMPORTANCE if f"'{name}'" in line]
    assert named == ([] if half_life else [min(IMPORTANCE)])
    assert "begin anew" not in caplog.text


def test_a_damaged_or_foreign_file_is_a_lost_memory(tmp_path, caplog):
    grid = calm_grid()
    for node in grid.nodes.values():
        node.config["fedavot-folder"] = str(tmp_path)

    def damage(record):
        if record.round == 12:
            for path in tmp_path.glob("memory-*.npz"):
                path.write_bytes(path.read_bytes()[:-40])

    run("clients", grid=grid, on_round=damage)
    lost = [it for it in caplog.records if "is lost" in it.getMessage()]
    assert 2 <= len(lost) <= 2 * N


@pytest.mark.parametrize("about", ["5", '{"training": "t"}', '{"since": "3"}'])
def test_a_file_that_is_sealed_and_no_memory_is_a_lost_memory(tmp_path, caplog, about):
    model = record_of({"w": np.zeros(3, np.float32)})
    context = Context(0, 1, {"fedavot-folder": str(tmp_path)}, RecordDict(), {})
    store = Store(context, "t", "lyon", Layout(model))
    write_archive(store.path, {ABOUT: np.array(about)})
    memory, _ = store.load()
    assert memory.memory is None
    assert "is lost" in caplog.text


@pytest.mark.parametrize(("first", "second"), [("server", "clients"), ("clients", "server")])
def test_a_run_cannot_be_resumed_with_its_memory_elsewhere(tmp_path, first, second):
    run(first, folder=tmp_path, n_rounds=2)
    with pytest.raises(CheckpointError, match=f"memory='{first}'"):
        run(second, folder=tmp_path, n_rounds=4, resume=True)


@pytest.mark.parametrize("other", [IMPORTANCE, {**IMPORTANCE, "0": 9.0, "3": 0.5}], ids=len)
def test_the_mean_on_the_server_is_by_the_importance_of_now(tmp_path, other):
    calm = federation(N, update, fate=only([[0, 1, 2, 3, 4, 5], [0, 1, 2], [3, 4]]))
    run("server", n_rounds=3, grid=calm, folder=tmp_path)
    strategy = FedAVOT(everybody(), importance=other, memory="server", folder=tmp_path, resume=True)
    strategy.start(calm, record_of(MODEL), 3)
    rule, rows = strategy._rounds.memory.rule, np.fromfile(tmp_path / "memory.bin").reshape(N, -1)
    shares = np.array(list(other.values())) * [rule.request(i).fade for i in range(N)]
    found = np.concatenate([array.ravel() for array in rule.mean])
    np.testing.assert_allclose(found, shares @ rows / sum(other.values()), rtol=1e-9)


def test_user_functions_and_mods_see_the_message_of_flower_alone(tmp_path):
    seen = {"mod": [], "train": []}

    def outer(message, context, call_next):
        seen["mod"].append(sorted(message.content))
        reply = call_next(message, context)
        seen["mod"].append(sorted(reply.content))
        return reply

    def inner(message, context, call_next):
        reply = call_next(message, context)
        arrays = arrays_of(reply.content["arrays"])
        # A mod that changes the model: what it makes of it is what is remembered.
        reply.content["arrays"] = record_of(scaled(arrays))
        return reply

    def scaled(arrays):
        return {
            key: (value * 0.9).astype(value.dtype) if value.dtype.kind == "f" else value
            for key, value in arrays.items()
        }

    def less(arrays, config, node):
        new, metrics = update(arrays, config, node)
        return scaled(new), metrics

    ends = []
    for late in (False, True):
        app = ClientApp(mods=[outer])
        mods = list(app._mods)
        if not late:
            introduce(app, memory=True)

        @app.train(mods=[inner])
        def train(message, context):
            seen["train"].append(sorted(message.content))
            arrays = arrays_of(message.content["arrays"])
            new, metrics = update(arrays, message.content["config"], context.node_config)
            records = {"arrays": record_of(new), "metrics": MetricRecord(metrics)}
            return Message(RecordDict(records), reply_to=message)

        if late:
            introduce(app, memory=True)
        assert mods == [outer]
        nodes = {100 + i: Node(app, {"partition-id": i}) for i in range(N)}
        ends.append(run("clients", grid=LocalGrid(nodes, fate=chaos()["fate"]))[0])
    expected, _ = run("clients", grid=federation(N, less, memory=True, fate=chaos()["fate"]))
    assert_same(ends[0], expected)
    assert_same(ends[1], expected)
    assert {tuple(names) for names in seen["train"]} == {("arrays", "config")}
    trained = [names for names in seen["mod"] if "fedavot" not in names]
    assert {tuple(it) for it in trained} == {("arrays", "config"), ("arrays", "metrics")}


def test_a_client_without_its_memory_says_so_and_is_new():
    of_one = []

    def noted(node, reply):
        if node == 101:
            about = reply.content[wire.RECORD]
            of_one.append((about["round"], about["since"]))
        return [reply]

    def forget(record):
        if record.round == 10:
            del grid._contexts[101]

    grid = federation(N, update, memory=True, tamper=noted)
    end, _ = run("clients", grid=grid, on_round=forget)
    assert of_one == [(t, 0 if t in (1, 11) else t - 1) for t in range(1, ROUNDS + 1)]
    assert np.isfinite(end["w"]).all()


def test_clients_that_keep_no_memory_count_while_they_are_there(caplog):
    with_memory, without = app_of(update, memory=True), app_of(update)
    nodes = {100 + i: Node(with_memory if i else without, {"partition-id": i}) for i in range(N)}
    end, seen = run("clients", grid=LocalGrid(nodes))
    assert all("0" in it.replied for it in seen)
    said = [it for it in caplog.records if "client '0' keeps no memory" in it.getMessage()]
    assert len(said) == 1
    # With everybody present the rule is full participation, whoever remembers what.
    full, _ = run("clients", grid=federation(N, update, memory=True))
    assert_same(end, full, tol=1e-9)


def test_memory_on_clients_none_of_which_keeps_one_is_refused():
    with pytest.raises(OptionError, match=r"introduce\(app, memory=True\)"):
        run("clients", grid=federation(N, update))


def test_an_app_of_another_version_declines_and_says_which():
    def newer(node, message):
        message.content[wire.RECORD]["version"] = 7
        return "reply"

    with pytest.raises(AggregateError, match="version 7"):
        run("clients", grid=federation(N, update, memory=True, fate=newer), n_rounds=1)


def tampered(change):
    """Return a grid in which client 0's memory records are changed from its second reply on."""

    def tamper(node, reply):
        about = reply.content.config_records.get(wire.RECORD)
        if node == 100 and about is not None and about["since"]:
            change(reply.content, about)
        return [reply]

    return federation(N, update, memory=True, tamper=tamper)


CHANGES = {
    "another version": (lambda content, about: about.update(version=9), "version 9"),
    "another round": (lambda content, about: about.update(round=99), "round 99"),
    "an unknown memory": (lambda content, about: about.update(since=55), "round 55"),
    "no round": (lambda content, about: about.pop("round"), "damaged"),
    "text": (lambda content, about: about.update(products=["a"]), "damaged"),
    "not finite": (lambda content, about: about.update(products=[np.inf, 1.0, 1.0]), "finite"),
    "no memory": (lambda content, about: content.pop(wire.HELD), "does not send its memory"),
    "other arrays": (
        lambda content, about: content.update({wire.HELD: record_of({"w": np.zeros(7)})}),
        "cannot be read",
    ),
    "out of proportion": (
        lambda content, about: content.update(
            {
                wire.HELD: record_of(
                    {key: 1e6 * value for key, value in arrays_of(content[wire.HELD]).items()}
                )
            }
        ),
        "norm of its memory",
    ),
    "a memory that is not finite": (
        lambda content, about: content.update(
            {
                wire.HELD: record_of(
                    {key: np.nan * value for key, value in arrays_of(content[wire.HELD]).items()}
                )
            }
        ),
        "norm of its memory",
    ),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_damaged_memory_excludes_the_reply_with_the_reason(kind):
    change, reason = CHANGES[kind]
    end, seen = run("clients", grid=tampered(change), n_rounds=5)
    assert [sorted(it.excluded) for it in seen] == [[], ["0"], ["0"], ["0"], ["0"]]
    assert reason in seen[1].excluded["0"]
    assert np.isfinite(end["w"]).all()


def test_products_that_contradict_the_innovation_are_no_evidence():
    def lie(content, about):
        about["products"] = [1e9, 1e9, 1e9]

    lied, _ = run(Memory("clients", trust=1.0), grid=tampered(lie))
    honest, _ = run(Memory("clients", trust=1.0), grid=federation(N, update, memory=True))
    assert_same(lied, honest)


def test_a_second_model_is_uploaded_only_if_trust_is_not_one():
    counts = {}
    for trust in (1.0, 0.5):
        found = []

        def tamper(node, reply, found=found):
            found.append(len(reply.content.array_records))
            return [reply]

        grid = federation(N, update, memory=True, tamper=tamper)
        run(Memory("clients", trust=trust), grid=grid, n_rounds=4)
        counts[trust] = found
        trained = [it for it in grid.sent if it.metadata.message_type == "train"]
        assert {len(it.content.array_records) for it in trained} == {1}
    assert set(counts[1.0]) == {1}
    assert counts[0.5] == [1] * N + [2] * 3 * N


@pytest.mark.parametrize("n_clients", [3, 100_000])
def test_the_server_holds_one_model_beside_its_own_whatever_the_number_of_clients(n_clients):
    size, cohort = 200_000, ["0", "1", "2"]
    model = record_of({"w": np.zeros(size)})
    weigher = Weigher({str(i): 1.0 for i in range(n_clients)}, Weighting())
    tracemalloc.start()
    try:
        memory = OnClients(model, Memory("clients"), weigher)
        clients = {name: (app_of(update_all, memory=True), context(name)) for name in cohort}
        LocalGrid({})
        for number in range(1, 4):
            sent = {
                name: Message(RecordDict({"arrays": model, "config": config(number)}), 1, "train")
                for name in cohort
            }
            memory.prepare(number, sent)
            replies = memory.receive(
                [clients[name][0](sent[name], clients[name][1]) for name in cohort]
            )
            usable = dict(zip(cohort, replies, strict=True))
            assert memory.unusable(usable) == {}
            memory.combine(usable, np.full(3, 1 / 3), model)
            memory.settle(accepted=True)
            del sent, replies, usable
        del clients
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    numbers = 64 * n_clients  # three arrays of numbers per client, and copies of importance
    assert size * 8 < held < 1.2 * size * 8 + numbers
    assert len(memory.state_dict()["mean"]) == 1


def update_all(arrays, config, node):
    return {"w": arrays["w"] + 1.0}, {"num-examples": 1}


def config(number):
    return ConfigRecord({"server-round": number})


def context(name):
    return Context(1, 1, {"partition-id": name}, RecordDict(), {})
