"""What a server step and the optimisers promise for every rule they are put on."""

import dataclasses

import jax
import numpy as np
import pytest
from points import EXACT, TARGETS, UNEVEN, built, choose, point_task, run_points

from fedavot import rules, training
from fedavot.errors import OptionError, RuleError

STANDING = {"fedavg-k", "fedawe", "area"}
"""Rules that do not move the model by a change."""
COHORTS = [[0, 1, 2], [2, 3, 4], [0, 4]]


MOVING = {built(name).aggregate: name for name in rules.RuleName if name not in STANDING}.values()
"""A rule for each way to aggregate."""


@pytest.mark.parametrize("name", MOVING)
def test_a_step_of_one_without_momentum_changes_nothing(name):
    plain = run_points(built(name), TARGETS, COHORTS)
    with_step = rules.with_server(built(name))
    assert abs(run_points(with_step, TARGETS, COHORTS) - plain) < EXACT


@pytest.mark.parametrize("name", MOVING)
def test_the_first_change_is_scaled_by_the_step(name):
    once, plain = COHORTS[:1], run_points(built(name), TARGETS, COHORTS[:1])
    longer = run_points(rules.with_server(built(name), step=2.5), TARGETS, once)
    assert abs(longer - 2.5 * plain) < EXACT
    halved = rules.with_server(built(name), step=2.0, momentum=0.75)
    assert abs(run_points(halved, TARGETS, once) - 0.5 * plain) < EXACT


@pytest.mark.parametrize("name", sorted(STANDING))
def test_a_rule_that_moves_by_no_change_takes_no_optimiser(name):
    for wrap in (rules.with_server, rules.with_adam):
        with pytest.raises(RuleError, match=f"{name!r}.*change"):
            wrap(built(name))


@pytest.mark.parametrize("wrap", [rules.with_server, rules.with_adam])
def test_an_empty_round_leaves_the_model_and_the_optimiser_as_they_are(wrap):
    rule = wrap(rules.importance_average(UNEVEN), step=0.5)
    gaps = [COHORTS[0], [], COHORTS[1], [], [], COHORTS[2], []]
    found = run_points(rule, TARGETS, gaps)
    assert abs(found - run_points(rule, TARGETS, COHORTS)) < EXACT


def test_a_published_momentum_is_a_longer_step_here():
    # v ← .9 v + Δ with step .1, which is step 1 of the averaged form; one client, H = 1.
    velocity = model = 0.0
    for _ in range(4):
        velocity = 0.9 * velocity + 0.2 * (1.0 - model)
        model += 0.1 * velocity
    rule = rules.fedavgm([1.0], server_momentum=0.9)
    assert abs(run_points(rule, [1.0], [[0]] * 4, local_steps=1) - model) < EXACT


def test_one_function_serves_all_steps_and_momenta():
    inner = (rules.mifa(UNEVEN), rules.steady(UNEVEN))
    one, other = (
        rules.with_server(rule, step=at, momentum=0.1 * at)
        for at, rule in enumerate(inner, start=1)
    )
    assert one.aggregate is other.aggregate
    first, second = (
        jax.tree.structure(each.init(np.zeros(3, np.float32), 5)) for each in (one, other)
    )
    assert first == second
    adam = [rules.with_adam(rules.scaffold(UNEVEN), step=step) for step in (0.1, 0.2)]
    assert adam[0].aggregate is adam[1].aggregate
    assert adam[0].correct is adam[1].correct


def test_one_compiled_program_serves_all_steps_and_momenta():
    traced = []

    def aggregate(params, state, report):
        traced.append(report)
        return rules.fedavg().aggregate(params, state, report)

    rule = dataclasses.replace(rules.fedavg(), aggregate=aggregate)
    task, rows = point_task(TARGETS), [np.array(cohort) for cohort in COHORTS]
    problem = training.Problem(task, UNEVEN, lambda rng, rounds: rows)
    plan = training.Training(3, training.constant(0.1), record_every=3)
    times = []
    for step, momentum in ((1.0, 0.0), (0.5, 0.9), (2.0, 0.3)):
        training.train(problem, rules.with_server(rule, step=step, momentum=momentum), plan)
        times.append(len(traced))
    assert times[0] == times[-1] > 0


@pytest.mark.parametrize("name", ["fedavg", "horvitz-thompson", "fedavot-soft", "scaffold"])
def test_every_rule_is_built_with_a_server_step(name):
    by_name = built(name, server_step=0.4, server_momentum=0.5)
    by_hand = rules.with_server(built(name), step=0.4, momentum=0.5)
    assert by_name.name == name
    found, expected = (run_points(rule, TARGETS, COHORTS) for rule in (by_name, by_hand))
    assert found == expected


def test_whom_a_rule_asks_does_not_depend_on_the_server():
    plain, served = built("f3ast"), built("f3ast", server_step=3.0)
    for one, other in zip(choose(plain, *COHORTS), choose(served, *COHORTS), strict=True):
        np.testing.assert_array_equal(one.weights, other.weights)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("fedavg", {"server_step": 0.0}, "step is 0.0"),
        ("fedavg", {"server_step": float("nan")}, "step is nan"),
        ("fedavg", {"server_momentum": 1.0}, "momentum is 1.0.*below 1"),
        ("fedavg", {"server_momentum": -0.1}, "momentum is -0.1"),
        ("fedadam", {"betas": (0.9, 1.0)}, "beta is 1.0"),
        ("fedadam", {"betas": 0.9}, r"betas is 0\.9.*pair"),
        ("fedadam", {"epsilon": 0.0}, "epsilon is 0.0"),
    ],
)
def test_the_constants_of_servers_are_checked(name, options, message):
    with pytest.raises(OptionError, match=message):
        built(name, **options)
