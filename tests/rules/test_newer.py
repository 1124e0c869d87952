"""The rivals of recent years against the rules that they extend, and against what they are for."""

import numpy as np
import pytest
from points import EXACT, TARGETS, curved_task, run_points
from points import UNEVEN as P

from fedavot import rules, training

PAIRS = [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4], [0, 2], [1, 4]]
RARE = [[0, 1], [0], [1], [0, 1], [1], [2, 0]] * 150
"""Client 2 is there every sixth round only."""


def test_without_stale_updates_fedstale_is_horvitz_thompson():
    inclusion = np.array([0.4, 0.4, 0.3, 0.5, 0.6])
    stale, plain = rules.fedstale(P, inclusion, trust=0.0), rules.horvitz_thompson(P, inclusion)
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
    assert (
        abs(
            run_points(longer, TARGETS, [PAIRS[0], [], []])
            - 3.0 * run_points(plain, TARGETS, PAIRS[:1])
        )
        < EXACT
    )


def test_control_variates_of_periods_remove_client_drift():
    # Unequal curvatures and many local steps, the clients in turns: periods of two rounds.
    turns = [np.array([number % 2]) for number in range(1000)]
    problem = training.Problem(curved_task(), [0.5, 0.5], lambda rng, rounds: turns)
    plan = training.Training(1000, training.constant(0.01), local_steps=8, record_every=1000)
    ends = {
        build: training.train(problem, build([0.5, 0.5], period=2), plan).params[0]
        for build in (rules.amplified_scaffold, rules.amplified_fedavg)
    }
    assert abs(ends[rules.amplified_scaffold] - 4 / 5) < 1e-6
    assert abs(ends[rules.amplified_fedavg] - 4 / 5) > 0.01


def test_with_one_local_step_focus_is_mifa():
    cohorts = [*PAIRS, [], *PAIRS]
    ends = [
        run_points(build(P), TARGETS, cohorts, local_steps=1) for build in (rules.focus, rules.mifa)
    ]
    assert abs(ends[0] - ends[1]) < EXACT


@pytest.mark.parametrize("build", [rules.focus, rules.area])
@pytest.mark.parametrize("local_steps", [1, 5])
def test_uneven_availability_leaves_no_bias(build, local_steps):
    importance, targets = np.array([0.2, 0.2, 0.6]), np.array([1.0, 2.0, -3.0])
    cohorts = RARE * 2  # AREA takes twice as long as FOCUS, as the absent hold its model back
    end = run_points(build(importance), targets, cohorts, step=0.02, local_steps=local_steps)
    assert abs(end - importance @ targets) < 1e-6


def test_a_client_that_is_away_holds_the_mean_of_models_by_its_importance():
    # Client 1 never comes, so that half of the model stays at the start; the other half is client
    # 0's, which goes a fifth of the way from there to its target: m = (m + (1 - m) / 5) / 2.
    end = run_points(rules.area([0.5, 0.5]), [1.0, 0.0], [[0]] * 100, local_steps=1)
    assert abs(end - 1 / 6) < EXACT


def test_ca_fed_leaves_out_a_rare_client_unless_bias_counts():
    importance, targets = np.array([0.45, 0.45, 0.1]), np.array([1.0, 2.0, -3.0])
    ends = [
        run_points(rules.ca_fed(importance, bias=bias), targets, RARE, step=0.02)
        for bias in (0.5, 100.0)
    ]
    assert ends[0] > 1.3
    assert abs(ends[1] - importance @ targets) < 0.2


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
