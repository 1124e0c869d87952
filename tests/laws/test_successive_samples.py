"""Cohorts drawn by rates follow the probabilities of all orders of drawing."""

import numpy as np
import pytest

import fedavot as fa
from fedavot.laws import successive
from strategies import enumerate_cohorts

ROUNDS = 40_000
RATES = {
    "even": np.ones(6),
    "mild": np.arange(1.0, 7.0),
    "two dominate": np.array([1e3, 2e3, 1.0, 2.0, 3.0, 4.0]),
    "one dominates": np.array([1.0, 1e6, 2.0, 1.0, 0.0, 3.0]),
    "steps": 30.0 ** np.arange(6.0),
}
rates = pytest.mark.parametrize("rates", RATES.values(), ids=RATES)
sizes = pytest.mark.parametrize("size", [1, 2, 3, 4])


def check(counts, wanted, rounds):
    """Compare counts by cohort with their expectations, by Pearson's statistic.

    Cohorts expected fewer than ten times are taken together.
    """
    assert set(counts) <= set(wanted)
    expected = {cohort: float(chance) * rounds for cohort, chance in wanted.items()}
    rare = [cohort for cohort, count in expected.items() if count < 10]
    pairs = [(counts.get(c, 0), n) for c, n in expected.items() if c not in rare]
    together = sum(expected[cohort] for cohort in rare)
    found = sum(counts.get(cohort, 0) for cohort in rare)
    if together >= 10:
        pairs.append((found, together))
    else:
        # A Poisson count of mean below ten exceeds this once in 10^5 times.
        assert found <= together + 5 * np.sqrt(together) + 5
    statistic = sum((found - wanted) ** 2 / wanted for found, wanted in pairs)
    freedom = len(pairs) - 1
    # Five standard deviations, and the skewness of few degrees of freedom.
    assert statistic <= freedom + 5 * np.sqrt(2 * freedom) + 10


def tally(cohorts):
    counts = {}
    for cohort in cohorts:
        key = frozenset(cohort.tolist())
        counts[key] = counts.get(key, 0) + 1
    return counts


@rates
@sizes
def test_drawn_cohorts_follow_the_exact_probabilities(rates, size):
    law = fa.SuccessiveDraws(rates, size)
    drawn = law.sample(np.random.default_rng(11), ROUNDS)
    assert all(cohort.size == size for cohort in drawn)
    check(tally(drawn), enumerate_cohorts(law), ROUNDS)


@rates
@pytest.mark.parametrize("size", [3, 4])
def test_the_sampled_list_follows_the_exact_probabilities(monkeypatch, rates, size):
    monkeypatch.setattr(successive, "_MOST_COHORTS", 0)
    law = fa.SuccessiveDraws(rates, size, draws=ROUNDS, seed=12)
    assert not law.exact
    table = enumerate_cohorts(law.cohorts)
    counts = {cohort: round(float(chance) * ROUNDS) for cohort, chance in table.items()}
    assert sum(counts.values()) == ROUNDS
    check(counts, enumerate_cohorts(law), ROUNDS)


@pytest.mark.parametrize("ratio", [1.0, 1e3, 1e9])
def test_as_many_clients_as_dominate_leave_the_last_place_to_the_others(ratio):
    """Drawing with replacement hardly ever meets the others: they are filled up by clocks."""
    rates = np.array([ratio, ratio, ratio, 1.0, 2.0, 5.0])
    law = fa.SuccessiveDraws(rates, 4)
    counts = tally(law.sample(np.random.default_rng(13), ROUNDS))
    check(counts, enumerate_cohorts(law), ROUNDS)


def test_everybody_is_drawn_where_cohorts_are_as_large_as_the_clients():
    law = fa.SuccessiveDraws([1e-12, 1.0, 1e6, 0.0], 3)
    assert {tuple(cohort) for cohort in law.sample(np.random.default_rng(1), 100)} == {(0, 1, 2)}


def test_many_clients_drawn_in_several_blocks_are_included_as_often_as_they_should_be():
    """Equal rates: every client is in size/n of the cohorts, whichever block drew them."""
    law = fa.SuccessiveDraws(np.ones(200), 50)
    drawn = np.stack(law.sample(np.random.default_rng(2), 20_000))
    assert np.all(np.diff(drawn, axis=1) > 0)
    share = np.bincount(drawn.ravel(), minlength=200) / 20_000
    assert np.all(np.abs(share - 0.25) <= 5 * np.sqrt(0.25 * 0.75 / 20_000))
