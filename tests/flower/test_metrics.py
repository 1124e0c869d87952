"""Metrics are averaged over the replies that have them; no metric excludes an update."""

import numpy as np
import pytest
from flwr.app import MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, QFedAvg
from grid import arrays_of, everybody, federation, record_of
from learnt import Learner

from fedavot.errors import AggregateError
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


LOSS, MANY = "loss", "many"
STRANGE = {
    "none": ({}, {LOSS, MANY}),
    "others": ({"accuracy": 0.5}, {LOSS, MANY}),
    "more": ({"loss": 1.5, "many": [1.0, 1.0], "accuracy": 0.5}, set()),
    "fewer": ({"loss": 1.5}, {MANY}),
    "a list for a number": ({"loss": [1.5], "many": [1.0, 1.0]}, {LOSS}),
    "a number for a list": ({"loss": 1.5, "many": 1.0}, {MANY}),
    "a longer list": ({"loss": 1.5, "many": [1.0, 1.0, 1.0]}, {MANY}),
    "an empty list": ({"loss": 1.5, "many": []}, {MANY}),
    "not a number": ({"loss": np.nan, "many": [1.0, np.inf]}, {LOSS, MANY}),
}
"""What client 1 reports, and which of the usual metrics are to be averaged without it."""
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
def test_a_metric_is_averaged_over_the_replies_that_have_it_in_the_usual_form(case, kind):
    odd, without = STRANGE[case]
    ends, seen = [], []
    for update in (reporting(odd), reporting({}, rounds=())):
        strategy = FedAVOT(everybody(KINDS[kind]), importance=IMPORTANCE, on_round=seen.append)
        ends.append(strategy.start(federation(4, update), record_of(MODEL), 2))
    assert all(record.excluded == {} and len(record.replied) == 4 for record in seen)
    first, second, *right = seen
    shares = np.array([0.1, 0.5, 0.2, 0.2])
    assert first.metrics.keys() == {LOSS, MANY}
    for key, values in {LOSS: [0.5, 1.5, 2.5, 3.5], MANY: [[1, 0], [1, 1], [1, 2], [1, 3]]}.items():
        have = [0, 2, 3] if key in without else [0, 1, 2, 3]
        mean = shares[have] @ np.array(values)[have] / shares[have].sum()
        assert first.metrics[key] == pytest.approx(mean.tolist(), rel=AGREE)
    assert second.metrics == right[1].metrics
    strange, plain = (arrays_of(end.arrays)["w"] for end in ends)
    np.testing.assert_array_equal(strange, plain)


def test_a_metric_that_most_replies_lack_is_left_out():
    def update(arrays, config, node):
        metrics = {"num-examples": 3, "loss": 1.0}
        return arrays, metrics | ({"odd": 1.0} if node["partition-id"] == 2 else {})

    seen = []
    FedAVOT(everybody(), on_round=seen.append).start(federation(4, update), record_of(MODEL), 1)
    assert seen[0].metrics == pytest.approx({"loss": 1.0})


def test_a_metric_that_is_not_finite_for_most_stays_so():
    def update(arrays, config, node):
        return arrays, {"num-examples": 3, "loss": 1.0 if node["partition-id"] == 2 else np.nan}

    seen = []
    FedAVOT(everybody(), on_round=seen.append).start(federation(4, update), record_of(MODEL), 1)
    assert np.isnan(seen[0].metrics["loss"])


def test_the_metrics_of_replies_that_are_not_used_are_of_no_account():
    def update(arrays, config, node):
        new, metrics = reporting({})(arrays, config, node)
        return {"w": new["w"] * (np.nan if node["partition-id"] == 1 else 1.0)}, metrics

    seen = []
    FedAVOT(everybody(), importance=IMPORTANCE, on_round=seen.append).start(
        federation(4, update), record_of(MODEL), 1
    )
    shares = [0.1, 0.5, 0.2, 0.2]
    weights = Learner(shares).weights([0, 2, 3])
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
    strategy = FedAVOT(inner, on_round=seen.append)
    with pytest.raises(AggregateError, match="'loss' is None"):
        strategy.start(federation(3, losing(None)), record_of(MODEL), 1)
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


EVALUATIONS: dict[str, dict | None] = {
    "no weight": {"loss": 9.0},
    "a list for a weight": {"num-examples": [1], "loss": 9.0},
    "other metrics": {"num-examples": 1, "accuracy": 9.0},
    "a list for a number": {"num-examples": 1, "loss": [9.0]},
    "not a number": {"num-examples": 1, "loss": float("nan")},
    "nothing": {},
    "no record": None,
}


def evaluating(client, content):
    """Return a grid of four clients in which one has other evaluation metrics."""
    grid = federation(4, reporting({}, rounds=()))
    answer = grid._answer

    def odd(message):
        reply = answer(message)
        where = message.metadata
        if where.message_type == "evaluate" and where.dst_node_id == 100 + client:
            records = {} if content is None else {"metrics": MetricRecord(content)}
            reply.content = RecordDict(records)
        return reply

    grid._answer = odd
    return grid


@pytest.mark.parametrize("case", EVALUATIONS)
@pytest.mark.parametrize("client", [0, 2])
def test_an_evaluation_that_cannot_be_averaged_leaves_the_average_to_the_others(
    caplog, case, client
):
    grid = evaluating(client, EVALUATIONS[case])
    result = FedAVOT(everybody(fraction_evaluate=1.0)).start(grid, record_of(MODEL), 2)
    assert dict(result.evaluate_metrics_clientapp[2]) == pytest.approx({"loss": 1.0})
    if "num-examples" not in (EVALUATIONS[case] or {}):
        warned = [it.message for it in caplog.records if it.levelname == "WARNING"]
        assert any(f"{100 + client}" in message for message in warned)


@pytest.mark.parametrize("client", [0, 2])
def test_an_evaluation_whose_record_has_another_name_counts_as_the_others(client):
    grid = evaluating(client, {"num-examples": 1, "loss": 5.0})
    answer = grid._answer

    def renamed(message):
        reply = answer(message)
        where = message.metadata
        if where.message_type == "evaluate" and where.dst_node_id == 100 + client:
            reply.content["other"] = reply.content.pop("metrics")
        return reply

    grid._answer = renamed
    result = FedAVOT(everybody(fraction_evaluate=1.0)).start(grid, record_of(MODEL), 1)
    assert dict(result.evaluate_metrics_clientapp[1]) == pytest.approx({"loss": 2.0})


def test_an_evaluation_on_very_many_examples_does_not_own_the_average():
    grid = evaluating(2, {"num-examples": 10**12, "loss": 9.0})
    result = FedAVOT(everybody(fraction_evaluate=1.0)).start(grid, record_of(MODEL), 1)
    # As much as the three others together.
    assert dict(result.evaluate_metrics_clientapp[1]) == pytest.approx({"loss": 5.0})


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
