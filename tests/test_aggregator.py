"""`Aggregator`: the rule's formula, kinds of models, steps, names that change, files, mistakes."""

import collections
import copy
import functools
import itertools
import pickle
from typing import Any

import numpy as np
import pytest

import fedavot as fa
from fedavot.errors import (
    CohortError,
    FedavotError,
    FileFormatError,
    ImportanceError,
    ModelError,
    OptionError,
    UnavailableError,
)
from steady_formula import Steady

EXACT = 1e-12
"""Rounding of double precision over some hundred rounds of numbers around one."""
NAMES = [f"client {place}" for place in range(12)]
IMPORTANCE = {name: 1.0 + place % 4 for place, name in enumerate(NAMES)}


def play(aggregator, rounds, *, model=None, seed=0, names=NAMES, **options):
    """Play rounds in which clients pull the model towards points of their own; return the model."""
    rng = np.random.default_rng(seed)
    points = np.random.default_rng(7).normal(size=(len(NAMES), 3, 2))
    model = {"weight": np.zeros((3, 2))} if model is None else model
    for _ in range(rounds):
        cohort = rng.choice(names, rng.integers(1, 5), replace=False).tolist()
        trained = {
            name: {
                "weight": model["weight"]
                + 0.1
                * (points[NAMES.index(name)] - model["weight"] + 0.1 * rng.normal(size=(3, 2)))
            }
            for name in cohort
        }
        model = aggregator.aggregate(model, trained, **options)
    return model


def test_the_model_is_that_of_the_formula_while_clients_stay_and_when_some_leave_for_good():
    aggregator, formula = fa.Aggregator(IMPORTANCE), Steady()
    total = sum(IMPORTANCE.values())
    shares = {name: amount / total for name, amount in IMPORTANCE.items()}
    aligner = fa.OnlineAligner(shares, softness=2.0, step=1.0)
    tilts = []
    rng, model = np.random.default_rng(3), np.zeros(4)
    points = rng.normal(size=(len(NAMES), 4))
    for number in range(250):
        names = NAMES if number < 100 else NAMES[:7]
        cohort = rng.choice(names, rng.integers(1, 5), replace=False).tolist()
        said = {
            name: points[NAMES.index(name)] - model + 0.2 * rng.normal(size=4) for name in cohort
        }
        moved = aggregator.apply(model, said)
        tilts.append(formula.tilt(0.0))
        change = formula.change(said, aligner.observe(cohort), shares)
        np.testing.assert_allclose(moved, model + change, atol=EXACT)
        assert aggregator.weights == pytest.approx(formula.weights)
        model = moved
    assert set(aggregator.report().expired) == set(NAMES[7:])
    assert 0.0 < aggregator.trust < 1.0
    assert min(tilts) == 0.0 < max(tilts) == 1.0


def test_updates_are_normalised_as_fednova_does():
    """Wang et al. 2020: θ ← θ + τ_eff Σ w_i Δ_i/τ_i, with τ_eff = Σ w_i τ_i."""
    steps = {name: 1 + 3 * place for place, name in enumerate(NAMES)}
    rng = np.random.default_rng(0)
    remembering, forgetful = (
        fa.Aggregator(IMPORTANCE, trust=0.0),
        fa.Aggregator(IMPORTANCE, memory=False),
    )
    model = rng.normal(size=5)
    for _ in range(20):
        cohort = rng.choice(NAMES, 4, replace=False).tolist()
        trained = {name: model + steps[name] * rng.normal(size=5) for name in cohort}
        moved = remembering.aggregate(model, trained, steps=steps, lr=0.3)
        same = forgetful.aggregate(model, trained, steps=steps)
        w = remembering.weights
        effective = sum(w[name] * steps[name] for name in cohort)
        expected = model + effective * sum(
            w[name] * (trained[name] - model) / steps[name] for name in cohort
        )
        np.testing.assert_allclose(moved, expected, atol=EXACT)
        np.testing.assert_allclose(same, expected, atol=EXACT)
        model = moved


def test_memories_are_per_unit_of_step_when_the_learning_rate_falls():
    said = {name: np.array([float(place)]) for place, name in enumerate(NAMES)}
    aggregator = fa.Aggregator(IMPORTANCE, trust=1.0)
    model, total = np.zeros(1), sum(IMPORTANCE.values())
    mean = sum(IMPORTANCE[name] * said[name][0] for name in NAMES) / total
    for lr, cohort in [(0.5, NAMES), (0.1, NAMES[:2]), (0.02, NAMES[5:6])]:
        moved = aggregator.apply(model, {n: 3 * lr * said[n] for n in cohort}, steps=3, lr=lr)
        assert moved[0] - model[0] == pytest.approx(3 * lr * mean)
        model = moved


def test_the_mean_of_the_weights_given_approaches_the_importance():
    aggregator = fa.Aggregator(IMPORTANCE)
    play(aggregator, 2000)
    report = aggregator.report()
    assert report.gap < 0.1
    assert sum(report.wanted.values()) == pytest.approx(1.0)
    assert sum(report.given.values()) == pytest.approx(1.0)
    assert 1.0 <= report.effective_cohort_size <= 4.0
    assert (report.rounds, report.never, report.expired) == (2000, (), ())


def test_weights_are_in_the_order_of_the_round_and_sum_to_one():
    aggregator = fa.Aggregator(IMPORTANCE)
    cohort = [NAMES[5], NAMES[1], NAMES[7]]
    aggregator.apply(np.zeros(2), dict.fromkeys(cohort, np.ones(2)))
    assert list(aggregator.weights) == cohort
    assert sum(aggregator.weights.values()) == pytest.approx(1.0)


def test_a_round_without_clients_changes_nothing():
    aggregator = fa.Aggregator(IMPORTANCE)
    model = play(aggregator, 5)
    weights = aggregator.weights
    assert aggregator.aggregate(model, {}) is model
    assert aggregator.aggregate(model, {}, steps=5, lr=0.1) is model
    assert (aggregator.weights, aggregator.report().rounds) == (weights, 5)


# Kinds of models.


def as_torch(kind):
    import torch

    return lambda values: collections.OrderedDict(
        {name: torch.tensor(array, dtype=getattr(torch, kind)) for name, array in values.items()}
    )


def as_pytree(values):
    import jax.numpy as jnp

    return {"layers": [(jnp.asarray(values["a"], "float32"), None)], "b": jnp.asarray(values["b"])}


KINDS = {
    "mapping": dict,
    "list": lambda values: list(values.values()),
    "tuple": lambda values: tuple(values.values()),
    "namedtuple": lambda values: collections.namedtuple("Model", values)(**values),
    "float32": lambda values: {key: value.astype("f4") for key, value in values.items()},
    "float16": lambda values: {key: value.astype("f2") for key, value in values.items()},
    "state_dict": as_torch("float64"),
    "bfloat16": as_torch("bfloat16"),
    "pytree": as_pytree,
}
COARSE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "pytree": 1e-6}


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_comes_back_as_it_was_given(kind):
    jax = pytest.importorskip("jax")
    make, slack = KINDS[kind], COARSE.get(kind, EXACT)
    rng = np.random.default_rng(1)
    ours, plain = fa.Aggregator(IMPORTANCE), fa.Aggregator(IMPORTANCE)
    for _ in range(6):
        values = {"a": rng.normal(size=(2, 3)), "b": rng.normal(size=4)}
        trained = {
            name: {key: value + 0.1 for key, value in values.items()}
            for name in rng.choice(NAMES, 3, replace=False).tolist()
        }
        model = make(values)
        moved = ours.aggregate(model, {name: make(each) for name, each in trained.items()})
        expected = make(plain.aggregate(values, trained))
        assert type(moved) is type(model)
        leaves, others = (
            each.values() if kind in ("state_dict", "bfloat16") else jax.tree.leaves(each)
            for each in (moved, expected)
        )
        for new, old in zip(leaves, others, strict=True):
            assert (type(new), new.dtype, new.shape) == (type(old), old.dtype, old.shape)
            one, other = (np.asarray(x.float() if kind == "bfloat16" else x) for x in (new, old))
            np.testing.assert_allclose(one.astype(float), other.astype(float), atol=slack)


def test_counters_are_averaged_and_rounded_and_statistics_are_not_remembered():
    model: dict[str, Any] = {
        "bn.weight": np.ones(2),
        "bn.running_var": np.ones(2),
        "bn.num_batches_tracked": np.int64(10),
    }
    aggregator = fa.Aggregator({"a": 1, "b": 3}, trust=1.0)
    for round_number in range(3):
        trained = {
            name: {
                "bn.weight": model["bn.weight"] + 1,
                "bn.running_var": np.full(2, value),
                "bn.num_batches_tracked": np.int64(10**12 + place),
            }
            for place, (name, value) in enumerate([("a", 2.0), ("b", 4.0)][round_number % 2 :])
        }
        moved = aggregator.aggregate(model, trained)
        w = aggregator.weights
        expected = sum(w[name] * trained[name]["bn.running_var"] for name in trained)
        np.testing.assert_allclose(moved["bn.running_var"], expected)
        count = sum(w[name] * float(trained[name]["bn.num_batches_tracked"]) for name in trained)
        assert moved["bn.num_batches_tracked"] == np.rint(count)
        assert moved["bn.num_batches_tracked"].dtype == np.int64
        np.testing.assert_allclose(moved["bn.weight"], model["bn.weight"] + 1)
        model = moved


def test_tensors_without_dimensions_keep_their_shape():
    torch = pytest.importorskip("torch")
    model = {"w": torch.tensor(1.0), "n": torch.tensor(3)}
    trained = {key: each.clone() for key, each in model.items()}
    moved = fa.Aggregator({"a": 1}).aggregate(model, {"a": trained})
    assert [each.shape for each in moved.values()] == [(), ()]


def test_a_network_trained_for_everybody_without_a_copy_is_refused():
    torch = pytest.importorskip("torch")
    net, aggregator = torch.nn.Linear(2, 1), fa.Aggregator({"a": 1, "b": 1})
    start = {key: each.clone() for key, each in net.state_dict().items()}
    with pytest.raises(ModelError, match="client 'a' and the model are the same tensors"):
        aggregator.aggregate(net.state_dict(), {"a": net.state_dict()})
    with pytest.raises(ModelError, match=r"client 'b' and the model of client 'a' are .*copies"):
        aggregator.aggregate(start, {"a": net.state_dict(), "b": net.state_dict()})
    aggregator.aggregate(start, {"a": net.state_dict()})
    norm = torch.nn.BatchNorm1d(2)
    key = "num_batches_tracked"
    shared = norm.state_dict() | {key: norm.num_batches_tracked.clone()}
    with pytest.raises(ModelError, match="client 'a' and the model are the same tensors"):
        fa.Aggregator({"a": 1}).aggregate(norm.state_dict(), {"a": shared})


def test_integers_on_which_all_agree_stay_as_they_are_and_others_stay_within_their_type():
    large, model = np.iinfo(np.int64).max, {"w": np.zeros(1), "n": np.array([0, 2**53 + 1])}
    model["n"][0] = large
    alike = {name: {"w": np.ones(1), "n": model["n"].copy()} for name in "ab"}
    moved = fa.Aggregator({"a": 1, "b": 2}).aggregate(model, alike)
    np.testing.assert_array_equal(moved["n"], model["n"])
    bytes_ = {"w": np.zeros(1), "n": np.array([250, 3], np.uint8)}
    update = {"w": np.ones(1), "n": np.array([10, -5], np.int64)}
    moved = fa.Aggregator({"a": 1}).apply(bytes_, {"a": update})
    np.testing.assert_array_equal(moved["n"], np.array([255, 0], np.uint8))


def test_a_constant_that_was_not_finite_may_be_left_out_after_it_was_refused(tmp_path):
    aggregator = fa.Aggregator({"a": 1, "b": 1}, memory=tmp_path / "rows")
    model, mask = {"w": np.zeros(2)}, {"mask": np.array([0.0, -np.inf])}
    with pytest.raises(ModelError, match="'mask'.*leave out"):
        aggregator.aggregate(model | mask, {"a": {"w": np.ones(2)} | mask})
    assert not (tmp_path / "rows").exists()
    np.testing.assert_array_equal(aggregator.aggregate(model, {"a": {"w": np.ones(2)}})["w"], 1)


def test_entries_may_change_their_order():
    aggregators = [fa.Aggregator({"a": 1, "b": 3, "c": 2}, trust=1.0) for _ in range(2)]
    model = {"x": np.zeros(2), "y": np.ones(1)}
    said = {name: {"x": np.full(2, k), "y": np.full(1, 5.0 * k)} for k, name in enumerate("abc")}
    results = []
    for aggregator, start in zip(aggregators, (model, dict(reversed(model.items()))), strict=True):
        aggregator.apply(model, {name: said[name] for name in "ab"})
        results.append(aggregator.apply(start, {"a": said["b"], "c": said["c"]}))
    for key in model:
        np.testing.assert_array_equal(results[0][key], results[1][key])


def test_entries_are_left_out_of_the_memory_by_name():
    aggregator = fa.Aggregator({"a": 1, "b": 3}, trust=1.0, averaged=["head"])
    start = {"body": np.zeros(1), "head": np.zeros(1)}
    aggregator.apply(start, {name: {"body": np.ones(1), "head": np.ones(1)} for name in "ab"})
    moved = aggregator.apply(start, {"a": {"body": np.full(1, 3.0), "head": np.full(1, 3.0)}})
    assert (moved["body"], moved["head"]) == (1 + 3 - 1, 3)


# Clients that come and go.


def test_a_client_that_leaves_takes_its_memory_along():
    aggregator = fa.Aggregator({"a": 1, "b": 1, "c": 2}, trust=1.0)
    said = {"a": np.array([1.0]), "b": np.array([5.0]), "c": np.array([2.0])}
    aggregator.apply(np.zeros(1), said)
    aggregator.leave("b")
    after = aggregator.apply(np.zeros(1), {"a": said["a"]})
    assert after == pytest.approx((1 * 1.0 + 2 * 2.0) / 3)
    with pytest.raises(CohortError, match="'b'"):
        aggregator.apply(np.zeros(1), {"b": said["b"]})
    aggregator.join({"b": 1, "d": 4})
    report = aggregator.report()
    assert report.wanted == {"a": 1 / 8, "b": 1 / 8, "c": 2 / 8, "d": 4 / 8}
    assert report.expired == ()
    # As if its memory were the mean of the others', which cancels it.
    assert aggregator.apply(np.zeros(1), {"d": np.array([8.0])}) == pytest.approx(8.0)


def test_importance_that_changes_rescales_the_mean_of_the_memories():
    aggregator = fa.Aggregator({"a": 1, "b": 1, "c": 2}, trust=1.0)
    said = {"a": np.array([1.0]), "b": np.array([5.0]), "c": np.array([2.0])}
    aggregator.apply(np.zeros(1), said)
    aggregator.reweigh({"b": 7})
    assert aggregator.apply(np.zeros(1), {"a": said["a"]}) == pytest.approx(
        (1 * 1 + 7 * 5 + 2 * 2) / 10
    )


@pytest.mark.parametrize("given", [np.int64, int])
def test_names_may_be_integers_of_numpy(tmp_path, given):
    aggregator = fa.Aggregator({given(3): 1, given(5): 1})
    aggregator.apply(np.zeros(1), {np.int64(3): np.ones(1)})
    aggregator.save(tmp_path / "state.npz")
    loaded = fa.Aggregator.load(tmp_path / "state.npz")
    assert loaded.weights == aggregator.weights == {3: 1.0}
    assert {type(name) for name in aggregator.report().wanted} == {int}


# Files.


def test_an_aggregator_can_be_pickled_and_one_with_a_folder_says_that_it_cannot(tmp_path):
    aggregator = fa.Aggregator(IMPORTANCE)
    model = play(aggregator, 9)
    again = pickle.loads(pickle.dumps(aggregator))
    one, same = (play(each, 5, model=model, seed=1) for each in (aggregator, again))
    np.testing.assert_array_equal(one["weight"], same["weight"])
    disk = fa.Aggregator(IMPORTANCE, memory=tmp_path / "rows")
    play(disk, 1)
    for duplicate in (pickle.dumps, copy.deepcopy):
        with pytest.raises(UnavailableError, match="save and load"):
            duplicate(disk)


@pytest.mark.parametrize("use", [lambda it, path: play(it, 1), lambda it, path: it.save(path)])
@pytest.mark.parametrize("removed", [False, True])
def test_only_the_aggregator_loaded_last_uses_a_folder(tmp_path, use, removed):
    disk, path = fa.Aggregator(IMPORTANCE, memory=tmp_path / "rows"), tmp_path / "state.npz"
    play(disk, 3)
    disk.save(path)
    again = fa.Aggregator.load(path)
    play(again, 3)
    if removed:
        (tmp_path / "rows").rename(tmp_path / "moved")
    with pytest.raises(FileFormatError, match="rows does not have"):
        use(again if removed else disk, path)
    if not removed:
        use(again, path)


@pytest.mark.parametrize("memory", [True, False, "folder"])
def test_only_a_folder_can_be_given_to_load_and_only_for_a_folder(tmp_path, memory):
    folder = isinstance(memory, str)
    aggregator = fa.Aggregator(IMPORTANCE, memory=tmp_path / memory if folder else memory)
    play(aggregator, 3)
    aggregator.save(tmp_path / "state.npz")
    with pytest.raises(OptionError, match="memory="):
        fa.Aggregator.load(tmp_path / "state.npz", memory=True if folder else tmp_path / "other")


@pytest.mark.parametrize("correction", [0.0, 0.5])
def test_memory_in_a_folder_and_states_loaded_in_between_give_the_same_bits(tmp_path, correction):
    options = {"correction": correction, "trust": None}
    plain = fa.Aggregator(IMPORTANCE, **options)
    disk = fa.Aggregator(IMPORTANCE, memory=tmp_path / "rows", **options)
    again = fa.Aggregator(IMPORTANCE, **options)
    models = [{"weight": np.zeros((3, 2), "f4")}] * 3
    for seed in range(12):
        results = []
        for place, aggregator in enumerate((plain, disk, again)):
            model = play(aggregator, 3, model=models[place], seed=seed, steps=2, lr=0.1)
            results.append({key: value.astype("f4") for key, value in model.items()})
        models = results
        disk.save(tmp_path / "disk.npz")
        disk = fa.Aggregator.load(tmp_path / "disk.npz")
        again.save(tmp_path / "again.npz")
        again = fa.Aggregator.load(tmp_path / "again.npz")
        for other in models[1:]:
            np.testing.assert_array_equal(other["weight"], models[0]["weight"])
        assert plain.trust == disk.trust == again.trust
        assert plain.report() == disk.report() == again.report()


def test_rounds_after_the_last_save_are_forgotten_when_it_is_loaded(tmp_path):
    disk = fa.Aggregator(IMPORTANCE, memory=tmp_path / "rows")
    plain = fa.Aggregator(IMPORTANCE)
    model = play(disk, 9)
    play(plain, 9)
    disk.save(tmp_path / "state.npz")
    play(disk, 7, model=model, seed=1)
    disk = fa.Aggregator.load(tmp_path / "state.npz")
    one, other = (play(each, 7, model=model, seed=2) for each in (disk, plain))
    np.testing.assert_array_equal(one["weight"], other["weight"])


def test_only_the_last_state_of_a_folder_can_be_loaded(tmp_path):
    disk = fa.Aggregator(IMPORTANCE, memory=tmp_path / "rows")
    play(disk, 3)
    disk.save(tmp_path / "first.npz")
    play(disk, 3)
    disk.save(tmp_path / "second.npz")
    with pytest.raises(FileFormatError, match="rows"):
        fa.Aggregator.load(tmp_path / "first.npz")
    with pytest.raises(FileFormatError, match="rows"):
        play(fa.Aggregator(IMPORTANCE, memory=tmp_path / "rows"), 1)


# Corrections.


def test_corrections_sum_to_zero_over_the_clients_and_are_added_back():
    """With κ = 1 a client whose gradients are constant steps along the mean of all gradients."""
    gradients = {name: float(place) for place, name in enumerate(NAMES)}
    mean = sum(IMPORTANCE[n] * gradients[n] for n in NAMES) / sum(IMPORTANCE.values())
    aggregator = fa.Aggregator(IMPORTANCE, correction=1.0, trust=1.0)
    model = np.zeros(1)
    for number, cohort in enumerate([NAMES, NAMES[:3], NAMES[4:5]]):
        trained = {}
        for name in cohort:
            shift = aggregator.correction(name)
            assert (shift is None) == (number == 0)
            slope = gradients[name] + (0.0 if shift is None else shift[0])
            if number:
                assert slope == pytest.approx(mean)
            trained[name] = model - 0.1 * 5 * slope
        moved = aggregator.aggregate(model, trained, steps=5, lr=0.1)
        assert moved == pytest.approx(model - 0.5 * mean)
        model = moved


def test_a_correction_that_was_not_asked_for_is_not_added_back():
    aggregator = fa.Aggregator({"a": 1, "b": 1}, correction=1.0, trust=1.0)
    said = {"a": np.array([1.0]), "b": np.array([5.0])}
    aggregator.apply(np.zeros(1), said, steps=1, lr=1)
    assert aggregator.apply(np.zeros(1), {"a": said["a"]}, steps=1, lr=1) == pytest.approx(3.0)


# Mistakes.


def fresh():
    aggregator = fa.Aggregator({"ann": 1, "bob": 2})
    aggregator.aggregate(MODEL, {"ann": {"w": np.ones(2), "n": 4}})
    return aggregator


def first_round(**options):
    return fa.Aggregator({"ann": 1}).aggregate(MODEL, {"ann": MODEL}, **options)


MODEL = {"w": np.zeros(2, "f2"), "n": 3}
MISTAKES = {
    "unknown client": ({"anne": MODEL}, CohortError, "'anne'"),
    "nan": ({"bob": {"w": np.array([1.0, np.nan]), "n": 3}}, ModelError, "'bob'.*'w'"),
    "entry missing": ({"bob": {"w": np.zeros(2)}}, ModelError, "'bob'.*'n'"),
    "entry too many": ({"bob": MODEL | {"z": np.zeros(1)}}, ModelError, "'bob'.*'z'"),
    "shape": ({"bob": {"w": np.zeros(3), "n": 3}}, ModelError, "'bob'.*'w'"),
    "text": ({"bob": "model"}, ModelError, "'bob'"),
    "objects": ({"bob": {"w": np.array([None, 1]), "n": 3}}, ModelError, "'bob'.*'w'"),
    "same name": ({"bob": MODEL | {"z": {"y": 1}, "z.y": 1}}, ModelError, "'bob'.*two.*'z.y'"),
    "fractions": ({"bob": {"w": np.zeros(2), "n": 3.5}}, ModelError, "'bob'.*'n'"),
    "too large": ({"ann": MODEL, "bob": {"w": np.full(2, 1e5), "n": 3}}, ModelError, "'bob'.*'w'"),
    "no mapping": ([MODEL], ModelError, "trained"),
    "an empty model": ({"bob": {}}, ModelError, "'bob'"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_names_the_client_and_changes_nothing(case):
    trained, error, name = MISTAKES[case]
    aggregator, other = fresh(), fresh()
    with pytest.raises(error, match=name):
        aggregator.aggregate(MODEL, trained)
    right = {"bob": {"w": np.full(2, 3.0), "n": 3}}
    one, same = (each.aggregate(MODEL, right) for each in (aggregator, other))
    np.testing.assert_array_equal(one["w"], same["w"])
    assert aggregator.report() == other.report()


def test_what_cannot_be_averaged_is_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(ModelError, match=r"'bob'.*state_dict\(\)"):
        fa.Aggregator({"bob": 1}).aggregate({"w": np.zeros(2)}, {"bob": torch.nn.Linear(2, 1)})
    series = pytest.importorskip("pandas").Series([1.0, 2.0])
    for array in (
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2).to_sparse(),
        torch.ones(2).to(torch.float8_e4m3fn),
        series,
    ):
        with pytest.raises(ModelError, match="'bob'.*'w'"):
            fa.Aggregator({"bob": 1}).aggregate({"w": np.zeros(2)}, {"bob": {"w": array}})


OPTIONS = {
    "importance 0": (lambda: fa.Aggregator({"ann": 1, "bob": 0}), ImportanceError, "'bob'"),
    "nan": (lambda: fa.Aggregator({"ann": float("nan")}), ImportanceError, "'ann'"),
    "text": (lambda: fa.Aggregator({"ann": "1"}), FedavotError, "'ann'"),
    "a list": (lambda: fa.Aggregator([0.5, 0.5]), ImportanceError, "importance"),
    "no name": (lambda: fa.Aggregator({None: 1}), ImportanceError, "None"),
    "trust": (lambda: fa.Aggregator({"ann": 1}, trust=2), OptionError, "trust"),
    "correction": (lambda: fa.Aggregator({"ann": 1}, correction=-1), OptionError, "correction"),
    "no memory": (lambda: fa.Aggregator({"ann": 1}, trust=1, memory=False), OptionError, "memory"),
    "averaged": (lambda: fa.Aggregator({"ann": 1}, averaged="w"), OptionError, "averaged"),
    "memory bytes": (lambda: fa.Aggregator({"ann": 1}, memory=b"rows"), OptionError, "memory"),
    "twice": (lambda: fresh().join({"ann": 1}), ImportanceError, "'ann'"),
    "reweigh": (lambda: fresh().reweigh({"eve": 1}), CohortError, "'eve'"),
    "leave": (lambda: fresh().leave("eve"), CohortError, "'eve'"),
    "asked": (lambda: fresh().correction("eve"), CohortError, "'eve'"),
    "lr later": (lambda: fresh().aggregate(MODEL, {"ann": MODEL}, lr=0.1), OptionError, "lr"),
    "no steps": (lambda: first_round(steps={"bob": 1}), OptionError, "'ann'"),
    "lr 0": (lambda: first_round(lr=0), OptionError, "lr"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_wrong_options_are_refused(case):
    call, error, name = OPTIONS[case]
    with pytest.raises(error, match=name):
        call()


ROUND = {NAMES[2]: {"weight": np.ones((3, 2))}}
INTERRUPTED = {
    "a round": ("_server.Round.end", lambda it: it.aggregate({"weight": np.zeros((3, 2))}, ROUND)),
    "leaving": ("_rows.Rows{}.read", lambda it: it.leave(NAMES[1])),
    "reweighing": ("_rows.Rows{}.read", lambda it: it.reweigh({NAMES[1]: 9})),
}


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("change", INTERRUPTED)
def test_what_is_interrupted_changes_nothing(tmp_path, folder, change, monkeypatch):
    aggregator, other = (
        fa.Aggregator(IMPORTANCE, memory=tmp_path / which if folder else True) for which in "ab"
    )
    model = play(aggregator, 9)
    play(other, 9)

    def interrupt(*_):
        raise KeyboardInterrupt

    place, call = INTERRUPTED[change]
    with monkeypatch.context() as patch:
        kind = "OnDisk" if folder else "InMemory"
        patch.setattr(f"fedavot.rules.{place.format(kind)}", interrupt)
        with pytest.raises(KeyboardInterrupt):
            call(aggregator)
    one, same = (play(each, 5, model=model, seed=1) for each in (aggregator, other))
    np.testing.assert_array_equal(one["weight"], same["weight"])
    assert aggregator.report() == other.report()


def test_report_says_that_the_learning_rate_is_missing_only_when_updates_shrink():
    steady, falling = fa.Aggregator(IMPORTANCE), fa.Aggregator(IMPORTANCE)
    told = fa.Aggregator(IMPORTANCE)
    for number, cohort in enumerate(itertools.islice(itertools.cycle([NAMES[:6], NAMES[6:]]), 60)):
        lr = 0.9**number
        steady.apply(np.zeros(2), dict.fromkeys(cohort, np.ones(2)))
        falling.apply(np.zeros(2), dict.fromkeys(cohort, lr * np.ones(2)))
        told.apply(np.zeros(2), dict.fromkeys(cohort, lr * np.ones(2)), lr=lr)
    assert not steady.report().advice
    assert not told.report().advice
    assert falling.report().advice


def test_the_engine_trains_the_same_models_seed_for_seed():
    """The engine's cohorts and local steps, aggregated by hand."""
    jax = pytest.importorskip("jax")
    from fedavot import rules, training
    from fedavot.training.local import LocalTraining, batch_key, train_client
    from fedavot.training.schedule import schedule
    from fedavot.training.tasks.linear import heterogeneous_regression

    def sample(rng, rounds):
        sizes = rng.integers(1, 4, rounds)  # three clients leave after 20 rounds
        return [rng.choice(8 if t < 20 else 5, sizes[t], replace=False) for t in range(rounds)]

    task = heterogeneous_regression(n_clients=8, seed=1)
    importance = np.arange(1.0, 9.0) / 36
    options = training.Training(
        90, training.constant(0.02), local_steps=3, batch_size=5, seeds=[3, 4]
    )
    problem, rule = training.Problem(task, importance, sample), rules.steady(importance)
    run = training.train(problem, rule, options)
    plan = schedule(problem, rule, options.seeds, options.rounds)
    with jax.enable_x64(True):
        data = jax.tree.map(jax.numpy.asarray, task.data)
        local = LocalTraining(task.loss, task.counts is not None, 3, 5)

        @jax.jit
        def train(model, key, number, client):
            own = jax.tree.map(lambda leaf: leaf[client], data)
            keys = functools.partial(batch_key, key, number, client)
            return train_client(local, model, own, count=30, step=0.02, key_of=keys, drift=None)

        for place, seed in enumerate(options.seeds):
            aggregator, model = fa.Aggregator(dict(enumerate(importance))), np.zeros(10)
            for number, members in enumerate(plan.members[place], start=1):
                trained = {
                    int(client): train(model, jax.random.key(seed), number, client)
                    for client in members[members < 8]
                }
                model = aggregator.aggregate(model, trained, steps=3, lr=0.02)
            np.testing.assert_allclose(model, run.params[place], rtol=1e-9)
            assert set(aggregator.report().expired) == {5, 6, 7}
