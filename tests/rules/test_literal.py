"""The engine with every rule is Algorithm 2 with that rule's formula, written as a plain loop."""

import dataclasses
import itertools

import cases
import numpy as np
import pytest

from fedavot import rules
from fedavot.rules import Asked

AGREE = 1e-10
"""Room for the rounding of thirty rounds; models are of order one."""
SINGLE = 1e-4
"""The same in single precision, for the largest models of the rules compared."""
DISAGREE = 1e-6
"""What a wrong weight changes at the least, far above rounding."""

each_rule = pytest.mark.parametrize("case", cases.CASES, ids=cases.NAMES)
each_variant = pytest.mark.parametrize(
    "case", [*cases.CASES, *cases.VARIANTS.values()], ids=[*cases.NAMES, *cases.VARIANTS]
)
BALL = cases.OPTIONS["mini-batches in a ball"]
SEED = cases.SEEDS[0]
EVERYBODY = list(range(cases.N_CLIENTS))
LEAVING = [EVERYBODY] * 2 + [[0, 1, 2]] * 5 + [[3, 0], [], [1, 2, 4]] * 3 + [[5, 3], EVERYBODY] * 7
"""Clients 3 to 6 are away for longer than anybody who came back, twice over; later they return."""
each_way = pytest.mark.parametrize("options", cases.OPTIONS.values(), ids=cases.OPTIONS.keys())


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=AGREE, atol=AGREE)


@each_way
@each_variant
def test_the_engine_agrees_with_the_literal_loop(case, options):
    run = cases.train(case.rule, options)
    for at, seed in enumerate(cases.SEEDS):
        trace = cases.play(case.literal(seed), options, seed)
        assert_close(cases.flat(run.params)[at], trace.models[-1])
        assert_close(cases.flat(run.average)[at], trace.models.mean(axis=0))
        predictions = np.einsum("ijk,k->ij", cases.FEATURES, trace.models[-1][1:])
        losses = np.mean((predictions + trace.models[-1][0] - cases.TARGETS) ** 2, axis=1)
        assert_close(run.losses[at, -1], cases.P @ losses)


def distance(case, options, trained):
    """Return how far the models of a run, one per seed, end from the literal loop's."""
    ends = [cases.play(case.literal(seed), options, seed).models[-1] for seed in cases.SEEDS]
    return np.abs(cases.flat(trained.params) - ends).max(axis=1)


@pytest.mark.parametrize("name", ["fedavg-k", "mifa", "fedawe", "scaffold", "qffl", "afl"])
def test_single_precision_stays_near(name):
    case = cases.BY_NAME[name]
    run = cases.train(case.rule, BALL, cases.SINGLE)
    assert run.params["slope"].dtype == np.float32
    assert (distance(case, BALL, run) <= SINGLE).all()


def test_every_rule_of_the_catalogue_is_compared():
    assert sorted(cases.NAMES) == sorted(rules.RuleName)


def test_no_two_literal_rules_agree():
    ends = {
        name: cases.play(case.literal(SEED), BALL, SEED).models[-1]
        for name, case in cases.BY_NAME.items()
    }
    for one, other in itertools.combinations(ends, 2):
        assert np.abs(ends[one] - ends[other]).max() > DISAGREE, f"{one} and {other} agree"


def test_the_ball_is_met_and_the_cohorts_vary():
    for name in ("mifa", "fedawe", "horvitz-thompson"):
        assert cases.play(cases.BY_NAME[name].literal(SEED), BALL, SEED).projected > 0
    assert {cohort.size for cohort in cases.cohorts_of(SEED)} >= {0, 1, 2, 3, 4}


@each_rule
def test_a_wrong_weight_is_noticed(case):
    wrong = cases.train(slightly_wrong(case.rule), BALL)
    assert (distance(case, BALL, wrong) > DISAGREE).all()


@pytest.mark.parametrize(
    "wrong",
    [
        rules.mifa(cases.P[::-1]),
        rules.fedvarp(cases.P[::-1]),
        rules.scaffold(cases.P[::-1]),
        rules.steady(cases.P, trust=1.0),
        rules.fedstale(cases.P, cases.INCLUSION, trust=0.5),
        rules.amplified_fedavg(cases.P, period=4, amplification=1.6),
        rules.amplified_scaffold(cases.P, period=4, amplification=1.3),
        rules.fedprox(proximal=0.7),
        rules.qffl(cases.P, q=1.6),
        rules.fedau(cases.P, cutoff=5),
        rules.f3ast(cases.P, cohort_size=cases.ASKED, smoothing=0.11),
    ],
    ids=lambda rule: rule.name,
)
def test_a_wrong_constant_is_noticed(wrong):
    off = distance(cases.BY_NAME[wrong.name], BALL, cases.train(wrong, BALL))
    assert (off > DISAGREE).all()


@pytest.mark.parametrize(
    "name", ["fedavg", "horvitz-thompson", "fedavg-k", "fedavot", "fedau", "qffl"]
)
def test_training_everybody_changes_nothing_but_the_cost(name):
    rule = cases.BY_NAME[name].rule
    few, many = (cases.train(each, BALL) for each in (rule, asking_everybody(rule)))
    assert_close(cases.flat(many.params), cases.flat(few.params))


@pytest.mark.parametrize("constants", [{}, {"correction": 0.5}, {"trust": 0.8}], ids=str)
def test_whose_memory_expired_is_new(constants):
    rows, kappa = [np.asarray(cohort, np.int64) for cohort in LEAVING], constants.get("correction")
    problem = dataclasses.replace(cases.PROBLEM, availability=lambda rng, rounds: rows)
    formula = cases.steady(kappa=kappa or 0, c=20 * (kappa or 0), trust=constants.get("trust"))
    run = cases.train(rules.steady(cases.P, **constants), cases.Options(), problem)
    expected = cases.play(formula, cases.Options(), SEED, rows).models[-1]
    assert_close(cases.flat(run.params)[0], expected)
    assert formula.rule.expired == {3, 4, 5, 6}


def slightly_wrong(rule):
    """Change one weight of one round by a thousandth; the game of AFL by as much."""
    if rule.name == "afl":
        return rules.afl(step=0.004 * 1.001)

    def choose(cohorts, rng):
        asked = rule.choose(cohorts, rng)
        number = next(at for at in range(20, len(asked)) if asked[at].members.size > 1)
        members, weights = asked[number]
        asked[number] = Asked(members, weights * np.where(np.arange(weights.size) == 0, 1.001, 1.0))
        return asked

    return dataclasses.replace(rule, choose=choose)


def asking_everybody(rule):
    """Train all clients in every round that asks any, with weight zero for the others."""

    def everybody(one):
        if not one.members.size:
            return one
        weights = np.zeros(cases.N_CLIENTS)
        weights[one.members] = one.weights
        return Asked(np.arange(cases.N_CLIENTS), weights)

    return dataclasses.replace(
        rule, choose=lambda cohorts, rng: [everybody(one) for one in rule.choose(cohorts, rng)]
    )
