"""Metrics that all replies have are averaged; others do not exclude an update."""

import numpy as np
import pytest
from flwr.app import MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, QFedAvg
from grid import arrays_of, everybody, federation, record_of

from fedavot import OnlineAligner
from fedavot.flower import ExactNoise, FedAVOT

MODEL = {"w": np.arange(6, dtype=np.float64).reshape(2, 3)}
IMPORTANCE = {"0": 1.0, "1": 5.0, "2": 2.0, "3": 2.0}
AGREE = 1e-12
"""Relative agreement of two ways to average a few float64 models."""


def reporting(odd, rounds=(1,)):
    """Return an update: client 1 reports ``odd`` in these rounds, the others a loss and a list."""

    def update(arrays, config, node):
        client = int(node["partition-id"])
        usual = {"loss": 0.5 + client, "many": [1.0, float(client)]}
        strange = client == 1 and config["server-round"] in rounds
        return {"w": arrays["w"] + 0.1 * client}, {"num-examples": 3} | (odd if strange else usual)

    return update


STRANGE = {
    "none": ({}, set()),
    "others": ({"accuracy": 0.5}, set()),
    "more": ({"loss": 1.5, "many": [1.0, 1.0], "accuracy": 0.5}, {"loss", "many"}),
    "fewer": ({"loss": 1.5}, {"loss"}),
    "a list for a number": ({"loss": [1.5], "many": [1.0, 1.0]}, {"many"}),
    "a number for a list": ({"loss": 1.5, "many": 1.0}, {"loss"}),
    "a longer list": ({"loss": 1.5, "many": [1.0, 1.0, 1.0]}, {"loss"}),
    "an empty list": ({"loss": 1.5, "many": []}, {"loss"}),
}
KINDS = {
    "FedAvg": FedAvg,
    "FedAvgM": FedAvgM,
    "FedAdam": FedAdam,
    "ExactNoise": lambda **options: ExactNoise(
        FedAvg(**options), noise_multiplier=0.0, clipping_norm=1e9
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", STRANGE)
def test_metrics_that_not_all_have_in_one_form_are_left_out_and_no_update_is(case, kind):
    odd, common = STRANGE[case]
    ends, seen = [], []
    for update in (reporting(odd), reporting({}, rounds=())):
        strategy = FedAVOT(everybody(KINDS[kind]), importance=IMPORTANCE, on_round=seen.append)
        ends.append(strategy.start(federation(4, update), record_of(MODEL), 2))
    assert all(record.excluded == {} and len(record.replied) == 4 for record in seen)
    first, second, *right = seen
    assert first.metrics == {key: right[0].metrics[key] for key in common}
    assert second.metrics == right[1].metrics
    strange, plain = (arrays_of(end.arrays)["w"] for end in ends)
    np.testing.assert_array_equal(strange, plain)


def test_the_metrics_of_replies_that_are_not_used_are_of_no_account():
    def update(arrays, config, node):
        new, metrics = reporting({})(arrays, config, node)
        return {"w": new["w"] * (np.nan if node["partition-id"] == 1 else 1.0)}, metrics

    seen = []
    FedAVOT(everybody(), importance=IMPORTANCE, on_round=seen.append).start(
        federation(4, update), record_of(MODEL), 1
    )
    shares = [0.1, 0.5, 0.2, 0.2]
    aligner = OnlineAligner(shares, step=2.0, potentials=np.log(shares))
    weights = aligner.weights([0, 2, 3])
    assert list(seen[0].excluded) == ["1"]
    assert seen[0].metrics["loss"] == pytest.approx(weights @ [0.5, 2.5, 3.5], rel=AGREE)
    assert seen[0].metrics["many"] == pytest.approx([1.0, weights @ [0, 2, 3]], rel=AGREE)


def losing(loss):
    """Return an update: client 1 reports this loss, or none."""

    def update(arrays, config, node):
        client = int(node["partition-id"])
        told = loss if client == 1 else 0.5 + client
        metrics = {"num-examples": 3} | ({} if told is None else {"train_loss": told})
        return {"w": arrays["w"] + 0.1 * (1 + client)}, metrics

    return update


UNUSABLE = {
    "none": None,
    "list": [1.0],
    "nan": np.nan,
    "inf": np.inf,
    "negative": -1.0,
    "huge": 1e300,
}


@pytest.mark.parametrize("case", UNUSABLE)
@pytest.mark.parametrize("q", [0.1, 2.0])
def test_a_loss_that_qfedavg_cannot_use_excludes_its_client_alone(case, q):
    seen = []
    inner = everybody(QFedAvg, client_learning_rate=0.2, q=q)
    result = FedAVOT(inner, on_round=seen.append).start(
        federation(4, losing(UNUSABLE[case])), record_of(MODEL), 2
    )
    for record in seen:
        assert list(record.excluded) == ["1"]
        assert f"its metric 'train_loss' is {UNUSABLE[case]}" in record.excluded["1"]
        assert record.replied == ["0", "2", "3"]
    assert np.isfinite(arrays_of(result.arrays)["w"]).all()


def test_the_metric_that_qfedavg_needs_is_the_configured_one():
    seen = []
    inner = everybody(QFedAvg, client_learning_rate=0.2, train_loss_key="loss")
    FedAVOT(inner, on_round=seen.append).start(federation(3, losing(None)), record_of(MODEL), 1)
    assert list(seen[0].excluded) == ["0", "1", "2"]
    assert all("'loss' is None" in reason for reason in seen[0].excluded.values())


@pytest.mark.parametrize("what", ["loss", "count", "array"])
def test_a_reason_is_brief_whatever_a_client_sends(what):
    def update(arrays, config, node):
        new, metrics = losing(0.5)(arrays, config, node)
        if node["partition-id"] == 1:
            told = {"loss": {"train_loss": [0.5] * 10_000}, "count": {"num-examples": [3] * 10_000}}
            metrics |= told.get(what, {})
            new |= {"x" * 10_000: np.zeros(1)} if what == "array" else {}
        return new, metrics

    seen = []
    inner = everybody(QFedAvg, client_learning_rate=0.2)
    FedAVOT(inner, importance="examples", on_round=seen.append).start(
        federation(3, update), record_of(MODEL), 1
    )
    assert list(seen[0].excluded) == ["1"]
    assert len(seen[0].excluded["1"]) < 500


EVALUATIONS = {
    "no weight": {"loss": 9.0},
    "a list for a weight": {"num-examples": [1], "loss": 9.0},
    "other metrics": {"num-examples": 1, "accuracy": 9.0},
    "a list for a number": {"num-examples": 1, "loss": [9.0]},
    "nothing": {},
    "no record": None,
}


@pytest.mark.parametrize("case", EVALUATIONS)
@pytest.mark.parametrize("client", [0, 2])
def test_an_evaluation_that_cannot_be_averaged_is_left_out(caplog, case, client):
    grid = federation(4, reporting({}, rounds=()))
    answer = grid._answer

    def odd(message):
        reply = answer(message)
        where = message.metadata
        if where.message_type == "evaluate" and where.dst_node_id == 100 + client:
            content = EVALUATIONS[case]
            records = {} if content is None else {"metrics": MetricRecord(content)}
            reply.content = RecordDict(records)
        return reply

    grid._answer = odd
    strategy = FedAVOT(everybody(fraction_evaluate=1.0))
    result = strategy.start(grid, record_of(MODEL), 2)
    assert dict(result.evaluate_metrics_clientapp[2]) == {"loss": 1.0}
    assert any(
        f"{100 + client}" in it.message for it in caplog.records if it.levelname == "WARNING"
    )


@pytest.mark.parametrize("count", [0, -1, float("nan")])
def test_evaluations_on_nothing_do_not_stop_the_run(count):
    grid = federation(2, reporting({}, rounds=()))
    answer = grid._answer

    def none(message):
        reply = answer(message)
        if message.metadata.message_type == "evaluate":
            reply.content["metrics"]["num-examples"] = count
        return reply

    grid._answer = none
    result = FedAVOT(everybody(fraction_evaluate=1.0)).start(grid, record_of(MODEL), 2)
    assert sorted(result.train_metrics_clientapp) == [1, 2]
