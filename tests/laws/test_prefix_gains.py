"""What each client adds to the coverage of those before it, against exact fractions."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedavot as fa
from strategies import any_law, normalised, permutations

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
        assert law.prefix_gains(order).sum() == pytest.approx(1.0, abs=1e-14)


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
