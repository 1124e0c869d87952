"""FedAVOT applies the aligner's weights, and the wrapped strategy aggregates as usual."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedProx,
    FedYogi,
    QFedAvg,
)
from grid import arrays_of, everybody, federation, only, record_of
from learnt import Learner

from fedavot.flower import FedAVOT, Weighting

AGREE = 1e-12
"""Relative agreement of two ways to average a few float64 models over some rounds."""

IMPORTANCE = {"0": 4.0, "1": 1.0, "2": 2.0, "3": 2.0, "4": 1.0}
SHARES = np.array(list(IMPORTANCE.values())) / 10
COHORTS = [[0, 1, 2, 3, 4], [1, 3], [0, 2, 4], [2], [0, 1, 2, 3], [3, 4], [0, 1, 4], [1, 2, 3]]
CLIP = 0.7


def start_model(dtype=np.float64):
    rng = np.random.default_rng(0)
    return {"w": rng.normal(size=(3, 2)).astype(dtype), "b": rng.normal(size=4).astype(dtype)}


def trained(model, client):
    """Return the client's model: a step towards a target of its own."""
    return {
        key: (value + 0.3 * (np.cos(client + np.arange(value.size)).reshape(value.shape) - value))
        for key, value in model.items()
    }


def update(arrays, config, node):
    client = int(node["partition-id"])
    return trained(arrays, client), {"num-examples": 10 + client, "train_loss": 0.5 + client}


def weighted(models, weights):
    return {key: sum(w * m[key] for m, w in zip(models, weights, strict=True)) for key in models[0]}


class Averaging:
    """Hand-written server steps: from the model and the weighted average to the next model."""

    def local(self, model, client):
        return trained(model, client)

    def step(self, model, mean, number):
        return mean


class Adaptive(Averaging):
    """FedAdam and FedYogi as published, by array."""

    def __init__(self, eta, second, corrected):
        self.eta, self.second, self.corrected = eta, second, corrected
        self.m, self.v = {}, {}

    def step(self, model, mean, number):
        new = {}
        rate = self.eta
        if self.corrected:
            rate *= np.sqrt(1 - 0.99 ** (number + 1)) / (1 - 0.9 ** (number + 1))
        for key, value in model.items():
            delta = mean[key] - value
            self.m[key] = 0.9 * self.m.get(key, 0.0) + 0.1 * delta
            self.v[key] = self.second(self.v.get(key, np.zeros_like(delta)), delta**2)
            new[key] = value + rate * self.m[key] / (np.sqrt(self.v[key]) + 1e-3)
        return new


class Momentum(Averaging):
    """Server momentum 0.9, learning rate 0.5."""

    def __init__(self):
        self.velocity = {}

    def step(self, model, mean, number):
        for key, value in model.items():
            self.velocity[key] = 0.9 * self.velocity.get(key, 0.0) + (mean[key] - value)
        return {key: value + 0.5 * self.velocity[key] for key, value in model.items()}


class Clipped(Averaging):
    """Updates scaled down to a norm."""

    def local(self, model, client):
        new = trained(model, client)
        norm = np.sqrt(sum(((new[key] - model[key]) ** 2).sum() for key in model))
        scale = min(1.0, CLIP / norm)
        return {key: model[key] + scale * (new[key] - model[key]) for key in model}


def clipping(strategy):
    return DifferentialPrivacyServerSideFixedClipping(strategy, 0.0, CLIP, 5)


def avot(strategy, **options):
    return FedAVOT(strategy, importance=IMPORTANCE, **options)


CASES = {
    "FedAvg": (lambda o: avot(everybody(), **o), Averaging),
    "FedProx": (lambda o: avot(everybody(FedProx, proximal_mu=0.1), **o), Averaging),
    "FedAvgM": (
        lambda o: avot(everybody(FedAvgM, server_momentum=0.9, server_learning_rate=0.5), **o),
        Momentum,
    ),
    "FedAdam": (
        lambda o: avot(everybody(FedAdam, eta=0.05), **o),
        lambda: Adaptive(0.05, lambda v, s: 0.99 * v + 0.01 * s, corrected=True),
    ),
    "FedYogi": (
        lambda o: avot(everybody(FedYogi, eta=0.05), **o),
        lambda: Adaptive(0.05, lambda v, s: v - 0.01 * s * np.sign(v - s), corrected=False),
    ),
    "FedAVOT(DP(FedAvg))": (lambda o: avot(clipping(everybody()), **o), Clipped),
    "DP(FedAVOT(FedAvg))": (lambda o: clipping(avot(everybody(), **o)), Clipped),
}


@pytest.mark.parametrize("case", CASES)
def test_the_aggregate_is_the_hand_computed_one_at_the_aligners_weights(case):
    make, reference = CASES[case]
    seen = []
    strategy = make({"on_round": seen.append})
    result = strategy.start(
        federation(5, update, fate=only(COHORTS)), record_of(start_model()), len(COHORTS)
    )
    aligner = Learner(SHARES)
    by_hand, model = reference(), start_model()
    for number, cohort in enumerate(COHORTS, 1):
        weights = aligner.observe(cohort)
        assert list(seen[number - 1].weights.values()) == pytest.approx(weights, rel=AGREE)
        mean = weighted([by_hand.local(model, client) for client in cohort], weights)
        model = by_hand.step(model, mean, number)
    for key, value in arrays_of(result.arrays).items():
        np.testing.assert_allclose(value, model[key], rtol=AGREE, atol=AGREE)


def q_step(model, locals_, losses, weights, q, rate):
    """Weighted q-FedAvg from its formula, on flat vectors."""
    flat = np.concatenate([value.ravel() for value in model.values()])
    top, bottom = np.zeros_like(flat), 0.0
    for local, loss, weight in zip(locals_, losses, weights, strict=True):
        gradient = (flat - np.concatenate([local[key].ravel() for key in model])) / rate
        top += weight * loss**q * gradient
        bottom += weight * (q * loss ** (q - 1) * gradient @ gradient + loss**q / rate)
    flat = flat - top / bottom
    new, place = {}, 0
    for key, value in model.items():
        new[key] = flat[place : place + value.size].reshape(value.shape)
        place += value.size
    return new


def test_qfedavg_steps_by_weight_times_loss_to_the_q():
    strategy = avot(everybody(QFedAvg, client_learning_rate=0.2, q=0.7))
    grid = federation(5, update, fate=only(COHORTS))
    result = strategy.start(grid, record_of(start_model()), len(COHORTS))
    aligner, model = Learner(SHARES), start_model()
    for cohort in COHORTS:
        losses = [0.5 + client + 1e-10 for client in cohort]
        locals_ = [trained(model, client) for client in cohort]
        model = q_step(model, locals_, losses, aligner.observe(cohort), 0.7, 0.2)
    for key, value in arrays_of(result.arrays).items():
        np.testing.assert_allclose(value, model[key], rtol=AGREE)


def test_qfedavg_with_q_zero_is_plain_averaging():
    results = [
        avot(inner).start(
            federation(5, update, fate=only(COHORTS)), record_of(start_model()), len(COHORTS)
        )
        for inner in (everybody(QFedAvg, client_learning_rate=0.2, q=0.0), everybody())
    ]
    first, second = (arrays_of(result.arrays) for result in results)
    for key, value in first.items():
        np.testing.assert_allclose(value, second[key], rtol=AGREE)


def test_qfedavg_with_equal_weights_is_flowers_own():
    options = {"client_learning_rate": 0.2, "q": 0.7}
    everyone = [range(5)]
    ours = FedAVOT(everybody(QFedAvg, **options), importance="uniform").start(
        federation(5, update, fate=only(everyone)), record_of(start_model()), 1
    )
    flowers = everybody(QFedAvg, **options).start(
        federation(5, update, fate=only(everyone)), record_of(start_model()), 1
    )
    for key, value in arrays_of(ours.arrays).items():
        np.testing.assert_allclose(value, arrays_of(flowers.arrays)[key], rtol=AGREE)


def drawn_cohorts(rng, availability, failing, n_rounds):
    """Return which clients are available, and which of them reply."""
    there = rng.random((n_rounds, availability.size)) < availability
    there[~there.any(axis=1), 0] = True
    return there, there & (rng.random(there.shape) >= failing)


@pytest.mark.parametrize("seed", [0, 1])
def test_failing_clients_leave_exact_weights_a_third_of_fedavgs_importance_gap_at_most(seed):
    rng = np.random.default_rng(seed)
    availability = np.linspace(0.95, 0.4, 8)
    there, replying = drawn_cohorts(rng, availability, 0.3, 200)
    kinds = ["error", "dead", "silent"]

    def fate(node, message):
        number = int(message.content.config_records["config"]["server-round"])
        return "reply" if replying[number - 1, node - 100] else kinds[(node + number) % 3]

    grid = federation(8, lambda arrays, config, node: (arrays, {"num-examples": 1}), fate=fate)
    seen = []

    def next_round(record):
        seen.append(record.weights)
        for node, it in grid.nodes.items():
            it.online = bool(there[record.round % 200, node - 100])

    for node, it in grid.nodes.items():
        it.online = bool(there[0, node - 100])
    strategy = FedAVOT(
        everybody(),
        importance={str(i): 1.0 for i in range(8)},
        weighting=Weighting(softness=0.0),
        on_round=next_round,
    )
    strategy.start(grid, record_of({"w": np.zeros(1)}), 200)
    applied, plain, counted = np.zeros(8), np.zeros(8), 0
    for weights, replied in zip(seen, replying, strict=True):
        assert sorted(weights) == [str(i) for i in np.flatnonzero(replied)]
        if replied.any():
            counted += 1
            plain += replied / replied.sum()
        for name, weight in weights.items():
            applied[int(name)] += weight
    gap, fedavgs = (np.abs(mean / counted - 1 / 8).sum() / 2 for mean in (applied, plain))
    assert gap < fedavgs / 3


def test_softer_weights_are_learnt_with_another_price():
    seen = []
    strategy = avot(everybody(), weighting=Weighting(softness=0.4), on_round=seen.append)
    grid = federation(5, update, fate=only(COHORTS))
    strategy.start(grid, record_of(start_model()), len(COHORTS))
    aligner = Learner(SHARES, softness=0.4)
    for record, cohort in zip(seen, COHORTS, strict=True):
        assert list(record.weights.values()) == pytest.approx(aligner.observe(cohort), rel=AGREE)


def test_metrics_are_averaged_by_the_same_weights():
    seen = []
    grid = federation(5, update, fate=only(COHORTS))
    result = avot(everybody(), on_round=seen.append).start(grid, record_of(start_model()), 3)
    for record in seen:
        loss = sum(weight * (0.5 + int(name)) for name, weight in record.weights.items())
        assert record.metrics == pytest.approx({"train_loss": loss}, rel=AGREE)
        assert dict(result.train_metrics_clientapp[record.round]) == record.metrics


def test_one_client_alone_gets_all_weight():
    seen = []
    grid = federation(1, update)
    result = FedAVOT(everybody(), on_round=seen.append).start(grid, record_of(start_model()), 2)
    assert [record.weights for record in seen] == [{"0": 1.0}] * 2
    expected = trained(trained(start_model(), 0), 0)
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], expected["w"], rtol=AGREE)


def test_clients_of_no_importance_count_only_among_themselves():
    seen = []
    grid = federation(3, update, fate=only([[1, 2], [0, 1]]))
    FedAVOT(everybody(), importance={"0": 1, "1": 0, "2": 0}, on_round=seen.append).start(
        grid, record_of(start_model()), 2
    )
    assert seen[0].weights == {"1": 0.5, "2": 0.5}
    assert seen[1].weights == {"0": 1.0, "1": 0.0}


def test_a_selection_asks_exactly_as_many_as_it_may():
    seen = []
    weighting = Weighting(cohort_size=3)
    strategy = avot(everybody(min_available_nodes=5), weighting=weighting, on_round=seen.append)
    strategy.start(federation(5, update), record_of(start_model()), 30)
    for record in seen:
        assert len(record.asked) == 3
        assert record.asked == record.replied
        assert len(record.available) == 5
        assert sum(record.weights.values()) == pytest.approx(1.0, abs=AGREE)
    assert strategy.strategy.min_available_nodes == 5


def test_a_selection_learns_from_the_weights_it_applied():
    seen = []
    strategy = avot(everybody(), weighting=Weighting(cohort_size=2), on_round=seen.append)
    strategy.start(federation(5, lambda a, c, n: (a, {})), record_of({"w": np.zeros(1)}), 150)
    realised = np.zeros(5)
    for record in seen:
        for name, weight in record.weights.items():
            realised[int(name)] += weight / 150
    gap = np.abs(realised - SHARES).sum() / 2
    assert gap < 0.04
    assert seen[-1].gap == pytest.approx(gap, abs=1e-9)


def test_a_selection_among_whom_some_fail_shares_the_weight_among_the_rest():
    seen = []
    strategy = avot(everybody(), weighting=Weighting(cohort_size=3), on_round=seen.append)
    rng = np.random.default_rng(5)
    grid = federation(
        5, update, fate=lambda node, message: "reply" if rng.random() < 0.7 else "dead"
    )
    strategy.start(grid, record_of(start_model()), 40)
    assert any(record.failed for record in seen)
    for record in seen:
        if record.replied:
            assert sum(record.weights.values()) == pytest.approx(1.0, abs=AGREE)


def test_the_wrapped_strategys_sampling_is_kept():
    seen = []
    strategy = FedAVOT(everybody(fraction_train=0.5, min_train_nodes=3), on_round=seen.append)
    strategy.start(federation(8, update), record_of(start_model()), 5)
    assert [len(record.asked) for record in seen] == [4] * 5


def test_evaluation_is_the_wrapped_strategys():
    grid = federation(4, update)
    for node, it in grid.nodes.items():
        it.config["loss"] = float(node)
    result = FedAVOT(FedAvg()).start(grid, record_of(start_model()), 2)
    assert dict(result.evaluate_metrics_clientapp[2]) == {"loss": 101.5}


def test_server_side_evaluation_sees_the_model_before_and_after_each_round():
    means = []

    def evaluate(number, arrays):
        means.append(float(arrays_of(arrays)["w"].mean()))
        return MetricRecord({"mean": means[-1]})

    grid = federation(3, update)
    result = FedAVOT(everybody()).start(grid, record_of(start_model()), 3, evaluate_fn=evaluate)
    assert means[0] == start_model()["w"].mean()
    assert means[-1] == arrays_of(result.arrays)["w"].mean()
    assert {number: it["mean"] for number, it in result.evaluate_metrics_serverapp.items()} == dict(
        enumerate(means)
    )


def test_the_training_configuration_reaches_the_clients():
    heard = []

    def listen(arrays, config, node):
        heard.append(config)
        return arrays, {"num-examples": 1}

    FedAVOT(everybody()).start(
        federation(1, listen), record_of(start_model()), 1, train_config=ConfigRecord({"lr": 0.5})
    )
    assert heard == [{"lr": 0.5, "server-round": 1}]


def test_messages_live_no_longer_than_a_round():
    grid = federation(2, update)
    FedAVOT(everybody()).start(grid, record_of(start_model()), 1, timeout=7.0)
    trains = [it for it in grid.sent if it.metadata.message_type == "train"]
    assert [it.metadata.ttl for it in trains] == [7.0, 7.0]


def test_importance_by_counts_keeps_the_first_count_of_each_client():
    seen = []

    def grow(arrays, config, node):
        return arrays, {"num-examples": (1 + int(node["partition-id"])) * config["server-round"]}

    strategy = FedAVOT(everybody(), importance="examples", on_round=seen.append)
    strategy.start(federation(3, grow), record_of({"w": np.zeros(1)}), 3)
    assert strategy.importance == pytest.approx({"0": 1 / 6, "1": 2 / 6, "2": 3 / 6})


@pytest.mark.parametrize(
    "count",
    [0, -3, float("nan"), float("inf"), [5], [], None, 1e300, 2**62, 10**400],
    ids=["0", "-3", "nan", "inf", "list", "empty", "none", "1e300", "2**62", "10**400"],
)
def test_a_count_that_is_no_count_excludes_its_client_alone(count):
    def report(arrays, config, node):
        told = count if node["partition-id"] == 1 and config["server-round"] > 1 else 7
        return arrays, {} if told is None else {"num-examples": told}

    seen = []
    strategy = FedAVOT(everybody(), importance="examples", on_round=seen.append)
    grid = federation(3, report)
    grid.nodes[101].online = False

    def appear(record):
        grid.nodes[101].online = True

    strategy._callbacks.append(appear)
    strategy.start(grid, record_of({"w": np.zeros(1)}), 3)
    assert [list(record.excluded) for record in seen] == [[], ["1"], ["1"]]
    assert "examples" in seen[1].excluded["1"]
    assert seen[2].weights == pytest.approx({"0": 0.5, "2": 0.5})


def test_the_metric_that_holds_weights_is_the_wrapped_strategys():
    def update(arrays, config, node):
        return {"w": arrays["w"] + 1}, {"importance": 5, "num-examples": 7}

    strategy = FedAVOT(everybody(weighted_by_key="importance"))
    assert strategy.weighted_by_key == "importance"
    result = strategy.start(federation(2, update), record_of({"w": np.zeros(1)}), 1)
    assert dict(result.train_metrics_clientapp[1]) == {"num-examples": 7.0}
