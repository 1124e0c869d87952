"""A user's own law is solved like ours, and one that breaks its contract is refused by client."""

import numpy as np
import pytest

import fedavot as fa
from fedavot.errors import LawError

COHORTS = [[0, 1], [1, 2, 3], [3, 4], [0, 2, 4], [4]]
CHANCES = np.array([0.3, 0.25, 0.2, 0.15, 0.1])


class Listed:
    """The five members of a law and no more, written without the library."""

    n_clients = 5

    def inclusion(self):
        return np.array([self.coverage([client]) for client in range(5)])

    def coverage(self, clients):
        met = [bool(set(clients) & set(cohort)) for cohort in COHORTS]
        return float(CHANCES @ met)

    def expected_weights(self, potentials, levels=None):
        levels = np.zeros(5, dtype=int) if levels is None else levels
        total = np.zeros(5)
        for cohort, chance in zip(COHORTS, CHANCES, strict=True):
            lowest = min(levels[cohort])
            members = [member for member in cohort if levels[member] == lowest]
            odds = np.exp(potentials[members] - max(potentials[members]))
            total[members] += chance * odds / odds.sum()
        return total

    def sample(self, rng, rounds):
        return [np.array(COHORTS[k]) for k in rng.choice(5, size=rounds, p=CHANCES)]


FEASIBLE = [0.2, 0.25, 0.15, 0.2, 0.2]
INFEASIBLE = [0.6, 0.1, 0.1, 0.1, 0.1]


@pytest.mark.parametrize("importance", [FEASIBLE, INFEASIBLE])
@pytest.mark.parametrize("method", ["auto", "newton"])
def test_a_users_law_is_aligned_and_certified_as_the_same_list_is(importance, method):
    ours, theirs = fa.Cohorts(COHORTS, CHANCES), Listed()
    assert isinstance(theirs, fa.Law)
    expected = fa.align(importance, ours, method=method)
    found = fa.align(importance, theirs, method=method)
    assert found.status == expected.status
    assert np.allclose(found.attained, expected.attained, atol=1e-8)
    assert np.allclose(found.weights([0, 2, 4]), expected.weights([0, 2, 4]), atol=1e-6)
    assert found.effective_cohort_size == pytest.approx(expected.effective_cohort_size, rel=1e-6)
    certificate = fa.certify(importance, theirs)
    assert certificate.proven
    assert certificate.feasible == fa.certify(importance, ours).feasible
    assert certificate.verify(importance, ours)
    assert certificate.verify(importance, theirs)


def test_a_users_law_can_be_a_state_and_carry_names():
    class Named(Listed):
        clients = ("a", "b", "c", "d", "e")

    law = Named()
    mixture = fa.Mixture([law, fa.UniformCohorts(5, 2)], [0.5, 0.5])
    assert mixture.clients == law.clients
    alignment = fa.align(FEASIBLE, mixture)
    assert alignment.status == "exact"
    assert alignment.weights(["c", "a"]).sum() == pytest.approx(1.0)
    assert repr(fa.align(FEASIBLE, law, softness=0.1).law) == "UserLaw(5 clients, from Named)"


def altered(name, change):
    """Return a law of which one member's answer is changed."""

    class Altered(Listed):
        pass

    def member(self, *arguments):
        return change(getattr(Listed, name)(self, *arguments), *arguments)

    setattr(Altered, name, member)
    return Altered()


@pytest.mark.parametrize(
    ("law", "match"),
    [
        (
            altered("coverage", lambda value, clients: 0.9 * value),
            "coverage of everybody .* is 0.9",
        ),
        (altered("expected_weights", lambda value, *_: 0.8 * value), "the sum of .* is 0.8"),
        (altered("expected_weights", lambda value, *_: value - np.eye(5)[2]), "client 2; it must"),
        (altered("expected_weights", lambda value, *_: value[:4]), "4 entries for 5 clients"),
        (altered("expected_weights", lambda value, *_: value * np.nan), "is nan for client 0"),
        (altered("inclusion", lambda value: value * 3), "for client 0; it must be from 0 to 1"),
        (altered("inclusion", lambda value: value[:3]), "3 entries for 5 clients"),
        (
            altered("coverage", lambda value, clients: None if clients[1:] else value),
            "does not follow fedavot.Law: TypeError: .*NoneType",
        ),
        (Listed, "the class Listed; pass an instance"),
        (object(), "it has no n_clients, inclusion, coverage, expected_weights, sample"),
    ],
)
def test_a_law_that_breaks_its_contract_is_refused_on_entry(law, match):
    for call in (fa.align, fa.certify):
        with pytest.raises(LawError, match=match):
            call(FEASIBLE, law)
