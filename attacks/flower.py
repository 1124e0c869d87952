"""Replies of Flower clients, and folders of Flower runs, as inputs of `fuzz`.

Four clients train for two rounds in one process, and one of them may send anything: to the question
for its name, to a request to train, or to one to evaluate. Whatever it sends, both rounds must end;
the weights must be a distribution over those who replied, the model finite and of its own shapes,
and the other clients' updates used. Where nothing is remembered, the model must be the mean of the
replies by these weights. Flower's own clipping on the server is left out: it divides by the norm of
an update, and ends at a client that returns the model, with FedAvg as well (docs/trust.md).

A run of three rounds leaves its log, checkpoint, memory and best model. One of these is changed,
and the run is resumed for one round more. That must be refused by one of the library's own errors,
or end with the model of a run that was never interrupted, to the bit.
"""

import contextlib
import copy
import functools
import io
import json
import logging
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.app.error import Error
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.serverapp.strategy import (
    FedAdam,
    FedAvg,
    FedAvgM,
    QFedAvg,
)

from attacks.campaign import Fault, some
from attacks.mutations import changed, damaged
from fedavot.errors import FedavotError
from fedavot.flower import ExactNoise, FedAVOT, Memory

# The grid that runs ClientApps in the process of the server belongs to the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "flower"))

from grid import LocalGrid, Node, app_of, arrays_of, everybody, federation, record_of

N_CLIENTS, N_ROUNDS, LIAR = 4, 2, 101
SAVED = 3
"""Rounds of the run whose folder is changed."""
MODEL = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array([1, 2], np.int64)}
SUM_SLACK = 1e-9
AGREE = 1e-5
"""Relative agreement of two ways to average float32 models."""
ODD = (
    *(0, 1, -1, 3, 2**31, 2**63 - 1, -(2**63), 0.0, -0.0, 0.5, 1e-320, 1e308, -1e308, 1e39),
    *(float("nan"), float("inf"), float("-inf"), [], [1.0], [float("nan")] * 3, [2**62] * 3),
)
WORDS = ("", "a", "0", "\ud800", "é🐝", "x" * 400, b"", b"\xff\x00", True, ["a", "b"], [b""])
KEYS = ("num-examples", "loss", "train_loss", "w", "", "round", "since", "products", "name", "🐝")
NAMES = ("arrays", "metrics", "fedavot", "fedavot.correction", "fedavot.shift", "x")
TYPES = ("float64", "int64", "float16", "bool", "complex64", "uint8", "<U3", "datetime64[s]")


def exactly_noisy():
    """Return clipping on the server that no reply can end."""
    return ExactNoise(everybody(), noise_multiplier=0.1, clipping_norm=0.5)


SETUPS = (
    (everybody, {"importance": "uniform"}),
    (everybody, {"importance": "examples"}),
    (functools.partial(everybody, FedAdam), {"importance": "examples"}),
    (functools.partial(everybody, FedAvgM, server_momentum=0.9), {"importance": "uniform"}),
    (functools.partial(everybody, QFedAvg, client_learning_rate=0.3), {"importance": "uniform"}),
    (exactly_noisy, {"importance": "examples"}),
    (everybody, {"importance": "uniform", "memory": True}),
    (everybody, {"importance": "examples", "memory": Memory(correction=0.5)}),
    (functools.partial(FedAvg, min_available_nodes=1), {"importance": "uniform"}),
)


def update(arrays, config, node):
    """Train: go a step of the client's own."""
    step = np.float32(0.1 * (1 + int(node["partition-id"])))
    return {"w": arrays["w"] + step, "n": arrays["n"]}, {"num-examples": 3, "train_loss": 0.5}


class LyingGrid(LocalGrid):
    """A grid in which one node's answers to some kinds of message are changed."""

    def __init__(self, nodes, lie, kinds):
        super().__init__(nodes)
        self._lie, self._kinds = lie, kinds
        self.model = None
        """The model that the last round's requests to train had."""
        self.trained = {}
        """The replies to these requests, as they were sent."""

    def _answer(self, message):
        reply = super()._answer(message)
        node, kind = message.metadata.dst_node_id, message.metadata.message_type
        if node == LIAR and kind.partition(".")[0] in self._kinds and not reply.has_error():
            reply = self._lie(reply)
        if kind == "train" and not reply.has_error():
            self.model = copy.deepcopy(next(iter(message.content.array_records.values())))
            self.trained[node] = copy.deepcopy(reply)
        return reply


def replies(folder):
    """Return the judge of replies."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)

    def judge(seed, number):
        rng = np.random.default_rng([seed, number])
        make, options = some(SETUPS, rng)
        kinds = some((("train",), ("train",), ("train", "evaluate"), ("query",)), rng)
        if "memory" in options:
            shutil.rmtree(folder / "run", ignore_errors=True)
            options = options | {"folder": folder / "run"}
        app = app_of(update)
        nodes = {100 + i: Node(app, {"partition-id": i}) for i in range(N_CLIENTS)}
        grid = LyingGrid(nodes, functools.partial(_lie, rng=rng), kinds)
        seen = []
        strategy = FedAVOT(make(), on_round=seen.append, **options)
        try:
            result = strategy.start(grid, record_of(MODEL), N_ROUNDS)
        except FedavotError as error:
            return Fault(f"one client stopped the run: {str(error)[:100]}")
        averages = make is everybody and "memory" not in options
        return _wrong(seen, arrays_of(result.arrays), grid if averages else None) or (
            "excluded" if any(one.excluded or one.refused for one in seen) else "used"
        )

    return judge


def _wrong(seen, model, grid):
    """Return a fault, or None if both rounds are as they should be."""
    honest = {str(i) for i in range(N_CLIENTS)} - {str(LIAR - 100)}
    if len(seen) != N_ROUNDS:
        return Fault(f"{len(seen)} of {N_ROUNDS} rounds")
    for one in seen:
        weights = np.array(list(one.weights.values()))
        if not np.all(weights >= 0) or abs(weights.sum() - 1) > SUM_SLACK:
            return Fault("the weights are no distribution")
        # Of two nodes that claim one name neither is admitted: without keys it may be anybody's.
        claimed = {str(int(node.removeprefix("node ")) - 100) for node in one.refused}
        if set(one.weights) != set(one.replied) or not honest - claimed <= set(one.replied):
            return Fault("an honest client was left out")
    for name, start in MODEL.items():
        alike = model[name].shape == start.shape and model[name].dtype == start.dtype
        if not alike or not np.all(np.isfinite(model[name])):
            return Fault("the model has another form, or is not finite")
    if grid is None:
        return None
    mean = np.zeros_like(MODEL["w"], dtype=np.float64)
    for name, weight in seen[-1].weights.items():
        node = 100 + int(name) if name in honest else LIAR
        record = next(iter(grid.trained[node].content.array_records.values()))
        mean += weight * record["w"].numpy().astype(np.float32).astype(np.float64)
    agrees = np.allclose(model["w"], mean, rtol=AGREE, atol=AGREE)
    return None if agrees else Fault("the model is not the mean of the replies")


def _lie(reply, *, rng):
    """Return something else in place of a reply."""
    if rng.random() < 0.02:
        code = int(rng.integers(-3, 10))
        return Message(Error(code, some(("", "x" * 5000, "\ud800\n\n", None), rng)), reply_to=reply)
    for _ in range(int(rng.integers(1, 4))):
        change = some((_array, _array, _array, _metric, _metric, _record, _about, _bytes), rng)
        with contextlib.suppress(Exception):  # no record of Flower's can be like that
            change(reply, rng)
    return reply


def _array(reply, rng):
    """Change one array: its values, its type, its shape, or the bytes it is sent as."""
    records = reply.content.array_records
    record = records[some(list(records), rng)]
    key = some(list(record), rng)
    way = int(rng.integers(6))
    if way == 0:
        values = MODEL["w"].astype(np.float64)
        values.reshape(-1)[int(rng.integers(values.size))] = some([o for o in ODD if o != []], rng)
        with np.errstate(all="ignore"):
            record[key] = Array(values.astype(some(("float32", "float64", "float16"), rng)))
    elif way == 1:
        record[key] = Array(np.ones(some(((), (0,), (6,), (3, 2), (2, 3), (1, 2, 3)), rng), "f4"))
    elif way == 2:
        record[key] = Array(np.zeros((2, 3), some(TYPES, rng)))
    elif way == 3:
        record[key] = _sent(record[key], damaged(record[key].data, rng), rng)
    elif way == 4:
        stream = io.BytesIO()
        np.save(stream, np.array([print], dtype=object), allow_pickle=True)
        data = some((stream.getvalue(), pickle.dumps(print), b"", rng.bytes(200)), rng)
        record[key] = _sent(record[key], data, rng)
    else:
        record[some(KEYS, rng)] = record.pop(key)


def _sent(array, data, rng):
    odd = rng.random() < 0.3
    shape = some(((2, 3), (), (-1,), (2**40,), (2, 2**62)), rng) if odd else array.shape
    dtype = some((*TYPES, "object", "", "bad"), rng) if odd else array.dtype
    stype = some(("numpy.ndarray", "", "torch", "numpy.ndarray/zlib"), rng) if odd else array.stype
    return Array(dtype, shape, stype, data)


def _metric(reply, rng):
    records = reply.content.metric_records or reply.content.config_records
    record = records[some(list(records), rng)]
    if rng.random() < 0.1:
        del record[some(list(record), rng)]
    values = ODD if isinstance(record, MetricRecord) else (*ODD, *WORDS)
    record[some(KEYS if rng.random() < 0.5 else list(record), rng)] = some(values, rng)


def _record(reply, rng):
    """Drop, add, rename or swap whole records."""
    content = reply.content
    key, way = some(list(content), rng), int(rng.integers(5))
    if way == 0:
        del content[key]
    elif way == 1:
        content[some(NAMES, rng)] = content[some(list(content), rng)]
    elif way == 2:
        content[some(NAMES, rng)] = content.pop(key)
    elif way == 3:
        content[some(NAMES, rng)] = ConfigRecord({some(KEYS, rng): some((*ODD, *WORDS), rng)})
    else:
        content[some(NAMES, rng)] = some((ArrayRecord, MetricRecord, ConfigRecord), rng)()


def _about(reply, rng):
    """Change what the envelope says, as far as a client decides it."""
    name = some(("_message_type", "_reply_to_message_id", "_group_id", "_message_id"), rng)
    reply.metadata.__dict__[name] = some(
        ("", "train", "evaluate", "x" * 300, "message-0", "\ud800"), rng
    )


def _bytes(reply, rng):
    """Damage the records as they are sent, where that is still a message."""
    data = recorddict_to_proto(reply.content).SerializeToString()
    try:
        received = ProtoRecordDict.FromString(damaged(data, rng))
        reply.content = recorddict_from_proto(received)
    except Exception:
        return  # refused by Flower's own transport


def folders(folder):
    """Return the judge of folders."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    good, place = folder / "good", folder / "run"
    run(good, SAVED)
    shutil.copytree(good, folder / "whole")
    wanted = run(folder / "whole", SAVED + 1)
    names = [path.name for path in sorted(good.iterdir()) if path.stat().st_size]
    names.remove("memory.rows")  # bare numbers

    def judge(seed, number):
        rng = np.random.default_rng([seed, number])
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(good, place)
        path = place / some(names, rng)
        lines = path.read_bytes().split(b"\n")
        if path.suffix == ".jsonl" and rng.random() < 0.5:
            at = int(rng.integers(len(lines) - 1))
            line = json.dumps(changed(json.loads(lines[at]), rng))
            lines[at] = line.encode("utf-8", "surrogatepass")
            path.write_bytes(b"\n".join(lines))
        else:
            path.write_bytes(damaged(path.read_bytes(), rng))
        again = run(place, SAVED + 1)
        return "equal" if again == wanted else Fault(f"another model, after {path.name} changed")

    return judge


def run(folder, n_rounds):
    """Begin a run or resume it; return the bytes of its last model."""

    def norm(number, arrays):
        return MetricRecord({"norm": float(np.abs(arrays_of(arrays)["w"]).sum())})

    options = {"importance": "examples", "memory": True, "folder": folder, "resume": True}
    strategy = FedAVOT(everybody(FedAvgM, server_momentum=0.5), **options)
    strategy.keep_best("norm")
    grid = federation(N_CLIENTS, update)
    result = strategy.start(grid, record_of(MODEL), n_rounds, evaluate_fn=norm)
    return {name: array.tobytes() for name, array in arrays_of(result.arrays).items()}
