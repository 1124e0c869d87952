"""Whom rounds ask: cohorts of any size, weights in their places, and what is refused."""

import dataclasses

import jax
import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st

import fedavot as fa
from fedavot import rules, training
from fedavot.errors import CohortError, RuleError
from fedavot.rules import Asked, Rule
from fedavot.rules._rule import add_updates
from fedavot.training import Ending, train
from fedavot.training.schedule import schedule

AGREE = 1e-12
"""Room for sums taken in another order; models are of order one."""
EXACT = 1e-14
"""Room for means of few weights."""


def problem_of(cohorts):
    """Return a problem with the same cohorts for every seed."""

    def availability(rng, rounds):
        return [np.asarray(cohort, dtype=np.int64) for cohort in cohorts]

    return training.Problem(small.TASK, small.P, availability)


some_cohorts = st.lists(
    st.lists(st.integers(0, 3), max_size=4, unique=True), min_size=1, max_size=8
).filter(any)


@given(some_cohorts, st.integers(0, 2**32 - 1), st.integers(0, 9))
def test_a_schedule_holds_every_member_and_weight_in_its_place(cohorts, entropy, rounds):
    rng = np.random.default_rng(entropy)
    weights = [rng.uniform(-1, 2, len(cohort)) for cohort in cohorts]
    rule = small.asking(lambda number, cohort: (cohort, weights[number - 1]))
    plan = schedule(problem_of(cohorts), rule, (1, 2), len(cohorts))
    size = max(map(len, cohorts))
    assert plan.members.shape == plan.weights.shape == (2, len(cohorts), size)
    for seed in range(2):
        for number, cohort in enumerate(cohorts):
            held = len(cohort)
            assert plan.members[seed, number, :held].tolist() == cohort
            assert plan.weights[seed, number, :held].tolist() == weights[number].tolist()
            assert (plan.members[seed, number, held:] == 4).all()
            assert (plan.weights[seed, number, held:] == 0).all()
    assert plan.padded == (len(set(map(len, cohorts))) > 1)
    means = np.zeros(4)
    asked = sum(1 for cohort in cohorts[:rounds] if cohort)
    for cohort, given_weights in zip(cohorts[:rounds], weights[:rounds], strict=True):
        for client, weight in zip(cohort, given_weights, strict=True):
            means[client] += weight / asked
    np.testing.assert_allclose(plan.realised(rounds), [means, means], rtol=0, atol=EXACT)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_rule_may_sort_the_cohorts_it_is_given(order):
    table = np.array([[3, 0], [1, 2], [2, 1]], order=order)
    problem = training.Problem(small.TASK, small.P, lambda rng, rounds: list(table))

    def sort(number, cohort):
        cohort.sort()
        return cohort, cohort / 10

    plan = schedule(problem, small.asking(sort), (0,), 3)
    assert plan.members.tolist() == [[[0, 3], [1, 2], [1, 2]]]
    assert plan.weights.tolist() == [[[0.0, 0.3], [0.1, 0.2], [0.1, 0.2]]]


def test_a_shorter_run_reports_the_weights_of_its_own_rounds():
    cohorts = [[0, 1], [], [2, 3], [0]]
    plan = schedule(problem_of(cohorts), rules.fedavg(), (0,), 4)
    np.testing.assert_allclose(plan.realised(3), [[0.25, 0.25, 0.25, 0.25]])
    np.testing.assert_allclose(plan.realised(4), [[1 / 2, 1 / 6, 1 / 6, 1 / 6]])
    np.testing.assert_array_equal(plan.realised(0), np.zeros((1, 4)))


def test_rules_are_compared_on_the_same_cohorts():
    one, other = (
        schedule(small.PROBLEM, rule, (7,), 10) for rule in (rules.fedavg(), rules.mifa(small.P))
    )
    np.testing.assert_array_equal(one.members, other.members)


def test_a_law_samples_the_cohorts():
    law = fa.Cohorts([[0, 1], [2], [1, 2, 3]], [0.2, 0.5, 0.3])
    problem = dataclasses.replace(small.PROBLEM, availability=law.sample)
    plan = schedule(problem, rules.fedavg(), (0,), 50)
    found = {tuple(row[row < 4].tolist()) for row in plan.members[0]}
    assert found == {(0, 1), (2,), (1, 2, 3)}


COHORTS = [[], [2], [0, 1, 3], [], [3, 1], [0, 1, 2, 3]]


def test_cohorts_of_any_size_train_as_in_a_plain_loop_and_empty_ones_change_nothing():
    run = train(problem_of(COHORTS), small.SHARES, small.options(6))
    for at, seed in enumerate(small.SEEDS):
        models = small.average_plainly(
            small.start_of(seed),
            small.CLIENTS,
            COHORTS,
            seed=seed,
            step=0.05,
            batch_size=small.BATCH,
        )
        np.testing.assert_allclose(small.flat(run.params)[at], models[-1], rtol=AGREE, atol=AGREE)
    assert run.losses[0, 2] == run.losses[0, 3] != run.losses[0, 4]


def test_cohorts_may_be_lists():
    def lists(rng, rounds):
        return COHORTS

    problem = dataclasses.replace(small.PROBLEM, availability=lists)
    listed = train(problem, small.SHARES, small.options(6))
    arrays = train(problem_of(COHORTS), small.SHARES, small.options(6))
    np.testing.assert_array_equal(small.flat(listed.params), small.flat(arrays.params))


@pytest.mark.parametrize("rule", [rules.fedavg(), rules.fedau(small.P), rules.f3ast(small.P)])
def test_cohorts_may_be_lists_and_integers_of_any_type(rule):
    # Client 1 alone in 64 bits has the bytes of clients 1 and 0 in 32.
    given = [[], [2, 3], np.array([1, 0], np.int32), np.array([1], np.int64), []]

    def mixed(rng, rounds):
        return given

    problem = dataclasses.replace(small.PROBLEM, availability=mixed)
    found, expected = (schedule(one, rule, (0,), 5) for one in (problem, problem_of(given)))
    np.testing.assert_array_equal(found.members, expected.members)
    np.testing.assert_array_equal(found.weights, expected.weights)
    assert (found.members[0] < 4).sum(axis=1).tolist() == [0, 2, 2, 1, 0]


def test_a_rule_may_ask_nobody_in_a_round():
    rule = small.asking(
        lambda number, cohort: (cohort, small.P[cohort]) if number > 1 else (cohort[:0], [])
    )
    problem = dataclasses.replace(small.PROBLEM, availability=small.everybody)
    run = train(problem, rule, small.options(1 + 1))
    assert run.ending is Ending.FINISHED
    np.testing.assert_allclose(run.weights, [small.P, small.P], atol=EXACT)
    starts = [small.objective(small.start_of(seed), small.CLIENTS) for seed in small.SEEDS]
    np.testing.assert_allclose(run.losses[:, 0], starts, rtol=AGREE)


@pytest.mark.parametrize(
    ("cohorts", "message"),
    [
        ([[0], [1, 1]], "availability of seed 3 has client 1 twice in round 2"),
        ([[0], [4]], "availability of seed 3 has client 4, but clients run from 0 to 3"),
        ([[-1], [0]], "has client -1, but clients run from 0 to 3"),
        ([[0.0], [1.0]], "gave members of type float64, not client indices"),
        ([["a"], ["b"]], "gave members of type <U1, not client indices"),
        (np.ones((2, 4), dtype=bool), "gave members of type bool, not client indices"),
        ([[0]], "availability of seed 3 gave 1 cohorts for 2 rounds"),
        ([[0]] * 3, "gave 3 cohorts for 2 rounds"),
        ([[], []], "availability of seed 3 has no participants in any of 2 rounds"),
        ([[0], [[1], [2]]], "availability of seed 3 gave are not flat arrays, one per round"),
        ([[[0]], [[1]]], "are not flat arrays, one per round: they have 2 axes"),
        ([0, 1], "are not flat arrays, one per round"),
        (None, "the cohorts that the availability of seed 3 gave are not flat arrays"),
    ],
)
def test_what_is_no_cohort_is_refused(cohorts, message):
    problem = dataclasses.replace(small.PROBLEM, availability=lambda rng, rounds: cohorts)
    with pytest.raises(CohortError, match=message):
        train(problem, rules.fedavg(), small.options(2))


@pytest.mark.parametrize(
    ("weigh", "error", "message"),
    [
        (
            lambda number, cohort: (cohort, [np.nan if number == 2 else 0.25] * 4),
            RuleError,
            "rule 'given' gave client 0 the weight nan in round 2; it must be finite in float64",
        ),
        (
            lambda number, cohort: (cohort, [0.1, 0.2, 0.3, -np.inf]),
            RuleError,
            "gave client 3 the weight -inf in round 1",
        ),
        (
            lambda number, cohort: (cohort, [0.5] * (5 - number)),
            RuleError,
            "rule 'given' gave 3 weights of type float64 to 4 members in round 2",
        ),
        (
            lambda number, cohort: (cohort, 0.25),
            RuleError,
            "weights that rule 'given' gave are not flat arrays",
        ),
        (
            lambda number, cohort: (cohort, None),
            RuleError,
            "weights that rule 'given' gave are not flat arrays",
        ),
        (lambda number, cohort: (cohort, np.ones((4, 1))), RuleError, "they have 2 axes"),
        (lambda number, cohort: (cohort, ["a"] * 4), RuleError, "weights of type <U1"),
        (
            lambda number, cohort: ([0, 0], [0.5, 0.5]),
            CohortError,
            "rule 'given' has client 0 twice in round 1",
        ),
        (lambda number, cohort: ([9], [1.0]), CohortError, "rule 'given' has client 9"),
        (
            lambda number, cohort: ([], []),
            CohortError,
            "rule 'given' asks no client in any of 2 rounds",
        ),
    ],
)
def test_a_rule_that_asks_nonsense_is_refused_by_name(weigh, error, message):
    problem = dataclasses.replace(small.PROBLEM, availability=small.everybody)
    with pytest.raises(error, match=message):
        train(problem, small.asking(weigh), small.options(2))


def test_a_rule_that_forgets_a_round_is_refused():
    forgetful = dataclasses.replace(rules.fedavg(), choose=lambda cohorts, rng: [])
    with pytest.raises(RuleError, match="rule 'fedavg' chose 0 times in 2 rounds"):
        train(small.PROBLEM, forgetful, small.options(2))


def test_a_weight_too_large_for_single_precision_is_refused():
    single = dataclasses.replace(small.TASK, data=np.zeros((4, 1, 1), np.float32))
    problem = training.Problem(single, small.P, small.everybody)
    rule = small.asking(lambda number, cohort: (cohort, np.full(4, 1e39)))
    with pytest.raises(RuleError, match="weight 1e.39 in round 1; it must be finite in float32"):
        train(problem, rule, small.options(2, batch_size=None))


def test_a_rule_made_for_other_clients_is_refused():
    rule = rules.importance_average(np.full(9, 1 / 9))
    with pytest.raises(RuleError, match="was made for 9 clients, and task 'regression' has 4"):
        train(small.PROBLEM, rule, training.Training(3, small.STEP))


def test_what_is_no_rule_is_refused():
    with pytest.raises(RuleError, match="the rule is 'fedavg'; give a Rule"):
        train(small.PROBLEM, "fedavg", training.Training(3, small.STEP))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda params, state: params, "two things"),
        (lambda params, state: (params | {"level": params["slope"]}, state), "level.*level"),
        (lambda params, state: (params, None), "None.; it must return two things"),
        (
            lambda params, state: (params | {"slope": params["slope"].astype("float16")}, state),
            "float16",
        ),
        (lambda params, state: ({"w": params}, state), "returned .{'w'"),
        (lambda params, state: ("nothing", state), "fails on a model of shapes"),
    ],
)
def test_an_aggregate_that_returns_something_else_is_refused(returned, message):
    rule = dataclasses.replace(
        small.SHARES, aggregate=lambda params, state, report: returned(params, state)
    )
    with pytest.raises(RuleError, match=message):
        train(small.PROBLEM, rule, training.Training(1, small.STEP))


@pytest.mark.parametrize(
    ("aggregate", "cause", "hint"),
    [
        (lambda params, state, report: (params, report.losses * 2), TypeError, "needs_losses=True"),
        (lambda params, state, report: (params["width"], state), KeyError, "'level'.*'width'"),
        (
            lambda params, state, report: (params | {"level": np.asarray(params["level"])}, state),
            jax.errors.TracerArrayConversionError,
            "jax.numpy instead of numpy",
        ),
        (
            lambda params, state, report: (params if params["level"].sum() > 0 else None, state),
            jax.errors.TracerBoolConversionError,
            "jnp.where instead of if",
        ),
    ],
)
def test_an_aggregate_that_fails_is_an_error_of_the_rule(aggregate, cause, hint):
    rule = dataclasses.replace(small.SHARES, aggregate=aggregate)
    with pytest.raises(RuleError, match=hint) as caught:
        train(small.PROBLEM, rule, training.Training(1, small.STEP))
    assert isinstance(caught.value.__cause__, cause)


@pytest.mark.parametrize("chosen", [None, [([0], [1.0])]])
def test_a_rule_that_chooses_no_asked_is_refused(chosen):
    rule = dataclasses.replace(small.SHARES, choose=lambda cohorts, rng: chosen)
    with pytest.raises(RuleError, match="'importance-average' must choose a list of Asked"):
        train(small.PROBLEM, rule, training.Training(1, small.STEP))


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_cohorts_may_come_as_the_rows_of_one_array(dtype):
    def planned(given):
        problem = dataclasses.replace(small.PROBLEM, availability=lambda rng, rounds: given)
        return schedule(problem, small.SHARES, (3, 11), 3)

    rows = np.array([[2, 0], [1, 3], [0, 1]], dtype=dtype)
    as_rows, as_list = planned(rows), planned(list(rows))
    assert np.array_equal(as_rows.members, as_list.members)
    assert np.array_equal(as_rows.weights, as_list.weights)
    with pytest.raises(CohortError, match="client 1 twice in round 2"):
        planned(np.array([[2, 0], [1, 1], [0, 1]], dtype=dtype))


def at_once(members, weights):
    """Return a rule that chooses for all rounds at once."""
    return Rule("table", "nothing", "nothing", lambda *_: Asked(members, weights), add_updates)


@pytest.mark.parametrize(
    "cohorts", [[[2, 0], [1, 3], [0, 1]], [[2, 0, 1], [3], [1, 0]], [[0], [1], [2]]]
)
def test_a_rule_may_choose_for_all_rounds_at_once(cohorts):
    members = np.array([[2, 0], [1, 3], [0, 1]])
    weights = np.array([[0.2, 0.8], [1.0, 0.5], [0.0, -1.0]])
    row_by_row = small.asking(lambda number, cohort: (members[number - 1], weights[number - 1]))
    problem = problem_of(cohorts)
    table, rows = (
        schedule(problem, rule, (3, 11), 3) for rule in (at_once(members, weights), row_by_row)
    )
    assert table.members.tolist() == rows.members.tolist() == [members.tolist()] * 2
    assert table.weights.tolist() == rows.weights.tolist() == [weights.tolist()] * 2


@pytest.mark.parametrize(
    ("members", "weights", "error", "message"),
    [
        ([[0, 1]] * 2, [[0.5, 0.5]], RuleError, "'table' chose 1 times in 2 rounds"),
        ([0, 1], [0.5, 0.5], RuleError, "members that .* are not flat arrays, one per"),
        ([[0, 1]] * 3, [[0.5, 0.5]] * 3, RuleError, "'table' chose 3 times in 2 rounds"),
        ([[0, 1]] * 2, [["a", "b"]] * 2, RuleError, "weights of type <U1"),
        ([[0, 1]] * 2, [[0.5, 0.5j]] * 2, RuleError, "weights of type complex128"),
        (
            [[0, 1]] * 2,
            [[0.5, 0.5], [0.5, np.nan]],
            RuleError,
            "client 1 the weight nan in round 2",
        ),
        ([[0, 1], [2, 2]], [[0.5, 0.5]] * 2, CohortError, "has client 2 twice in round 2"),
        ([[0, 1], [2, 4]], [[0.5, 0.5]] * 2, CohortError, "rule 'table' has client 4"),
        (np.zeros((2, 0)), np.zeros((2, 0)), CohortError, "no client in any of 2 rounds"),
    ],
)
def test_a_choice_for_all_rounds_at_once_is_checked(members, weights, error, message):
    with pytest.raises(error, match=message):
        schedule(problem_of([[0, 1], [2, 3]]), at_once(members, weights), (0,), 2)


def test_a_choice_is_checked_even_if_it_has_the_cohorts_members_in_other_rounds():
    # Joined, both are 0, 0, 1, 2: one and three members here, two and two there.
    rule = at_once(np.array([[0, 0], [1, 2]]), np.ones((2, 2)))
    with pytest.raises(CohortError, match="client 0 twice in round 1"):
        schedule(problem_of([[0], [0, 1, 2]]), rule, (0,), 2)
