"""Arrays keep the model's names, order and number types, whatever strategies and clients do."""

import numpy as np
import pytest
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedProx,
    FedYogi,
    QFedAvg,
)
from grid import app_of, arrays_of, everybody, federation, record_of

from fedavot.flower import FedAVOT


def stepped(model, client):
    """Return the client's model: a step towards a target of its own."""
    return {
        key: value + 0.3 * (np.cos(client + np.arange(value.size)).reshape(value.shape) - value)
        if value.dtype.kind == "f"
        else value
        for key, value in model.items()
    }


def update(arrays, config, node):
    client = int(node["partition-id"])
    return stepped(arrays, client), {"num-examples": 10 + client, "train_loss": 0.5 + client}


KINDS = {
    "FedAvg": everybody,
    "FedProx": lambda: everybody(FedProx, proximal_mu=0.1),
    "FedAvgM": lambda: everybody(FedAvgM, server_momentum=0.9),
    "FedAdam": lambda: everybody(FedAdam),
    "FedYogi": lambda: everybody(FedYogi),
    "FedAdagrad": lambda: everybody(FedAdagrad),
    "QFedAvg": lambda: everybody(QFedAvg, client_learning_rate=0.2),
    "DP": lambda: DifferentialPrivacyServerSideFixedClipping(everybody(), 0.0, 0.7, 5),
}


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_keep_their_number_types_whatever_the_strategy(kind):
    model: dict[str, np.ndarray] = {
        "half": np.ones(3, np.float16),
        "single": np.ones((2, 2), np.float32),
        "double": np.ones(3, np.float64),
        "scalar": np.array(1.0, np.float32),
        "steps": np.array(7, np.int64),
        "bytes": np.array([1, 2, 3], np.uint8),
        "mask": np.array([True, False]),
        "empty": np.zeros((0, 3), np.float32),
    }

    def step(arrays, config, node):
        moved = {
            key: value + np.asarray(0.25 + 0.1 * int(node["partition-id"]), value.dtype)
            if value.dtype.kind == "f"
            else value
            for key, value in arrays.items()
        }
        return moved, {"num-examples": 1, "train_loss": 1.0}

    result = FedAVOT(KINDS[kind]()).start(federation(3, step), record_of(model), 3)
    found = arrays_of(result.arrays)
    assert {key: (a.dtype, a.shape) for key, a in found.items()} == {
        key: (a.dtype, a.shape) for key, a in model.items()
    }
    assert list(found) == list(model)
    for key in ("steps", "bytes", "mask"):
        np.testing.assert_array_equal(found[key], model[key])
    assert np.isfinite(found["half"]).all()
    assert (found["single"] > 1).all()


def test_integer_buffers_are_averaged_and_rounded():
    def count(arrays, config, node):
        return {"n": arrays["n"] + 10 * (1 + int(node["partition-id"]))}, {"num-examples": 1}

    grid = federation(2, count)
    result = FedAVOT(everybody(), importance={"0": 1, "1": 1}).start(
        grid, record_of({"n": np.array(3, np.int32)}), 1
    )
    assert arrays_of(result.arrays)["n"] == 18


def test_an_integer_pushed_past_its_types_range_stays_at_the_end_of_it():
    # Adam takes a step of about eta whatever the scale of the update: here, below zero.
    def down(arrays, config, node):
        return {"n": np.zeros_like(arrays["n"])}, {"num-examples": 1}

    strategy = FedAVOT(everybody(FedAdam, eta=50.0))
    result = strategy.start(federation(2, down), record_of({"n": np.array([3], np.uint8)}), 1)
    assert arrays_of(result.arrays)["n"].tolist() == [0]


def test_one_client_in_lower_precision_does_not_lower_the_models():
    def update(arrays, config, node):
        low = node["partition-id"] == 0
        value = np.full(4, 60_000, np.float16) if low else np.full(4, 100_000, np.float32)
        return {"w": value}, {"num-examples": 1}

    strategy = FedAVOT(everybody(), importance={"0": 1, "1": 1})
    result = strategy.start(federation(2, update), record_of({"w": np.zeros(4, np.float32)}), 1)
    # Beyond what float16 can hold: to be averaged in the model's type.
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], 80_000, rtol=1e-3)


@pytest.mark.parametrize("kind", ["FedAvg", "FedAvgM", "DP"])
def test_arrays_in_another_order_are_matched_by_name(kind):
    def straight(arrays, config, node):
        return stepped(arrays, int(node["partition-id"])), {"num-examples": 1}

    def backwards(arrays, config, node):
        new, metrics = straight(arrays, config, node)
        return dict(reversed(new.items())), metrics

    model = {"a": np.zeros(3), "b": np.full(3, 5.0)}
    found = []
    for first in (straight, backwards):
        grid = federation(3, straight)
        grid.nodes[100].app = app_of(first)
        result = FedAVOT(KINDS[kind]()).start(grid, record_of(model), 3)
        found.append(arrays_of(result.arrays))
    assert list(found[0]) == list(found[1]) == list(model)
    for key in model:
        np.testing.assert_array_equal(found[0][key], found[1][key])


@pytest.mark.parametrize("kind", KINDS)
def test_the_initial_arrays_are_left_alone(kind):
    initial = record_of({"w": np.zeros(2, np.float32), "n": np.array(1)})
    data = {key: array.data for key, array in initial.items()}
    result = FedAVOT(KINDS[kind]()).start(federation(3, update), initial, 2)
    assert {key: array.data for key, array in initial.items()} == data
    assert (arrays_of(result.arrays)["w"] != 0).all()


class Doubling(FedAvg):
    """A user's strategy that writes to the arrays of replies."""

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        for reply in replies:
            record = reply.content["arrays"]
            for key in record:
                values = record[key].numpy()
                values *= 2
                record[key] = record_of({key: values})[key]
        return super().aggregate_train(server_round, replies)


def test_a_users_strategy_may_write_into_what_it_is_given():
    def same(arrays, config, node):
        return arrays, {"num-examples": 1}

    strategy = FedAVOT(everybody(Doubling))
    result = strategy.start(federation(3, same), record_of({"w": np.ones(2, np.float32)}), 3)
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], 8.0)
