import json
import math

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    QFedAvg,
    Strategy,
)
from flwr.supercore.task_identity import TaskIdentity
from grid import LocalGrid, Node, app_of, everybody, federation
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, norm

import fedavot as fa
from fedavot.errors import CheckpointError, OptionError, RuleError, TaskError
from fedavot.flower import ExactNoise, FedAVOT, Weighting

WEIGHTS = (0.82, 0.1, 0.08)
CLIP = 0.5
DRAWS = 200_000
"""Noise entries per measurement, over 50 releases."""
BAND = 5 / math.sqrt(2 * DRAWS)
"""Five standard errors of a sample deviation, relative: 0.8 %."""


@pytest.fixture(autouse=True, scope="module")
def _inside_a_run():
    """Set the identity of a task, without which Flower creates no messages."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_run_id", "_node_id", "_task_id"):
            patch.setattr(TaskIdentity, name, 1)
        yield


class Nodes:
    """The only part of a Grid that configuring a round needs."""

    def get_node_ids(self):
        return [1, 2, 3]


def record(arrays):
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def reply(arrays, weight, node=1, **metrics):
    asked = Message(RecordDict(), node, "train")
    content = {
        "arrays": record(arrays),
        "metrics": MetricRecord({"num-examples": weight, **metrics}),
    }
    return Message(RecordDict(content), reply_to=asked)


def failure(node=9):
    return Message(Error(code=0, reason="down"), reply_to=Message(RecordDict(), node, "train"))


def replies(models, weights=WEIGHTS):
    pairs = zip(models, weights, strict=True)
    return [reply(model, weight, node) for node, (model, weight) in enumerate(pairs, 1)]


def release(strategy, model, answers, server_round=1):
    strategy.configure_train(server_round, record(model), ConfigRecord(), Nodes())
    arrays, _ = strategy.aggregate_train(server_round, answers)
    return {name: array.numpy() for name, array in arrays.items()}


def noisy(strategy=None, **options):
    settings = {"noise_multiplier": 0.0, "clipping_norm": CLIP, **options}
    return ExactNoise(strategy or FedAvg(), **settings)


def noise_of(strategy, n_releases=50):
    model = {"w": np.zeros(DRAWS // n_releases)}
    # Not quite the model itself: Flower's wrapper divides by the norm of the update.
    sent = {"w": np.full_like(model["w"], 1e-12)}
    answers = [replies([sent] * 3) for _ in range(n_releases)]
    return np.array([release(strategy, model, answer)["w"] for answer in answers])


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("multiplier", [0.5, 2.0])
def test_the_deviation_of_the_noise_is_multiplier_times_clip_times_the_largest_weight(
    seed, multiplier
):
    noise = noise_of(noisy(noise_multiplier=multiplier, seed=seed))
    wanted = multiplier * CLIP * 0.82
    assert noise.std() == pytest.approx(wanted, rel=BAND)
    assert abs(noise.mean()) <= 5 * wanted / math.sqrt(DRAWS)


@pytest.mark.parametrize("seed", [None, 3])
def test_the_noise_is_gaussian_and_releases_are_independent(seed):
    noise = noise_of(noisy(noise_multiplier=1.0, seed=seed))
    assert kstest(noise.ravel() / (CLIP * 0.82), norm.cdf).pvalue > 1e-6
    later, earlier = noise[1:].ravel(), noise[:-1].ravel()
    assert abs(np.corrcoef(later, earlier)[0, 1]) <= 5 / math.sqrt(later.size)


def test_flowers_own_wrapper_adds_2_46_times_too_little_noise_at_these_weights():
    ours = noise_of(noisy(noise_multiplier=1.0, seed=1))
    flowers = noise_of(DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, CLIP, 3))
    ratio = ours.std() / flowers.std()
    assert ratio == pytest.approx(3 * 0.82, rel=2 * BAND)
    assert 2.4 < ratio < 2.5


def aligned(noise, **options):
    """Return FedAVOT around the noise, with an alignment of these weights for the full cohort."""
    shares = np.array(WEIGHTS)
    alignment = fa.Alignment(
        importance=shares,
        potentials=np.log(shares),
        levels=np.zeros(3, dtype=np.int64),
        attained=shares,
        residual=0.0,
        iterations=1,
        status=fa.Status.EXACT,
    )
    return FedAVOT(
        noise,
        weighting=Weighting(alignment=alignment, clients=["a", "b", "c"]),
        **options,
    )


def start(strategy, size, rounds):
    """Run clients that return the model unchanged; return the models, including the first."""
    app = app_of(lambda arrays, config, node: (arrays, {"num-examples": 1}))
    nodes = {number: Node(app, {"partition-id": name}) for number, name in enumerate("abc", 2)}
    models = []
    strategy.start(
        LocalGrid(nodes),
        record({"w": np.zeros(size)}),
        num_rounds=rounds,
        evaluate_fn=lambda number, arrays: models.append(arrays["w"].numpy()),
    )
    return np.array(models)


def test_inside_fedavot_the_noise_fits_the_weights_it_applies():
    noise = noisy(noise_multiplier=1.0)
    models = start(aligned(noise), DRAWS // 50, 50)
    assert np.diff(models, axis=0).std() == pytest.approx(CLIP * 0.82, rel=BAND)
    assert noise.releases == 50


LAYERS = {
    "none": lambda inner: inner,
    "ExactNoise": lambda inner: noisy(inner, clipping_norm=1.0),
    "fixed clipping": lambda inner: DifferentialPrivacyServerSideFixedClipping(inner, 0.0, 1.0, 4),
    "adaptive clipping": lambda inner: DifferentialPrivacyServerSideAdaptiveClipping(inner, 0.0, 4),
    "clipping by clients": lambda inner: DifferentialPrivacyClientSideFixedClipping(
        inner, 0.0, 1.0, 4
    ),
    "noise within": lambda inner: DifferentialPrivacyServerSideFixedClipping(
        noisy(inner, clipping_norm=1.0), 0.0, 1.0, 4
    ),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_under_differential_privacy_no_update_is_left_out_for_its_norm(layer):
    def explode(arrays, config, node):
        step = 1e6 if node["partition-id"] == 1 else 0.1
        return {"w": arrays["w"] + step}, {"num-examples": 1}

    seen = []
    strategy = FedAVOT(LAYERS[layer](everybody()), on_round=seen.append)
    strategy.start(federation(4, explode), record({"w": np.zeros(3)}), 2)
    left_out = ["1"] if layer == "none" else []
    assert [list(it.excluded) for it in seen] == [left_out] * 2


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("importance", ["uniform", "examples"])
def test_example_counts_that_the_noise_does_not_protect_are_warned_of(caplog, layer, importance):
    strategy = FedAVOT(LAYERS[layer](everybody()), importance=importance)
    app = federation(2, lambda arrays, config, node: (arrays, {"num-examples": 1}))
    strategy.start(app, record({"w": np.ones(3)}), 0)
    said = [it.message for it in caplog.records if it.levelname == "WARNING"]
    warned = any("example counts" in it for it in said)
    assert warned == (importance == "examples" and layer != "none")


def test_a_resumed_run_draws_the_noise_that_was_still_to_come(tmp_path):
    wanted = start(aligned(noisy(noise_multiplier=1.0, seed=4)), 5, 4)
    start(aligned(noisy(noise_multiplier=1.0, seed=4), folder=tmp_path), 5, 2)
    noise = noisy(noise_multiplier=1.0, seed=4)
    found = start(aligned(noise, folder=tmp_path, resume=True), 5, 4)
    np.testing.assert_array_equal(found[-1], wanted[-1])
    assert noise.releases == 4


def test_weights_on_any_scale_give_the_same_release():
    model = {"w": np.zeros(4)}
    sent = [{"w": np.full(4, value)} for value in (0.1, 0.2, -0.1)]
    options = {"noise_multiplier": 1.0, "clipping_norm": CLIP, "seed": 5}
    one = release(ExactNoise(FedAvg(), **options), model, replies(sent))
    many = release(ExactNoise(FedAvg(), **options), model, replies(sent, (820, 100, 80)))
    np.testing.assert_allclose(one["w"], many["w"], rtol=1e-12)


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 10.0), st.integers(1, 5))
def test_without_noise_the_release_is_the_weighted_average_of_clipped_updates(seed, clip, n):
    rng = np.random.default_rng(seed)
    model = {"a": rng.normal(size=(2, 3)), "b": rng.normal(size=2)}
    moves = rng.normal(size=(n, 8)) * 10.0 ** rng.uniform(-2, 2, size=(n, 1))
    weights = rng.dirichlet(np.ones(n))
    sent = [
        {"a": model["a"] + move[:6].reshape(2, 3), "b": model["b"] + move[6:]} for move in moves
    ]
    found = release(noisy(clipping_norm=clip), model, replies(sent, weights.tolist()))
    clipped = moves * np.minimum(1, clip / np.linalg.norm(moves, axis=1))[:, None]
    wanted = weights @ clipped
    moved = np.concatenate([(found[name] - model[name]).ravel() for name in ("a", "b")])
    np.testing.assert_allclose(moved, wanted, atol=1e-12)
    assert np.linalg.norm(moved) <= clip * (1 + 1e-12) + 1e-12


def test_taking_the_heaviest_client_away_moves_the_release_by_the_sensitivity():
    model = {"w": np.zeros(4)}
    far = {"w": np.full(4, 100.0)}
    options = {"noise_multiplier": 1.0, "clipping_norm": CLIP, "seed": 5}
    with_it = release(ExactNoise(FedAvg(), **options), model, replies([far, model, model]))
    without = release(ExactNoise(FedAvg(), **options), model, replies([model] * 3))
    distance = np.linalg.norm(with_it["w"] - without["w"])
    assert distance == pytest.approx(CLIP * max(WEIGHTS), rel=1e-12)


def test_the_wrapped_strategy_sees_the_noised_average_only():
    seen = []

    class Spy(FedAvg):
        def aggregate_train(self, server_round, replies):
            seen.extend(reply.content["arrays"]["w"].numpy() for reply in replies)
            return super().aggregate_train(server_round, replies)

    model = {"w": np.zeros(4)}
    sent = replies([{"w": np.full(4, value)} for value in (0.1, 0.2, -0.1)])
    found = release(
        ExactNoise(Spy(), noise_multiplier=1.0, clipping_norm=CLIP, seed=2), model, sent
    )
    assert len(seen) == 3
    for arrays in seen:
        np.testing.assert_allclose(arrays, found["w"], rtol=1e-12)
    assert [answer.content["arrays"]["w"].numpy()[0] for answer in sent] == [0.1, 0.2, -0.1]


def test_a_server_optimiser_gets_the_noised_average():
    model = {"w": np.linspace(-1, 1, 5)}
    sent = [{"w": model["w"] + value} for value in (0.1, 0.2, -0.1)]
    options = {"noise_multiplier": 1.0, "clipping_norm": CLIP, "seed": 7}
    average = release(ExactNoise(FedAvg(), **options), model, replies(sent))
    wanted = release(FedAdam(), model, [reply(average, 1.0)])
    found = release(ExactNoise(FedAdam(), **options), model, replies(sent))
    np.testing.assert_allclose(found["w"], wanted["w"], rtol=1e-9)


@pytest.mark.parametrize("strategy", [FedAvg(), FedAdam()])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_arrays_keep_their_types_and_shapes(strategy, dtype):
    model = {"w": np.zeros((2, 3), dtype), "scale": np.asarray(1.5, dtype)}
    options = {"noise_multiplier": 1.0, "clipping_norm": CLIP}
    found = release(ExactNoise(strategy, **options), model, replies([model] * 3))
    assert {name: (array.dtype, array.shape) for name, array in found.items()} == {
        "w": (dtype, (2, 3)),
        "scale": (dtype, ()),
    }
    assert found["scale"] != model["scale"]


@pytest.mark.parametrize("strategy", [FedAvg(), FedAdam()])
def test_integer_and_boolean_arrays_stay_as_the_model_has_them(strategy):
    # Enough counts that thirds of some do not add up to them.
    model = {"w": np.zeros(2), "count": np.arange(100), "mask": np.array([True, False])}
    sent = {"w": np.zeros(2), "count": np.full(100, 900), "mask": np.array([False, True])}
    found = release(noisy(strategy), model, replies([sent] * 3, (1, 1, 1)))
    assert found["count"].dtype == np.int64
    assert found["count"].tolist() == list(range(100))
    assert found["mask"].dtype == np.bool_
    assert found["mask"].tolist() == [True, False]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_an_update_without_a_finite_norm_counts_as_none(bad, caplog):
    model = {"w": np.zeros(2)}
    sent = replies([{"w": np.array([bad, 0.0])}, {"w": np.array([0.0, 0.3])}, model])
    found = release(noisy(), model, sent)
    np.testing.assert_allclose(found["w"], [0.0, 0.03], atol=1e-15)
    assert "node 1 is not finite" in caplog.text


def test_replies_with_errors_are_left_out_and_the_round_goes_on():
    model = {"w": np.zeros(2)}
    strategy = noisy()
    found = release(strategy, model, [failure(), reply({"w": np.array([0.2, 0.0])}, 5, 2)])
    np.testing.assert_allclose(found["w"], [0.2, 0.0], atol=1e-15)
    assert strategy.releases == 1


@pytest.mark.parametrize("n_failures", [0, 2])
def test_a_round_without_replies_releases_nothing(n_failures):
    strategy = noisy()
    strategy.configure_train(1, record({"w": np.zeros(2)}), ConfigRecord(), Nodes())
    assert strategy.aggregate_train(1, [failure()] * n_failures) == (None, None)
    assert strategy.releases == 0


def test_training_metrics_and_evaluation_are_the_wrapped_strategys():
    strategy = noisy()
    strategy.summary()
    arrays = record({"w": np.zeros(2)})
    strategy.configure_train(1, arrays, ConfigRecord(), Nodes())
    pairs = ((1, 4.0), (3, 0.0))
    answers = [reply({"w": np.zeros(2)}, weight, loss=loss) for weight, loss in pairs]
    assert strategy.aggregate_train(1, answers)[1] == MetricRecord({"loss": 1.0})
    assert len(list(strategy.configure_evaluate(1, arrays, ConfigRecord(), Nodes()))) == 3
    assert strategy.aggregate_evaluate(1, answers) == MetricRecord({"loss": 1.0})


def test_a_saved_state_goes_on_as_if_nothing_had_happened():
    model = {"w": np.zeros(3)}
    options = {"noise_multiplier": 1.0, "clipping_norm": CLIP, "seed": 11}
    straight = ExactNoise(FedAvg(), **options)
    wanted = [release(straight, model, replies([model] * 3))["w"] for _ in range(4)]
    first = ExactNoise(FedAvg(), **options)
    found = [release(first, model, replies([model] * 3))["w"] for _ in range(2)]
    state = json.loads(json.dumps(first.state_dict()))
    release(first, model, replies([model] * 3))
    second = ExactNoise(FedAvg(), **options)
    second.load_state_dict(state)
    found += [release(second, model, replies([model] * 3))["w"] for _ in range(2)]
    np.testing.assert_array_equal(found, wanted)
    assert second.releases == 4


def test_without_a_seed_only_the_number_of_releases_is_saved():
    model = {"w": np.zeros(3)}
    strategy = noisy(noise_multiplier=1.0)
    release(strategy, model, replies([model] * 3))
    assert strategy.state_dict() == {"releases": 1, "rng": None}
    resumed = noisy(noise_multiplier=1.0)
    resumed.load_state_dict(strategy.state_dict())
    assert resumed.releases == 1


@pytest.mark.parametrize(
    ("seed", "state", "message"),
    [
        (1, {"releases": 2, "rng": None}, "no seed"),
        (None, noisy(seed=1).state_dict(), "a seed"),
        (1, {"releases": 2}, "ExactNoise: 'rng'"),
        (1, {"releases": -2, "rng": None}, "releases is -2"),
        (1, {"releases": 2, "rng": {"bit_generator": "MT19937"}}, "state of a generator"),
    ],
)
def test_a_foreign_state_is_refused(seed, state, message):
    with pytest.raises(CheckpointError, match=message):
        noisy(seed=seed).load_state_dict(state)


class Bare(Strategy):
    """A strategy without the name of the metric that it averages by."""

    def configure_train(self, server_round, arrays, config, grid):
        raise NotImplementedError

    aggregate_train = configure_train  # type: ignore[assignment]
    configure_evaluate = configure_train
    aggregate_evaluate = configure_train  # type: ignore[assignment]
    summary = configure_train  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (QFedAvg(client_learning_rate=0.1), "QFedAvg does not average replies by weight"),
        (FedMedian(), "FedMedian does not average by weight"),
        (Bare(), "Bare does not average by weight"),
        (FedAVOT(FedAvg()), r"FedAVOT\(ExactNoise"),
    ],
)
def test_strategies_whose_weights_are_not_the_replies_are_refused(strategy, message):
    with pytest.raises(OptionError, match=message):
        noisy(strategy)


def test_the_weight_key_is_found_under_other_wrappers():
    inner = DifferentialPrivacyServerSideFixedClipping(FedAvg(weighted_by_key="n"), 1.0, CLIP, 3)
    strategy = noisy(inner)
    strategy.configure_train(1, record({"w": np.zeros(2)}), ConfigRecord(), Nodes())
    with pytest.raises(RuleError, match=r"node 4 hold \[\] under 'n'"):
        strategy.aggregate_train(1, [reply({"w": np.zeros(2)}, 1.0, 4)])


@pytest.mark.parametrize("weights", [(0.0, 0.0, 0.0), (1.0, -1.0, 1.0), (1.0, np.nan, 1.0)])
def test_weights_that_are_none_are_refused(weights):
    model = {"w": np.zeros(2)}
    with pytest.raises(RuleError, match="must be finite, at least 0 and not all 0"):
        release(noisy(), model, replies([model] * 3, weights))


@pytest.mark.parametrize(
    ("sent", "found"),
    [({"w": np.zeros(3)}, r"found shape \(3,\)"), ({"v": np.zeros(2)}, "found none")],
)
def test_replies_that_do_not_fit_the_model_are_refused(sent, found):
    with pytest.raises(TaskError, match=rf"node 1 .* 'w' of shape \(2,\); {found}"):
        release(noisy(), {"w": np.zeros(2)}, [reply(sent, 1.0)])


def test_complex_arrays_are_refused():
    with pytest.raises(TaskError, match="'w' of the model is complex128"):
        release(noisy(), {"w": np.zeros(2, complex)}, [])


def test_aggregating_before_the_model_is_known_is_refused():
    with pytest.raises(RuleError, match="before configure_train"):
        noisy().aggregate_train(1, [reply({"w": np.zeros(2)}, 1.0)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier is -1.0"),
        ({"clipping_norm": 0.0}, "clipping_norm is 0.0; it must be finite and above 0"),
        ({"clipping_norm": np.nan}, "clipping_norm is nan"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**128}, "seed is 3402"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        noisy(**options)


def test_a_seed_has_up_to_128_bits():
    once, again, other = (noisy(seed=seed) for seed in (2**128 - 1, 2**128 - 1, 2**64 - 1))
    assert once.state_dict() == again.state_dict() != other.state_dict()
