"""Cohorts that coincide once they are cut down to one level."""

import numpy as np
import pytest

from fedavot import Cohorts


def _expected(cohorts, probabilities, potentials, levels):
    """Add up softmax weights over the lowest level of each cohort, in a loop."""
    total = np.zeros(potentials.size)
    for cohort, probability in zip(cohorts, probabilities, strict=True):
        members = [i for i in cohort if levels[i] == min(levels[k] for k in cohort)]
        weights = np.exp(potentials[members])
        total[members] += probability * weights / weights.sum()
    return total


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("n_levels", [3, 12])
def test_expected_weights_are_those_of_every_cohort_where_most_keep_one_client(seed, n_levels):
    rng = np.random.default_rng(seed)
    n_clients = 12
    cohorts = [[i, j] for i in range(n_clients) for j in range(i)]
    cohorts += [[0, 1, 2], [3, 4, 5, 6], [7]]
    probabilities = rng.dirichlet(np.full(len(cohorts), 0.3))
    potentials, levels = rng.normal(size=n_clients), rng.integers(0, n_levels, n_clients)
    law = Cohorts(cohorts, probabilities)
    found = law.expected_weights(potentials, levels)
    wanted = _expected(cohorts, probabilities, potentials, levels)
    assert np.allclose(found, wanted, rtol=1e-13, atol=1e-300)


def test_levels_that_leave_every_cohort_one_client_make_one_cohort_of_each():
    cohorts = [[i, j] for i in range(6) for j in range(i)]
    law = Cohorts(cohorts)
    system = law.system(np.arange(6))
    assert system.incidence.members.tolist() == [0, 1, 2, 3, 4]
    assert np.allclose(system.probabilities, np.arange(5, 0, -1) / 15, rtol=1e-15, atol=0)
    assert law.n_cohorts == 15
