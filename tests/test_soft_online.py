"""The soft online aligner rests at soft alignment's optimum, and resumes exactly."""

import itertools
import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedavot as fa
from fedavot.errors import CohortError, FileFormatError, ImportanceError, OptionError
from fedavot.soft_online import SoftOnlineAligner
from sealing import sealed
from strategies import importances

LAW = fa.IndependentClients([0.9, 0.7, 0.5, 0.3])
IMPORTANCE = np.array([0.1, 0.2, 0.3, 0.4])
ROUNDING = 1e-12
"""A few units in the last place of numbers of order one, over some hundred rounds."""


def at(potentials, softness, step, importance=IMPORTANCE):
    """Return an aligner that stands at these potentials."""
    state = SoftOnlineAligner(importance, softness=softness, step=step).state_dict()
    return SoftOnlineAligner.from_state(state | {"potentials": list(potentials)})


def literal(importance, softness, step, cohorts):
    """Follow the ascent client by client; return the potentials and all weights.

    The penalty's step is implicit: the x it ends at, and the mean of that x, satisfy
    x_i = moved_i − η ρ p_i (x_i − Σ p_j x_j). Solved here as the linear system that it is.
    """
    p, x, weights = np.array(importance), np.zeros(len(importance)), []
    held = np.eye(p.size) + step * softness * (np.diag(p) - np.outer(p, p))
    for cohort in cohorts:
        odds = np.exp(x[cohort])
        weights.append(odds / odds.sum())
        moved = x + step * p
        moved[cohort] -= step * weights[-1]
        x = np.linalg.solve(held, moved)
    return x, weights


def drawn(seed, n_rounds):
    return LAW.sample(np.random.default_rng(seed), n_rounds)


@pytest.mark.parametrize(("softness", "step"), [(0.1, 2.0), (1.0, 0.3), (50.0, 5.0)])
def test_the_aligner_takes_the_penaltys_step_implicitly(softness, step):
    aligner = SoftOnlineAligner(IMPORTANCE, softness=softness, step=step)
    cohorts = drawn(0, 200)
    found = [aligner.observe(cohort) for cohort in cohorts]
    x, weights = literal(IMPORTANCE, softness, step, cohorts)
    np.testing.assert_allclose(aligner.effective_potentials, x, rtol=0, atol=1e-10)
    for mine, theirs in zip(found, weights, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)


@settings(max_examples=50)
@given(
    importance=importances(4, zeros=False),
    softness=st.sampled_from([1e-2, 0.1, 1.0, 10.0]),
    step=st.sampled_from([0.01, 1.0, 20.0]),
)
def test_soft_alignments_optimum_is_at_rest(importance, softness, step):
    alignment = fa.align(importance, LAW, softness=softness, tol=1e-11)
    aligner = at(alignment.potentials, softness, step, importance)
    # One step on average: everybody present, at the weights expected of the law.
    aligner.observe(range(4), alignment.attained)
    moved = aligner.effective_potentials - alignment.potentials
    moved -= moved.mean()
    largest = np.abs(alignment.potentials).max()
    # The solver's tolerance times the step, and the potentials' own rounding.
    assert np.abs(moved).max() <= 1e-10 * step + 1e-14 * largest


def test_only_the_optimum_is_at_rest():
    alignment = fa.align(IMPORTANCE, LAW, softness=0.3)
    elsewhere = alignment.potentials + np.array([0.5, 0.0, 0.0, 0.0])
    expected = LAW.expected_weights(elsewhere)
    aligner = at(elsewhere, 0.3, 1.0)
    aligner.observe(range(4), expected)
    moved = aligner.effective_potentials - elsewhere
    assert np.ptp(moved) > 0.01


@pytest.mark.parametrize("softness", [0.05, 0.5, 5.0])
def test_small_steps_approach_the_soft_alignment(softness):
    exact = fa.align(IMPORTANCE, LAW, softness=softness)
    aligner = SoftOnlineAligner(IMPORTANCE, softness=softness, step=0.02)
    cohorts = drawn(1, 8000)
    for cohort in cohorts[:2000]:
        aligner.observe(cohort)
    total = np.zeros(4)
    for cohort in cohorts[2000:]:
        total[cohort] += aligner.observe(cohort)
    # Three standard errors of 6000 draws are about 0.02.
    assert np.abs(total / 6000 - exact.attained).max() < 0.02
    spread = aligner.effective_potentials - aligner.effective_potentials.mean()
    wanted = exact.potentials - exact.potentials.mean()
    np.testing.assert_allclose(spread, wanted, atol=0.15 * (1 + np.abs(wanted).max()))


def test_great_softness_tends_to_equal_weights():
    aligner = SoftOnlineAligner(IMPORTANCE, softness=1e6, step=2.0)
    for cohort in drawn(2, 100):
        weights = aligner.observe(cohort)
        np.testing.assert_allclose(weights, 1 / len(cohort), atol=1e-3)


@settings(max_examples=50)
@given(
    importance=importances(4, zeros=False),
    potentials=st.lists(st.floats(-30.0, 30.0), min_size=4, max_size=4),
    softness=st.sampled_from([1e-2, 0.5, 10.0]),
    step=st.sampled_from([0.01, 3.0, 20.0]),
)
def test_an_absence_takes_a_potential_towards_the_mean_plus_one_over_the_softness(
    importance, potentials, softness, step
):
    aligner = at(potentials, softness, step, importance)
    aligner.observe([1, 2])
    after = aligner.effective_potentials
    end = importance @ after + 1 / softness
    for absent in (0, 3):
        # Nearer by this factor, from below and from above alike, and never past it.
        factor = 1 + step * softness * importance[absent]
        distance = potentials[absent] - end
        assert factor * (after[absent] - end) == pytest.approx(distance, rel=1e-9, abs=1e-8)


def test_no_absence_by_itself_takes_a_potential_past_the_mean_plus_one_over_the_softness():
    # Among equals the mean of all potentials stands still, whoever is absent.
    softness, step, n_rounds = 0.5, 3.0, 500
    aligner = SoftOnlineAligner(np.full(3, 1 / 3), softness=softness, step=step)
    found = []
    for _ in range(n_rounds):
        aligner.observe([1, 2])
        found.append(aligner.effective_potentials[0])
    assert np.abs(aligner.effective_potentials.sum()) <= ROUNDING
    factors = (1 + step * softness / 3) ** -np.arange(1.0, n_rounds + 1)
    np.testing.assert_allclose(found, (1 - factors) / softness, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize(("softness", "step"), [(1e9, 1e9), (1e-9, 1e3), (1e3, 1e-9)])
def test_any_step_and_softness_are_stable(softness, step):
    aligner = SoftOnlineAligner(IMPORTANCE, softness=softness, step=step)
    for cohort in drawn(3, 300):
        weights = aligner.observe(cohort)
        assert np.isfinite(weights).all()
        assert weights.sum() == pytest.approx(1.0)
    assert np.isfinite(aligner.effective_potentials).all()


def test_weights_do_not_depend_on_the_order_of_a_cohort_and_teach_nothing():
    aligner = SoftOnlineAligner(IMPORTANCE, softness=0.3, step=2.0)
    for cohort in drawn(4, 20):
        aligner.observe(cohort)
    before = aligner.state_dict()
    one_way, other_way = aligner.weights([0, 2, 3]), aligner.weights([3, 0, 2])
    np.testing.assert_allclose(one_way, other_way[[1, 2, 0]], rtol=1e-15)
    assert aligner.state_dict() == before


def test_what_is_owed_and_given_is_counted():
    aligner = SoftOnlineAligner(IMPORTANCE, softness=0.3, step=2.0)
    assert aligner.realised.tolist() == [0.0] * 4
    total = np.zeros(4)
    for cohort in drawn(5, 50):
        total[cohort] += aligner.observe(cohort)
    assert aligner.rounds == 50
    np.testing.assert_allclose(aligner.realised, total / 50, rtol=1e-12)
    np.testing.assert_allclose(aligner.owed, 50 * IMPORTANCE, rtol=1e-12)


def test_weights_given_by_others_are_those_it_learns_from():
    aligner = SoftOnlineAligner([0.5, 0.5], softness=0.1, step=1.0)
    assert aligner.observe([0, 1], [0.9, 0.1]).tolist() == [0.9, 0.1]
    assert aligner.realised.tolist() == [0.9, 0.1]
    first, second = aligner.effective_potentials
    assert first < second


def test_its_own_weights_given_back_change_nothing():
    one, other = (SoftOnlineAligner(IMPORTANCE, softness=0.2, step=1.5) for _ in range(2))
    for cohort in drawn(6, 40):
        one.observe(cohort)
        other.observe(cohort, other.weights(cohort))
    for name in ("effective_potentials", "realised", "owed"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=ROUNDING)


def test_clients_of_no_importance_get_weight_only_among_themselves():
    aligner = SoftOnlineAligner([0.5, 0.5, 0.0, 0.0], softness=0.5, step=1.0)
    assert aligner.weights([0, 2]).tolist() == [1.0, 0.0]
    assert aligner.weights([2, 3]).tolist() == [0.5, 0.5]
    for cohort in ([2, 3], [0, 2], [3]):
        aligner.observe(cohort)
    assert np.isfinite(aligner.effective_potentials).all()
    assert aligner.weights([1, 3]).tolist() == [1.0, 0.0]


EXTREMES = [5e-324, 1e-300, 1e-150, 1.0, 1e100, 1e200, 1.7e308]


@pytest.mark.parametrize("step", EXTREMES)
@pytest.mark.parametrize("softness", EXTREMES)
def test_weights_are_finite_and_saved_for_every_step_and_softness(tmp_path, softness, step):
    aligner = SoftOnlineAligner(
        [0.5, 0.3, 0.2 - 1e-12, 1e-12, 0.0],
        softness=softness,
        step=step,
        potentials=[0, 0, 1e308, 0, 0],
    )
    for at, cohort in enumerate(([0], [0, 1], [2, 3], [4], [1, 2, 3, 4], [0, 3]) * 5):
        weights = aligner.observe(cohort)
        assert (weights >= 0).all()
        assert abs(weights.sum() - 1) <= ROUNDING
        assert np.isfinite(aligner.effective_potentials).all()
        if at == 10:
            aligner.join(0.1)
    aligner.save(tmp_path / "aligner.json")
    loaded = SoftOnlineAligner.load(tmp_path / "aligner.json")
    assert loaded.state_dict() == aligner.state_dict()


def exactly(importance, softness, step, cohorts):
    """Follow the ascent as `literal` does, in rational numbers; return the centred potentials.

    Weights are rounded to floats, as exponentials have to be.
    """
    p, x = [Fraction(share) for share in importance], [Fraction(0)] * len(importance)
    drag = [1 + Fraction(step) * Fraction(softness) * share for share in p]
    for cohort in cohorts:
        highest = max(x[i] for i in cohort)
        odds = np.exp([max(float(x[i] - highest), -800.0) for i in cohort])
        moved = [value + Fraction(step) * share for value, share in zip(x, p, strict=True)]
        for i, weight in zip(cohort, odds / odds.sum(), strict=True):
            moved[i] -= Fraction(step) * Fraction(weight)
        total = sum(share / d for share, d in zip(p, drag, strict=True))
        mean = sum(share / d * z for share, d, z in zip(p, drag, moved, strict=True)) / total
        x = [mean + (z - mean) / d for z, d in zip(moved, drag, strict=True)]
    centre = sum(share * value for share, value in zip(p, x, strict=True))
    return np.array([float(value - centre) for value in x])


@pytest.mark.parametrize(
    ("softness", "step"),
    [(1.0, 1e20), (1.0, 1e150), (0.3, 1e300), (1e-3, 1e6), (1e150, 1e150), (1e-200, 1e200)],
)
def test_differences_survive_steps_that_dwarf_them(softness, step):
    importance = [0.125, 0.25, 0.25, 0.375]  # binary fractions: their sum is exactly one
    cohorts = [[0, 1], [1, 2, 3], [0], [2, 3], [0, 1, 2, 3]]
    aligner = SoftOnlineAligner(importance, softness=softness, step=step)
    for cohort in cohorts:
        aligner.observe(cohort)
    wanted = exactly(importance, softness, step, cohorts)
    found = aligner.effective_potentials
    found -= np.array(importance) @ found
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11 * np.abs(wanted).max())


def test_joining_clients_take_their_share_and_the_mean_potential():
    aligner = at([1.0, -1.0], 0.5, 1.0, [0.75, 0.25])
    assert aligner.join(0.2).tolist() == [2]
    assert aligner.join([0.25, 0.25]).tolist() == [3, 4]
    np.testing.assert_allclose(aligner.importance, [0.3, 0.1, 0.1, 0.25, 0.25], rtol=1e-14)
    np.testing.assert_allclose(aligner.effective_potentials, [1.0, -1.0, 0.5, 0.5, 0.5], rtol=1e-14)
    aligner.observe([2, 4])
    assert aligner.n_clients == 5


@pytest.mark.parametrize("shares", [1.0, [0.5, 0.5], [-0.1], [np.nan]])
def test_shares_that_leave_nothing_to_the_others_cannot_join(shares):
    aligner = SoftOnlineAligner([0.5, 0.5], softness=0.1, step=1.0)
    with pytest.raises(ImportanceError, match="importance of the new clients is"):
        aligner.join(shares)
    assert aligner.n_clients == 2


def resumed(aligner, way, path):
    if way == "file":
        aligner.save(path)
        return SoftOnlineAligner.load(path)
    return SoftOnlineAligner.from_state(json.loads(json.dumps(aligner.state_dict())))


@pytest.mark.parametrize("way", ["file", "state"])
def test_a_resumed_aligner_goes_on_bit_for_bit(tmp_path, way):
    aligner = SoftOnlineAligner(IMPORTANCE, softness=0.37, step=0.41)
    cohorts = drawn(7, 100)
    for cohort in cohorts[:50]:
        aligner.observe(cohort)
    aligner.join(0.07)
    other = resumed(aligner, way, tmp_path / "aligner.json")
    for cohort in itertools.chain(cohorts[50:], [[4, 0], [4]]):
        np.testing.assert_array_equal(other.observe(cohort), aligner.observe(cohort))
    assert other.state_dict() == aligner.state_dict()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "fedavot-online-aligner"}, "holds 'fedavot-online-aligner'"),
        ({"version": 3}, "has version 3 .* upgrade fedavot"),
        ({"given": None}, "was not written by save"),
        ({"potentials": [0.0]}, "potentials has 1 entries, but there are 2 clients"),
        ({"potentials": [0.0, "high"]}, "potentials must be a sequence of numbers"),
        ({"owed": [0.0, float("nan")]}, "NaN is not a JSON number"),
        ({"importance": [0.5, 0.6]}, "importance sums to 1.1"),
        ({"softness": 0}, "softness is 0.0"),
        ({"step": None}, "step must be a number, found None"),
        ({"rounds": 1.5}, "rounds must be an integer"),
        ({"rounds": True}, "rounds must be a number, found True"),
        ({"rounds": 2}, "given must be at least 0 and sum to 2"),
        ({"rounds": 10**200}, "rounds is .* at most 9007199254740992"),
        ({"given": [1.5, -0.5]}, "given must be at least 0 and sum to 1"),
        ({"owed": [0.5, 0.6]}, "owed must be at least 0 and sum to 1"),
        ({"softness": "0.1"}, "softness must be a number, found '0.1'"),
        ({"potentials": ["0.0", "0.0"]}, "potentials must be a sequence of numbers"),
        ({"rounds": "absent"}, "has no 'rounds'"),
    ],
)
def test_a_foreign_newer_or_damaged_file_is_refused(tmp_path, changes, message):
    path = tmp_path / "aligner.json"
    aligner = SoftOnlineAligner([0.5, 0.5], softness=0.1, step=1.0)
    aligner.observe([0])
    aligner.save(path)
    content = json.loads(path.read_text()) | changes
    path.write_text(sealed({k: v for k, v in content.items() if v != "absent"}))
    with pytest.raises(FileFormatError, match=message):
        SoftOnlineAligner.load(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"softness": 0, "step": 1}, "softness is 0.0; it must be finite and above 0"),
        ({"softness": -1, "step": 1}, "softness is -1.0"),
        ({"softness": np.nan, "step": 1}, "softness is nan"),
        ({"softness": 1, "step": 0}, "step is 0.0; it must be finite and above 0"),
        ({"softness": 1, "step": np.inf}, "step is inf"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        SoftOnlineAligner([0.5, 0.5], **options)


@pytest.mark.parametrize("importance", [[0.5, 0.4], [-0.5, 1.5], [np.nan, 1.0], []])
def test_bad_importance_is_refused(importance):
    with pytest.raises(ImportanceError, match="importance"):
        SoftOnlineAligner(importance, softness=0.1, step=1.0)


@pytest.mark.parametrize("method", ["weights", "observe"])
@pytest.mark.parametrize(
    ("cohort", "message"),
    [
        ([], "the cohort is empty"),
        ([0, 2], "has client 2, but clients run from 0 to 1"),
        ([1, 1], "has client 1 more than once"),
        ([0.5], "names or integer indices"),
    ],
)
def test_a_bad_cohort_is_refused_and_changes_nothing(method, cohort, message):
    aligner = SoftOnlineAligner([0.5, 0.5], softness=0.1, step=1.0)
    before = aligner.state_dict()
    with pytest.raises(CohortError, match=message):
        getattr(aligner, method)(cohort)
    assert aligner.state_dict() == before


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "given has 1 weights for a cohort of 2"),
        ([0.5, 0.4], "given weight sums to 0.9"),
        ([1.5, -0.5], "given weight of member 1 is -0.5"),
        ([np.nan, 1.0], "given weight of member 0 is nan"),
        ([[0.5, 0.5]], "given weight must have one dimension"),
    ],
)
def test_bad_weights_given_are_refused_and_change_nothing(weights, message):
    aligner = SoftOnlineAligner([0.5, 0.5], softness=0.1, step=1.0)
    before = aligner.state_dict()
    with pytest.raises(CohortError, match=message):
        aligner.observe([0, 1], weights)
    assert aligner.state_dict() == before


def test_what_it_hands_out_cannot_change_it():
    aligner = SoftOnlineAligner([0.5, 0.5], softness=0.1, step=1.0)
    aligner.observe([0])
    before = aligner.state_dict()
    for name in ("importance", "owed", "realised", "effective_potentials"):
        getattr(aligner, name)[:] = 7.0
    assert aligner.state_dict() == before
