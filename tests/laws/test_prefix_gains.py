"""What each client adds to the coverage of those before it, against exact fractions."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedavot as fa
from fedavot.laws import successive
from fedavot.solve.levels import partition
from strategies import any_law, importances, normalised, permutations

RELATIVE = 1e-12
"""Of each gain by itself, however small: sums and products of a few dozen positive numbers."""


def fractions(values):
    return [Fraction(float(value)) for value in values]


def exact_table(law):
    """Return the probability of every cohort over all rounds, in fractions."""
    match law:
        case fa.Cohorts():
            ends, table = law.incidence.offsets, {}
            for a, b, chance in zip(ends[:-1], ends[1:], fractions(law.probabilities), strict=True):
                cohort = frozenset(law.incidence.members[a:b].tolist())
                table[cohort] = table.get(cohort, 0) + chance
            return table
        case fa.UniformCohorts():
            count = math.comb(law.n_clients, law.size)
            cohorts = itertools.combinations(range(law.n_clients), law.size)
            return {frozenset(cohort): Fraction(1, count) for cohort in cohorts}
        case fa.IndependentClients():
            table = {frozenset(): Fraction(1)}
            for client, chance in enumerate(fractions(law.probabilities)):
                present = {cohort | {client}: q * chance for cohort, q in table.items()}
                table = {cohort: q * (1 - chance) for cohort, q in table.items()} | present
            return {cohort: q for cohort, q in table.items() if cohort and q}
        case fa.SuccessiveDraws():
            return _drawn(fractions(law.rates), law.size)
    raise TypeError(law)


def _drawn(rates, size):
    table = {}
    for sequence in itertools.permutations([i for i, rate in enumerate(rates) if rate], size):
        chance, left = Fraction(1), sum(rates)
        for client in sequence:
            chance *= rates[client] / left
            left -= rates[client]
        table[frozenset(sequence)] = table.get(frozenset(sequence), 0) + chance
    return table


def exact_gains(parts, weights, order):
    """Return the gains along an order in a mixture of laws, given that somebody reports."""
    rank = {int(client): place for place, client in enumerate(order)}
    gains = [Fraction(0)] * len(order)
    for law, weight in zip(parts, weights, strict=True):
        for cohort, chance in exact_table(law).items():
            gains[min(rank[client] for client in cohort)] += weight * chance
    total = sum(gains)
    return [gain / total for gain in gains]


def check(law, order, parts=None, weights=(Fraction(1),)):
    wanted = exact_gains(parts or [law], weights, order)
    for found, gain in zip(law.prefix_gains(order), wanted, strict=True):
        assert abs(Fraction(float(found)) - gain) <= Fraction(RELATIVE) * gain


TINY = np.array([0.3, 1e-24, 0.5, 1e-12, 0.02, 1.0 - 1e-9])
LAWS = {
    "cohorts": fa.Cohorts(
        [[0, 1], [1, 2], [1], [2, 3, 4], [3], [5], [4, 5, 0]],
        normalised([0.3, 1e-24, 1e-30, 1e-12, 1e-18, 0.2, 0.5]),
    ),
    "uniform": fa.UniformCohorts(6, 3),
    "uniform singles": fa.UniformCohorts(6, 1),
    "uniform pairs": fa.UniformCohorts(6, 2),
    "everybody": fa.UniformCohorts(6, 6),
    "independent": fa.IndependentClients(TINY),
    "somebody is always there": fa.IndependentClients([0.3, 1e-24, 1.0, 0.2, 0.0, 0.6]),
    "almost always empty": fa.IndependentClients(1e-24 * TINY),
    "single draws": fa.SuccessiveDraws(TINY, 1),
    "pairs": fa.SuccessiveDraws(TINY, 2),
    "triples": fa.SuccessiveDraws(TINY, 3),
    "all drawn": fa.SuccessiveDraws(TINY, 6),
}
laws = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)


def orders():
    rng = np.random.default_rng(0)
    return [np.arange(6), np.arange(6)[::-1], *(rng.permutation(6) for _ in range(6))]


@laws
def test_gains_are_exact_relative_to_themselves(law):
    for order in orders():
        check(law, order)


@laws
def test_gains_sum_to_the_coverage_of_each_prefix(law):
    for order in orders():
        sums = np.cumsum(law.prefix_gains(order))
        covered = [law.coverage(order[: count + 1]) for count in range(6)]
        assert np.allclose(sums, covered, rtol=1e-12, atol=1e-15)
        assert sums[-1] == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("spread", [0, 6, 24])
def test_gains_of_pairs_in_closed_form_are_exact_relative_to_themselves(monkeypatch, spread):
    monkeypatch.setattr(successive, "_LISTED_PAIRS", 0)
    rng = np.random.default_rng(spread)
    law = fa.SuccessiveDraws(10.0 ** rng.uniform(-spread, 0, 6), 2)
    assert law._pairs is not None
    for order in orders():
        check(law, order)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (fa.IndependentClients(TINY), fa.UniformCohorts(6, 2)),
        (fa.IndependentClients(TINY), fa.IndependentClients(TINY[::-1].copy())),
        (fa.IndependentClients(1e-24 * TINY), fa.IndependentClients(1e-20 * TINY[::-1])),
        (fa.IndependentClients([1e-24, 0, 0, 0, 0, 0]), fa.UniformCohorts(6, 6)),
        (fa.Cohorts([[0, 1], [1, 2]], n_clients=6), fa.SuccessiveDraws(TINY, 3)),
    ],
)
@pytest.mark.parametrize("weight", [0.5, 1e-12, 0.875])
def test_gains_of_a_mixture_are_exact_relative_to_themselves(first, second, weight):
    law = fa.Mixture([first, second], [weight, 1.0 - weight])
    weights = [Fraction(weight), Fraction(1.0 - weight)]
    for order in orders():
        check(law, order, [first, second], weights)


@settings(max_examples=60)
@given(any_law(6), st.data())
def test_gains_are_never_negative_and_sum_to_coverage(law, data):
    order = data.draw(permutations(law.n_clients))
    gains = law.prefix_gains(order)
    assert gains.shape == (law.n_clients,)
    assert gains.min() >= 0.0
    for count in range(law.n_clients):
        assert abs(gains[: count + 1].sum() - law.coverage(order[: count + 1])) <= 1e-13


def minorant_slopes(importance, gains):
    """Return the slope of the greatest convex minorant at each client, in fractions."""
    runs = []
    for wanted, gain in zip(importance, gains, strict=True):
        runs.append([wanted, gain, 1])
        while len(runs) > 1 and runs[-2][1] * runs[-1][0] >= runs[-1][1] * runs[-2][0]:
            last = runs.pop()
            runs[-1] = [mine + theirs for mine, theirs in zip(runs[-1], last, strict=True)]
    return [gain / wanted for wanted, gain, count in runs for _ in range(count)]


@settings(max_examples=60)
@given(importances(6, zeros=False), st.sets(st.integers(0, 5), min_size=1, max_size=5), st.data())
def test_importance_of_1e_24_gets_its_ratio_from_exact_gains(importance, tiny, data):
    importance[list(tiny)] *= 1e-24
    importance = normalised(importance)
    law = LAWS[data.draw(st.sampled_from(["uniform", "uniform pairs", "independent"]))]
    order = data.draw(permutations(6))
    parts = partition(importance, law, order)
    gains = exact_gains([law], [Fraction(1)], order)
    ratios = minorant_slopes(fractions(importance[order]), gains)
    found = parts.target[order] / importance[order]
    # A ratio of one is taken as given where sums differ by rounding alone.
    assert np.allclose(found, [float(ratio) for ratio in ratios], rtol=1e-9, atol=0.0)
