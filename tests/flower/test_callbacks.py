"""Rounds become curves in TensorBoard and MLflow."""

import math
import sys
import time

import numpy as np
import pytest
from grid import everybody, federation, only, record_of

from fedavot.errors import MissingPackageError
from fedavot.flower import FedAVOT, Round
from fedavot.flower.callbacks import numbers, to_mlflow, to_tensorboard

COHORTS = [[0, 1, 2], [0], [], [1, 2]]


def update(arrays, config, node):
    client = int(node["partition-id"])
    return arrays, {"num-examples": 1, "loss": float(client), "odd (%) name": 2, "many": [1.0, 2.0]}


def run(*callbacks):
    """Return the rounds of a run that also calls these callbacks."""
    seen = []
    strategy = FedAVOT(everybody(), on_round=[*callbacks, seen.append])
    strategy.start(federation(3, update, fate=only(COHORTS)), record_of({"w": np.zeros(1)}), 4)
    return seen


def test_the_numbers_of_a_round_are_its_counts_its_gap_and_its_metrics():
    record = Round(
        round=3,
        available=["a", "b", "c", "d", "e", "f"],
        asked=["a", "b", "c", "d", "e"],
        replied=["a", "b"],
        failed={"c": "why"},
        late=["d"],
        excluded={"e": "why"},
        refused={"node 9": "why"},
        weights={"a": 0.75, "b": 0.25},
        gap=0.125,
        effective_cohort_size=1.6,
        metrics={"loss": 0.5, "steps": 3, "many": [1.0, 2.0]},
    )
    assert dict(numbers(record)) == {
        "fedavot/available": 6.0,
        "fedavot/asked": 5.0,
        "fedavot/replied": 2.0,
        "fedavot/failed": 1.0,
        "fedavot/late": 1.0,
        "fedavot/excluded": 1.0,
        "fedavot/refused": 1.0,
        "fedavot/gap": 0.125,
        "fedavot/effective_cohort_size": 1.6,
        "fedavot/largest_weight": 0.75,
        "train/loss": 0.5,
        "train/steps": 3.0,
    }


def test_an_empty_round_has_numbers_too():
    values = dict(numbers(Round(round=1, available=[], asked=[])))
    assert values["fedavot/largest_weight"] == 0.0
    assert all(math.isfinite(value) for value in values.values())


def scalars(folder):
    """Return what TensorBoard's event files hold, read record by record."""
    from tensorboardX.proto.event_pb2 import Event

    found = {}
    for path in folder.iterdir():
        data, place = path.read_bytes(), 0
        while place < len(data):
            length = int.from_bytes(data[place : place + 8], "little")
            event = Event.FromString(data[place + 12 : place + 12 + length])
            place += 12 + length + 4
            for value in event.summary.value:
                found[value.tag, event.step] = value.simple_value
    return found


def test_tensorboard_gets_every_round(tmp_path, caplog):
    callback = to_tensorboard(tmp_path / "board")
    seen = run(callback)
    # A thread writes the events; telling a round again waits for those before it.
    deadline = time.monotonic() + 10
    while ("train/loss", 4) not in (found := scalars(tmp_path / "board")):
        assert time.monotonic() < deadline
        callback(seen[-1])
        time.sleep(0.05)
    for record in seen:
        assert found["fedavot/replied", record.round] == len(record.replied)
        assert found["fedavot/gap", record.round] == pytest.approx(record.gap, rel=1e-6)
        if record.replied:
            assert found["train/loss", record.round] == pytest.approx(record.metrics["loss"])
    assert not [it for it in caplog.records if "on_round failed" in it.message]


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    """Return MLflow with a store of its own, no run active before or after."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    package = pytest.importorskip("mlflow")
    before = package.get_tracking_uri()
    yield package
    while package.active_run() is not None:
        package.end_run()
    package.set_tracking_uri(before)


def history(mlflow, run_id, name):
    entries = mlflow.MlflowClient().get_metric_history(run_id, name)
    return {entry.step: entry.value for entry in entries}


def test_mlflow_gets_every_round(tmp_path, mlflow, caplog):
    seen = run(to_mlflow((tmp_path / "store").as_uri(), run_name="hospital"))
    (found,) = mlflow.search_runs(output_format="list", search_all_experiments=True)
    assert found.info.run_name == "hospital"
    run_id = found.info.run_id
    assert history(mlflow, run_id, "fedavot/replied") == {
        record.round: len(record.replied) for record in seen
    }
    assert history(mlflow, run_id, "train/loss") == pytest.approx(
        {record.round: record.metrics["loss"] for record in seen if record.replied}
    )
    assert not [it for it in caplog.records if "on_round failed" in it.message]


def test_mlflow_goes_on_with_the_active_run(tmp_path, mlflow):
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    with mlflow.start_run(run_name="mine") as mine:
        run(to_mlflow())
    assert history(mlflow, mine.info.run_id, "fedavot/asked") == dict.fromkeys(range(1, 5), 3.0)


@pytest.mark.parametrize(
    ("make", "package", "extra"),
    [
        (lambda: to_tensorboard("x"), "tensorboardX", r"fedavot\[tensorboard\]"),
        (to_mlflow, "mlflow", r"fedavot\[mlflow\]"),
    ],
)
def test_a_missing_package_is_said_in_one_line(monkeypatch, make, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=f"pip install '{extra}'") as caught:
        make()
    assert "\n" not in str(caught.value)
