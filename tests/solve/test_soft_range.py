"""Soft alignment whose potentials are up to 10^20 apart meets its optimality condition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import brute
import fedavot as fa
from agreement import close
from strategies import any_law, enumerate_cohorts, normalised

TOL = 1e-9
"""The tolerance on the gradient, in L1."""
OPTIMAL = 2e-9
"""The same gradient summed over all cohorts: the tolerance, and rounding's share."""
FAR = 60.0
"""Levels further apart than this in potentials leave one another shares below 1e-26."""
ORDERS = np.array([0.0625, 6.5e-14, 0.277, 0.66, 1.2e-13, 7.2e-15, 5e-7])

LAWS = {
    "uniform": fa.UniformCohorts(7, 3),
    "pairs": fa.UniformCohorts(7, 2),
    "independent": fa.IndependentClients(np.linspace(0.1, 0.7, 7)),
    "successive": fa.SuccessiveDraws(np.arange(1.0, 8.0), 2),
    "cohorts": fa.Cohorts([[0, 1], [1, 2, 3], [3, 4, 5], [5, 6], [0, 6], [2], [4, 6]]),
    "mixture": fa.Mixture(
        [fa.IndependentClients(np.linspace(0.6, 0.2, 7)), fa.UniformCohorts(7, 2)], [0.3, 0.7]
    ),
}
laws = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)


def check(importance, law, softness, alignment):
    """Check m_i = p_i (1 − ρ (x_i − x̄)) level by level, with cohorts enumerated.

    A level's weights sum to a known share of its importance, λ_b. So its mean is x̄ + (1 − λ_b)/ρ,
    and inside it m_i = p_i (λ_b − ρ (x_i − x̄_b)).
    """
    cohorts = enumerate_cohorts(law)
    x, level = alignment.potentials.astype(np.longdouble), alignment.levels
    marginal = brute.expected_weights(cohorts, x, level)
    mass = np.bincount(level, importance)
    ratios = np.bincount(level, marginal) / mass
    means = np.array([importance[level == b] @ x[level == b] for b in range(mass.size)]) / mass
    inner = x - means[level]
    gradient = importance * (ratios[level] - softness * inner) - marginal
    assert alignment.status == "soft"
    assert alignment.residual <= TOL
    assert np.abs(gradient).sum() <= OPTIMAL
    assert close(alignment.attained, marginal)
    # Levels stand for potentials so far apart that the upper one takes all.
    totals = (1.0 - ratios[level]) / softness + inner
    for last in range(mass.size - 1):
        assert totals[level == last].min() - totals[level == last + 1].max() >= FAR


@pytest.mark.parametrize("softness", [1e-6, 1e-3, 0.0148, 1.0, 100.0])
@laws
def test_importance_over_fifteen_orders_meets_the_condition(law, softness):
    importance = normalised(ORDERS)
    alignment = fa.align(importance, law, softness=softness, tol=TOL)
    check(importance, law, softness, alignment)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("softness", [1e-6, 0.01])
def test_random_importance_over_fifteen_orders_meets_the_condition(softness, seed):
    rng = np.random.default_rng(seed)
    importance = normalised(10.0 ** rng.uniform(-15, 0, 6))
    for law in (
        fa.UniformCohorts(6, int(rng.integers(1, 6))),
        fa.IndependentClients(rng.uniform(0.05, 0.9, 6)),
        fa.SuccessiveDraws(rng.random(6), 2),
    ):
        alignment = fa.align(importance, law, softness=softness, tol=TOL)
        check(importance, law, softness, alignment)


@settings(max_examples=40)
@given(any_law(6), st.floats(-6.0, 2.0), st.integers(0, 10_000))
def test_any_law_and_price_meet_the_condition(law, exponent, seed):
    rng = np.random.default_rng(seed)
    importance = normalised(10.0 ** rng.uniform(-12, 0, law.n_clients))
    softness = 10.0**exponent
    check(importance, law, softness, fa.align(importance, law, softness=softness, tol=TOL))


@pytest.mark.parametrize("softness", [0.01, 0.1, 1.0, 10.0])
@laws
def test_where_one_vector_suffices_there_are_no_levels(law, softness):
    importance = normalised(np.arange(1.0, 8.0))
    alignment = fa.align(importance, law, softness=softness, tol=TOL)
    x = alignment.potentials
    marginal = brute.expected_weights(enumerate_cohorts(law), x)
    gradient = importance - marginal - softness * importance * (x - importance @ x)
    assert not alignment.levels.any()
    assert np.abs(gradient).sum() <= OPTIMAL


def test_clients_without_importance_are_the_only_other_level_where_one_vector_suffices():
    importance = np.array([0.4, 0.3, 0.3, 0.0])
    alignment = fa.align(importance, fa.UniformCohorts(4, 2), softness=0.1)
    assert alignment.levels.tolist() == [0, 0, 0, 1]


def test_levels_come_in_the_order_of_what_they_lack():
    law, importance = fa.UniformCohorts(7, 3), normalised(ORDERS)
    alignment = fa.align(importance, law, softness=1e-6, tol=TOL)
    rank = np.argsort(-importance)
    assert np.all(np.diff(alignment.levels[rank]) >= 0)
    # For a vanishing price, what is attained is the nearest importance.
    base = brute.lexicographic_base(importance, enumerate_cohorts(law))
    assert np.abs(alignment.attained - base.attained).sum() <= 1e-5
