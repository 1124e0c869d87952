"""The steady rule: its fixed point, what it learns, and what it is given."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from points import EXACT, choose, point_task, run_points

import fedavot as fa
from fedavot import rules, training
from fedavot.errors import ImportanceError, OptionError, RuleError
from fedavot.rules import Report
from fedavot.rules._memory import correction_of, mean_memory, trust_of

N = 5
P = np.array([0.3, 0.1, 0.25, 0.2, 0.15])
EVERYBODY = list(range(N))
ALL_COHORTS = [
    list(cohort) for size in range(1, N + 1) for cohort in itertools.combinations(EVERYBODY, size)
]
SPAN = 0.3
"""H η of the rounds that are played here."""
CONSTANTS = [
    {"trust": 1.0, "damping": damping, "correction": correction, "share": share}
    for damping, correction, share in [(0.0, 0.0, 0.0), (5.0, 0.5, 0.5), (None, 1.0, 1.0)]
]


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


compiled = functools.cache(jax.jit)
"""A rule's function, compiled once for all rules that share it."""


class Player:
    """Rounds of a rule in which clients say what they are told to, per unit of step."""

    def __init__(self, rule, n_features=3):
        self.rule, self.model = rule, jnp.zeros(n_features)
        self.state = rule.init(self.model, rule.n_clients)

    def change(self, cohort, said, *, step=SPAN / 2):
        """Play a round of two local steps; return the change of the model per unit of step."""
        (asked,) = choose(self.rule, cohort)
        rows = [2 * step * (jnp.asarray(said[i]) - self.correction(i)) for i in asked.members]
        # As in the engine, a place that nobody takes.
        members = jnp.asarray([*asked.members, self.rule.n_clients])
        updates = jnp.stack([*rows, jnp.zeros_like(self.model)])
        report = Report(members, jnp.asarray([*asked.weights, 0.0]), updates, None, step, 2)
        before = self.model
        self.model, self.state = compiled(self.rule.aggregate)(before, self.state, report)
        return np.asarray(self.model - before) / (2 * step if step else 1.0)

    def correction(self, client):
        if self.rule.correct is None:
            return 0.0
        return compiled(self.rule.correct)(self.model, self.state, client)


def words(seed):
    """Return what each client says, shape (n_clients, 3)."""
    return np.random.default_rng(seed).normal(size=(N, 3))


@pytest.mark.parametrize("constants", [*CONSTANTS, {}], ids=str)
def test_with_memories_up_to_date_every_cohort_steps_as_full_participation(constants):
    said = words(0)
    for cohort in ALL_COHORTS:
        player = Player(rules.steady(P, **constants))
        # The second time everybody says the same, so that learnt trust and correction are one.
        for _ in range(2):
            player.change(EVERYBODY, said)
        assert float(trust_of(player.state)) == pytest.approx(1.0, abs=EXACT)
        for _ in range(2):
            np.testing.assert_allclose(player.change(cohort, said), P @ said, atol=EXACT)
        np.testing.assert_allclose(player.state.last, said, atol=EXACT)
        np.testing.assert_allclose(mean_memory(player.state), P @ said, atol=EXACT)


@pytest.mark.parametrize("constants", [*CONSTANTS, {}], ids=str)
@pytest.mark.parametrize("history", [[], [[0, 2]], [[0, 2], [2], [], [1, 0], [2]]], ids=str)
def test_with_everybody_present_the_step_is_full_participation(history, constants):
    player = Player(rules.steady(P, **constants))
    for number, cohort in enumerate(history):
        player.change(cohort, words(number + 1))
    said = words(99)
    np.testing.assert_allclose(player.change(EVERYBODY, said), P @ said, atol=EXACT)


def test_trust_correction_and_damping_are_learnt_as_by_hand():
    player = Player(rules.steady([0.5, 0.3, 0.2]), n_features=1)

    def change(**said):
        given = {int(name[1:]): [value] for name, value in said.items()}
        return float(player.change(list(given), given)[0])

    # Without evidence: weights .5 + .1 and .3 + .1.
    assert change(c0=2.0, c1=4.0) == pytest.approx(0.6 * 2 + 0.4 * 4)
    assert change(c0=1.0) == pytest.approx(1.0)
    # Client 0 was away for one round: c = 2, gain 1/3; its evidence is ½·⅓·2 and ½·⅓·4.
    memory, total = 2 - 1 / 3, 0.5 * (2 - 1 / 3) + 0.3 * 4
    # It says 1 where 2 was remembered: log 4 in squares, and .7 is the most that fades in a round.
    left = np.exp(-0.7)
    assert float(mean_memory(player.state)[0]) == pytest.approx(left * total / 0.8)
    assert float(player.state.last[0, 0]) == pytest.approx(memory)
    assert float(trust_of(player.state)) == pytest.approx(0.5)
    assert float(correction_of(player.state)) == pytest.approx(1.0)
    assert change() == 0.0
    # Client 1 is back after three rounds, client 2 is new: it counts by what it says.
    missing = (1 - 0.5 * 0.5) * 0.5
    expected = 0.5 * left * total + (0.3 + missing / 2) * (3 - 0.5 * 4 * left)
    assert change(c1=3.0, c2=5.0) == pytest.approx(expected + (0.2 + missing / 2) * 5)
    # Absences of one and three rounds: c = 4.
    renewed = 4 * left + 3 / 7 * (3 - 4 * left)
    np.testing.assert_allclose(player.state.last[:, 0], [memory, renewed, 5], atol=EXACT)
    first, second = 0.97 * 0.5 / 3, 0.3 * 3 / 7  # importance times gain
    trusted = (first * 2 + second * 12 * left) / (first * 4 + second * 16 * left**2)
    assert float(trust_of(player.state)) == pytest.approx(trusted)
    alike = (0.97 * 2 + 12 * left) ** 2 / ((0.97 * 1 + 9) * (0.97 * 4 + 16 * left**2))
    assert float(correction_of(player.state)) == pytest.approx(alike)


def test_memories_that_mislead_are_not_trusted():
    player, said = Player(rules.steady(P)), words(3)
    player.change(EVERYBODY, said)
    player.change(EVERYBODY, -said)
    assert float(trust_of(player.state)) == 0.0
    assert float(correction_of(player.state)) == 0.0
    np.testing.assert_allclose(player.change([1, 2], said), (0.425, 0.575) @ said[1:3], atol=EXACT)


@pytest.mark.parametrize(("constants", "fades"), [({}, True), ({"trust": 1.0}, False)], ids=str)
def test_who_never_returns_is_forgotten_as_updates_become_smaller(constants, fades):
    player, said = Player(rules.steady(P, correction=0.0, **constants)), words(4)
    for number in range(30):
        player.change(EVERYBODY if number == 0 else EVERYBODY[1:], said * 0.8**number)
    # What the others say has become a thousandth; only client 0 is remembered as it was.
    left = np.abs(mean_memory(player.state) / (P[0] * said[0])).max()
    assert (left < 0.1) == fades
    assert (left > 0.5) == (not fades)


def test_clients_without_importance_are_not_asked_and_change_nothing():
    importance, targets = [0.4, 0.0, 0.3, 0.2, 0.1], np.array([0.7, -1.2, 0.4, 2.1, -0.5])
    cohorts = [[0, 1, 2], [1, 3], [1], [0, 1, 4], [2, 1]]
    rule = rules.steady(importance)
    assert [asked.members.tolist() for asked in choose(rule, *cohorts)] == [
        [client for client in cohort if client != 1] for cohort in cohorts
    ]
    moved = targets + 100.0 * (np.arange(5) == 1)
    assert run_points(rule, targets, cohorts) == run_points(rule, moved, cohorts)


def test_a_round_without_anybody_leaves_all_but_the_time_as_it_is():
    player = Player(rules.steady(P))
    player.change([0, 1], words(1))
    before = player.state
    assert not player.change([], {}).any()
    assert int(player.state.evidence.rounds) == 2
    evidence = player.state.evidence._replace(rounds=before.evidence.rounds)
    for one, other in zip(
        jax.tree.leaves(before),
        jax.tree.leaves(player.state._replace(evidence=evidence)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "rule",
    [rules.steady(P), rules.mifa(P), rules.fedvarp(P), rules.scaffold(P)],
    ids=lambda rule: rule.name,
)
def test_a_step_of_zero_leaves_model_and_memories_as_they_are(rule):
    player = Player(rule)
    player.change([0, 1], words(1))
    before, model = player.state, player.model
    assert not player.change([0, 2], words(2), step=0.0).any()
    np.testing.assert_array_equal(player.model, model)
    np.testing.assert_array_equal(player.state.last, before.last)
    np.testing.assert_array_equal(player.state.total, before.total)
    np.testing.assert_array_equal(player.state.evidence.seen, before.evidence.seen)


def test_training_refuses_a_schedule_that_reaches_zero():
    problem = training.Problem(point_task([1.0, 2.0]), [0.5, 0.5], lambda rng, n: [[0]] * n)
    plan = training.Training(3, lambda rounds, steps: np.array([0.1, 0.05, 0.0]))
    with pytest.raises(OptionError, match=r"round 3 is 0\.0; .* above 0"):
        training.train(problem, rules.steady([0.5, 0.5]), plan)


def test_the_importance_of_a_client_never_seen_is_carried_by_the_others():
    importance, targets = np.array([0.5, 0.3, 0.2, 0.0]), np.array([1.0, 2.0, -30.0, 7.0])
    rows = [np.array([number % 2]) for number in range(400)]
    problem = training.Problem(point_task(targets), importance, lambda rng, rounds: rows)
    plan = training.Training(400, training.constant(0.05), seeds=(0, 1), record_every=400)
    run = training.train(problem, rules.steady(importance, trust=1.0), plan)
    np.testing.assert_allclose(run.params, (0.5 * 1 + 0.3 * 2) / 0.8, atol=1e-6)
    learnt = training.train(problem, rules.steady(importance), plan)
    np.testing.assert_allclose(learnt.params, run.params, atol=1e-3)
    np.testing.assert_array_equal(run.unseen, [[False, False, True, False]] * 2)
    assert "up to 1 client never trained" in repr(run)


def test_runs_in_which_everybody_trained_leave_nobody_unseen():
    rows = [np.array([0]), np.array([1])]
    problem = training.Problem(point_task([1.0, 2.0]), [0.5, 0.5], lambda rng, rounds: rows)
    run = training.train(
        problem, rules.steady([0.5, 0.5]), training.Training(2, training.constant(0.1))
    )
    assert not run.unseen.any()
    assert "never" not in repr(run)


@pytest.mark.parametrize("name", ["share", "damping", "correction", "trust"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), "half"])
def test_constants_out_of_range_are_refused(name, value):
    with pytest.raises(OptionError, match=f"{name} (is|must be).*{value}"):
        rules.steady(P, **{name: value})


@pytest.mark.parametrize("name", ["share", "correction", "trust"])
def test_parts_above_one_are_refused(name):
    with pytest.raises(OptionError, match=f"{name} is 1.5; it must be from 0 to 1"):
        rules.steady(P, **{name: 1.5})
    assert rules.steady(P, damping=1.5).n_clients == N


LAW = fa.UniformCohorts(3, 2, clients=["ann", "bob", "cy"])
SHARES = np.array([0.5, 0.3, 0.2])
ALIGNED = fa.align(SHARES, LAW)


@pytest.mark.parametrize(
    ("importance", "alignment", "told"),
    [
        (P, ALIGNED, "3 clients, but importance has 5"),
        ([0.3, 0.5, 0.2], ALIGNED, "'ann' has 0.5 there and 0.3 here"),
        ([0.3, 0.5, 0.2], fa.OnlineAligner(SHARES, step=1.0), "client 0 has 0.5 there"),
        (P, fa.OnlineAligner(SHARES, step=1.0), "3 clients, but importance has 5"),
        (SHARES, fa.align(SHARES, LAW, max_iter=1), "did not converge"),
        (SHARES, "soft", "needs an alignment, found 'soft'"),
        (SHARES, LAW, "needs an alignment"),
    ],
)
def test_an_alignment_that_is_not_one_of_this_importance_is_refused(importance, alignment, told):
    with pytest.raises(RuleError, match=told) as caught:
        rules.steady(importance, alignment=alignment)
    # The rule has no such option, so that the message must not suggest it.
    assert "allow_unconverged" not in str(caught.value)


def test_importance_by_name_is_put_in_the_order_of_the_alignment():
    rule = rules.steady({"cy": 0.2, "ann": 0.5, "bob": 0.3}, alignment=ALIGNED)
    plain = rules.steady(SHARES, alignment=ALIGNED)
    targets, cohorts = np.array([1.0, -2.0, 3.0]), [[0, 1], [2, 0], [1, 2], [0, 1]]
    assert run_points(rule, targets, cohorts) == run_points(plain, targets, cohorts)
    online = fa.OnlineAligner({"ann": 0.5, "bob": 0.3, "cy": 0.2}, step=1.0)
    assert rules.steady({"cy": 0.2, "ann": 0.5, "bob": 0.3}, alignment=online).n_clients == 3


@pytest.mark.parametrize(
    ("importance", "alignment", "told"),
    [
        ({"ann": 0.5, "bob": 0.3, "dee": 0.2}, ALIGNED, "'dee'"),
        ({"ann": 0.5, "bob": 0.5}, ALIGNED, "'cy'"),
        ({"ann": 0.5, "bob": 0.5}, None, "from_mapping"),
        (
            {"ann": 0.5, "bob": 0.3, "cy": 0.2},
            fa.align(SHARES, fa.UniformCohorts(3, 2)),
            "from_mapping",
        ),
    ],
)
def test_importance_of_other_names_is_refused(importance, alignment, told):
    with pytest.raises(ImportanceError, match=told):
        rules.steady(importance, alignment=alignment)
