"""A certificate verifies for what it was made for, and for nothing else."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import brute
import fedavot as fa
from strategies import feasible_problems, infeasible_problems, normalised

TAMPERED = 1e-6
"""What is changed by hand, a thousand times the tolerance of `verify`."""

LAWS = [
    fa.Cohorts([[0, 1], [1, 2], [0, 2, 3], [2, 3]], [0.4, 0.3, 0.2, 0.1]),
    fa.UniformCohorts(4, 2),
    fa.IndependentClients([0.5, 0.4, 0.3, 0.6]),
    fa.SuccessiveDraws([3.0, 3.0, 3.0, 2.0], 2),
    fa.Mixture(
        [fa.IndependentClients([0.5, 0.4, 0.3, 0.6]), fa.Cohorts([[0, 1], [2, 3]])], [0.6, 0.4]
    ),
]
FEASIBLE = np.array([0.26, 0.25, 0.25, 0.24])
INFEASIBLE = np.array([0.9, 0.05, 0.03, 0.02])

every_law = pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
searched_law = pytest.mark.parametrize(
    "law",
    [law for law in LAWS if not isinstance(law, fa.UniformCohorts | fa.IndependentClients)],
    ids=lambda law: type(law).__name__,
)


@every_law
def test_the_fixed_problems_are_what_they_are_called(law):
    assert fa.certify(FEASIBLE, law).verify(FEASIBLE, law)
    assert fa.certify(FEASIBLE, law).feasible
    assert fa.certify(INFEASIBLE, law).verify(INFEASIBLE, law)
    assert not fa.certify(INFEASIBLE, law).feasible


@every_law
def test_calling_an_infeasible_importance_feasible_does_not_verify(law):
    certificate = replace(fa.certify(INFEASIBLE, law), feasible=True)
    assert not certificate.verify(INFEASIBLE, law)
    plain = replace(certificate, deficient=np.empty(0, dtype=np.int64), deficiency=0.0)
    assert not replace(plain, hall_ratio=1.0).verify(INFEASIBLE, law)


@every_law
def test_calling_a_feasible_importance_infeasible_does_not_verify(law):
    certificate = replace(fa.certify(FEASIBLE, law), feasible=False)
    assert not certificate.verify(FEASIBLE, law)
    claim = replace(certificate, deficient=np.array([0]), deficiency=0.1, hall_ratio=1.4)
    assert not claim.verify(FEASIBLE, law)


CHANGES = (
    *(("deficiency", lambda found, by=by: found + by) for by in (-TAMPERED, TAMPERED)),
    *(("hall_ratio", lambda found, by=by: found * by) for by in (1 - TAMPERED, 1 + TAMPERED)),
    *(("hall_ratio", lambda _, to=to: to) for to in (1e9, 1e12, 1e154, 1e155, 1e200, 1.7e308)),
    ("hall_ratio", lambda _: np.inf),
    *(
        ("deficient", lambda _, to=to: np.array(to, dtype=int))
        for to in ([], [1], [0, 1], [0, 1, 2, 3])
    ),
)


@every_law
@pytest.mark.parametrize(("field", "change"), CHANGES)
def test_another_claim_does_not_verify(law, field, change):
    certificate = fa.certify(INFEASIBLE, law)
    tampered = replace(certificate, **{field: change(getattr(certificate, field))})
    assert not tampered.verify(INFEASIBLE, law)


@every_law
def test_a_smaller_violation_truthfully_reported_does_not_verify(law):
    importance = np.array([0.62, 0.37, 0.005, 0.005])
    part = np.array([0])
    violation = importance[0] - law.coverage(part)
    certificate = fa.certify(importance, law)
    assert 0 < violation < certificate.deficiency
    assert not replace(certificate, deficient=part, deficiency=violation).verify(importance, law)


@searched_law
@pytest.mark.parametrize("importance", [FEASIBLE, INFEASIBLE], ids=["feasible", "infeasible"])
def test_perturbed_potentials_do_not_verify(law, importance):
    certificate = fa.certify(importance, law)
    nudge = np.array([0.0, 0.0, 1e-3, 0.0])
    levels = np.zeros(4, dtype=np.int64)
    assert not replace(
        certificate, potentials=certificate.potentials + nudge, levels=levels
    ).verify(importance, law)


@searched_law
def test_shifting_all_potentials_changes_nothing(law):
    certificate = fa.certify(INFEASIBLE, law)
    assert replace(certificate, potentials=certificate.potentials + 3.0).verify(INFEASIBLE, law)


@searched_law
def test_other_levels_do_not_verify(law):
    certificate = fa.certify(INFEASIBLE, law)
    turned = certificate.levels.max() - certificate.levels
    assert not replace(certificate, levels=turned).verify(INFEASIBLE, law)


@searched_law
def test_without_its_evidence_a_certificate_that_needs_it_does_not_verify(law):
    certificate = fa.certify(FEASIBLE, law)
    assert not replace(certificate, potentials=None, levels=None).verify(FEASIBLE, law)


@every_law
def test_another_importance_does_not_verify(law):
    assert not fa.certify(INFEASIBLE, law).verify(FEASIBLE, law)
    assert not fa.certify(FEASIBLE, law).verify(INFEASIBLE, law)
    assert not fa.certify(INFEASIBLE, law).verify(INFEASIBLE[::-1], law)


@every_law
def test_another_law_does_not_verify(law):
    certificate = fa.certify(INFEASIBLE, law)
    assert not certificate.verify(INFEASIBLE, fa.UniformCohorts(4, 1))


@settings(max_examples=40)
@given(infeasible_problems(), st.data())
def test_no_other_set_verifies_in_place_of_a_deficient_one(problem, data):
    certificate = fa.certify(problem.importance, problem.law)
    mask = data.draw(st.sampled_from(tuple(brute.all_sets(problem.importance.size))))
    clients = np.flatnonzero(mask)
    violation = problem.importance[clients].sum() - brute.coverage(problem.cohorts, clients)
    assume(abs(violation - certificate.deficiency) > TAMPERED)
    assert not replace(certificate, deficient=clients).verify(problem.importance, problem.law)
    told = replace(certificate, deficient=clients, deficiency=float(violation))
    assert not told.verify(problem.importance, problem.law)


@settings(max_examples=40)
@given(feasible_problems(), st.integers(0, 2**32 - 1))
def test_a_feasible_certificate_verifies_for_no_infeasible_importance(problem, seed):
    other = normalised(np.random.default_rng(seed).pareto(0.3, problem.importance.size) + 1e-9)
    assume(brute.hall(other, problem.cohorts).deficiency > TAMPERED)
    assert not fa.certify(problem.importance, problem.law).verify(other, problem.law)


HUGE_RATIOS = [
    fa.IndependentClients([1e-160, 1.0]),
    fa.Cohorts([[0], [1]], [1e-160, 1.0]),
    fa.Cohorts([[0, 1], [1]], [1e-300, 1.0]),
]


@pytest.mark.parametrize("law", HUGE_RATIOS)
def test_ratios_whose_square_is_no_float_verify_and_no_others_do(law):
    importance = [0.5, 0.5]
    certificate = fa.certify(importance, law)
    assert 1e154 < certificate.hall_ratio < np.inf
    assert certificate.verify(importance, law)
    for factor in (1 - TAMPERED, 1 + TAMPERED, 2.0, 1e-3, np.inf):
        tampered = replace(certificate, hall_ratio=factor * certificate.hall_ratio)
        assert not tampered.verify(importance, law)


@pytest.mark.parametrize("exact", [False, True])
def test_only_an_infinite_ratio_verifies_for_a_wanted_client_that_never_takes_part(exact):
    law = fa.Cohorts([[0], [1]], [0.5, 0.5], n_clients=3)
    importance = [0.4, 0.4, 0.2]
    certificate = fa.certify(importance, law)
    assert certificate.hall_ratio == np.inf
    assert certificate.verify(importance, law, exact=exact)
    for ratio in (1.0, 2.0, 1e308):
        assert not replace(certificate, hall_ratio=ratio).verify(importance, law, exact=exact)


VANISHING = [
    # The weight that 1e-300 asks for is so small that potentials cannot be so far apart.
    fa.Mixture([fa.UniformCohorts(3, 3), fa.Cohorts([[1]], n_clients=3)], [1e-12, 1 - 1e-12]),
    fa.Mixture([fa.UniformCohorts(3, 3), fa.Cohorts([[0], [1]], n_clients=3)], [0.5, 0.5]),
]


@pytest.mark.parametrize("law", VANISHING)
def test_a_share_of_importance_whose_weight_vanishes_does_not_keep_a_claim_from_its_proof(law):
    importance = [1 - 1e-12, 1e-12, 1e-300]
    certificate = fa.certify(importance, law)
    assert certificate.proven
    assert not certificate.feasible
    assert law.expected_weights(certificate.potentials, certificate.levels)[2] == 0.0
    ratio = importance[0] / law.coverage([0, 2])
    assert certificate.hall_ratio == pytest.approx(ratio, rel=1e-9)
    for factor in (1 - TAMPERED, 1 + TAMPERED):
        other = replace(certificate, hall_ratio=factor * certificate.hall_ratio)
        assert not other.verify(importance, law)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("share", "proves"), [(1e-300, True), (1e-3, False)])
def test_clients_without_weight_count_by_how_often_they_take_part(share, proves, exact):
    # Client 1 comes once in 2,000 rounds, with client 0, and the evidence gives it nothing: for a
    # share of 1e-3 it is the worst set, with a ratio of 2 and not 1.5.
    law = fa.Cohorts([[0, 1], [0], [2]], [0.0005, 0.4995, 0.5])
    importance = np.array([0.75 - share, share, 0.25])
    ratio = importance[:2].sum() / 0.5
    potentials, levels = np.array([0.0, -1e4, 0.0]), np.array([0, 0, 1])
    claim = fa.Certificate(False, np.array([0, 1]), 0.25, ratio, potentials, levels)
    assert claim.verify(importance, law, exact=exact) == proves


def test_a_set_that_names_a_client_twice_does_not_count_it_twice():
    importance, law = [0.5, 0.25, 0.25], fa.UniformCohorts(3, 1)
    certificate = fa.certify(importance, law)
    for deficient in ([0, 0], [1, 1], [0, 1, 1]):
        assert not replace(certificate, deficient=np.array(deficient)).verify(importance, law)


SENSELESS: dict[str, list] = {
    "deficient": [np.array([4]), np.array([-1]), np.array([0.0]), np.array([True])],
    "deficiency": [np.nan, np.inf, -np.inf, -0.1, 0.0],
    "hall_ratio": [np.nan, -np.inf, -2.0, 0.0, 0.99],
    "potentials": [None, np.full(4, np.nan), np.full(4, np.inf), np.zeros(3), np.zeros((4, 1))],
    "levels": [None, np.zeros(3, int), np.zeros((4, 1), int)],
}


@every_law
@pytest.mark.parametrize("field", SENSELESS)
@pytest.mark.parametrize("importance", [FEASIBLE, INFEASIBLE], ids=["feasible", "infeasible"])
def test_a_claim_that_makes_no_sense_is_rejected_and_never_raised(law, field, importance):
    certificate = fa.certify(importance, law)
    if field in ("potentials", "levels"):
        evidence = {"potentials": np.zeros(4), "levels": np.zeros(4, dtype=int)}
        certificate = replace(certificate, **evidence)
    for value in SENSELESS[field]:
        if field == "deficiency" and certificate.feasible and value == 0.0:
            continue
        assert not replace(certificate, **{field: value}).verify(importance, law)


@every_law
def test_a_wrong_importance_law_or_tolerance_is_the_callers_mistake(law):
    certificate = fa.certify(FEASIBLE, law)
    with pytest.raises(fa.errors.ImportanceError, match="3 entries"):
        certificate.verify([0.5, 0.25, 0.25], law)
    with pytest.raises(fa.errors.LawError, match="is not an availability law"):
        certificate.verify(FEASIBLE, "every day")
    for tol in (0.0, -1e-9, np.nan, np.inf):
        with pytest.raises(fa.errors.OptionError, match="tol is"):
            certificate.verify(FEASIBLE, law, tol=tol)


@searched_law
def test_only_the_order_of_levels_matters(law):
    certificate = fa.certify(INFEASIBLE, law)
    for levels in (7 * certificate.levels - 100, certificate.levels.astype(np.uint8)):
        assert replace(certificate, levels=levels).verify(INFEASIBLE, law)


@every_law
def test_any_evidence_that_proves_the_claim_will_do(law):
    # Client 0 is wanted more than it takes part: whoever gives it all it can get has a proof.
    coverage = law.coverage([0])
    certificate = fa.Certificate(
        False,
        np.array([0]),
        0.9 - coverage,
        0.9 / coverage,
        potentials=np.zeros(4),
        levels=np.array([0, 1, 1, 1]),
    )
    assert certificate.verify(INFEASIBLE, law)


@settings(max_examples=40)
@given(infeasible_problems(), st.integers(0, 2**32 - 1))
def test_no_evidence_proves_more_than_the_truth(problem, seed):
    rng = np.random.default_rng(seed)
    count = problem.importance.size
    truth = brute.hall(problem.importance, problem.cohorts)
    certificate = replace(
        fa.certify(problem.importance, problem.law),
        potentials=3.0 * rng.normal(size=count),
        levels=rng.integers(0, 3, count),
        hall_ratio=truth.ratio * rng.choice([0.5, 1 - TAMPERED, 1 + TAMPERED, 2.0]),
    )
    assert not certificate.verify(problem.importance, problem.law)


def test_an_importance_just_out_of_reach_does_not_read_as_a_ratio_of_one():
    law = fa.Cohorts([["a", "b"], ["b"], ["c"], ["c"]], clients=["a", "b", "c"])
    certificate = fa.certify({"a": 0.01, "b": 0.4900001, "c": 0.4999999}, law)
    assert "the importance of clients a and b is 1e-07 above" in str(certificate)
    assert "is 1.0000002." in str(certificate)
    assert "Hall ratio 1.0000002)" in repr(certificate)


@every_law
@pytest.mark.parametrize("importance", [FEASIBLE, INFEASIBLE], ids=["feasible", "infeasible"])
def test_a_certificate_that_is_not_proven_says_so_and_is_verified_all_the_same(law, importance):
    certificate = fa.certify(importance, law)
    doubtful = replace(certificate, proven=False)
    assert str(doubtful).startswith("not proven")
    assert str(doubtful).endswith(str(certificate))
    assert doubtful.verify(importance, law)
    tampered = replace(certificate, deficiency=certificate.deficiency + TAMPERED, proven=True)
    assert not tampered.verify(importance, law)
