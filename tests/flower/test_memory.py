"""Memory is the steady rule, survives a restart, and takes the stated disk space."""

import errno
import os
import shutil

import numpy as np
import pytest
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    FedAvgM,
    QFedAvg,
)
from grid import arrays_of, everybody, federation, only, record_of
from learnt import Learner

import fedavot as fa
from fedavot.errors import FileFormatError, OptionError, TooLargeError
from fedavot.flower import FedAVOT, Memory, Weighting
from steady_formula import Steady

AGREE = 1e-12
"""Relative agreement of two ways to sum a few float64 vectors over some rounds."""

IMPORTANCE = {"0": 4.0, "1": 1.0, "2": 2.0, "3": 3.0}
SHARES = np.array([0.4, 0.1, 0.2, 0.3])
COHORTS = [[0, 1], [1, 2, 3], [0], [2, 3], [0, 1, 2, 3], [1], [0, 3]]


def towards(rate):
    """Return an update: part of the way to a target of the client's own."""

    def update(arrays, config, node):
        client = int(node["partition-id"])
        new = {
            key: (value + rate * (place(client, value.shape) - value)).astype(value.dtype)
            if value.dtype.kind == "f"
            else value
            for key, value in arrays.items()
        }
        return new, {"num-examples": 1 + client}

    return update


def place(client, shape):
    return np.cos(client + np.arange(np.prod(shape, dtype=int))).reshape(shape)


def remembering(folder, inner=None, **options):
    options = {"importance": IMPORTANCE, "memory": True} | options
    return FedAVOT(inner or everybody(), folder=folder, **options)


def by_formula(start, cohorts, weights, importances, rate, **constants):
    """Return the last model of the steady rule with these weights."""
    model, rule = start.copy(), Steady(**constants)
    for cohort, given, importance in zip(cohorts, weights, importances, strict=True):
        said = {i: rate * (place(i, start.shape) - model) for i in cohort}
        model = model + rule.change(said, given, importance)
    return model


def test_memory_is_its_formula(tmp_path):
    seen = []
    start = np.linspace(-1, 1, 5)
    grid = federation(4, towards(0.4), fate=only(COHORTS))
    strategy = remembering(tmp_path, on_round=seen.append)
    result = strategy.start(grid, record_of({"w": start}), len(COHORTS))
    weights = [list(record.weights.values()) for record in seen]
    expected = by_formula(start, COHORTS, weights, [SHARES] * len(COHORTS), 0.4)
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], expected, rtol=AGREE, atol=AGREE)


def test_damped_memories_are_their_formula(tmp_path):
    seen = []
    start = np.linspace(-1, 1, 5)
    grid = federation(4, towards(0.4), fate=only(COHORTS))
    strategy = remembering(tmp_path, memory=Memory(damping=3.0), on_round=seen.append)
    result = strategy.start(grid, record_of({"w": start}), len(COHORTS))
    weights = [list(record.weights.values()) for record in seen]
    importances = [SHARES] * len(COHORTS)
    expected = by_formula(start, COHORTS, weights, importances, 0.4, damping=3.0)
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], expected, rtol=AGREE, atol=AGREE)


MIXED = {
    "w": np.linspace(-1, 1, 6).reshape(2, 3),
    "norm.running_mean": np.linspace(0, 1, 3),
    "b": np.float64(0.5),
    "n": np.array([3, 1000]),
}


def counting(arrays, config, node):
    """Train; the integers grow differently on each client."""
    new, metrics = towards(0.4)(arrays, config, node)
    new["n"] = arrays["n"] + 2 + int(node["partition-id"])
    return new, metrics


def test_with_a_resume_and_clients_that_come_and_go_it_is_the_aggregator(tmp_path):
    agg, model = fa.Aggregator(IMPORTANCE), MIXED
    learner = fa.Aggregator(IMPORTANCE, memory=False)
    stages = [(IMPORTANCE, 6), ({"0": 4.0, "1": 1.0, "2": 2.0, "4": 5.0}, 14)]
    cohorts = [*COHORTS[:6], [0, 4], [1, 2], [0, 1, 2, 4], [2], [0, 1], [4], [1, 2, 4], [0, 1, 2]]
    for importance, last in stages:
        seen = []
        strategy = remembering(
            tmp_path,
            importance=importance,
            weighting=Weighting(weight_limit=None),
            resume=True,
            on_round=seen.append,
        )
        grid = federation(5, counting, fate=only(cohorts))
        result = strategy.start(grid, record_of(MIXED), last)
        if importance is not IMPORTANCE:
            for each in (agg, learner):
                each.join({"4": 5.0})
                each.leave("3")
        for record in seen:
            trained = {
                name: counting(model, {}, {"partition-id": name})[0] for name in record.replied
            }
            learner.aggregate(model, trained)
            model = agg.aggregate(model, trained)
            assert record.weights == pytest.approx(learner.weights, rel=AGREE)
        for key, value in arrays_of(result.arrays).items():
            np.testing.assert_allclose(value, model[key], rtol=AGREE, atol=AGREE)
    assert 0 < agg.trust < 1


def test_memory_of_clients_that_join_is_its_formula_at_the_importance_of_the_time(tmp_path):
    seen = []
    start = np.linspace(-1, 1, 5)
    grid = federation(4, towards(0.4), fate=only(COHORTS))
    strategy = remembering(tmp_path, importance="examples", on_round=seen.append)
    result = strategy.start(grid, record_of({"w": start}), len(COHORTS))
    counts, known, importances = np.arange(1.0, 5.0), np.zeros(4, bool), []
    for cohort in COHORTS:
        known[cohort] = True
        importances.append(counts * known / (counts * known).sum())
    weights = [list(record.weights.values()) for record in seen]
    expected = by_formula(start, COHORTS, weights, importances, 0.4)
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], expected, rtol=AGREE, atol=AGREE)


def test_memory_of_nodes_that_appear_is_its_formula_at_the_importance_of_the_time(tmp_path):
    seen = []
    start = np.linspace(-1, 1, 5)
    grid = federation(3, towards(0.4))
    grid.nodes[102].online = False

    def appear(record):
        seen.append(record)
        grid.nodes[102].online = record.round >= 2

    strategy = remembering(tmp_path, importance="uniform", on_round=appear)
    result = strategy.start(grid, record_of({"w": start}), 4)
    cohorts = [[0, 1], [0, 1], [0, 1, 2], [0, 1, 2]]
    importances = [np.array([0.5, 0.5, 0.0])] * 2 + [np.full(3, 1 / 3)] * 2
    weights = [list(record.weights.values()) for record in seen]
    expected = by_formula(start, cohorts, weights, importances, 0.4)
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], expected, rtol=AGREE, atol=AGREE)


def test_memory_removes_the_bias_that_weights_cannot(tmp_path):
    # Client 0 matters most and is there least: no weights give it its due.
    importance = {"0": 0.8, "1": 0.1, "2": 0.1}
    target = sum(share * place(int(name), (3,)) for name, share in importance.items())
    rng = np.random.default_rng(0)
    cohorts = [[0, 1, 2] if rng.random() < 0.3 else [1, 2] for _ in range(200)]
    ends = {}
    for memory in (False, True):
        strategy = FedAVOT(
            everybody(),
            importance=importance,
            memory=memory,
            folder=tmp_path / str(memory),
        )
        grid = federation(3, towards(0.3), fate=only(cohorts))
        result = strategy.start(grid, record_of({"w": np.zeros(3)}), len(cohorts))
        ends[memory] = np.abs(arrays_of(result.arrays)["w"] - target).max()
    assert ends[True] < 1e-3
    assert ends[False] > 0.05


def test_an_excluded_update_is_not_remembered(tmp_path):
    def update(arrays, config, node):
        new, metrics = towards(0.4)(arrays, config, node)
        if node["partition-id"] == 1 and config["server-round"] == 2:
            new["w"] = new["w"] * np.nan
        return new, metrics

    seen = []
    start = np.linspace(-1, 1, 5)
    result = remembering(tmp_path, on_round=seen.append).start(
        federation(4, update), record_of({"w": start}), 4
    )
    assert list(seen[1].excluded) == ["1"]
    cohorts = [[0, 1, 2, 3], [0, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]
    weights = [list(record.weights.values()) for record in seen]
    expected = by_formula(start, cohorts, weights, [SHARES] * 4, 0.4)
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], expected, rtol=AGREE, atol=AGREE)


def test_a_round_that_nobody_answers_leaves_model_and_memory_alone(tmp_path):
    seen = []
    start = np.linspace(-1, 1, 5)
    cohorts = [[0, 1], [], [2, 3]]
    grid = federation(4, towards(0.4), fate=only(cohorts))
    result = remembering(tmp_path, on_round=seen.append).start(grid, record_of({"w": start}), 3)
    weights = [list(record.weights.values()) for record in seen]
    expected = by_formula(start, cohorts, weights, [SHARES] * 3, 0.4)
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], expected, rtol=AGREE, atol=AGREE)


def test_server_momentum_goes_on_top_of_memory(tmp_path):
    seen = []
    start = np.linspace(-1, 1, 5)
    inner = everybody(FedAvgM, server_momentum=0.5)
    grid = federation(4, towards(0.4), fate=only(COHORTS))
    result = remembering(tmp_path, inner, on_round=seen.append).start(
        grid, record_of({"w": start}), len(COHORTS)
    )
    model, rule, velocity = start.copy(), Steady(), np.zeros(5)
    for cohort, record in zip(COHORTS, seen, strict=True):
        said = {i: 0.4 * (place(i, (5,)) - model) for i in cohort}
        velocity = 0.5 * velocity + rule.change(said, record.weights.values(), SHARES)
        model = model + velocity
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], model, rtol=AGREE, atol=AGREE)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_arrays_keep_their_types_and_integers_their_values(tmp_path, dtype):
    model = {"w": np.ones((2, 3), dtype), "n": np.array(5), "flag": np.array([True, False])}
    result = remembering(tmp_path).start(federation(4, towards(0.2)), record_of(model), 3)
    found = arrays_of(result.arrays)
    assert {key: a.dtype for key, a in found.items()} == {key: a.dtype for key, a in model.items()}
    assert found["n"] == 5
    assert found["flag"].tolist() == [True, False]
    assert (found["w"] != 1).any()


def test_a_model_without_floating_point_arrays_has_nothing_to_remember(tmp_path):
    result = remembering(tmp_path).start(
        federation(4, towards(0.2)), record_of({"n": np.array(5)}), 2
    )
    assert arrays_of(result.arrays)["n"] == 5


def test_a_lower_precision_reply_is_remembered_in_the_models(tmp_path):
    def update(arrays, config, node):
        new, metrics = towards(0.4)(arrays, config, node)
        low = node["partition-id"] == 0
        return {"w": new["w"].astype(np.float16) if low else new["w"]}, metrics

    start = np.linspace(-1, 1, 5, dtype=np.float32)
    ends = []
    for name, way in (("mixed", update), ("plain", towards(0.4))):
        strategy = remembering(tmp_path / name)
        result = strategy.start(federation(4, way), record_of({"w": start}), 1)
        ends.append(arrays_of(result.arrays)["w"])
    # Off by the rounding of one float16 in four, not by that of a float16 sum.
    np.testing.assert_allclose(ends[0], ends[1], atol=0.25 * 2.0**-11)


def test_the_file_takes_a_model_per_client_and_three_sums_and_as_many_per_round(tmp_path):
    start = {"w": np.zeros((10, 3), np.float32), "b": np.zeros(2, np.float32), "n": np.array(1)}
    remembering(tmp_path).start(federation(4, towards(0.4)), record_of(start), 2)
    assert (tmp_path / "memory.rows").stat().st_size == 2 * (4 + 3) * 32 * 4


def test_too_little_room_is_said_before_anybody_trains(tmp_path, monkeypatch):
    usage = type(shutil.disk_usage("/"))(100, 0, 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    grid = federation(4, towards(0.4))
    with pytest.raises(TooLargeError, match=r"4 clients .* GB"):
        remembering(tmp_path).start(grid, record_of({"w": np.zeros(1000)}), 1)
    assert grid.sent == []


def remembered(folder, n_rounds):
    """Start or resume a run of four clients in a folder."""
    grid = federation(4, towards(0.4), fate=only(COHORTS))
    strategy = remembering(folder, resume=True)
    return strategy.start(grid, record_of({"w": np.linspace(-1, 1, 500)}), n_rounds)


def full(monkeypatch):
    """Make every disk full."""
    usage = type(shutil.disk_usage("/"))(100, 100, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)


def test_a_resumed_run_needs_no_room_for_what_its_file_takes_already(tmp_path, monkeypatch):
    whole = remembered(tmp_path / "whole", 7)
    remembered(tmp_path / "stopped", 5)  # everybody has replied by then
    full(monkeypatch)
    result = remembered(tmp_path / "stopped", 7)
    assert arrays_of(result.arrays)["w"].tobytes() == arrays_of(whole.arrays)["w"].tobytes()


def test_a_disk_that_fills_up_stops_the_run_which_resumes(tmp_path, monkeypatch):
    whole = remembered(tmp_path / "whole", 7)
    with monkeypatch.context() as patch:
        real = os.posix_fallocate

        def fallocate(file, at, length):
            if at >= 3 * 500 * 8:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(file, at, length)

        patch.setattr(os, "posix_fallocate", fallocate)
        with pytest.raises(OSError, match="No space left"):
            remembered(tmp_path / "stopped", 7)
    result = remembered(tmp_path / "stopped", 7)
    assert arrays_of(result.arrays)["w"].tobytes() == arrays_of(whole.arrays)["w"].tobytes()


@pytest.mark.parametrize("left", [None, 0, 500 * 8])
def test_a_memory_that_is_missing_or_cut_off_is_refused(tmp_path, left):
    remembered(tmp_path, 2)
    path = tmp_path / "memory.rows"
    content = path.read_bytes()
    path.unlink()
    if left is not None:
        path.write_bytes(content[:left])
    with pytest.raises(FileFormatError, match=r"memory\.rows is cut off"):
        remembered(tmp_path, 3)
    path.write_bytes(content)
    remembered(tmp_path, 3)


@pytest.mark.parametrize("other", ["earlier", "foreign", "none"])
def test_rows_of_another_state_are_refused(tmp_path, other):
    remembered(tmp_path / "run", 3)
    remembered(tmp_path / "foreign", 3)
    checkpoint, marks = tmp_path / "run" / "checkpoint.npz", tmp_path / "run" / "memory.json"
    if other == "earlier":
        early = checkpoint.read_bytes()
        remembered(tmp_path / "run", 5)
        checkpoint.write_bytes(early)
    elif other == "foreign":
        for name in ("memory.rows", "memory.json"):
            shutil.copy(tmp_path / "foreign" / name, tmp_path / "run" / name)
    else:
        marks.unlink()
    with pytest.raises(FileFormatError, match="does not have the memory of this state"):
        remembered(tmp_path / "run", 6)


class Declining(FedAvg):
    """A strategy that does not aggregate the second round."""

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        return (None if server_round == 2 else arrays), metrics


@pytest.mark.parametrize("outer", [False, True])
def test_a_round_the_wrapped_strategy_makes_nothing_of_is_forgotten(tmp_path, outer):
    seen = []
    start = np.linspace(-1, 1, 5)
    strategy = remembering(tmp_path, everybody(Declining), on_round=seen.append)
    if outer:  # no checkpoints then
        strategy = DifferentialPrivacyServerSideFixedClipping(strategy, 0.0, 1e9, 4)
    grid = federation(4, towards(0.4), fate=only(COHORTS))
    result = strategy.start(grid, record_of({"w": start}), len(COHORTS))
    assert list(seen[1].excluded) == ["1", "2", "3"]
    assert (seen[1].replied, seen[1].weights) == ([], {})
    aligner = Learner(SHARES)
    cohorts = [COHORTS[0], [], *COHORTS[2:]]
    weights = [list(record.weights.values()) for record in seen]
    for cohort, given in zip(cohorts, weights, strict=True):
        if cohort:
            assert given == pytest.approx(aligner.observe(cohort), rel=AGREE)
    expected = by_formula(start, cohorts, weights, [SHARES] * len(cohorts), 0.4)
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], expected, rtol=AGREE, atol=AGREE)


def test_memory_under_differential_privacy_is_refused(tmp_path):
    inner = DifferentialPrivacyServerSideFixedClipping(everybody(), 1.0, 1.0, 4)
    with pytest.raises(OptionError, match=r"every later round.*differential privacy"):
        remembering(tmp_path, inner)


def test_qfedavg_with_q_zero_remembers_like_plain_averaging(tmp_path):
    def update(arrays, config, node):
        new, metrics = towards(0.4)(arrays, config, node)
        return new, metrics | {"train_loss": 1.0}

    ends = []
    for name, inner in (("q", everybody(QFedAvg, client_learning_rate=0.1, q=0.0)), ("a", None)):
        grid = federation(4, update, fate=only(COHORTS))
        strategy = remembering(tmp_path / name, inner)
        result = strategy.start(grid, record_of({"w": np.linspace(-1, 1, 5)}), len(COHORTS))
        ends.append(arrays_of(result.arrays)["w"])
    np.testing.assert_allclose(ends[0], ends[1], rtol=AGREE)


def test_memory_goes_with_a_selection(tmp_path):
    seen = []
    start = np.linspace(-1, 1, 5)
    strategy = FedAVOT(
        everybody(),
        importance=IMPORTANCE,
        memory=True,
        weighting=Weighting(cohort_size=2),
        folder=tmp_path,
        on_round=seen.append,
    )
    result = strategy.start(federation(4, towards(0.4)), record_of({"w": start}), 6)
    cohorts = [[int(name) for name in record.replied] for record in seen]
    weights = [list(record.weights.values()) for record in seen]
    expected = by_formula(start, cohorts, weights, [SHARES] * 6, 0.4)
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], expected, rtol=AGREE, atol=AGREE)


def test_inside_another_wrapper_memory_is_its_formula_too(tmp_path):
    seen = []
    start = np.linspace(-1, 1, 5)
    inner = remembering(tmp_path, on_round=seen.append)
    # Clips nothing, adds nothing: what matters is who calls whom.
    strategy = DifferentialPrivacyServerSideFixedClipping(inner, 0.0, 1e9, 4)
    grid = federation(4, towards(0.4), fate=only(COHORTS))
    result = strategy.start(grid, record_of({"w": start}), len(COHORTS))
    weights = [list(record.weights.values()) for record in seen]
    expected = by_formula(start, COHORTS, weights, [SHARES] * len(COHORTS), 0.4)
    np.testing.assert_allclose(arrays_of(result.arrays)["w"], expected, rtol=AGREE, atol=AGREE)
