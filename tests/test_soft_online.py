"""With softness the online aligner rests at soft alignment's optimum, for all floats."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedavot as fa
from strategies import importances

LAW = fa.IndependentClients([0.9, 0.7, 0.5, 0.3])
IMPORTANCE = np.array([0.1, 0.2, 0.3, 0.4])
softly = partial(fa.OnlineAligner, around="equal")


def literal(importance, softness, step, cohorts, plain=None):
    """Follow the ascent; return the potentials and all weights.

    Weights are plain ones times exp(x), divided by their sum over the cohort.

    The penalty's step is implicit: the x it ends at, and the mean of that x, satisfy
    x_i = moved_i − η ρ p_i (x_i − Σ p_j x_j). Solved here as the linear system that it is.
    """
    p, x, weights = np.array(importance), np.zeros(len(importance)), []
    plain = np.ones(p.size) if plain is None else plain
    system = np.eye(p.size) + step * softness * (np.diag(p) - np.outer(p, p))
    for cohort in cohorts:
        odds = plain[cohort] * np.exp(x[cohort])
        weights.append(odds / odds.sum())
        moved = x + step * p
        moved[cohort] -= step * weights[-1]
        x = np.linalg.solve(system, moved)
    return x, weights


def drawn(seed, n_rounds):
    return LAW.sample(np.random.default_rng(seed), n_rounds)


@pytest.mark.parametrize("around", ["equal", "importance"])
@pytest.mark.parametrize(("softness", "step"), [(0.1, 2.0), (1.0, 0.3), (50.0, 5.0)])
def test_the_aligner_takes_the_penaltys_step_implicitly(softness, step, around):
    aligner = softly(IMPORTANCE, softness=softness, step=step, around=around)
    plain = IMPORTANCE if around == "importance" else np.ones(4)
    cohorts = drawn(0, 200)
    found = [aligner.observe(cohort) for cohort in cohorts]
    x, weights = literal(IMPORTANCE, softness, step, cohorts, plain)
    wanted = np.log(plain) + x
    np.testing.assert_allclose(aligner.effective_potentials, wanted, rtol=0, atol=1e-10)
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
    options = {"softness": softness, "step": step}
    aligner = softly(importance, potentials=alignment.potentials, **options)
    # One step on average: everybody present, at the weights expected of the law.
    aligner.observe(range(4), alignment.attained)
    moved = aligner.effective_potentials - alignment.potentials
    moved -= moved.mean()
    largest = np.abs(alignment.potentials).max()
    # The solver's tolerance times the step, and the potentials' own rounding.
    assert np.abs(moved).max() <= 1e-10 * step + 1e-14 * largest
    # Elsewhere the mean step does not vanish.
    elsewhere = alignment.potentials + np.array([0.5, 0.0, 0.0, 0.0])
    aligner = softly(importance, potentials=elsewhere, **options)
    aligner.observe(range(4), LAW.expected_weights(elsewhere))
    assert np.ptp(aligner.effective_potentials - elsewhere) > 1e-5 * step


@pytest.mark.parametrize("softness", [0.05, 0.5, 5.0])
def test_small_steps_approach_the_soft_alignment(softness):
    exact = fa.align(IMPORTANCE, LAW, softness=softness)
    aligner = softly(IMPORTANCE, softness=softness, step=0.02)
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


@pytest.mark.parametrize(("around", "plain"), [("equal", np.ones(4)), ("importance", IMPORTANCE)])
def test_great_softness_tends_to_plain_weights(around, plain):
    aligner = softly(IMPORTANCE, softness=1e6, step=2.0, around=around)
    for cohort in drawn(2, 100):
        weights = aligner.observe(cohort)
        np.testing.assert_allclose(weights, plain[cohort] / plain[cohort].sum(), atol=1e-3)


def test_around_the_importance_no_absence_weighs_more_than_the_softness_says():
    softness = 2.0
    aligner = softly([0.5, 0.3, 0.2], softness=softness, step=1.0, around="importance")
    for _ in range(500):
        aligner.observe([0, 1])
    ratio = aligner.weights([0, 1, 2]) / [0.5, 0.3, 0.2]
    # Its x is 1/ρ above the mean of all, p·x, so that of the others is below it.
    assert np.log(ratio[2] / ratio[0]) == pytest.approx(1 / softness / 0.8, rel=1e-6)


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
    aligner = softly(importance, softness=softness, step=step, potentials=potentials)
    aligner.observe([1, 2])
    after = aligner.effective_potentials
    end = importance @ after + 1 / softness
    for absent in (0, 3):
        # Nearer by this factor, from below and from above alike, and never past it.
        factor = 1 + step * softness * importance[absent]
        distance = potentials[absent] - end
        assert factor * (after[absent] - end) == pytest.approx(distance, rel=1e-9, abs=1e-8)
