"""Laws of all rules: when they coincide, what their weights promise, what an empty round does."""

import dataclasses
import inspect

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from points import EXACT, TARGETS, UNEVEN, N, built, choose, run_points

import fedavot as fa
import strategies
from fedavot import rules
from fedavot.errors import ImportanceError, OptionError, RuleError

ALIGNED = 1e-8
"""Room for an alignment's tolerance."""

EVEN = np.full(N, 1 / N)
EVERYBODY = np.arange(N)
PAIR = rules.Known([0.5, 0.5], fa.UniformCohorts(2, 1))
ABSENT = [name for name in rules.RuleName if name != "full"]
"""Rules that ask only clients that take part."""


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in ("importance-average", "horvitz-thompson", "fedavot")),
        *((name, {}) for name in ("self-normalised-ipw", "fedavot-variance", "fedavot-steady")),
        *((name, {}) for name in ("fedau", "f3ast", "mifa", "fedvarp", "area", "fedavg-k")),
        ("fedavot-select", {"cohort_size": N}),
    ],
)
def test_with_everybody_there_the_rule_is_full_participation(name, options):
    rule, cohorts = built(name, law=fa.Cohorts([EVERYBODY]), **options), [EVERYBODY] * 4
    full = run_points(rules.full(UNEVEN), TARGETS, cohorts)
    assert abs(run_points(rule, TARGETS, cohorts) - full) < ALIGNED


@pytest.mark.parametrize(
    ("name", "options", "rounds"),
    [
        *((name, {}, 4) for name in ("fedavg", "fedavot-online", "fedawe")),
        ("fedprox", {"proximal": 0.0}, 4),
        ("qffl", {"q": 0.0}, 4),
        *((name, {}, 1) for name in ("scaffold", "afl")),
    ],
)
def test_with_everybody_there_and_alike_the_rule_is_full_participation(name, options, rounds):
    cohorts = [EVERYBODY] * rounds
    full = run_points(rules.full(EVEN), TARGETS, cohorts)
    assert abs(run_points(built(name, EVEN, **options), TARGETS, cohorts) - full) < EXACT


@given(
    st.lists(st.sets(st.integers(0, N - 1), min_size=1), min_size=1, max_size=6),
    strategies.importances(N),
)
def test_weights_that_promise_to_sum_to_one_do(sets, importance):
    cohorts, law = [*map(sorted, sets)], fa.IndependentClients(np.linspace(0.2, 0.9, N))
    averages = ("full", "fedavg", "importance-average", "self-normalised-ipw", "fedprox")
    ours = ("fedavot", "fedavot-soft", "fedavot-online", "fedavot-select", "fedavot-steady")
    for name in (*averages, *ours, "fedawe", "afl"):
        for asked in choose(built(name, importance, law), *cohorts):
            assert not asked.members.size or abs(asked.weights.sum() - 1) < EXACT, name


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


@pytest.mark.parametrize("name", ["fedavg-k", "fedvarp", "scaffold"])
def test_weights_scaled_by_cohort_size_are_the_importance_under_uniform_cohorts(name):
    cohorts, expected = strategies.enumerate_cohorts(fa.UniformCohorts(N, 2)), np.zeros(N)
    for asked in choose(built(name), *map(sorted, cohorts)):
        expected[asked.members] += asked.weights / len(cohorts)
    np.testing.assert_allclose(expected, UNEVEN, rtol=EXACT)


@pytest.mark.parametrize("name", rules.RuleName)
def test_nobody_is_asked_in_an_empty_round_except_by_full_participation(name):
    first, second, third = choose(built(name), [], [0, 1], [])
    empty = N if name == "full" else 0
    assert (first.members.size, third.members.size) == (empty, empty)
    assert second.members.size > 0


@pytest.mark.parametrize("name", ABSENT)
def test_rounds_without_anybody_leave_the_model_as_it_is(name):
    rule, cohorts = built(name), [[0, 1, 2], [2, 3, 4]]
    once = run_points(rule, TARGETS, cohorts)
    assert once != 0.0
    assert abs(run_points(rule, TARGETS, [*cohorts, [], []]) - once) < EXACT


@pytest.mark.parametrize(
    "name",
    [
        *("fedavot-steady", "fedau", "f3ast", "mifa", "fedvarp", "scaffold", "qffl", "focus"),
        *("area", "ca-fed", "amplified-fedavg", "amplified-scaffold"),
    ],
)
def test_what_a_client_without_importance_has_changes_nothing(name):
    cohorts = [[0, 1, 2], [1, 3], [1], [0, 1, 4], [2, 1]]
    moved = TARGETS + 100.0 * (EVERYBODY == 1)
    rule = built(name, np.array([0.4, 0.0, 0.3, 0.2, 0.1]))
    assert run_points(rule, TARGETS, cohorts) == run_points(rule, moved, cohorts)


@pytest.mark.parametrize("name", rules.RuleName)
def test_every_rule_says_what_it_knows_and_stores_and_where_it_is_from(name):
    rule = built(name)
    assert rule.name == name
    assert 0 < len(rule.knows) < 60
    assert 0 < len(rule.stores) < 40
    assert name.source


@pytest.mark.parametrize("name", [n for n in rules.RuleName if n not in ("fedavgm", "fedadam")])
def test_steps_are_shared_so_that_programs_are_compiled_once(name):
    rule = built(name)
    assert built(name, EVEN).aggregate is rule.aggregate
    for hook in (rule.aggregate, rule.start, rule.correct):
        assert hook is None or inspect.getmodule(hook).__dict__[hook.__name__] is hook


@pytest.mark.parametrize("name", rules.RuleName)
def test_rules_choose_afresh_for_every_seed(name):
    rule, cohorts = built(name), [[0, 1], [2], [0, 3, 4], [1, 2], [0]]
    for one, other in zip(choose(rule, *cohorts), choose(rule, *cohorts), strict=True):
        np.testing.assert_array_equal(one.members, other.members)
        np.testing.assert_array_equal(one.weights, other.weights)


INCLUSION = (rules.horvitz_thompson, rules.self_normalised_ipw)
REFUSALS = [
    (lambda: rules.fedau([0.5, 0.25]), ImportanceError, "importance sums to 0.75"),
    (lambda: rules.fedau(EVEN, cutoff=0), OptionError, "cutoff is 0; it must be at least 1"),
    (lambda: rules.f3ast(EVEN, cohort_size=0), OptionError, "size is 0; it must be at least 1"),
    (lambda: rules.f3ast(EVEN, cohort_size=6), OptionError, "cohort_size is 6.* at most 5"),
    (lambda: rules.f3ast(EVEN, smoothing=1.5), OptionError, "smoothing is 1.5; .* from 0 to 1"),
    (lambda: rules.f3ast(EVEN, smoothing=0.0), OptionError, "smoothing is 0.0; .* above 0"),
    (lambda: rules.fedprox(proximal=-1.0), OptionError, "proximal is -1.0; .* at least 0"),
    (lambda: rules.qffl(EVEN, q=float("nan")), OptionError, "q is nan; .* at least 0"),
    (lambda: rules.afl(step=0.0), OptionError, "step is 0.0; it must be finite and above 0"),
    (lambda: rules.fedstale(EVEN, EVEN, trust=1.1), OptionError, "trust is 1.1"),
    (lambda: rules.fedstale(EVEN, None), RuleError, "'fedstale' needs inclusion"),
    (lambda: rules.amplified_fedavg(EVEN, period=0), OptionError, "period is 0"),
    (lambda: rules.amplified_scaffold(EVEN, amplification=0.0), OptionError, "cation is 0.0"),
    (lambda: rules.ca_fed(EVEN, bias=-1.0), OptionError, "bias is -1.0"),
    (lambda: rules.fedavot(None), RuleError, "rule 'fedavot' needs an alignment"),
    (
        lambda: rules.fedavot(fa.align(UNEVEN, fa.UniformCohorts(N, 2), max_iter=1)),
        *(RuleError, r"after 1 iteration\)"),
    ),
    (
        lambda: rules.fedavot_select(fa.align(EVEN, fa.UniformCohorts(N, 2)), N + 1),
        *(OptionError, "cohort_size is 6.* at most 5"),
    ),
    (lambda: rules.horvitz_thompson(EVEN, None), RuleError, "'horvitz-thompson' needs inclusion"),
    *(
        (lambda make=make, chances=chances: make([0.5, 0.25, 0.25], chances), RuleError, told)
        for make in INCLUSION
        for chances, told in (
            ([0.5, 0.5], "inclusion has 2 entries, but importance has 3 clients"),
            ([0.5, 1.5, 0.5], "of client 1 is 1.5; it must be between 0 and 1"),
            ([0.5, float("nan"), 0.5], "inclusion probability of client 1 is nan"),
            ([1, 0, 1], "client 1 has importance 0.25 and inclusion probability 0"),
        )
    ),
    *(
        (lambda make=make: make({"ann": 0.5, "bob": 0.5}), ImportanceError, "from_mapping")
        for make in (
            rules.full,
            rules.fedavot_online,
            lambda mapping: rules.horvitz_thompson(mapping, [1, 1]),
            lambda mapping: rules.build("mifa", rules.Known(mapping)),
            lambda mapping: rules.build("full", rules.Known(mapping, PAIR.law)),
        )
    ),
    *(
        (lambda part=part: dataclasses.replace(rules.fedavg(), **{part: 3}), RuleError, told)
        for part, told in (
            ("choose", "choose of rule 'fedavg' is 3"),
            ("aggregate", "aggregate of rule 'fedavg' is 3"),
            ("init", "init of rule 'fedavg' is 3"),
            ("name", "name is 3"),
        )
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSALS)
def test_rules_refuse_what_they_cannot_use(call, error, message):
    with pytest.raises(error, match=message):
        call()


EVERY_NAME = ", ".join(rules.RuleName)
SERVER = "server_step, server_momentum$"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        # A near miss, a name used elsewhere, and names that are nowhere near a rule.
        ("fedavrg", {}, "'fedavrg'; did you mean 'fedavg'"),
        ("uniform", {}, "'uniform'.*'fedavg'"),
        ("p-normalised", {}, "'p-normalised'.*'importance-average'"),
        ("P_normalized", {}, "'P_normalized'.*'importance-average'"),
        ("ht", {}, "'ht'.*'horvitz-thompson'"),
        ("snipw", {}, "'snipw'.*'self-normalised-ipw'"),
        ("qfedavg", {}, "'qfedavg'.*'qffl'"),
        ("all", {}, f"'all'; the rules are {EVERY_NAME}"),
        ("xyz", {}, f"'xyz'; the rules are {EVERY_NAME}"),
        ("fedavg", {"softness": 1.0}, f"'fedavg'.*'softness'.*options: {SERVER}"),
        ("fedavot", {"allow_unconverged": 1.0}, f"'allow_unconverged'.*options: {SERVER}"),
        ("fedavot-soft", {"softnes": 1.0}, f"'softnes'.*'softness'.*softness, {SERVER}"),
        ("fedprox", {"mu": 1.0}, f"'mu'.*proximal, by_importance, {SERVER}"),
        ("f3ast", {"size": 1}, f"'size'.*'cohort_size'.*cohort_size, smoothing, {SERVER}"),
        ("mifa", {"importance": 1.0}, f"'importance'.*options: {SERVER}"),
        ("fedavot-select", {}, "'fedavot-select'.*'cohort_size'"),
    ],
)
def test_a_name_or_an_option_that_is_wrong_is_answered_with_the_right_one(name, options, message):
    with pytest.raises(RuleError, match=message):
        rules.build(name, PAIR, **options)


@pytest.mark.parametrize("name", ["fedavot", "fedavot-variance", "fedavot-soft"])
def test_a_rule_that_needs_a_law_says_so_and_what_to_use_instead(name):
    with pytest.raises(RuleError, match="needs an availability law.*use fedavot-online"):
        rules.build(name, rules.Known([0.5, 0.5]))
    with pytest.raises(RuleError, match=r"\[0.5, 0.5\].*rules.Known\(importance, law\)"):
        rules.build(name, [0.5, 0.5])


@pytest.mark.parametrize(
    "name", ["FedAvg", "FEDAVG", "plain average", "Plain_Average", rules.RuleName.FEDAVG]
)
def test_a_rule_is_found_by_its_name_or_label_in_any_spelling(name):
    assert rules.build(name, rules.Known([0.5, 0.5])).name == "fedavg"


def test_no_two_rules_share_a_name_or_a_label():
    texts = [text for rule in rules.RuleName for text in {rule.value, rule.label.lower()}]
    assert len(set(texts)) == len(texts)


def test_a_rule_prints_as_its_name_and_its_number_of_clients():
    assert repr(rules.fedavg()) == "Rule('fedavg')"
    assert repr(rules.mifa([0.5, 0.5])) == "Rule('mifa', 2 clients)"


def test_importance_by_name_is_put_in_the_order_of_a_law_with_names():
    law = fa.UniformCohorts(3, 2, clients=["ann", "bob", "cy"])
    known = rules.Known({"cy": 0.2, "ann": 0.5, "bob": 0.3}, law)
    np.testing.assert_array_equal(known.shares, [0.5, 0.3, 0.2])
    (asked,) = choose(rules.build("full", known), [])
    np.testing.assert_array_equal(asked.weights, known.shares)
    assert rules.build("fedavot", known).n_clients == 3
    with pytest.raises(ImportanceError, match="'cy'"):
        rules.build("full", rules.Known({"ann": 0.5, "bob": 0.5}, law))
