"""The rate studies: their constants, what they read from outcomes, and a small run of them."""

import numpy as np
import pytest

from fedavot.errors import OptionError
from fedavot.experiments import rate
from fedavot.experiments.outcome import Outcome
from fedavot.experiments.rate import Objective, horizon_settings
from fedavot.experiments.rate_results import draw, slopes
from fedavot.experiments.running import conduct
from fedavot.laws.uniform import UniformCohorts
from fedavot.training.tasks.linear import (
    heterogeneous_regression,
    linear_task,
    mean_deviation,
)

FITTED = 1e-12
"""Least squares through points that lie on a line."""

SAMPLED = 0.07
"""A slope over one decade and two seeds."""

HORIZONS = (100, 320, 1000)


def outcome(setting, rule="fedavot", excess=(1.0, 1.0)):
    seeds = tuple(range(len(excess)))
    return Outcome(
        setting=setting,
        rule=rule,
        knows="",
        stores="",
        seeds=seeds,
        recorded=np.array([1]),
        losses=np.ones((len(seeds), 1)),
        optimum=np.zeros(len(seeds)),
        metrics={"excess": list(excess)} if np.isfinite(excess).all() else {},
        seconds=1.0,
        message="",
        fingerprint="",
    )


def power_law(size, exponents, *, heights=None, rule="fedavot", loss="lad"):
    """Return outcomes whose seeds fall as T to the exponents."""
    heights = [1.0] * len(exponents) if heights is None else heights
    return [
        outcome(
            f"{loss}, K={size}, T={rounds}",
            rule,
            [height * rounds**power for height, power in zip(heights, exponents, strict=True)],
        )
        for rounds in HORIZONS
    ]


def rows_of(rows, metric):
    return {(row["setting"], row["rule"]): row for row in rows if row["metric"] == metric}


@pytest.fixture(scope="module")
def small():
    """Eight clients, pairs, and an importance that pairs attain."""
    importance = np.arange(8.0, 0, -1) / 36
    shape = {"n_clients": 8, "n_features": 3, "n_examples": 12}
    task = heterogeneous_regression(loss=mean_deviation, **shape)
    given = importance, UniformCohorts(8, 2)
    return Objective.of("small", task, importance), given


@pytest.mark.parametrize("power", [-0.5, -1.0, 0.25])
def test_the_slope_of_a_power_law_is_its_exponent(power):
    (row,) = slopes(power_law(2, [power, power], heights=[3.0, 0.2]))
    assert row["setting"] == "lad, K=2"
    assert row["mean"] == pytest.approx(power, abs=FITTED)
    assert row["std"] == pytest.approx(0, abs=FITTED)
    assert row["seeds"] == 2


def test_the_slope_is_that_of_the_mean_curve_and_its_deviation_over_seeds():
    (row,) = slopes(power_law(2, [-1.0, -0.5]))
    rounds = np.array(HORIZONS, dtype=float)
    mean_curve = (rounds**-1.0 + rounds**-0.5) / 2
    assert row["mean"] == pytest.approx(np.polyfit(np.log(rounds), np.log(mean_curve), 1)[0])
    assert row["std"] == pytest.approx(np.std([-1.0, -0.5], ddof=1))


def test_slopes_do_not_depend_on_the_order_of_the_horizons():
    outcomes = power_law(2, [-0.7, -0.4])
    assert slopes(outcomes[::-1])[0] == slopes(outcomes)[0]


def test_every_rule_and_loss_has_its_own_slope():
    outcomes = [
        *power_law(2, [-0.5]),
        *power_law(2, [-0.1], rule="fedavg"),
        *power_law(2, [-0.9], loss="hinge"),
    ]
    found = {key: row["mean"] for key, row in rows_of(slopes(outcomes), "slope").items()}
    assert found == {
        ("lad, K=2", "fedavot"): pytest.approx(-0.5),
        ("lad, K=2", "fedavg"): pytest.approx(-0.1),
        ("hinge, K=2", "fedavot"): pytest.approx(-0.9),
    }


@pytest.mark.parametrize("excess", [np.inf, 0.0], ids=["diverged", "at the optimum"])
def test_a_line_with_a_point_that_has_no_logarithm_has_no_slope(excess):
    outcomes = [*power_law(2, [-0.5, -0.5]), outcome("lad, K=2, T=3200", excess=(excess, 1.0))]
    (row,) = slopes(outcomes)
    assert row["mean"] is None
    assert row["std"] is None


def test_one_horizon_makes_no_slope():
    assert slopes([outcome("lad, K=2, T=100")]) == []


def test_the_spread_is_the_ratio_of_the_extremes_at_the_longest_common_horizon():
    outcomes = [
        *power_law(2, [-0.5, -0.5], heights=[3.0, 5.0]),
        *power_law(5, [-0.5, -0.5], heights=[1.0, 1.0]),
        *power_law(50, [-0.5, -0.5], heights=[2.0, 2.0]),
        outcome("lad, K=2, T=9999", excess=(1.0, 1.0)),
    ]
    ((key, row),) = rows_of(slopes(outcomes), "spread_over_cohort_sizes").items()
    assert key == ("lad, T=1000", "fedavot")
    assert row["mean"] == pytest.approx(4.0)
    assert row["std"] == pytest.approx(np.std([3.0, 5.0], ddof=1))


def test_the_spread_of_a_diverged_run_is_null():
    outcomes = [outcome("lad, K=2, T=100"), outcome("lad, K=5, T=100", excess=(np.inf, 1.0))]
    assert (
        rows_of(slopes(outcomes), "spread_over_cohort_sizes")["lad, T=100", "fedavot"]["mean"]
        is None
    )


def test_one_cohort_size_has_no_spread():
    assert not rows_of(slopes(power_law(2, [-0.5])), "spread_over_cohort_sizes")


def test_an_outcome_of_another_study_is_refused():
    with pytest.raises(OptionError, match="'feasible'"):
        slopes([outcome("feasible")])


@pytest.mark.parametrize("rules", [("fedavot",), ("fedavot", "fedavg")])
def test_figures_are_written_as_png_and_pdf_and_redrawn_alike(rules, tmp_path):
    outcomes = [
        *(one for rule in rules for one in power_law(2, [-0.5, -0.6], rule=rule)),
        *power_law(5, [-0.5, -0.6], loss="hinge"),
        # A band that would reach below zero, a run that diverged, and a size without a look.
        outcome("lad, K=2, T=3200", excess=(1e-6, 1.0)),
        outcome("lad, K=7, T=100", excess=(np.inf, 1.0)),
        outcome("lad, K=9, T=100"),
    ]
    png, pdf = draw(outcomes, tmp_path / "figure")
    first = pdf.read_bytes()
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert first.startswith(b"%PDF-")
    assert first.rstrip().endswith(b"%%EOF")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure.pdf", "figure.png"]
    draw(outcomes, tmp_path / "figure")
    assert pdf.read_bytes() == first


def test_biases_are_drawn_where_their_rule_is(tmp_path):
    outcomes = power_law(2, [-0.1], rule="fedavg")
    level = {"setting": "lad, K=2", "rule": "fedavg", "mean": 0.3}
    plain = draw(outcomes, tmp_path / "plain")[1].read_bytes()
    foreign = draw(
        outcomes, tmp_path / "foreign", biases=[{**level, "rule": "self-normalised-ipw"}]
    )
    drawn = draw(outcomes, tmp_path / "drawn", biases=[level])
    assert foreign[1].read_bytes() == plain
    assert drawn[1].read_bytes() != plain


def test_the_optimum_lies_inside_the_ball_models_are_kept_in():
    for one in rate.objectives():
        assert 0 < np.linalg.norm(one.minimiser) < one.ball.radius
        assert one.distance == pytest.approx(np.linalg.norm(one.minimiser))


def test_stochastic_subgradients_are_within_the_bound_wherever_they_are_taken(small):
    import jax

    one, _ = small
    rng = np.random.default_rng(0)
    features, targets = map(np.asarray, one.task.data)
    slope = jax.jit(jax.grad(mean_deviation))
    for point in rng.standard_normal((5, 3)) * one.ball.radius:
        squares = np.zeros(8)
        for client in range(8):
            batches = [rng.permutation(12)[: rate.BATCH_SIZE] for _ in range(10)]
            squares[client] = np.mean(
                [
                    np.sum(np.square(slope(point, (features[client][b], targets[client][b]))))
                    for b in batches
                ]
            )
        assert np.sqrt(one.importance @ squares) <= one.steepness


def test_the_step_minimises_the_bound(small):
    one, _ = small
    steps, rounds = rate.LOCAL_STEPS, 50
    size = one.training(rounds, (0,)).step(rounds, steps)[0]

    def bound(size):
        return one.distance**2 / (2 * size * steps * rounds) + size * one.steepness**2 * steps / 2

    assert bound(size) == pytest.approx(one.bound(rounds))
    assert min(bound(1.1 * size), bound(size / 1.1)) > bound(size)


def test_every_cohort_size_has_the_same_steps_and_a_setting_of_its_own(monkeypatch):
    monkeypatch.setattr(rate, "SIZES", (2, 5))
    settings = rate.settings((0, 1), sizes=rate.SIZES, rules=("fedavot",), quick=True)
    by_size = {
        size: [setting for setting in settings if f", K={size}, " in setting.name]
        for size in (2, 5)
    }
    assert [setting.name for setting in by_size[5]] == [
        f"{loss}, K=5, T={rounds}"
        for loss in ("lad", "hinge", "sharp")
        for rounds in (10, 100, 1000)
    ]
    for pair, larger in zip(by_size[2], by_size[5], strict=True):
        rounds = pair.training.rounds
        steps = [
            setting.training.step(rounds, setting.training.local_steps)
            for setting in (pair, larger)
        ]
        assert np.array_equal(*steps)


def test_the_rate_study_measures_averaged_models_over_two_decades():
    settings = rate.settings((0, 1, 2))
    assert [setting.training.rounds for setting in settings] == 3 * list(rate.HORIZONS)
    assert rate.HORIZONS[-1] == 100 * rate.HORIZONS[0]
    assert all(setting.averaged for setting in settings)
    assert {rule.name for setting in settings for rule in setting.rules} == set(rate.RULES)
    assert all(setting.instances[0].seeds == (0, 1, 2) for setting in settings)


def test_a_rule_that_aims_at_another_importance_keeps_a_bias():
    found = {(row["setting"], row["rule"]): row["mean"] for row in rate.biases()}
    for loss in ("lad", "hinge"):
        assert found[f"{loss}, K=2", "fedavg"] > found[f"{loss}, K=2", "self-normalised-ipw"] > 0


def test_the_excess_of_a_small_run_falls_with_the_rounds_and_keeps_to_the_bound(small, tmp_path):
    one, given = small
    settings = horizon_settings(one, given, ("fedavot",), horizons=(30, 100, 300), seeds=(0, 1))
    outcomes = conduct(settings, tmp_path, progress=lambda *progress: None, workers=1)
    excess = [outcome.mean("excess") for outcome in outcomes]
    assert excess == sorted(excess, reverse=True)
    assert excess[-1] > 0
    bounds = [one.bound(setting.training.rounds) for setting in settings]
    assert all(found < bound for found, bound in zip(excess, bounds, strict=True))
    (row,) = slopes(outcomes)
    assert row["setting"] == "small, K=2"
    assert row["mean"] < 0


def test_the_rate_is_no_better_than_the_bound_where_all_corners_meet(small, tmp_path):
    other, given = small
    model = np.array([1.0, -2.0, 0.5])
    clients = [(features, features @ model) for features in np.asarray(other.task.data[0])]
    sharp = linear_task("sharp", clients, loss=mean_deviation)
    one = Objective.of("sharp", sharp, other.importance)
    settings = horizon_settings(one, given, ("fedavot",), horizons=(30, 100, 300), seeds=(0, 1))
    outcomes = conduct(settings, tmp_path, progress=lambda *progress: None, workers=1)
    (row,) = slopes(outcomes)
    assert row["mean"] == pytest.approx(-0.5, abs=SAMPLED)
    for setting, outcome in zip(settings, outcomes, strict=True):
        bound = one.bound(setting.training.rounds)
        assert bound / 4 < outcome.mean("excess") < bound
