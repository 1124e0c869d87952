"""In exact arithmetic a bound is a bound, with nothing for rounding."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from attacks.references import Listed, as_set, listed
from hypothesis import given, settings
from hypothesis import strategies as st

import fedavot as fa
from fedavot.certificate import exact_bounds
from strategies import feasible_problems, infeasible_problems

EMPTY = np.empty(0, dtype=np.int64)
LAST_DIGIT = 2.0**-54
"""Half a unit in the last place of numbers between a quarter and a half."""

DYADIC_LAW = fa.Cohorts([[0], [1], [2]], [0.25, 0.25, 0.5])
DYADIC = np.array([0.5, 0.25, 0.25])
"""Numbers that floats have exactly: client 0 is wanted twice as often as it takes part."""
CLAIM = fa.Certificate(False, np.array([0]), 0.25, 2.0, np.zeros(3), np.array([0, 1, 2]))


def test_exact_arithmetic_needs_no_tolerance_where_the_claim_is_exact():
    assert CLAIM.verify(DYADIC, DYADIC_LAW, tol=1e-300, exact=True)


@pytest.mark.parametrize(
    "change",
    [
        {"deficiency": 0.25 + LAST_DIGIT},
        {"deficiency": 0.25 - LAST_DIGIT},
        {"hall_ratio": np.nextafter(2.0, 3.0)},
        {"hall_ratio": np.nextafter(2.0, 1.0)},
        {"levels": np.array([1, 0, 0]), "deficient": np.array([0, 1])},
    ],
)
def test_exact_arithmetic_sees_the_last_digit(change):
    assert not replace(CLAIM, **change).verify(DYADIC, DYADIC_LAW, tol=1e-20, exact=True)


@pytest.mark.parametrize("exact", [False, True])
def test_a_violation_within_the_rounding_of_the_inputs_proves_nothing(exact):
    law = fa.Cohorts([[0], [1]], [0.5, 0.5])
    for violation, proves in ((2.0**-50, False), (2.0**-40, True)):
        importance = np.array([0.5 + violation, 0.5 - violation])
        claim = fa.Certificate(
            False, np.array([0]), violation, 1.0 + 2 * violation, np.zeros(2), np.array([0, 1])
        )
        assert claim.verify(importance, law, exact=exact) == proves


@settings(max_examples=50)
@given(
    st.one_of(feasible_problems(), infeasible_problems()),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.1, 5.0, 100.0, 1e307]),
)
def test_whatever_the_potentials_the_bounds_hold_without_any_slack(problem, seed, spread):
    rng = np.random.default_rng(seed)
    count = problem.importance.size
    law = fa.Cohorts(
        [sorted(cohort) for cohort in problem.cohorts],
        np.array(list(problem.cohorts.values()), dtype=np.float64),
        n_clients=count,
    )
    clients = np.flatnonzero(rng.random(count) < 0.5)
    bounds = exact_bounds(
        problem.importance, law, clients, spread * rng.normal(size=count), rng.integers(0, 3, count)
    )
    rows = np.split(law.incidence.members, law.incidence.offsets[1:-1])
    reference = Listed(problem.importance, listed(rows, law.probabilities))
    chosen = as_set(clients)
    assert bounds.violation == reference.importance(chosen) - reference.coverage(chosen)
    assert bounds.violation <= reference.answer.deficiency <= bounds.excess
    assert bounds.distance == 2 * bounds.excess
    worst = Fraction(0) if reference.answer.hall_ratio is None else 1 / reference.answer.hall_ratio
    assert bounds.least <= worst <= bounds.share


@settings(max_examples=50)
@given(st.one_of(feasible_problems(), infeasible_problems()))
def test_exact_and_floating_verification_agree(problem):
    if not isinstance(problem.law, fa.Cohorts | fa.SuccessiveDraws):
        return
    certificate = fa.certify(problem.importance, problem.law)
    assert certificate.verify(problem.importance, problem.law, exact=True)
    false = replace(certificate, hall_ratio=certificate.hall_ratio * (1 + 1e-6))
    assert not false.verify(problem.importance, problem.law, exact=True)


def test_successive_draws_are_verified_exactly_by_their_list():
    law = fa.SuccessiveDraws([4.0, 3.0, 2.0, 1.0], 2)
    importance = [0.1, 0.1, 0.1, 0.7]
    certificate = fa.certify(importance, law)
    assert not certificate.feasible
    assert certificate.verify(importance, law, exact=True)


def test_weights_far_below_the_last_digit_of_one_are_kept():
    # Client 1 gets e^−300 of the first cohort: nothing beside one, but all that it gets.
    law = fa.Cohorts([[0, 1], [2]], [0.5, 0.5])
    bounds = exact_bounds(
        np.array([0.5, 1e-140, 0.5]), law, EMPTY, np.array([0.0, -300.0, 0.0]), np.zeros(3, int)
    )
    weight = float(bounds.least) * 1e-140
    assert weight == pytest.approx(0.5 * np.exp(-300.0), rel=1e-12)


def test_other_laws_have_no_exact_verification():
    mixture = fa.Mixture([fa.UniformCohorts(3, 1), fa.UniformCohorts(3, 2)], [0.5, 0.5])
    for law in (fa.UniformCohorts(3, 1), fa.IndependentClients([0.5, 0.5, 0.5]), mixture):
        certificate = fa.certify(DYADIC, law)
        with pytest.raises(fa.errors.UnavailableError, match="leave out exact=True"):
            certificate.verify(DYADIC, law, exact=True)


def test_longer_lists_have_no_exact_verification():
    count = 50_001
    members = np.column_stack((np.zeros(count, dtype=int), np.arange(1, count + 1)))
    law = fa.Cohorts(members)
    certificate = fa.Certificate(True, EMPTY, 0.0, 1.0)
    with pytest.raises(fa.errors.UnavailableError, match="found 100,002; leave out exact=True"):
        certificate.verify(np.full(count + 1, 1 / (count + 1)), law, exact=True)
