"""The base of least norm has the levels of brute force, wherever its search begins."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import brute
import fedavot as fa
from fedavot.solve import softening
from fedavot.solve.dual import DualProblem, Iterate, Solution, StoppingRule
from fedavot.solve.levels import one_level, partition
from fedavot.solve.newton import climb_until
from fedavot.solve.softening import least_norm_order
from strategies import (
    any_law,
    enumerate_cohorts,
    importances,
    mixtures,
    normalised,
    permutations,
    tight_problems,
)

BASE = 1e-10
"""L1 distance of targets from those of brute force: rounding, and ratios tied within 1e-9."""
STOP = StoppingRule(tol=1e-9, max_iter=2_000, method="auto")


def check(importance, law, start):
    """Compare the levels with brute force, and see that the target is met within them."""
    base = brute.lexicographic_base(importance, enumerate_cohorts(law))
    order = least_norm_order(importance, law, np.asarray(start))
    assert sorted(order.tolist()) == list(range(law.n_clients))
    split = partition(importance, law, order)
    assert np.abs(split.target - base.attained).sum() <= BASE
    problem = DualProblem.within(importance, law, split)
    start = Iterate.start(np.zeros(law.n_clients))
    assert problem.met(climb_until(problem, start, STOP), STOP)


@settings(max_examples=60)
@given(any_law(max_clients=7), st.data())
def test_levels_are_those_of_brute_force_from_any_start(law, data):
    importance = data.draw(importances(law.n_clients))
    check(importance, law, data.draw(permutations(law.n_clients)))


@pytest.mark.parametrize("seed", range(20))
def test_levels_of_mixtures_are_those_of_brute_force_over_twelve_orders(seed):
    rng = np.random.default_rng(seed)
    kinds = [rng.uniform(0.0, 1.0, 8), 10 ** rng.uniform(-6, 0, 8), rng.choice([0.0, 0.5, 1.0], 8)]
    kinds[2][0] = 0.5
    law = fa.Mixture([fa.IndependentClients(kind) for kind in kinds], rng.dirichlet(np.ones(3)))
    check(normalised(10.0 ** rng.uniform(-12, 0, 8)), law, rng.permutation(8))


@settings(max_examples=30)
@given(tight_problems(mixtures(max_clients=6)), st.data())
def test_the_target_is_met_where_a_set_is_tight(problem, data):
    start = data.draw(permutations(problem.law.n_clients))
    check(problem.importance, problem.law, start)


def test_where_softening_fails_the_least_norm_has_the_levels(monkeypatch):
    rng = np.random.default_rng(0)
    law = fa.Mixture([fa.IndependentClients(rng.uniform(0, 0.5, 9)) for _ in range(3)], [1 / 3] * 3)
    importance = normalised(rng.lognormal(0.0, 2.0, 9))

    def failing(importance, law, stop, evaluations):
        split = one_level(importance, law)
        return Solution(split, Iterate.start(np.zeros(9), evaluations + 5))

    monkeypatch.setattr(softening, "_softening", failing)
    found = fa.align(importance, law)
    base = brute.lexicographic_base(importance, enumerate_cohorts(law))
    assert found.status == "nearest"
    assert np.abs(found.attained - base.attained).sum() <= STOP.tol + BASE
    assert found.iterations > 5
