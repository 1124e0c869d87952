"""Laws of all rules: when they coincide, what their weights promise, what an empty round does."""

import dataclasses
import inspect

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from points import EXACT, choose, run_points

import fedavot as fa
import strategies
from fedavot import rules
from fedavot.errors import ImportanceError, OptionError, RuleError

ALIGNED = 1e-8
"""Room for an alignment's tolerance."""

N = 5
EVEN = np.full(N, 1 / N)
UNEVEN = np.array([0.3, 0.1, 0.25, 0.2, 0.15])
TARGETS = np.array([0.7, -1.2, 0.4, 2.1, -0.5])
EVERYBODY = np.arange(N)
PERIODS_AND_PUSHES = (
    rules.amplified_fedavg,
    rules.amplified_scaffold,
    rules.focus,
    rules.area,
    rules.ca_fed,
)


def reducing_rules(p):
    """Return the rules that are full participation when everybody always takes part."""
    law = fa.Cohorts([EVERYBODY])
    return [
        rules.importance_average(p),
        rules.horvitz_thompson(p, np.ones(N)),
        rules.self_normalised_ipw(p, np.ones(N)),
        rules.fedavot(fa.align(p, law)),
        rules.fedavot(fa.align(p, law, objective="variance")),
        rules.steady(p),
        rules.fedavot_select(fa.align(p, law), N),
        rules.fedau(p),
        rules.f3ast(p),
        rules.mifa(p),
        rules.fedvarp(p),
        rules.area(p),
        rules.fedavg_k(p),
    ]


def plain_rules():
    """Return the further rules that are so for the plain mean alone."""
    return [
        rules.fedavg(),
        rules.fedavot_online(EVEN),
        rules.fedawe(),
        rules.fedprox(proximal=0.0),
        rules.qffl(EVEN, q=0.0),
    ]


@pytest.mark.parametrize("rule", reducing_rules(UNEVEN), ids=lambda rule: rule.name)
def test_with_everybody_there_the_rule_is_full_participation(rule):
    cohorts = [EVERYBODY] * 4
    full = run_points(rules.full(UNEVEN), TARGETS, cohorts)
    assert abs(run_points(rule, TARGETS, cohorts) - full) < ALIGNED


@pytest.mark.parametrize("rule", plain_rules(), ids=lambda rule: rule.name)
def test_with_everybody_there_and_alike_the_rule_is_full_participation(rule):
    cohorts = [EVERYBODY] * 4
    full = run_points(rules.full(EVEN), TARGETS, cohorts)
    assert abs(run_points(rule, TARGETS, cohorts) - full) < EXACT


@pytest.mark.parametrize("rule", [rules.scaffold(EVEN), rules.afl()], ids=lambda rule: rule.name)
def test_the_first_round_with_everybody_there_is_full_participation(rule):
    cohorts = [EVERYBODY]
    full = run_points(rules.full(EVEN), TARGETS, cohorts)
    assert abs(run_points(rule, TARGETS, cohorts) - full) < EXACT


def normalising_rules(p, law):
    alignment = fa.align(p, law)
    return [
        rules.full(p),
        rules.fedavg(),
        rules.importance_average(p),
        rules.self_normalised_ipw(p, law.inclusion()),
        rules.fedavot(alignment),
        rules.fedavot(fa.align(p, law, softness=0.2)),
        rules.fedavot_online(p),
        rules.fedavot_select(alignment, 2),
        rules.fedprox(),
        rules.fedawe(),
        rules.afl(),
    ]


@given(
    st.lists(st.sets(st.integers(0, N - 1), min_size=1), min_size=1, max_size=6),
    strategies.importances(N),
)
def test_weights_that_promise_to_sum_to_one_do(sets, importance):
    cohorts = [sorted(cohort) for cohort in sets]
    law = fa.IndependentClients(np.linspace(0.2, 0.9, N))
    for rule in normalising_rules(importance, law):
        for asked in choose(rule, *cohorts):
            assert abs(asked.weights.sum() - 1) < EXACT, rule.name


@given(strategies.any_law(6), st.data())
def test_expected_horvitz_thompson_weights_are_the_importance(law, data):
    inclusion = law.inclusion()
    importance = data.draw(strategies.importances(law.n_clients)) * (inclusion > 0)
    assume(importance.any())
    importance = importance / importance.sum()
    cohorts = strategies.enumerate_cohorts(law)
    expected = np.zeros(law.n_clients)
    rule = rules.horvitz_thompson(importance, inclusion)
    for (cohort, chance), asked in zip(
        cohorts.items(), choose(rule, *map(sorted, cohorts)), strict=True
    ):
        assert set(asked.members) <= cohort
        expected[asked.members] += float(chance) * asked.weights
    np.testing.assert_allclose(expected, importance, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("build", [rules.fedavg_k, rules.fedvarp, rules.scaffold])
def test_weights_scaled_by_cohort_size_are_the_importance_under_uniform_cohorts(build):
    cohorts = strategies.enumerate_cohorts(fa.UniformCohorts(N, 2))
    expected = np.zeros(N)
    for asked in choose(build(UNEVEN), *map(sorted, cohorts)):
        expected[asked.members] += asked.weights / len(cohorts)
    np.testing.assert_allclose(expected, UNEVEN, rtol=EXACT)


def test_nobody_is_asked_in_an_empty_round_except_by_full_participation():
    law = fa.UniformCohorts(N, 2)
    for rule in [*normalising_rules(EVEN, law), *reducing_rules(EVEN), rules.scaffold(EVEN)]:
        first, second, third = choose(rule, [], [0, 1], [])
        empty = N if rule.name == "full" else 0
        assert (first.members.size, third.members.size) == (empty, empty), rule.name
        assert second.members.size > 0


def every_rule():
    return [
        *normalising_rules(UNEVEN, fa.UniformCohorts(N, 3))[1:],
        rules.horvitz_thompson(UNEVEN, np.full(N, 0.6)),
        rules.fedavg_k(UNEVEN),
        rules.steady(UNEVEN),
        rules.fedau(UNEVEN),
        rules.f3ast(UNEVEN, cohort_size=1),
        rules.mifa(UNEVEN),
        rules.fedvarp(UNEVEN),
        rules.scaffold(UNEVEN),
        rules.qffl(UNEVEN),
        rules.fedstale(UNEVEN, np.full(N, 0.6)),
        *(build(UNEVEN) for build in PERIODS_AND_PUSHES),
    ]


@pytest.mark.parametrize("rule", every_rule(), ids=lambda rule: rule.name)
def test_rounds_without_anybody_leave_the_model_as_it_is(rule):
    cohorts = [[0, 1, 2], [2, 3, 4]]
    once = run_points(rule, TARGETS, cohorts)
    assert once != 0.0
    assert abs(run_points(rule, TARGETS, [*cohorts, [], []]) - once) < EXACT


@pytest.mark.parametrize(
    "build",
    [
        *(
            rules.steady,
            rules.fedau,
            rules.f3ast,
            rules.mifa,
            rules.fedvarp,
            rules.scaffold,
            rules.qffl,
        ),
        *PERIODS_AND_PUSHES,
    ],
    ids=lambda build: build.__name__,
)
def test_what_a_client_without_importance_holds_changes_nothing(build):
    importance = np.array([0.4, 0.0, 0.3, 0.2, 0.1])
    cohorts = [[0, 1, 2], [1, 3], [1], [0, 1, 4], [2, 1]]
    moved = TARGETS + 100.0 * (EVERYBODY == 1)
    rule = build(importance)
    assert run_points(rule, TARGETS, cohorts) == run_points(rule, moved, cohorts)


def test_every_rule_says_what_it_knows_and_stores():
    for rule in [*every_rule(), rules.full(EVEN), rules.fedavot_online(EVEN)]:
        assert rule.name == rule.name.lower()
        assert 0 < len(rule.knows) < 60
        assert 0 < len(rule.stores) < 40


def test_steps_are_shared_so_that_programs_are_compiled_once():
    remembering = (rules.steady, rules.mifa, rules.fedvarp, rules.scaffold)
    for build in (*remembering, rules.qffl, *PERIODS_AND_PUSHES):
        assert build(EVEN).aggregate is build(UNEVEN).aggregate
    assert rules.afl(step=0.1).aggregate is rules.afl(step=0.2).aggregate
    for rule in every_rule():
        for hook in (rule.aggregate, rule.start, rule.correct):
            assert hook is None or inspect.getmodule(hook).__dict__[hook.__name__] is hook


def test_rules_choose_afresh_for_every_seed():
    cohorts = [[0, 1], [2], [0, 3, 4], [1, 2], [0]]
    for rule in every_rule():
        first, second = choose(rule, *cohorts), choose(rule, *cohorts)
        for one, other in zip(first, second, strict=True):
            np.testing.assert_array_equal(one.members, other.members)
            np.testing.assert_array_equal(one.weights, other.weights)


def test_rules_refuse_what_they_cannot_use():
    with pytest.raises(ImportanceError, match="importance sums to 0.75"):
        rules.fedau([0.5, 0.25])
    with pytest.raises(OptionError, match="cutoff is 0; it must be at least 1"):
        rules.fedau(EVEN, cutoff=0)
    with pytest.raises(OptionError, match="size is 0; it must be at least 1"):
        rules.f3ast(EVEN, cohort_size=0)
    with pytest.raises(OptionError, match="smoothing is 1.5; it must be from 0 to 1"):
        rules.f3ast(EVEN, smoothing=1.5)
    with pytest.raises(OptionError, match="smoothing is 0.0; it must be finite and above 0"):
        rules.f3ast(EVEN, smoothing=0.0)
    with pytest.raises(OptionError, match="proximal is -1.0; it must be finite and at least 0"):
        rules.fedprox(proximal=-1.0)
    with pytest.raises(OptionError, match="q is nan; it must be finite and at least 0"):
        rules.qffl(EVEN, q=float("nan"))
    with pytest.raises(OptionError, match="step is 0.0; it must be finite and above 0"):
        rules.afl(step=0.0)
    with pytest.raises(RuleError, match="rule 'horvitz-thompson' needs inclusion probabilities"):
        rules.horvitz_thompson(EVEN, None)
    with pytest.raises(RuleError, match="client 1 has importance 0.1 and inclusion probability 0"):
        rules.self_normalised_ipw(UNEVEN, [1, 0, 1, 1, 1])
    with pytest.raises(RuleError, match="rule 'fedavot' needs an alignment"):
        rules.fedavot(None)


@pytest.mark.parametrize(
    ("inclusion", "told"),
    [
        ([0.5, 0.5], "inclusion has 2 entries, but importance has 3 clients"),
        ([0.5, 1.5, 0.5], "inclusion probability of client 1 is 1.5; it must be between 0 and 1"),
        ([0.5, float("nan"), 0.5], "inclusion probability of client 1 is nan"),
    ],
)
@pytest.mark.parametrize("build", [rules.horvitz_thompson, rules.self_normalised_ipw])
def test_inclusion_probabilities_are_checked_where_they_enter(build, inclusion, told):
    with pytest.raises(RuleError, match=told):
        build([0.5, 0.25, 0.25], inclusion)


@pytest.mark.parametrize("name", ["fedavot", "fedavot-variance", "fedavot-soft"])
def test_a_rule_that_needs_a_law_says_so_and_what_to_use_instead(name):
    with pytest.raises(RuleError, match="needs an availability law.*use fedavot-online"):
        rules.build(name, rules.Known([0.5, 0.5]))


def test_a_near_miss_of_a_name_is_answered_with_the_name():
    with pytest.raises(RuleError, match="'fedavrg'; did you mean 'fedavg'"):
        rules.build("fedavrg", rules.Known([0.5, 0.5]))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("uniform", "fedavg"),
        ("p-normalised", "importance-average"),
        ("P_normalized", "importance-average"),
        ("ht", "horvitz-thompson"),
        ("snipw", "self-normalised-ipw"),
        ("qfedavg", "qffl"),
    ],
)
def test_a_name_used_elsewhere_is_answered_with_the_name_here(name, meant):
    with pytest.raises(RuleError, match=f"{name!r}.*{meant!r}"):
        rules.build(name, rules.Known([0.5, 0.5]))


def test_a_word_that_shares_two_letters_of_three_with_a_rule_is_no_near_miss():
    with pytest.raises(RuleError, match=f"'all'.*{', '.join(rules.RuleName)}"):
        rules.build("all", rules.Known([0.5, 0.5]))


def test_a_name_that_is_nowhere_near_a_rule_is_answered_with_all_there_are():
    with pytest.raises(RuleError, match=f"'xyz'; the rules are {', '.join(rules.RuleName)}"):
        rules.build("xyz", rules.Known([0.5, 0.5]))


@pytest.mark.parametrize(
    "name", ["FedAvg", "FEDAVG", "plain average", "Plain_Average", rules.RuleName.FEDAVG]
)
def test_a_rule_is_found_by_its_name_or_label_in_any_spelling(name):
    assert rules.build(name, rules.Known([0.5, 0.5])).name == "fedavg"


def test_no_two_rules_share_a_name_or_a_label():
    owners = {}
    for rule in rules.RuleName:
        for text in (rule.value, rule.label.lower()):
            assert owners.setdefault(text, rule) is rule


def test_a_rule_prints_as_its_name_and_its_number_of_clients():
    assert repr(rules.fedavg()) == "Rule('fedavg')"
    assert repr(rules.mifa([0.5, 0.5])) == "Rule('mifa', 2 clients)"


@pytest.mark.parametrize(
    ("name", "option", "told"),
    [
        ("fedavg", "softness", "options:"),
        ("fedavot", "allow_unconverged", "options:"),
        ("fedavot-soft", "softnes", "'softness'.*softness,"),
        ("fedprox", "mu", "proximal, by_importance,"),
        ("f3ast", "size", "'cohort_size'.*cohort_size, smoothing,"),
        ("mifa", "importance", "options:"),
    ],
)
def test_an_option_a_rule_does_not_have_is_answered_with_those_it_has(name, option, told):
    known = rules.Known([0.5, 0.5], fa.UniformCohorts(2, 1))
    with pytest.raises(
        RuleError, match=f"{name!r}.*{option!r}.*{told} server_step, server_momentum$"
    ):
        rules.build(name, known, **{option: 1.0})


def test_a_rule_without_an_option_it_needs_names_the_option():
    known = rules.Known([0.5, 0.5], fa.UniformCohorts(2, 1))
    with pytest.raises(RuleError, match="'fedavot-select'.*'cohort_size'"):
        rules.build("fedavot-select", known)


def test_importance_in_place_of_what_is_known_is_refused():
    with pytest.raises(RuleError, match=r"\[0.5, 0.5\].*rules.Known\(importance, law\)"):
        rules.build("fedavot", [0.5, 0.5])


def test_no_more_clients_are_asked_for_than_there_are():
    aligned = fa.align(EVEN, fa.UniformCohorts(N, 2))
    with pytest.raises(OptionError, match="cohort_size is 6.* at most 5"):
        rules.fedavot_select(aligned, N + 1)
    with pytest.raises(OptionError, match="cohort_size is 6.* at most 5"):
        rules.f3ast(EVEN, cohort_size=N + 1)


def test_importance_by_name_is_put_in_the_order_of_a_law_with_names():
    law = fa.UniformCohorts(3, 2, clients=["ann", "bob", "cy"])
    known = rules.Known({"cy": 0.2, "ann": 0.5, "bob": 0.3}, law)
    np.testing.assert_array_equal(known.shares, [0.5, 0.3, 0.2])
    (asked,) = choose(rules.build("full", known), [])
    np.testing.assert_array_equal(asked.weights, known.shares)
    assert rules.build("fedavot", known).n_clients == 3
    with pytest.raises(ImportanceError, match="'cy'"):
        rules.build("full", rules.Known({"ann": 0.5, "bob": 0.5}, law))


@pytest.mark.parametrize(
    "make",
    [
        rules.full,
        rules.fedavot_online,
        lambda mapping: rules.horvitz_thompson(mapping, [1, 1]),
        lambda mapping: rules.build("mifa", rules.Known(mapping)),
        lambda mapping: rules.build("full", rules.Known(mapping, fa.UniformCohorts(2, 1))),
    ],
)
def test_importance_by_name_without_names_is_answered_with_what_orders_it(make):
    with pytest.raises(ImportanceError, match="fedavot.importance.from_mapping"):
        make({"ann": 0.5, "bob": 0.5})


def test_one_iteration_is_one():
    unconverged = fa.align(UNEVEN, fa.UniformCohorts(N, 2), max_iter=1)
    with pytest.raises(RuleError, match=r"after 1 iteration\)"):
        rules.fedavot(unconverged)


@pytest.mark.parametrize("part", ["choose", "aggregate", "init"])
def test_a_rule_is_made_of_functions_and_has_a_name(part):
    with pytest.raises(RuleError, match=f"{part} of rule 'fedavg' is 3"):
        dataclasses.replace(rules.fedavg(), **{part: 3})
    with pytest.raises(RuleError, match="name is ''"):
        dataclasses.replace(rules.fedavg(), name="")
