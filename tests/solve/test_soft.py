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

# The tolerance on the gradient, in L1.
TOL = 1e-9
# The same gradient summed over all cohorts: the tolerance, and rounding's share.
OPTIMAL = 2e-9
GRID = (1e-4, 1e-3, 1e-2, 0.1, 0.3, 1.0, 10.0, 1e3)

amounts = st.sampled_from(GRID)


def problems():
    return any_law(6).flatmap(
        lambda law: st.tuples(st.just(law), importances(law.n_clients, zeros=False))
    )


# Levels further apart than this in potentials leave one another shares below 1e-26.
FAR = 60.0
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


@pytest.mark.parametrize("method", ["auto", "newton"])
@settings(max_examples=60)
@given(case=problems(), softness=amounts)
def test_the_pull_of_importance_balances_the_price_on_spread(method, case, softness):
    law, importance = case
    alignment = fa.align(importance, law, softness=softness, method=method, tol=TOL)
    check(importance, law, softness, alignment)
    assert alignment.softness == softness


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


@pytest.mark.parametrize("softness", [1e-6, 1e-3, 0.0148, 1.0, 100.0])
@laws
def test_importance_over_fifteen_orders_meets_the_condition(law, softness):
    importance = normalised(ORDERS)
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
    alignment = fa.align(normalised(np.arange(1.0, 8.0)), law, softness=softness, tol=TOL)
    check(alignment.importance, law, softness, alignment)
    assert not alignment.levels.any()


def test_levels_come_in_the_order_of_what_they_lack():
    law, importance = fa.UniformCohorts(7, 3), normalised(ORDERS)
    alignment = fa.align(importance, law, softness=1e-6, tol=TOL)
    rank = np.argsort(-importance)
    assert np.all(np.diff(alignment.levels[rank]) >= 0)
    # For a vanishing price, what is attained is the nearest importance.
    base = brute.lexicographic_base(importance, enumerate_cohorts(law))
    assert np.abs(alignment.attained - base.attained).sum() <= 1e-5
