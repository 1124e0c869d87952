"""The family of rules with memory: published members and the steady rule against their formulas."""

import dataclasses

import cases
import formulas
import formulas_newer
import formulas_steady
import numpy as np
import pytest
from points import choose

import fedavot as fa
from fedavot import rules
from fedavot.rules._memory import remembering
from fedavot.rules._weights import by_cohort

AGREE = 1e-10
"""Room for the rounding of thirty rounds; models are of order one."""


def equally(cohort):
    return np.full(len(cohort), 1 / len(cohort))


def family(weigh, importance=cases.P, **constants):
    """Return a member of the family with weights of its own."""
    return remembering("mifa", "", by_cohort(weigh), importance, **constants)


EVEN = np.full(cases.N_CLIENTS, 1 / cases.N_CLIENTS)
RATIOS = cases.P / cases.INCLUSION
EVERYBODY = list(range(cases.N_CLIENTS))
LEAVING = [EVERYBODY] * 2 + [[0, 1, 2]] * 5 + [[3, 0], [], [1, 2, 4]] * 3 + [[5, 3], EVERYBODY] * 7
"""Clients 3 to 6 are away for longer than anybody who came back, twice over; later they return."""
MEMBERS = {
    "MIFA": (family(lambda cohort: cases.P[cohort]), formulas.Mifa(cases.P)),
    "FedVARP": (
        family(lambda cohort: cases.N_CLIENTS * cases.P[cohort] / len(cohort)),
        formulas.fedvarp(cases.P),
    ),
    "FedAVOT with memory": (
        family(cases.ENTROPY.weights),
        formulas.Memory(cases.P, cases.ENTROPY.weights),
    ),
    "FedStale": (
        family(lambda cohort: RATIOS[cohort], trust=0.4),
        formulas_newer.FedStale(cases.P, cases.INCLUSION, trust=0.4),
    ),
    "SCAFFOLD": (
        family(equally, EVEN, correction=1.0),
        formulas.Scaffold(EVEN, cases.N_FEATURES + 1),
    ),
}


def assert_engine_agrees(rule, formula, cohorts):
    """Compare the engine's last model with the literal loop's on the same cohorts and batches."""
    rows, seed = [np.asarray(cohort, dtype=np.int64) for cohort in cohorts], cases.SEEDS[0]
    problem = dataclasses.replace(cases.PROBLEM, availability=lambda rng, rounds: rows)
    found = cases.flat(cases.train(rule, cases.Options(), problem).params)[0]
    expected = cases.play(formula, cases.Options(), seed, rows).models[-1]
    np.testing.assert_allclose(found, expected, rtol=AGREE, atol=AGREE)


@pytest.mark.parametrize("name", MEMBERS)
def test_published_rules_are_members_of_the_family(name):
    assert_engine_agrees(*MEMBERS[name], cases.cohorts_of(cases.SEEDS[0]))


@pytest.mark.parametrize("constants", [{}, {"correction": 0.5}, {"trust": 0.8}], ids=str)
def test_whose_memory_expired_is_new(constants):
    kappa = constants.get("correction", 0.0)
    formula = formulas_steady.Steady(
        cases.P, cases.softly(), kappa=kappa, c=20 * kappa, trust=constants.get("trust")
    )
    assert_engine_agrees(rules.steady(cases.P, **constants), formula, LEAVING)
    assert formula.rule.expired == {3, 4, 5, 6}


@pytest.mark.parametrize(
    "make",
    [
        lambda: fa.OnlineAligner(cases.P, softness=0, step=0.7),
        lambda: fa.OnlineAligner(cases.P, step=0.7, softness=0.5),
    ],
    ids=["online", "soft"],
)
def test_weights_learnt_on_the_way_are_those_of_the_aligner_as_it_observes(make):
    aligner = make()
    rule = rules.steady(cases.P, alignment=aligner)
    cohorts = cases.cohorts_of(cases.SEEDS[0])
    assert_engine_agrees(rule, formulas_steady.Steady(cases.P, make().observe), cohorts)
    assert aligner.rounds == 0
    for one, again in zip(choose(rule, *cohorts), choose(rule, *cohorts), strict=True):
        np.testing.assert_array_equal(one.weights, again.weights)
