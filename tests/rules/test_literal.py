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


@pytest.mark.parametrize("name", ["fedavg-k", "mifa", "fedawe", "scaffold", "qffl", "afl"])
def test_single_precision_stays_near(name):
    case, options = cases.CASES[cases.NAMES.index(name)], cases.OPTIONS["mini-batches in a ball"]
    run = cases.train(case.rule, options, cases.SINGLE)
    assert run.params["slope"].dtype == np.float32
    for at, seed in enumerate(cases.SEEDS):
        trace = cases.play(case.literal(seed), options, seed)
        found = cases.flat(run.params)[at]
        np.testing.assert_allclose(found, trace.models[-1], rtol=SINGLE, atol=SINGLE)


def test_every_rule_of_the_catalogue_is_compared():
    assert sorted(cases.NAMES) == sorted(rules.RuleName)


def test_no_two_literal_rules_agree():
    options, seed = cases.OPTIONS["mini-batches in a ball"], cases.SEEDS[0]
    ends = [cases.play(case.literal(seed), options, seed).models[-1] for case in cases.CASES]
    for (one, first), (other, second) in itertools.combinations(
        zip(cases.NAMES, ends, strict=True), 2
    ):
        assert np.abs(first - second).max() > DISAGREE, f"{one} and {other} agree"


def test_the_ball_is_met_and_the_cohorts_vary():
    options, seed = cases.OPTIONS["mini-batches in a ball"], cases.SEEDS[0]
    for name in ("mifa", "fedawe", "horvitz-thompson"):
        case = cases.CASES[cases.NAMES.index(name)]
        assert cases.play(case.literal(seed), options, seed).projected > 0
    sizes = {cohort.size for cohort in cases.cohorts_of(seed)}
    assert sizes >= {0, 1, 2, 3, 4}


@each_rule
def test_a_wrong_weight_is_noticed(case):
    options = cases.OPTIONS["mini-batches in a ball"]
    wrong = cases.train(slightly_wrong(case.rule), options)
    for at, seed in enumerate(cases.SEEDS):
        trace = cases.play(case.literal(seed), options, seed)
        assert np.abs(cases.flat(wrong.params)[at] - trace.models[-1]).max() > DISAGREE


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
    options, seed = cases.OPTIONS["mini-batches in a ball"], cases.SEEDS[0]
    trace = cases.play(cases.CASES[cases.NAMES.index(wrong.name)].literal(seed), options, seed)
    found = cases.flat(cases.train(wrong, options).params)[0]
    assert np.abs(found - trace.models[-1]).max() > DISAGREE


@pytest.mark.parametrize(
    "name", ["fedavg", "horvitz-thompson", "fedavg-k", "fedavot", "fedau", "qffl"]
)
def test_training_everybody_changes_nothing_but_the_cost(name):
    case = cases.CASES[cases.NAMES.index(name)]
    options = cases.OPTIONS["mini-batches in a ball"]
    few = cases.train(case.rule, options)
    many = cases.train(asking_everybody(case.rule), options)
    assert_close(cases.flat(many.params), cases.flat(few.params))


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
