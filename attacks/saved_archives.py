"""Kinds of saved files that are NumPy archives: checkpoints, and the best model of a Flower run."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fedavot as fa
from attacks import mutations

NAMES = ["lyon", "porto", "<b>", 'é"🐝', "=cmd"]
IMPORTANCE = [0.3, 0.25, 0.2, 0.15, 0.1]


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes
    ----------
    name : str
        What it is called in the table.
    data : bytes
        A good file.
    read : function of bytes
        Writes the file, has the library read it, and returns what was read as plain values.
    sound : function of what was read
        Whether that is a proper one, though another.
    mutate : function of (bytes, rng)
        Returns other bytes, and how they are sealed.
    """

    name: str
    data: bytes
    read: Callable[[bytes], Any]
    sound: Callable[[Any], bool]
    mutate: Callable[[bytes, Any], tuple[bytes, str]]


def _archive(path, data, name, load, sound, inner=None):
    def read(content):
        path.write_bytes(content)
        return load()

    def mutate(content, rng):
        return mutations.archive(content, rng, inner=inner)

    return Kind(name, data, read, sound, mutate)


def training(place):
    """Return a checkpoint of training."""
    from fedavot.training.checkpoint import Checkpoint

    carry = {"average": np.zeros((2, 3), np.float32), "params": np.ones((2, 3), np.float32)}
    path = place / "run.npz"
    checkpoint = Checkpoint(path, "0123abcd", carry)
    checkpoint.save(carry, [5, 10], np.array([[2.0, 1.0], [3.0, 1.5]]))

    def load():
        found = checkpoint.load()
        leaves = {name: np.asarray(leaf) for name, leaf in found.carry.items()}
        return leaves, found.recorded, found.losses

    def sound(found):
        leaves, recorded, losses = found
        alike = all(leaves[name].shape == leaf.shape for name, leaf in carry.items())
        return alike and recorded[-1] > 0 and losses.shape == (2, len(recorded))

    return _archive(path, path.read_bytes(), "training", load, sound)


def flower(place):
    """Return a checkpoint of a Flower run."""
    from fedavot.flower.kept import checkpoint

    aligner = fa.OnlineAligner(IMPORTANCE, softness=0)
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
    checkpoint.save(place, meta, arrays)
    path = place / checkpoint.FILE

    def load():
        meta, arrays = checkpoint.load(place)
        return json.dumps(meta, sort_keys=True), dict(sorted(arrays.items()))

    def sound(found):
        meta = json.loads(found[0])
        whole = meta["format"] == "fedavot-flower-checkpoint" and meta["version"] == 3
        return whole and all(isinstance(array, np.ndarray) for array in found[1].values())

    return _archive(path, path.read_bytes(), "flower", load, sound, inner="meta")


def best(place):
    """Return the best model of a Flower run."""
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp.strategy import Result

    from fedavot.flower import best_model
    from fedavot.flower.kept.checkpoint import BEST, BestModel

    model = ArrayRecord({"w": Array(np.ones((2, 3), np.float32)), "b": Array(np.zeros(2))})
    result = Result(evaluate_metrics_serverapp={4: {"accuracy": 0.5}})
    BestModel(place, "accuracy").consider(4, model, result)

    def load():
        found = best_model(place)
        arrays = {name: array.numpy() for name, array in found.arrays.items()}
        return arrays, found.round, found.metric, found.value

    def sound(found):
        _, number, metric, value = found
        return type(number) is int and isinstance(metric, str) and isinstance(value, float)

    return _archive(place / BEST, (place / BEST).read_bytes(), "best", load, sound, inner="meta")


MAKERS = {
    "training": training,
    "flower": flower,
    "best": best,
}
