"""Two draws in closed form: equal to the list of all pairs, without making it."""

import itertools
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agreement
import brute
import fedavot as fa
from fedavot.laws import _two_draws, successive
from strategies import enumerate_cohorts, levels, permutations, potentials, successive_rates

ROW_ERROR = 0.02
"""Enough for a Newton matrix: the error of a row's entries, relative to the row's sum."""
SMALL_WEIGHTS = 1e-13
"""Relative error of weights of whatever size: they are sums of positive terms."""


def closed(rates):
    """Return the law in closed form, however few pairs it has."""
    with mock.patch.object(successive, "_LISTED_PAIRS", -1):
        return fa.SuccessiveDraws(rates, 2)


def rates_and(*strategies):
    pairs = successive_rates().filter(lambda case: np.count_nonzero(case[0]) >= 2)
    return pairs.flatmap(
        lambda case: st.tuples(st.just(case[0]), *(make(case[0].size) for make in strategies))
    )


@pytest.fixture(params=[True, False], ids=["pair by pair", "by quadrature"], autouse=True)
def few(request):
    """Take both ways to the sums over a group's pairs."""
    with mock.patch.object(_two_draws, "_FEW", 100 if request.param else 1):
        yield


@given(rates_and(potentials, levels))
def test_expected_weights_equal_enumeration(case):
    rates, x, level = case
    law = closed(rates)
    agreement.check_weights(law, enumerate_cohorts(law), x, level)


@given(rates_and(potentials, levels))
def test_curvature_equals_enumeration(case):
    rates, x, level = case
    law = closed(rates)
    agreement.check_curvature(law, enumerate_cohorts(law), x, level)


@given(rates_and(permutations))
def test_coverages_and_inclusion_equal_enumeration(case):
    rates, order = case
    law = closed(rates)
    cohorts = enumerate_cohorts(law)
    agreement.check_inclusion(law, cohorts)
    agreement.check_prefixes(law, cohorts, order)
    agreement.check_coverages(law, cohorts)


@pytest.mark.parametrize(
    "rates",
    [[1.0, 1e-9, 2e-9, 0.0, 5e-16], [1e-18, 1.0, 3e-17], [1e-200, 3e-200, 1.0], [0.0, 2.0, 2.0]],
    ids=["nearly always one client", "beyond rounding", "beyond all proportion", "two clients"],
)
def test_probabilities_equal_those_in_rational_numbers(rates):
    law = closed(rates)
    exact = [Fraction(rate) for rate in rates]
    total = sum(exact)
    chances = {
        frozenset(pair): sum(
            exact[a] / total * exact[b] / (total - exact[a])
            for a, b in (pair, pair[::-1])
            if exact[a] and exact[b]
        )
        for pair in itertools.combinations(range(len(rates)), 2)
    }
    for members in brute.all_sets(len(rates)):
        inside = np.flatnonzero(members).tolist()
        wanted = float(sum(q for pair, q in chances.items() if pair & set(inside)))
        assert law.coverage(inside) == pytest.approx(wanted, rel=1e-14, abs=1e-149)
    each = [float(sum(q for pair, q in chances.items() if a in pair)) for a in range(len(rates))]
    assert law.inclusion() == pytest.approx(each, rel=1e-14, abs=1e-149)


@pytest.mark.parametrize("leveled", [False, True])
@pytest.mark.parametrize("largest", [1.0, 1e9])
def test_weights_of_every_size_agree_with_the_list(largest, leveled):
    rng = np.random.default_rng(4)
    rates = 10.0 ** rng.uniform(-9, 0, 120)
    rates[7] = largest
    law = closed(rates)
    x = rng.normal(0.0, 12.0, 120)
    level = rng.integers(0, 3, 120) if leveled else None
    found, wanted = (way.system(level).curvature(x) for way in (law, law.cohorts))
    assert found.marginal == pytest.approx(wanted.marginal, rel=SMALL_WEIGHTS, abs=0)
    assert found.squares == pytest.approx(wanted.squares, rel=SMALL_WEIGHTS, abs=0)
    assert agreement.close(found.dense(), wanted.dense())


@pytest.mark.parametrize("leveled", [False, True])
@pytest.mark.parametrize("largest", [1.0, 1e9, 1e200])
def test_factors_are_near_the_hessian(largest, leveled):
    rng = np.random.default_rng(5)
    rates = rng.random(60)
    rates[3] = largest
    x = rng.normal(0.0, 3.0, 60)
    point = closed(rates).system(rng.integers(0, 3, 60) if leveled else None).curvature(x)
    wanted, found = -point.dense(), np.zeros((60, 60))
    for clients, columns, signs in point.factors():
        found[np.ix_(clients, clients)] += (columns * signs) @ columns.T
    np.fill_diagonal(wanted, 0.0)
    np.fill_diagonal(found, 0.0)
    error = np.abs(found - wanted).sum(axis=1)
    assert np.all(error <= ROW_ERROR * wanted.sum(axis=1) + agreement.EXACT)


def test_many_pairs_are_not_listed_until_they_are_asked_for():
    law = fa.SuccessiveDraws(np.arange(1.0, 1_001.0), 2)
    law.inclusion(), law.coverage([3]), law.expected_weights(np.zeros(1_000))
    assert "cohorts" not in vars(law)
    assert law.cohorts.n_cohorts == 1_000 * 999 // 2
    assert agreement.close(law.inclusion(), law.cohorts.inclusion())


def test_a_list_that_does_not_fit_is_refused_when_it_is_asked_for():
    law = fa.SuccessiveDraws(np.ones(1_000_000), 2)
    assert agreement.close(law.inclusion(), np.full(1_000_000, 2e-6))
    with pytest.raises(fa.errors.TooLargeError, match=r"499,999,500,000 cohorts of 2 .* GB"):
        _ = law.cohorts
