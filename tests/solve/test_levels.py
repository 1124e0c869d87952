"""Tight sets are levels of their own, and so are idle and unseen clients."""

import numpy as np
import pytest

import fedavot as fa
from agreement import close
from strategies import (
    enumerate_cohorts,
    normalised,
)


@pytest.mark.parametrize(
    ("importance", "levels"),
    [([4.0, 3.0, 3.0, 3.0], [0, 0, 0, 0]), ([0.5, 1 / 3, 1 / 12, 1 / 12], [0, 1, 2, 2])],
    ids=["slack everywhere", "a tight set"],
)
def test_a_feasible_importance_has_levels_of_its_own_for_tight_sets_alone(importance, levels):
    alignment = fa.align(normalised(importance), fa.UniformCohorts(4, 2))
    assert alignment.status == "exact"
    assert alignment.levels.tolist() == levels


@pytest.mark.parametrize(
    "law",
    [
        fa.Cohorts([[0, 1], [2, 3], [1, 2, 3], [3]]),
        fa.UniformCohorts(4, 2),
        fa.IndependentClients([0.5, 0.4, 0.3, 0.6]),
        fa.SuccessiveDraws([1.0, 2.0, 3.0, 4.0], 2),
        fa.Mixture([fa.UniformCohorts(4, 1), fa.Cohorts([[2, 3], [0, 1]])], [0.5, 0.5]),
    ],
    ids=lambda law: type(law).__name__,
)
def test_clients_without_importance_share_what_nobody_else_can_take_equally(law):
    importance = np.array([0.7, 0.3, 0.0, 0.0])
    alignment = fa.align(importance, law)
    wanted = np.zeros(4)
    for cohort, chance in enumerate_cohorts(law).items():
        if cohort <= {2, 3}:
            wanted[list(cohort)] += float(chance) / len(cohort)
    assert close(alignment.attained[2:], wanted[2:])
    assert alignment.weights([2, 3]).tolist() == [0.5, 0.5]
    assert alignment.weights([3, 0, 2])[[0, 2]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "law",
    [
        fa.Cohorts([[0, 1], [1, 2]], n_clients=4),
        fa.IndependentClients([0.5, 0.4, 0.3, 0.0]),
        fa.SuccessiveDraws([1.0, 2.0, 3.0, 0.0], 2),
        fa.Mixture([fa.IndependentClients([0.5, 0.4, 0.3, 0.0])], [1.0]),
    ],
    ids=lambda law: type(law).__name__,
)
def test_a_wanted_client_nobody_ever_sees_is_the_lowest_level_and_attains_nothing(law):
    importance = np.array([0.3, 0.3, 0.2, 0.2])
    alignment = fa.align(importance, law)
    assert alignment.status == "nearest"
    assert alignment.levels[3] == 0
    assert np.all(alignment.levels[:3] > 0)
    assert alignment.attained[3] == 0.0
    assert np.isfinite(alignment.potentials).all()
    assert alignment.gap == pytest.approx(0.2, abs=1e-9)
    certificate = fa.certify(importance, law)
    assert not certificate.feasible
    assert 3 in certificate.deficient
    assert certificate.hall_ratio == np.inf
    assert certificate.verify(importance, law)
