"""Every kind of saved file, damaged, as inputs of `fuzz` and of tests/test_saved_files.py.

Reading must raise one of the library's own errors or give an equal object, to the bit.
"""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np

import fedavot as fa
from attacks.campaign import Fault, some
from attacks.mutations import damaged

NAMES = ["lyon", "porto", "<b>", 'é"🐝', "=cmd"]
IMPORTANCE = [0.3, 0.25, 0.2, 0.15, 0.1]
LAW = fa.Cohorts([[0, 1], [1, 2, 3], [0, 4], [2, 4], [0]], probabilities=[0.1, 0.3, 0.2, 0.2, 0.2])


@dataclasses.dataclass(frozen=True)
class Saved:
    """A good file, and a function that has other bytes in its place read, into plain values."""

    data: bytes
    read: Callable[[bytes], Any]


def saved(folder, kinds=None):
    """Return the judge of saved files of some kinds, by default of every one."""
    made = {kind: MAKERS[kind](folder) for kind in kinds or MAKERS}
    good = {kind: plain(one.read(one.data)) for kind, one in made.items()}

    def judge(seed, number):
        rng = np.random.default_rng([seed, number])
        kind = some(list(made), rng)
        read = plain(made[kind].read(damaged(made[kind].data, rng)))
        return "equal" if read == good[kind] else Fault(f"another object in place of {kind}")

    return judge


def plain(value):
    """Return a value such that equal ones are the same to the bit: floats and arrays as bytes."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, float):
        return ("float", float(value).hex())
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return (type(value).__name__, value)


def _made(path, save, load):
    save(path)

    def read(content):
        path.write_bytes(content)
        return load(path)

    return Saved(path.read_bytes(), read)


def alignment(place):
    """Return the file of an alignment whose clients have names."""
    aligned = fa.align(IMPORTANCE, LAW, softness=0.1, clients=NAMES)
    return _made(place / "alignment.json", aligned.save, fa.Alignment.load)


def online(place):
    """Return an online aligner's file."""
    aligner = fa.OnlineAligner(IMPORTANCE, softness=0, step=0.3, around="equal")
    for cohort in ([0, 1], [1, 2, 3], [0, 4], [0]):
        aligner.observe(cohort)
    path = place / "online.json"
    return _made(path, aligner.save, lambda path: fa.OnlineAligner.load(path).state_dict())


def aggregator(place):
    """Return an aggregator's file."""
    aggregator = fa.Aggregator(dict(zip(NAMES, IMPORTANCE, strict=True)))
    for name in NAMES[:3]:
        aggregator.aggregate({"w": np.zeros(3)}, {name: {"w": np.ones(3)}})

    def load(path):
        again = fa.Aggregator.load(path)
        return again.aggregate({"w": np.ones(3)}, {NAMES[1]: {"w": np.zeros(3)}}), again.report()

    return _made(place / "aggregator.npz", aggregator.save, load)


def training(place):
    """Return a checkpoint of training."""
    from fedavot.training.checkpoint import Checkpoint

    carry = {"average": np.zeros((2, 3), np.float32), "params": np.ones((2, 3), np.float32)}
    checkpoint = Checkpoint(place / "run.npz", "0123abcd", carry)

    def save(path):
        checkpoint.save(carry, [5, 10], np.array([[2.0, 1.0], [3.0, 1.5]]))

    def load(path):
        piece = checkpoint.load()
        leaves = {name: np.asarray(leaf) for name, leaf in piece.carry.items()}
        return leaves, piece.recorded, piece.losses

    return _made(place / "run.npz", save, load)


def flower(place):
    """Return a checkpoint of a Flower run."""
    from fedavot.flower.kept import checkpoint

    aligner = fa.OnlineAligner(IMPORTANCE, softness=0, step=2.0, around="equal")
    aligner.observe([0, 3])
    meta = {
        "round": 3,
        "evaluated": True,
        "model": ["w", "b"],
        "strategy": [{"class": "FedAvg", "lost": [], "own": None, "data": {}, "objects": {}}],
        "weigher": {"kind": "listed", "names": NAMES, "aligner": aligner.state_dict()},
        "norms": [1.0, 2.0, float("inf")],
        "results": {"train_metrics_clientapp": [[1, {"loss": float("nan")}]]},
    }
    arrays = {"model/0": np.ones((2, 3), np.float32), "model/1": np.zeros(2), "memory": np.ones(8)}

    def load(path):
        meta, arrays = checkpoint.load(place)
        return json.dumps(meta, sort_keys=True), dict(sorted(arrays.items()))

    path = place / checkpoint.FILE
    return _made(path, lambda path: checkpoint.save(place, meta, arrays), load)


def best(place):
    """Return the best model of a Flower run."""
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp.strategy import Result

    from fedavot.flower import best_model
    from fedavot.flower.kept.checkpoint import BEST, BestModel

    model = ArrayRecord({"w": Array(np.ones((2, 3), np.float32)), "b": Array(np.zeros(2))})
    result = Result(evaluate_metrics_serverapp={4: {"accuracy": 0.5}})

    def load(path):
        best = best_model(place)
        arrays = {name: array.numpy() for name, array in best.arrays.items()}
        return arrays, best.round, best.metric, best.value

    keep = BestModel(place, "accuracy").consider
    return _made(place / BEST, lambda path: keep(4, model, result), load)


def outcome(place):
    """Return the file of what a rule did on a setting."""
    from fedavot.experiments.outcome import Outcome

    result = Outcome(
        setting="text",
        rule="fedavot",
        knows="p and q",
        stores="nothing",
        seeds=(0, 1),
        recorded=np.array([1, 5, 9]),
        losses=np.array([[3.0, 2.0, 1.0], [3.0, 2.5, 1.5]]),
        optimum=np.array([0.5, 0.25]),
        metrics={"tail_loss": [1.0, 1.5], "rounds_to_target": [9.0, np.inf]},
        seconds=0.5,
        message="",
        fingerprint="0123abcd",
    )
    return _made(place / "outcome.json", result.save, Outcome.load)


MAKERS = {
    make.__name__: make for make in (alignment, online, aggregator, training, flower, best, outcome)
}
