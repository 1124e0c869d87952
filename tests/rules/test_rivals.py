"""Each rival against examples worked by hand, and against what it is for."""

import formulas
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from points import EXACT, UNEVEN, choose, curved_task, run_points

import fedavot as fa
from fedavot import rules, training
from fedavot.rules.fairness import onto_simplex


@pytest.mark.parametrize("cutoff", [None, 4])
def test_fedau_estimates_the_inverse_of_the_inclusion_probability(cutoff):
    chances, rounds = np.array([0.15, 0.5, 0.9, 1.0]), 20_000
    present = np.random.default_rng(5).random((rounds, 4)) < chances
    cohorts = [np.flatnonzero(row) for row in present]
    *_, last = choose(rules.fedau(np.full(4, 0.25), cutoff=cutoff), *cohorts, range(4))
    missed = 0.0 if cutoff is None else (1 - chances) ** cutoff
    # A mean of at least π·rounds intervals, each of deviation below 1/π: four of its deviations.
    room = 4 / np.sqrt(chances * rounds) / chances
    assert (np.abs(4 * last.weights - (1 - missed) / chances) <= room).all()


@given(st.lists(st.sets(st.integers(0, 3)), max_size=40), st.integers(1, 8))
def test_fedau_intervals_are_means_of_a_list_kept_by_hand(sets, cutoff):
    by_hand, cohorts = formulas.FedAU(np.full(4, 0.25), cutoff), [sorted(each) for each in sets]
    asked = choose(rules.fedau(np.full(4, 0.25), cutoff=cutoff), *cohorts)
    for cohort, (members, weights) in zip(cohorts, asked, strict=True):
        assert members.tolist() == cohort
        np.testing.assert_allclose(weights, np.array(by_hand.weights(cohort)), rtol=EXACT)
        by_hand.observe(cohort)


def test_f3ast_asks_and_weighs_as_worked_by_hand():
    # First rates are 2/4 for all: the two of largest importance are asked. Then theirs are higher,
    # 3/4, and those of the others lower, 1/4, so that 0 (.4/.75) yields to 2 (.2/.25).
    rule = rules.f3ast([0.4, 0.3, 0.2, 0.1], cohort_size=2, smoothing=0.5)
    first, second, third = choose(rule, [0, 1, 2, 3], [0, 2, 3], [3])
    assert first.members.tolist() == [0, 1]
    np.testing.assert_allclose(first.weights, [0.4 / 0.75, 0.3 / 0.75])
    assert second.members.tolist() == [0, 2]
    np.testing.assert_allclose(second.weights, [0.4 / 0.875, 0.2 / 0.625])
    assert third.members.tolist() == [3]
    np.testing.assert_allclose(third.weights, [0.1 / 0.5625])


def test_f3ast_weights_are_bounded_by_importance_over_smoothing():
    rule = rules.f3ast(UNEVEN, smoothing=0.05)
    asked = choose(rule, *[[1]] * 50, range(5))
    assert (asked[-1].weights <= UNEVEN / 0.05 + EXACT).all()


def test_memories_make_up_for_those_who_never_come_back():
    # Client 1 reports once and disappears: its last update goes on counting in MIFA, with what it
    # asked for at that time; without memory the model would end at client 0's target.
    targets, cohorts = [1.0, -1.0], [[0, 1]] + [[0]] * 300
    remembered = run_points(rules.mifa([0.5, 0.5]), targets, cohorts, local_steps=1)
    assert abs(remembered - 0.0) < 1e-6
    assert abs(run_points(rules.fedavg(), targets, cohorts, local_steps=1) - 1.0) < 1e-6


@pytest.mark.parametrize("local_steps", [1, 5])
def test_with_memory_uneven_availability_leaves_no_bias(local_steps):
    # Client 2 is there every sixth round only, far less than its importance asks for.
    importance, targets = np.array([0.2, 0.2, 0.6]), np.array([1.0, 2.0, -3.0])
    cohorts = [[0, 1], [0], [1], [0, 1], [1], [2, 0]] * 150
    optimum = importance @ targets
    alignment = fa.align(importance, fa.Cohorts(cohorts[:6]))
    assert alignment.gap > 0.3
    for rule in (rules.mifa(importance), rules.steady(importance)):
        end = run_points(rule, targets, cohorts, step=0.02, local_steps=local_steps)
        assert abs(end - optimum) < 1e-6
    biased = run_points(rules.fedavot(alignment), targets, cohorts, step=0.02)
    assert abs(biased - optimum) > 0.5


def test_an_echoed_update_counts_once_for_every_round_missed():
    # θ_i moves to target by a fifth of the way: client 1 starts at 0 and moves by .2, three times.
    end = run_points(rules.fedawe(), [0.0, 1.0], [[0], [0], [1]], local_steps=1)
    assert abs(end - 3 * 0.2) < EXACT


def test_control_variates_remove_client_drift():
    # Unequal curvatures and many local steps: plain averages end off the optimum of the mean.
    everybody = [np.array([0, 1])] * 200
    problem = training.Problem(curved_task(), [0.5, 0.5], lambda rng, rounds: everybody)
    plan = training.Training(200, training.constant(0.05), local_steps=8, record_every=200)
    optimum = 4 / 5
    corrected = training.train(problem, rules.scaffold([0.5, 0.5]), plan).params[0]
    plain = training.train(problem, rules.fedavg(), plan).params[0]
    assert abs(corrected - optimum) < 1e-9
    assert abs(plain - optimum) > 0.05


def test_a_larger_q_serves_the_worst_client_better():
    targets, cohorts = [0.0, 0.0, 0.0, 1.0], [[0, 1, 2, 3]] * 400
    ends = [
        run_points(rules.qffl(np.full(4, 0.25), q=q), targets, cohorts) for q in (0.0, 1.0, 5.0)
    ]
    assert abs(ends[0] - 0.25) < 1e-3
    assert ends[0] + 0.05 < ends[1] < ends[2] - 0.02 < 0.5


@pytest.mark.parametrize("q", [0.0, 0.5, 1.0, 200.0])
def test_losses_of_zero_leave_the_model_finite(q):
    assert run_points(rules.qffl([0.5, 0.5], q=q), [0.0, 0.0], [[0, 1], [1]]) == 0.0
    assert np.isfinite(run_points(rules.qffl([0.5, 0.5], q=q), [0.0, 2.0], [[0, 1], [0], [1]]))


def test_afl_ends_where_the_largest_losses_are_equal():
    # min over θ of max_i (θ − target_i)² is midway between the extremes, wherever the others are.
    targets, cohorts = [0.0, 0.1, 0.2, 1.0], [[0, 1, 2, 3]] * 4000
    end = run_points(rules.afl(step=0.02), targets, cohorts, step=0.02)
    assert abs(end - 0.5) < 0.02


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=9))
def test_the_simplex_projection_agrees_with_bisection(values):
    array = np.array(values)
    found = np.asarray(onto_simplex(array.astype(np.float32)), dtype=np.float64)
    np.testing.assert_allclose(found, formulas.onto_simplex(array), atol=1e-5)


def test_a_stronger_proximal_term_keeps_clients_nearer_to_their_start():
    ends = [
        run_points(rules.fedprox(proximal=mu), [1.0], [[0]], local_steps=20)
        for mu in (0.0, 1.0, 4.0)
    ]
    assert ends[0] > ends[1] > ends[2] > 0
