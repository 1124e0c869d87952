"""Soft alignment meets its own optimality condition, and runs from the nearest plan to 1/|A|."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import brute
import fedavot as fa
from agreement import EXACT, close
from strategies import any_law, enumerate_cohorts, importances, normalised

TOL = 1e-9
"""The tolerance on the gradient, in L1."""
OPTIMAL = 2e-9
"""The same gradient summed over all cohorts: the tolerance, and rounding's share."""
GRID = (1e-4, 1e-3, 1e-2, 0.1, 0.3, 1.0, 10.0, 1e3)

amounts = st.sampled_from(GRID)


def problems():
    return any_law(6).flatmap(
        lambda law: st.tuples(st.just(law), importances(law.n_clients, zeros=False))
    )


@pytest.mark.parametrize("method", ["auto", "newton"])
@settings(max_examples=60)
@given(case=problems(), softness=amounts)
def test_the_pull_of_importance_balances_the_price_on_spread(method, case, softness):
    law, importance = case
    alignment = fa.align(importance, law, softness=softness, method=method, tol=TOL)
    x = alignment.potentials
    marginal = brute.expected_weights(enumerate_cohorts(law), x)
    gradient = importance - marginal - softness * importance * (x - importance @ x)
    assert alignment.status == "soft"
    assert np.abs(gradient).sum() <= OPTIMAL
    assert close(alignment.attained, marginal)
    assert alignment.softness == softness


@settings(max_examples=40)
@given(problems())
def test_soft_potentials_are_finite_and_no_further_apart_than_their_price_allows(case):
    law, importance = case
    alignment = fa.align(importance, law, softness=0.1, tol=TOL)
    assert np.isfinite(alignment.potentials).all()
    # x_i − x̄ = (1 − m_i/p_i)/ρ at the optimum, and m_i is never negative.
    centred = alignment.potentials - importance @ alignment.potentials
    assert np.all(0.1 * importance * centred <= importance + OPTIMAL)


@settings(max_examples=30)
@given(problems())
def test_a_high_price_tends_to_equal_weights(case):
    law, importance = case
    alignment = fa.align(importance, law, softness=1e8, tol=TOL)
    even = law.expected_weights(np.zeros(law.n_clients))
    # Weights move by half a potential at most, and potentials by (1 − m_i/p_i)/ρ.
    reach = (1.0 + np.max(even / importance)) * 1e-8
    assert close(alignment.attained, even, reach + OPTIMAL)


@pytest.mark.parametrize(
    "importance",
    [normalised([8.0, 4.0, 2.0, 1.0]), normalised([3.0, 3.0, 2.0, 2.0])],
    ids=["infeasible", "feasible"],
)
def test_a_vanishing_price_tends_to_the_nearest_importance(importance):
    law = fa.UniformCohorts(4, 2)
    base = brute.lexicographic_base(importance, enumerate_cohorts(law))
    distances = [
        np.abs(fa.align(importance, law, softness=price).attained - base.attained).sum()
        for price in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
    ]
    # Inside a level potentials are of order one, so the error is of the order of the price.
    assert all(high > 5 * low for high, low in itertools.pairwise(distances))
    assert distances[-1] <= 1e-4


@pytest.mark.parametrize(
    "law",
    [
        fa.UniformCohorts(12, 3),
        fa.IndependentClients(np.linspace(0.1, 0.6, 12)),
        fa.SuccessiveDraws(np.arange(1.0, 13.0), 2),
        fa.Mixture([fa.UniformCohorts(12, 2), fa.UniformCohorts(12, 5)], [0.5, 0.5]),
    ],
    ids=lambda law: type(law).__name__,
)
def test_a_higher_price_widens_the_gap_and_enlarges_the_effective_cohort(law):
    importance = normalised(np.arange(12.0, 0.0, -1))
    curve = [fa.align(importance, law, softness=price, tol=1e-11) for price in GRID]
    gaps = [alignment.gap for alignment in curve]
    sizes = [alignment.effective_cohort_size for alignment in curve]
    # Out of reach, the cheapest prices leave the same gap to the last digit.
    assert all(low <= high + EXACT for low, high in itertools.pairwise(gaps))
    assert all(low < high for low, high in itertools.pairwise(sizes))
    assert abs(gaps[0] - fa.align(importance, law).gap) <= GRID[0]


@pytest.mark.parametrize(
    "law",
    [fa.Cohorts([[0, 1], [1, 2]], n_clients=4), fa.IndependentClients([0.5, 0.4, 0.3, 0.0])],
    ids=lambda law: type(law).__name__,
)
def test_a_client_nobody_ever_sees_has_a_finite_potential(law):
    importance = np.array([0.3, 0.3, 0.2, 0.2])
    alignment = fa.align(importance, law, softness=0.5)
    assert alignment.status == "soft"
    # Nothing pulls back but the price: x_i − x̄ = 1/ρ.
    centred = alignment.potentials - importance @ alignment.potentials
    assert centred[3] == pytest.approx(1 / 0.5, abs=1e-8)


def test_many_clients_are_softened_by_conjugate_gradients_alike():
    rng = np.random.default_rng(2)
    law = fa.Cohorts(np.argsort(rng.random((6_000, 1_600)), axis=1)[:, :4], n_clients=1_600)
    importance = normalised(np.exp(rng.normal(size=1_600)))
    alignment = fa.align(importance, law, softness=0.2, tol=TOL)
    x = alignment.potentials
    gradient = importance - law.expected_weights(x) - 0.2 * importance * (x - importance @ x)
    assert alignment.status == "soft"
    assert np.abs(gradient).sum() <= OPTIMAL


@pytest.mark.parametrize(
    "law",
    [
        fa.Cohorts([[0, 1], [1, 2], [2]]),
        fa.UniformCohorts(3, 1),
        fa.IndependentClients([0.5, 0.4, 0.3]),
    ],
    ids=lambda law: type(law).__name__,
)
@pytest.mark.parametrize("softness", [0.01, 1.0])
def test_cohorts_that_nobody_wants_do_not_keep_soft_alignment_from_an_answer(law, softness):
    importance = np.array([0.6, 0.4, 0.0])
    alignment = fa.align(importance, law, softness=softness)
    alone = sum(chance for cohort, chance in enumerate_cohorts(law).items() if cohort == {2})
    assert alignment.status == "soft"
    assert alignment.attained[2] == pytest.approx(float(alone), abs=EXACT)
    assert alignment.weights([0, 2])[1] == 0.0


def test_clients_without_importance_stay_without_weight_when_softened():
    law = fa.Cohorts([[0, 1, 2], [0, 1]])
    alignment = fa.align([0.6, 0.4, 0.0], law, softness=0.3)
    assert alignment.status == "soft"
    assert alignment.attained[2] == 0.0


def test_stopping_short_is_said():
    law, importance = fa.UniformCohorts(6, 2), normalised(np.arange(6.0, 0.0, -1))
    alignment = fa.align(importance, law, softness=1e-3, max_iter=2)
    assert alignment.status == "unconverged"
    assert alignment.residual > TOL
