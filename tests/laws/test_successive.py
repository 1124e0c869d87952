"""Successive draws: the listed law equals the sum over all orders of drawing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agreement
import fedavot as fa
from strategies import (
    enumerate_cohorts,
    successive_laws,
    successive_rates,
)


@given(successive_laws())
def test_the_listed_cohorts_have_the_probability_of_all_their_orders(law):
    assert law.exact
    assert agreement.same_table(enumerate_cohorts(law.cohorts), enumerate_cohorts(law))


@given(successive_rates(), st.integers(-300, 300))
def test_only_the_proportions_of_the_rates_matter(case, exponent):
    rates, size = case
    scaled = fa.SuccessiveDraws(rates * 2.0**exponent, size)
    assert agreement.close(scaled.inclusion(), fa.SuccessiveDraws(rates, size).inclusion())


def test_rates_whose_sum_is_past_the_range_of_floats_are_still_proportions():
    law = fa.SuccessiveDraws([1e308, 1e308, 1e308], 2)
    assert agreement.close(law.inclusion(), np.full(3, 2 / 3))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_vanishing_rates_are_drawn_only_when_nobody_else_is_left(size):
    law = fa.SuccessiveDraws([1e-310, 1.0, 2.0], size)
    cohorts = law.sample(np.random.default_rng(0), 50)
    assert all((0 in cohort) == (size == 3) for cohort in cohorts)


def test_more_than_a_million_pairs_are_still_exact():
    rates = np.random.default_rng(0).uniform(1.0, 2.0, 1_500)
    law = fa.SuccessiveDraws(rates, 2)
    r = rates / rates.sum()
    # The other member comes first and leaves client i to be drawn, or i comes first itself.
    wanted = r + r * ((r / (1.0 - r)).sum() - r / (1.0 - r))
    assert law.exact
    assert law.cohorts.n_cohorts == 1_500 * 1_499 // 2
    assert agreement.close(law.inclusion(), wanted)


@pytest.mark.parametrize(("n_clients", "size"), [(5_000, 2), (40, 39)])
def test_cohorts_whose_list_takes_too_long_to_make_are_a_sample(n_clients, size):
    law = fa.SuccessiveDraws(np.ones(n_clients), size, draws=100)
    assert not law.exact
    assert abs(law.inclusion().sum() - size) <= size * agreement.EXACT


def shares_of_two_classes(count, rate, size):
    """Return how many of the first class are drawn on average, by the chain of counts."""
    chances = {(0, 0): 1.0}
    for _ in range(size):
        following = {}
        for (first, second), chance in chances.items():
            left = ((count - first) * rate, count - second)
            for step, weight in (((1, 0), left[0]), ((0, 1), left[1])):
                state = (first + step[0], second + step[1])
                following[state] = following.get(state, 0.0) + chance * weight / sum(left)
        chances = following
    return sum(first * chance for (first, _), chance in chances.items())


def test_beyond_a_million_cohorts_the_law_is_a_sample_and_says_so():
    draws, size = 50_000, 5
    law = fa.SuccessiveDraws(np.repeat([3.0, 1.0], 30), size, draws=draws, seed=7)
    assert not law.exact
    first = shares_of_two_classes(30, 3.0, size) / 30
    wanted = np.repeat([first, size / 30 - first], 30)
    error = np.sqrt(wanted * (1.0 - wanted) / draws)
    assert np.all(np.abs(law.inclusion() - wanted) <= 4 * error)
    assert abs(law.inclusion().sum() - size) <= agreement.EXACT * size


def test_a_sampled_law_draws_new_cohorts_from_the_rates():
    law = fa.SuccessiveDraws(np.ones(60), 5, draws=10)
    listed = set(enumerate_cohorts(law.cohorts))
    drawn = {frozenset(cohort.tolist()) for cohort in law.sample(np.random.default_rng(1), 100)}
    assert len(drawn - listed) > 90


def test_a_rate_lost_beside_the_largest_is_refused_by_its_client():
    with pytest.raises(fa.errors.LawError, match=r"client 1 is 5e-324, .*1e\+308.* from 0"):
        fa.SuccessiveDraws([1e308, 5e-324, 5e-324], 2)
