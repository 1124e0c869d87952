"""Unusable replies are excluded by name, and the others are weighted without them."""

import copy
import pickle
import re
from io import BytesIO

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvgM
from grid import arrays_of, everybody, federation, record_of
from hypothesis import given, settings
from hypothesis import strategies as st
from learnt import Learner

from fedavot.errors import AggregateError, FedavotError
from fedavot.flower import Admission, FedAVOT

MODEL: dict[str, np.ndarray] = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "n": np.array([1, 2], np.int64),
}
AGREE = 1e-6
"""Relative agreement of two ways to average a few float32 models."""


def update(arrays, config, node):
    step = np.float32(0.1 * (1 + int(node["partition-id"])))
    return {"w": arrays["w"] + step, "n": arrays["n"]}, {"num-examples": 3, "loss": 0.5}


def tampering(client, change, rounds=(1,)):
    """Return a tamper: the client's replies are changed in these rounds of its own."""
    count = [0]

    def tamper(node, reply):
        if node != 100 + client:
            return [reply]
        count[0] += 1
        if count[0] not in rounds:
            return [reply]
        changed = change(reply)
        return [reply] if changed is None else changed

    return tamper


def run(change, *, rounds=(1,), n_rounds=1, inner=None, **options):
    seen = []
    grid = federation(4, update, tamper=tampering(1, change, rounds))
    options = {"importance": "uniform"} | options
    strategy = FedAVOT(inner or everybody(), on_round=seen.append, **options)
    result = strategy.start(grid, record_of(MODEL), n_rounds)
    return seen, arrays_of(result.arrays)


def put(key, array):
    def change(reply):
        made = array if isinstance(array, Array) else Array(np.asarray(array))
        reply.content["arrays"][key] = made

    return change


def sparse(value):
    filled = MODEL["w"].copy()
    filled[1, 2] = value
    return filled


def raw(data, dtype="float32", shape=(2, 3), stype="numpy.ndarray"):
    return Array(dtype, shape, stype, data)


def npy(array):
    stream = BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def headed(text):
    """Return a file of NumPy's format with this header."""
    body = text.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


def without(key):
    return lambda reply: reply.content["arrays"].pop(key) and None


def metrics(values):
    def change(reply):
        reply.content["metrics"] = MetricRecord(values)

    return change


def add(name, record):
    def change(reply):
        reply.content[name] = record

    return change


def drop(name):
    def change(reply):
        del reply.content[name]

    return change


OTHER = record_of({"w": MODEL["w"]})
UNUSABLE = {
    "nan": (put("w", sparse(np.nan)), "array 'w' is not finite"),
    "inf": (put("w", sparse(np.inf)), "array 'w' is not finite"),
    "minus inf": (put("w", sparse(-np.inf)), "array 'w' is not finite"),
    "past the model's type": (put("w", np.full((2, 3), 1e300)), "not finite"),
    "shape": (put("w", MODEL["w"].T), r"shape \(3, 2\).*\(2, 3\)"),
    "flat": (put("w", MODEL["w"].ravel()), r"shape \(6,\)"),
    "scalar": (put("w", np.float32(0)), r"shape \(\)"),
    "broadcastable": (put("w", MODEL["w"][:1]), r"shape \(1, 3\)"),
    "missing": (without("w"), r"missing 'w'"),
    "surplus": (put("v", MODEL["w"]), r"unexpected 'v'"),
    "integers for floats": (put("w", MODEL["w"].astype(np.int32)), "'w' is int32"),
    "floats for integers": (put("n", np.array([1.0, 2.0])), "'n' is float64"),
    "booleans for integers": (put("n", np.array([True, False])), "'n' is bool"),
    "text for integers": (put("n", np.array(["a", "b"])), "'n' is <U1"),
    "dates for integers": (put("n", np.zeros(2, "M8[s]")), "'n' is datetime64"),
    "complex for floats": (put("w", MODEL["w"] + 1j), "'w' is complex"),
    "complex for integers": (put("n", MODEL["n"] + 1j), "'n' is complex"),
    "fields for floats": (put("w", np.zeros((2, 3), [("a", "f4")])), "'w' is "),
    "fields for integers": (put("n", np.zeros(2, [("a", "f4")])), "'n' is "),
    "garbled": (put("w", raw(b"what is this?")), "'w' cannot be read"),
    "empty": (put("w", raw(b"")), "'w' cannot be read"),
    "cut off": (put("w", raw(npy(MODEL["w"])[:-3])), "'w' cannot be read"),
    "cut off in the header": (put("w", raw(npy(MODEL["w"])[:40])), "'w' cannot be read"),
    "too long": (put("w", raw(npy(MODEL["w"]) + b"1234")), "'w' cannot be read"),
    "pickled": (put("w", raw(pickle.dumps(MODEL["w"]))), "'w' cannot be read"),
    "objects": (
        put("w", raw(headed("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3)}"))),
        "'w' cannot be read",
    ),
    "a bomb of a shape": (
        put("w", raw(headed("{'descr': '<f4', 'fortran_order': False, 'shape': (10**9, 9)}"))),
        "'w' cannot be read",
    ),
    "a huge shape": (
        put("w", raw(headed("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999,)}"))),
        "'w' cannot be read",
    ),
    "a negative shape": (
        put(
            "w",
            raw(headed("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 3)}") + b"8" * 24),
        ),
        "'w'",
    ),
    "a header that recurses": (put("w", raw(headed("-" * 9000 + "1"))), "'w' cannot be read"),
    "a header of brackets": (put("w", raw(headed("[" * 300))), "'w' cannot be read"),
    "another serialisation": (put("w", raw(npy(MODEL["w"]), stype="torch")), "'w' cannot be read"),
    "two array records": (add("more", OTHER), "2 array records"),
    "no array record": (drop("arrays"), "0 array records"),
    "two metric records": (add("more", MetricRecord({"loss": 1.0})), "2 metric records"),
    "no metric record": (drop("metrics"), "0 metric records"),
    "exploding": (put("w", MODEL["w"] + np.float32(1e4)), "more than 100 times the median"),
    "exploding past squares": (put("w", np.full((2, 3), 3e38, np.float32)), "times the median"),
}


def mean_of(names, weights):
    """Return the aggregate of clients with usable updates."""
    steps = [np.float32(0.1 * (1 + int(name))) for name in names]
    return sum(w * (MODEL["w"] + step) for w, step in zip(weights, steps, strict=True))


@pytest.mark.parametrize("case", UNUSABLE)
def test_an_unusable_update_is_excluded_and_the_rest_weighed_without_it(case):
    change, reason = UNUSABLE[case]
    seen, arrays = run(change, importance={"0": 1, "1": 5, "2": 2, "3": 2})
    assert list(seen[0].excluded) == ["1"]
    assert re.search(reason, seen[0].excluded["1"])
    assert seen[0].replied == ["0", "2", "3"]
    shares = [0.1, 0.5, 0.2, 0.2]
    weights = Learner(shares).weights([0, 2, 3])
    assert list(seen[0].weights.values()) == pytest.approx(weights)
    np.testing.assert_allclose(arrays["w"], mean_of("023", weights), rtol=AGREE)
    np.testing.assert_array_equal(arrays["n"], MODEL["n"])


@pytest.mark.parametrize("inner", [FedAvgM, FedAdam])
@pytest.mark.parametrize("case", ["nan", "text for integers", "no metric record"])
def test_what_is_excluded_does_not_reach_other_strategies_either(case, inner):
    seen, arrays = run(UNUSABLE[case][0], inner=everybody(inner), n_rounds=2)
    assert [list(record.excluded) for record in seen] == [["1"], []]
    assert np.isfinite(arrays["w"]).all()


def renamed(what):
    def change(reply):
        reply.content[f"my-{what}"] = reply.content.pop(what)

    return change


@pytest.mark.parametrize("what", ["arrays", "metrics"])
@pytest.mark.parametrize("client", [0, 1])
def test_a_record_under_another_name_does_not_stop_the_round(what, client):
    seen = []
    grid = federation(3, update, tamper=tampering(client, renamed(what)))
    FedAVOT(everybody(), on_round=seen.append).start(grid, record_of(MODEL), 1)
    assert {"0", "1", "2"} - {str(client)} <= set(seen[0].replied)
    assert sum(seen[0].weights.values()) == pytest.approx(1.0)


def swapped(reply):
    arrays, numbers = reply.content.pop("arrays"), reply.content.pop("metrics")
    reply.content["metrics"], reply.content["arrays"] = arrays, numbers


def shadowed(reply):
    reply.content["mine"] = reply.content.pop("arrays")
    reply.content["arrays"] = ConfigRecord({"not": "arrays"})


@pytest.mark.parametrize("change", [swapped, shadowed])
@pytest.mark.parametrize("client", [0, 1])
def test_records_under_one_anothers_names_do_not_stop_the_round(change, client):
    seen = []
    grid = federation(3, update, tamper=tampering(client, change))
    result = FedAVOT(everybody(), on_round=seen.append).start(grid, record_of(MODEL), 1)
    assert {"0", "1", "2"} - {str(client)} <= set(seen[0].replied)
    weights = [seen[0].weights.get(name, 0.0) for name in "012"]
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], mean_of("012", weights), rtol=AGREE)


def test_records_whose_usual_names_are_the_same_do_not_stop_the_round():
    called = {100: ("x", "m"), 101: ("x", "y"), 102: ("z", "x"), 103: ("v", "x")}

    def tamper(node, reply):
        arrays, numbers = reply.content.pop("arrays"), reply.content.pop("metrics")
        reply.content[called[node][0]], reply.content[called[node][1]] = arrays, numbers
        return [reply]

    seen = []
    grid = federation(4, update, tamper=tamper)
    result = FedAVOT(everybody(), on_round=seen.append).start(grid, record_of(MODEL), 1)
    assert seen[0].replied == ["0", "1", "2", "3"]
    expected = mean_of("0123", [0.25] * 4)
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], expected, rtol=AGREE)


@pytest.mark.parametrize("dtype", ["nonsense", "object", "int64", "float16", ""])
@pytest.mark.parametrize("memory", [False, True])
def test_the_declared_type_of_an_array_does_not_matter(tmp_path, dtype, memory):
    truth = npy(MODEL["w"] + np.float32(0.2))
    seen, arrays = run(
        put("w", raw(truth, dtype, (7, 7))),
        memory=memory,
        folder=tmp_path,
    )
    assert seen[0].replied == ["0", "1", "2", "3"]
    np.testing.assert_allclose(arrays["w"], mean_of("0123", [0.25] * 4), rtol=AGREE)
    assert arrays["w"].dtype == np.float32


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(MODEL["w"]),
        MODEL["w"].astype(">f4"),
        MODEL["w"].astype(np.float64),
        MODEL["w"].astype(np.longdouble),
    ],
    ids=["column-major", "big-endian", "double", "long double"],
)
def test_the_same_numbers_laid_out_otherwise_are_usable(array):
    seen, arrays = run(put("w", array))
    assert seen[0].excluded == {}
    steps = [0.1, 0.0, 0.3, 0.4]
    np.testing.assert_allclose(arrays["w"], MODEL["w"] + np.mean(steps), rtol=AGREE)


def test_extra_config_records_do_no_harm():
    seen, _ = run(add("note", ConfigRecord({"hello": "there"})))
    assert seen[0].excluded == {}


def test_a_missing_weight_metric_does_no_harm():
    seen, _ = run(metrics({"loss": 0.5}))
    assert seen[0].excluded == {}
    assert len(seen[0].weights) == 4


def test_the_weight_that_a_client_claims_does_no_harm():
    seen, _ = run(metrics({"num-examples": 10**15, "loss": 0.5}))
    assert seen[0].weights == pytest.approx(dict.fromkeys("0123", 0.25))


def test_of_two_replies_from_one_node_one_counts():
    seen, arrays = run(lambda reply: [reply, reply])
    assert len(seen[0].weights) == 4
    np.testing.assert_allclose(arrays["w"], mean_of("0123", [0.25] * 4), rtol=AGREE)


def stranger(reply, *, node, answering):
    """Return a reply like this one from another node, to this or to no message."""
    content = RecordDict({"arrays": record_of(MODEL), "metrics": MetricRecord({"loss": 9.0})})
    forged = Message(content, reply_to=Message(RecordDict(), 999, "train"))
    forged.metadata.__dict__["_src_node_id"] = node
    if answering:
        forged.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
    return forged


@pytest.mark.parametrize("answering", [False, True])
def test_a_reply_from_a_node_that_was_not_asked_is_not_used(answering):
    seen, arrays = run(lambda reply: [reply, stranger(reply, node=999, answering=answering)])
    assert seen[0].metrics == pytest.approx({"loss": 0.5})
    np.testing.assert_allclose(arrays["w"], mean_of("0123", [0.25] * 4), rtol=AGREE)


def test_a_stranger_cannot_answer_for_a_silent_client():
    seen, _ = run(lambda reply: [stranger(reply, node=999, answering=True)])
    assert seen[0].replied == ["0", "2", "3"]
    assert seen[0].late == ["1"]


def test_one_client_cannot_answer_for_another():
    def impersonate(reply):
        forged = stranger(reply, node=101, answering=False)
        number = int(reply.metadata.reply_to_message_id.removeprefix("message-"))
        forged.metadata.__dict__["_reply_to_message_id"] = f"message-{number + 1}"
        return [reply, forged]

    def fate(node, message):
        return "silent" if node in (100, 102, 103) else "reply"

    seen = []
    grid = federation(4, update, fate=fate, tamper=tampering(1, impersonate))
    FedAVOT(everybody(), on_round=seen.append).start(grid, record_of(MODEL), 1)
    assert seen[0].late == ["0", "2", "3"]


def test_a_reply_to_what_was_sent_to_another_node_is_not_used():
    # Node 101 tells of itself as 102, which is silent.
    def usurp(reply):
        forged = stranger(reply, node=102, answering=True)
        return [reply, forged]

    seen = []
    grid = federation(
        4,
        update,
        fate=lambda node, message: "silent" if node == 102 else "reply",
        tamper=tampering(1, usurp),
    )
    result = FedAVOT(everybody(), on_round=seen.append).start(grid, record_of(MODEL), 1)
    assert (seen[0].replied, seen[0].late) == (["0", "1", "3"], ["2"])
    expected = mean_of("013", [1 / 3] * 3)
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], expected, rtol=AGREE)


def test_a_reply_to_an_earlier_round_is_not_used():
    kept = []

    def late(reply):
        kept.append(copy.deepcopy(reply))
        return [reply] if len(kept) == 1 else [kept[0]]

    seen, _ = run(late, rounds=(1, 2), n_rounds=2)
    assert [record.late for record in seen] == [[], ["1"]]


def test_where_a_grid_numbers_no_messages_replies_go_by_their_nodes():
    seen = []
    grid = federation(3, update)

    class Unnumbered:
        """A grid that does not number the messages."""

        get_nodes, get_node_ids = grid.get_nodes, grid.get_node_ids

        def send_and_receive(self, messages, *, timeout=None):
            messages = list(messages)
            replies = grid.send_and_receive(messages, timeout=timeout)
            for message in messages:
                message.metadata.__dict__["_message_id"] = ""
            return replies

    FedAVOT(everybody(), on_round=seen.append).start(Unnumbered(), record_of(MODEL), 2)
    assert [record.replied for record in seen] == [["0", "1", "2"]] * 2


def test_the_norm_of_an_update_is_held_against_those_of_past_rounds_too():
    grow = put("w", MODEL["w"] + np.float32(3e3))
    seen, _ = run(grow, rounds=(5,), n_rounds=6, admission=Admission(norm_limit=100.0))
    assert [list(record.excluded) for record in seen] == [[], [], [], [], ["1"], []]


def growing(n_clients, n_rounds, over, *, since=3, **options):
    """Run clients whose updates are a million times as large from a round on, for some of them."""

    def grow(arrays, config, node):
        large = config["server-round"] >= since and int(node["partition-id"]) in over
        return {"w": arrays["w"] + np.float32(1e6 if large else 1.0)}, {"num-examples": 1}

    seen = []
    grid = federation(n_clients, grow, **options)
    FedAVOT(everybody(), importance="uniform", on_round=seen.append).start(
        grid, record_of({"w": np.zeros(4, np.float32)}), n_rounds
    )
    return seen


@pytest.mark.parametrize("n_over", [3, 4, 5])
def test_a_norm_limit_that_most_of_a_round_exceed_gives_way(caplog, n_over):
    seen = growing(5, 6, range(n_over))
    assert all(record.excluded == {} for record in seen)
    assert any(f"{n_over} of 5" in it.message for it in caplog.records if it.levelno > 20)


def test_a_norm_limit_that_fewer_than_most_exceed_stands():
    seen = growing(5, 8, range(2))
    assert all(list(record.excluded) == ["0", "1"] for record in seen[2:])


@pytest.mark.parametrize(("n_clients", "n_lost"), [(1, 2), (2, 1)])
def test_nobody_is_locked_out_in_rounds_of_one_or_two_replies(n_clients, n_lost):
    seen = growing(n_clients, 10, range(n_clients), since=5)
    lost = [record.round for record in seen if record.excluded]
    assert lost == list(range(5, 5 + n_lost))


def test_after_the_limit_gave_way_it_is_a_limit_again():
    def grow(arrays, config, node):
        size = {1: 1.0, 2: 1.0, 3: 1e6, 4: 1e6}.get(config["server-round"], 1e6)
        lone = config["server-round"] == 5 and node["partition-id"] == 1
        return {"w": arrays["w"] + np.float32(1e12 if lone else size)}, {"num-examples": 1}

    seen = []
    FedAVOT(everybody(), on_round=seen.append).start(
        federation(4, grow), record_of({"w": np.zeros(4, np.float32)}), 5
    )
    assert [list(record.excluded) for record in seen] == [[], [], [], [], ["1"]]


def test_without_a_norm_limit_any_finite_update_is_used():
    seen, _ = run(UNUSABLE["exploding"][0], admission=Admission(norm_limit=None))
    assert seen[0].excluded == {}


def test_nothing_is_out_of_proportion_among_two():
    seen = []
    grid = federation(2, update, tamper=tampering(1, UNUSABLE["exploding"][0]))
    FedAVOT(everybody(), on_round=seen.append).start(grid, record_of(MODEL), 1)
    assert seen[0].excluded == {}


def unchanged_but_one(model, far):
    """Run clients that return the model unchanged, except one that adds ``far`` to it."""

    def idle(arrays, config, node):
        change = np.float32(far if node["partition-id"] == 2 else 0.0)
        return {"w": arrays["w"] + change}, {"num-examples": 1}

    seen = []
    FedAVOT(everybody(), on_round=seen.append).start(
        federation(4, idle), record_of({"w": model}), 2
    )
    return seen


def test_where_most_updates_change_nothing_the_models_norm_is_the_measure():
    norm = np.linalg.norm(MODEL["w"])
    assert all(record.excluded == {} for record in unchanged_but_one(MODEL["w"], 5.0))
    for record in unchanged_but_one(MODEL["w"], 1e30):
        assert record.replied == ["0", "1", "3"]
        assert f"100 times the model's norm of {norm:.3g}" in record.excluded["2"]


def test_where_the_model_is_nothing_either_there_is_no_measure():
    seen = unchanged_but_one(np.zeros(3, np.float32), 5.0)
    assert seen[0].excluded == {}


def test_updates_that_change_nothing_are_usable():
    seen = []
    grid = federation(4, lambda arrays, config, node: (arrays, {"num-examples": 1}))
    FedAVOT(everybody(), on_round=seen.append).start(grid, record_of(MODEL), 3)
    assert all(len(record.weights) == 4 for record in seen)


def test_exclusions_are_logged_as_warnings_by_name(caplog):
    run(UNUSABLE["nan"][0])
    assert any("'1'" in it.message and "finite" in it.message for it in caplog.records)


def test_when_every_update_is_unusable_the_model_stays():
    seen = []
    grid = federation(3, lambda a, c, n: ({"w": a["w"] * np.float32(np.nan), "n": a["n"]}, {}))
    models = []
    strategy = FedAVOT(everybody(), on_round=seen.append)
    with pytest.raises(AggregateError, match=r"no update was usable.*'0'.*not finite"):
        strategy.start(
            grid, record_of(MODEL), 2, evaluate_fn=lambda _, it: models.append(arrays_of(it)["w"])
        )
    assert [sorted(record.excluded) for record in seen] == [["0", "1", "2"]] * 2
    assert [record.weights for record in seen] == [{}, {}]
    np.testing.assert_array_equal(models, [MODEL["w"]] * 3)


@settings(max_examples=60)
@given(data=st.binary(max_size=200), cut=st.integers(0, 160), keep=st.booleans())
def test_no_bytes_whatever_stop_a_round(data, cut, keep):
    whole = npy(MODEL["w"])
    seen, arrays = run(put("w", raw(whole[:cut] + data if keep else data)))
    assert {"0", "2", "3"} <= set(seen[0].replied)
    assert np.isfinite(arrays["w"]).all()


@settings(max_examples=60)
@given(place=st.integers(0, 127), byte=st.integers(0, 255))
def test_no_damage_to_a_header_stops_a_round(place, byte):
    damaged = bytearray(npy(MODEL["w"]))
    damaged[place] = byte
    seen, _ = run(put("w", raw(bytes(damaged))))
    assert {"0", "2", "3"} <= set(seen[0].replied)


def test_an_update_with_no_floating_point_array_has_no_norm_to_judge():
    grid = federation(3, lambda a, c, n: ({"n": a["n"] + 1}, {}))
    strategy = FedAVOT(everybody(), importance="uniform")
    result = strategy.start(grid, record_of({"n": np.array([1, 2])}), 2)
    assert arrays_of(result.arrays)["n"].tolist() == [3, 4]


def test_a_large_update_is_measured_in_whole():
    size = 3 * (1 << 16) + 5

    def late_nan(arrays, config, node):
        new = arrays["w"] + np.float32(1.0)
        if node["partition-id"] == 1:
            new[-1] = np.nan
        return {"w": new}, {}

    seen = []
    model = record_of({"w": np.zeros(size, np.float32)})
    strategy = FedAVOT(everybody(), importance="uniform", on_round=seen.append)
    strategy.start(federation(3, late_nan), model, 1)
    assert list(seen[0].excluded) == ["1"]


def test_an_empty_array_record_lacks_the_models_arrays():
    seen, _ = run(add("arrays", ArrayRecord()))
    assert "missing 'w' and 'n'" in seen[0].excluded["1"]


def test_a_model_that_cannot_be_averaged_is_refused_before_training():
    for array in (np.zeros(2, complex), np.array(["a"]), np.zeros(2, "M8[s]")):
        grid = federation(2, update)
        with pytest.raises(FedavotError, match="array 'c' of the model is"):
            FedAVOT(everybody()).start(grid, record_of(MODEL | {"c": array}), 1)
        assert grid.sent == []


@pytest.mark.parametrize("cores", [1, 3])
def test_large_updates_are_checked_alike_on_any_number_of_cores(cores, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    size = 300_000  # in pieces, the last of them short; with five replies enough for threads
    monkeypatch.setattr("fedavot.flower.worth.replies.WORTH_WORKERS", 4 * size)
    seen = []

    def sized(arrays, config, node):
        client = int(node["partition-id"])
        changed = arrays["w"] + np.float32(1)
        if client == 3:
            changed[-1] = np.nan
        if client == 4:
            changed += np.float32(1000)
        return {"w": changed}, {"num-examples": 3}

    strategy = FedAVOT(everybody(), on_round=seen.append)
    model = {"w": np.ones(size, np.float32)}
    result = strategy.start(federation(5, sized), record_of(model), 1)
    assert seen[0].replied == ["0", "1", "2"]
    assert seen[0].excluded["3"] == "array 'w' is not finite"
    norm, usual = 1001 * np.sqrt(size), np.sqrt(size)
    assert all(number in seen[0].excluded["4"] for number in (f"{norm:.3g}", f"{usual:.3g}"))
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], 2.0, rtol=AGREE)
