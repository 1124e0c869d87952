"""The generators plant what they say, and the brute force that other tests trust obeys its laws."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import brute
from agreement import EXACT, close
from strategies import (
    any_law,
    enumerate_cohorts,
    feasible_problems,
    importances,
    infeasible_problems,
    tight_problems,
)

BASE = 1e-10
"""What ratios tied to 1e-11 leave open in an attained importance."""


def problems():
    return any_law(6).flatmap(
        lambda law: st.tuples(st.just(enumerate_cohorts(law)), importances(law.n_clients))
    )


@given(any_law())
def test_enumerated_probabilities_sum_to_one_over_cohorts_that_are_not_empty(law):
    cohorts = enumerate_cohorts(law)
    assert all(cohort and chance > 0 for cohort, chance in cohorts.items())
    assert abs(float(sum(cohorts.values())) - 1.0) <= EXACT


@given(feasible_problems())
def test_feasible_problems_violate_no_set(problem):
    assert brute.hall(problem.importance, problem.cohorts).deficiency <= EXACT


@given(tight_problems())
def test_tight_problems_have_a_set_with_nothing_to_spare(problem):
    n_clients = problem.importance.size
    slack = brute.all_coverages(problem.cohorts, n_clients)
    slack = slack - brute.all_sets(n_clients) @ problem.importance
    assert np.min(slack) >= -EXACT
    # The empty set and that of all clients come first and last, and are always tight.
    assert np.min(slack[1:-1]) <= EXACT


@given(infeasible_problems())
def test_infeasible_problems_want_their_planted_set_too_much(problem):
    wanted = problem.importance[list(problem.deficient)].sum()
    assert wanted - brute.coverage(problem.cohorts, problem.deficient) > 0.004


@given(problems())
def test_the_lexicographic_base_is_attainable(case):
    cohorts, importance = case
    attained = brute.lexicographic_base(importance, cohorts).attained
    assert abs(attained.sum() - 1.0) <= BASE
    assert brute.hall(attained / attained.sum(), cohorts).deficiency <= BASE


@given(problems())
def test_the_lexicographic_base_leaves_the_largest_deficiency_and_no_more(case):
    cohorts, importance = case
    base, worst = brute.lexicographic_base(importance, cohorts), brute.hall(importance, cohorts)
    assert abs(np.abs(base.attained - importance).sum() / 2 - worst.deficiency) <= BASE


@given(problems())
def test_ratios_rise_from_the_inverse_of_the_hall_ratio(case):
    cohorts, importance = case
    base, worst = brute.lexicographic_base(importance, cohorts), brute.hall(importance, cohorts)
    ratios = [ratio for _, ratio in base.levels]
    assert abs(ratios[0] * worst.ratio - 1.0) <= BASE or (ratios[0] == 0 and np.isinf(worst.ratio))
    assert np.all(np.diff(ratios) > 0)


@given(feasible_problems())
def test_the_lexicographic_base_of_a_feasible_importance_is_itself(problem):
    base = brute.lexicographic_base(problem.importance, problem.cohorts)
    assert close(base.attained, problem.importance, BASE)
