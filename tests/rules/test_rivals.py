"""Each rival against examples worked by hand, and against what it is for."""

import formulas
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from points import EXACT, TARGETS, choose, curved_task, run_points
from points import UNEVEN as P

import fedavot as fa
from fedavot import rules, training
from fedavot.rules.fairness import onto_simplex

PAIRS = [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4], [0, 2], [1, 4]]
RARE = [[0, 1], [0], [1], [0, 1], [1], [2, 0]] * 150
"""Client 2 is there every sixth round only."""


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
    rule = rules.f3ast(P, smoothing=0.05)
    asked = choose(rule, *[[1]] * 50, range(5))
    assert (asked[-1].weights <= P / 0.05 + EXACT).all()


def test_memories_make_up_for_those_who_never_come_back():
    # Client 1 reports once and disappears: its last update goes on counting in MIFA, with what it
    # asked for at that time; without memory the model would end at client 0's target.
    targets, cohorts = [1.0, -1.0], [[0, 1]] + [[0]] * 300
    remembered = run_points(rules.mifa([0.5, 0.5]), targets, cohorts, local_steps=1)
    assert abs(remembered - 0.0) < 1e-6
    assert abs(run_points(rules.fedavg(), targets, cohorts, local_steps=1) - 1.0) < 1e-6


IMPORTANCE, FAR = np.array([0.2, 0.2, 0.6]), np.array([1.0, 2.0, -3.0])


@pytest.mark.parametrize("build", [rules.mifa, rules.steady, rules.focus, rules.area])
@pytest.mark.parametrize("local_steps", [1, 5])
def test_with_memory_uneven_availability_leaves_no_bias(build, local_steps):
    cohorts = RARE * 2  # AREA takes twice as long as FOCUS, as the absent hold its model back
    end = run_points(build(IMPORTANCE), FAR, cohorts, step=0.02, local_steps=local_steps)
    assert abs(end - IMPORTANCE @ FAR) < 1e-6


def test_without_memory_uneven_availability_leaves_a_bias():
    alignment = fa.align(IMPORTANCE, fa.Cohorts(RARE[:6]))
    assert alignment.gap > 0.3
    end = run_points(rules.fedavot(alignment), FAR, RARE, step=0.02)
    assert abs(end - IMPORTANCE @ FAR) > 0.5


def test_an_echoed_update_counts_once_for_every_round_missed():
    # θ_i moves to target by a fifth of the way: client 1 starts at 0 and moves by .2, three times.
    end = run_points(rules.fedawe(), [0.0, 1.0], [[0], [0], [1]], local_steps=1)
    assert abs(end - 3 * 0.2) < EXACT


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


def test_without_stale_updates_fedstale_is_horvitz_thompson():
    inclusion = np.array([0.4, 0.4, 0.3, 0.5, 0.6])
    stale, plain = (
        rules.fedstale(P, inclusion, trust=0.0),
        rules.horvitz_thompson(P, inclusion),
    )
    assert abs(run_points(stale, TARGETS, PAIRS) - run_points(plain, TARGETS, PAIRS)) < EXACT


def test_with_all_of_the_stale_updates_and_even_inclusion_fedstale_is_fedvarp():
    stale = rules.fedstale(P, np.full(5, 2 / 5), trust=1.0)
    assert abs(run_points(stale, TARGETS, PAIRS) - run_points(rules.fedvarp(P), TARGETS, PAIRS)) < (
        EXACT
    )


@pytest.mark.parametrize("build", [rules.amplified_fedavg, rules.amplified_scaffold])
def test_an_amplification_of_one_amplifies_nothing(build):
    ends = [
        run_points(build(P, period=period, amplification=1.0), TARGETS, PAIRS[:5])
        for period in (5, 20)
    ]
    assert abs(ends[0] - ends[1]) < EXACT


def test_a_period_ends_at_its_start_plus_its_amplified_changes():
    plain, longer = (
        rules.amplified_fedavg(P, period=period, amplification=3.0) for period in (20, 3)
    )
    changed = run_points(plain, TARGETS, PAIRS[:3])
    assert abs(run_points(longer, TARGETS, PAIRS[:3]) - 3.0 * changed) < EXACT
    # Rounds without anybody count: the period ends in the second of these.
    first = run_points(plain, TARGETS, PAIRS[:1])
    assert abs(run_points(longer, TARGETS, [PAIRS[0], [], []]) - 3.0 * first) < EXACT


@pytest.mark.parametrize(
    ("build", "plain", "turns", "step", "near", "far"),
    [
        (rules.scaffold, lambda shares: rules.fedavg(), [[0, 1]] * 200, 0.05, 1e-9, 0.05),
        (
            lambda shares: rules.amplified_scaffold(shares, period=2),
            lambda shares: rules.amplified_fedavg(shares, period=2),
            *([[0], [1]] * 500, 0.01, 1e-6, 0.01),
        ),
    ],
    ids=["SCAFFOLD", "amplified"],
)
def test_control_variates_remove_client_drift(build, plain, turns, step, near, far):
    # Unequal curvatures and many local steps: plain averages end off the optimum of the mean.
    rows = [np.array(cohort) for cohort in turns]
    problem = training.Problem(curved_task(), [0.5, 0.5], lambda rng, rounds: rows)
    plan = training.Training(
        len(rows), training.constant(step), local_steps=8, record_every=len(rows)
    )
    corrected, drifted = (
        training.train(problem, make([0.5, 0.5]), plan).params[0] for make in (build, plain)
    )
    assert abs(corrected - 4 / 5) < near
    assert abs(drifted - 4 / 5) > far


def test_with_one_local_step_focus_is_mifa():
    cohorts = [*PAIRS, [], *PAIRS]
    ends = [
        run_points(build(P), TARGETS, cohorts, local_steps=1) for build in (rules.focus, rules.mifa)
    ]
    assert abs(ends[0] - ends[1]) < EXACT


def test_a_client_that_is_away_holds_the_mean_of_models_by_its_importance():
    # Client 1 never comes, so that half of the model stays at the start; the other half is client
    # 0's, which goes a fifth of the way from there to its target: m = (m + (1 - m) / 5) / 2.
    end = run_points(rules.area([0.5, 0.5]), [1.0, 0.0], [[0]] * 100, local_steps=1)
    assert abs(end - 1 / 6) < EXACT


def test_ca_fed_leaves_out_a_rare_client_unless_bias_counts():
    importance = np.array([0.45, 0.45, 0.1])
    biased, fair = (
        run_points(rules.ca_fed(importance, bias=bias), FAR, RARE, step=0.02)
        for bias in (0.5, 100.0)
    )
    assert biased > 1.3
    assert abs(fair - importance @ FAR) < 0.2


def test_ca_fed_that_keeps_everybody_weights_by_estimated_availability():
    # Client 0 has been there in 1 of 1 rounds, then 2 of 2; one round of each kind is added.
    first, second = 0.3 / (2 / 3), 0.3 / (3 / 4)
    rule = rules.ca_fed([0.3, 0.7], bias=1e6)
    found = run_points(rule, [1.0, 0.0], [[0], [0]], local_steps=1)
    expected = 0.2 * first + 0.2 * second * (1 - 0.2 * first)
    assert abs(found - expected) < EXACT


def test_the_mean_of_the_models_that_clients_hold_lags_behind_the_last_aggregate():
    # Client 0 moves by a fifth of the way to 1 and receives that; client 1 still holds 0.
    ends = [
        run_points(rules.fedawe(mean=mean), [1.0, 0.0], [[0]], local_steps=1)
        for mean in (False, True)
    ]
    np.testing.assert_allclose(ends, [0.2, 0.1])


def test_an_echoed_update_is_clipped_and_scaled_by_the_server():
    # Client 1 moves by .2 after three rounds, which is .6 echoed, and .5 clipped.
    cohorts = [[0], [0], [1]]
    rule = rules.build("fedawe", rules.Known([0.5, 0.5]), clip=0.5, server_step=0.5)
    assert abs(run_points(rule, [0.0, 1.0], cohorts, local_steps=1) - 0.25) < EXACT


def test_fedprox_by_importance_without_its_term_is_the_average_by_importance():
    rule = rules.build("fedprox", rules.Known(P), proximal=0.0, by_importance=True)
    average = rules.importance_average(P)
    assert run_points(rule, TARGETS, PAIRS) == run_points(average, TARGETS, PAIRS)
