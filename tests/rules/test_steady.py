"""The steady rule: whom it asks, what it learns, what it is given, and whose memory expires."""

import jax
import numpy as np
import pytest
from player import EVERYBODY, Player, words
from points import EXACT, N, choose, point_task, run_points
from points import UNEVEN as P

import fedavot as fa
from fedavot import rules, training
from fedavot.errors import ImportanceError, OptionError, RuleError
from fedavot.rules._history import tilt


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def test_trust_is_learnt_as_worked_by_hand():
    player = Player(rules.steady([0.5, 0.3, 0.2]), n_features=1)

    def change(**said):
        given = {int(name[1:]): [value] for name, value in said.items()}
        return float(player.change(list(given), given)[0])

    assert player.trust == 0.0
    assert change(c0=2.0) == pytest.approx(2.0)
    assert player.trust == 0.0  # nobody has returned
    assert change(c0=1.0) == pytest.approx(1.0)
    assert player.trust == pytest.approx(1 * 2 / 2**2)
    # Only one client is remembered: its memory is the mean one.
    assert change(c0=4.0) == pytest.approx(4.0)
    product, square = 0.97 * 2 + 4 * 1, 0.97 * 4 + 1
    assert player.trust == 1.0 < product / square
    # A new client is no evidence, and counts as if it had the mean memory.
    assert change(c1=-3.0) == pytest.approx(-3.0)
    assert player.trust == 1.0
    found, (first, second) = change(c0=2.0, c1=-1.0), player.weights[:2]
    assert found == pytest.approx(
        (0.5 * 4 - 0.3 * 3) / 0.8 + first * (2.0 - 4.0) + second * (-1.0 + 3.0)
    )
    new, old = first * 2 - second, first * 4 - second * 3
    product, square = 0.97 * product + new * old, 0.97 * square + old**2
    assert player.trust == pytest.approx(np.clip(product / square, 0, 1))


def test_memories_that_mislead_are_not_trusted():
    player, said = Player(rules.steady(P)), words(3)
    player.change(EVERYBODY, said)
    player.change(EVERYBODY, -said)
    assert player.trust == 0.0
    assert tilt(player.state.history, 0.0) == 0.0
    # Uneven weights are trusted no more than memories, for the importance of the absent.
    even = said[1:3].mean(axis=0)
    np.testing.assert_allclose(
        player.change([1, 2], said),
        P[1:3] @ said[1:3] + (1 - P[1:3].sum()) * even,
        atol=EXACT,
    )


def test_tilt_is_full_with_everybody_there_whatever_the_evidence():
    player, said = Player(rules.steady(P)), words(3)
    for number in range(4):
        said = -said
        np.testing.assert_allclose(player.change(EVERYBODY, said), P @ said, atol=EXACT)
        assert tilt(player.state.history, 0.0) == (0.0 if number else 1.0)
        assert tilt(player.state.history, P.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize(("constant", "low", "high"), [(True, 1.0, 1.0), (False, 0.0, 0.3)])
def test_tilt_is_full_for_lasting_differences_and_small_for_noise(constant, low, high):
    rng, reached = np.random.default_rng(0), []
    player, said = Player(rules.steady(P), n_features=100), rng.normal(size=(N, 100))
    for _ in range(80):
        cohort = np.flatnonzero(rng.random(N) < np.linspace(0.2, 0.6, N))
        player.change(cohort, said if constant else rng.normal(size=said.shape))
        reached.append(tilt(player.state.history, 0.0))
    assert low <= np.mean(reached[40:]) <= high


def test_clients_without_importance_are_not_asked():
    rule = rules.steady([0.4, 0.0, 0.3, 0.2, 0.1])
    asked = choose(rule, [0, 1, 2], [1, 3], [1])
    assert [one.members.tolist() for one in asked] == [[0, 2], [3], []]


def test_an_aligner_that_a_rule_is_made_with_stays_as_it_is():
    aligner = fa.OnlineAligner(P, softness=0.5)
    rule = rules.steady(P, alignment=aligner)
    for _ in range(2):
        learner = fa.OnlineAligner(P, softness=0.5)
        for asked in choose(rule, [0, 1], [2], [1, 3]):
            np.testing.assert_array_equal(asked.weights, learner.observe(asked.members))
    assert aligner.rounds == 0


def test_a_round_without_anybody_leaves_everything_as_it_is():
    player = Player(rules.steady(P))
    player.change([0, 1], words(1))
    before = player.state
    assert not player.change([], {}).any()
    jax.tree.map(np.testing.assert_array_equal, before, player.state)


def draws(rounds, seed):
    """Return cohorts of clients of whom some are rare, and the last leaves early."""
    rng = np.random.default_rng(seed)
    there = rng.random((rounds, N)) < np.linspace(0.6, 0.1, N)
    there[0], there[rounds // 6 :, -1] = True, False
    return [np.flatnonzero(row) for row in there]


def test_a_memory_expires_after_a_quarter_more_than_the_longest_absence():
    expired = 0
    for seed in range(5):
        player, said = Player(rules.steady(P)), words(seed)
        last, known, longest, number = {}, set(), 1, 0
        for cohort in draws(60, seed):
            player.change(cohort, said)
            number += bool(cohort.size)
            longest = max(longest, *(number - last.get(i, number) for i in cohort), 1)
            last |= dict.fromkeys(cohort.tolist(), number)
            known |= set(cohort.tolist())
            gone = {i for i in known if number - last[i] > 1.25 * longest}
            known, expired = known - gone, expired + len(gone)
            seen = [last.get(i, 0) * (1 if i in known else -1) for i in EVERYBODY]
            assert player.state.history.seen.tolist() == seen
            total = sum(P[i] * said[i] for i in known)
            np.testing.assert_allclose(player.state.total, total, atol=EXACT)
    assert expired > 5


def test_clients_that_come_in_turn_lose_their_memories_only_once():
    player, said = Player(rules.steady(P)), words(0)
    for number in range(3 * N):
        player.change([number % N], said)
        kept = (np.asarray(player.state.history.seen) > 0).sum()
        assert kept == (min(number + 1, 2) if number < N else min(number - N + 3, N))


@pytest.mark.parametrize("make", [rules.mifa, rules.fedvarp, rules.scaffold])
def test_memories_of_published_rules_never_expire(make):
    player, said = Player(make(P)), words(1)
    for number in range(20):
        player.change([0, 4] if number else EVERYBODY, said)
    assert (np.asarray(player.state.history.seen) > 0).all()


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


LAW = fa.UniformCohorts(3, 2, clients=["ann", "bob", "cy"])
SHARES = np.array([0.5, 0.3, 0.2])
ALIGNED, UNNAMED = fa.align(SHARES, LAW), fa.UniformCohorts(3, 2)
NAMED = {"cy": 0.2, "ann": 0.5, "bob": 0.3}
OTHERS, ONLINE = [0.3, 0.5, 0.2], fa.OnlineAligner(SHARES, step=1.0)
REFUSALS = [
    *(
        (P, {name: value}, OptionError, f"{name} (is|must be).*{value}")
        for name in ("damping", "correction", "trust")
        for value in (-0.1, float("nan"), float("inf"), "half")
    ),
    (P, {"correction": 1.5}, OptionError, "correction is 1.5; it must be from 0 to 1"),
    (P, {"trust": 1.5}, OptionError, "trust is 1.5; it must be from 0 to 1"),
    (P, {"alignment": ALIGNED}, RuleError, "3 clients, but importance has 5"),
    (OTHERS, {"alignment": ALIGNED}, RuleError, "'ann' has 0.5 there and 0.3 here"),
    (OTHERS, {"alignment": ONLINE}, RuleError, "client 0 has 0.5 there"),
    (P, {"alignment": ONLINE}, RuleError, "3 clients, but importance has 5"),
    (SHARES, {"alignment": fa.align(SHARES, LAW, max_iter=1)}, RuleError, "did not converge"),
    (SHARES, {"alignment": "soft"}, RuleError, "needs an alignment, found 'soft'"),
    (SHARES, {"alignment": LAW}, RuleError, "needs an alignment"),
    ({"ann": 0.5, "bob": 0.3, "dee": 0.2}, {"alignment": ALIGNED}, ImportanceError, "'dee'"),
    ({"ann": 0.5, "bob": 0.5}, {"alignment": ALIGNED}, ImportanceError, "'cy'"),
    ({"ann": 0.5, "bob": 0.5}, {}, ImportanceError, "from_mapping"),
    (NAMED, {"alignment": fa.align(SHARES, UNNAMED)}, ImportanceError, "from_mapping"),
]


@pytest.mark.parametrize(("importance", "options", "error", "message"), REFUSALS)
def test_what_does_not_fit_the_rule_is_refused(importance, options, error, message):
    with pytest.raises(error, match=message) as caught:
        rules.steady(importance, **options)
    # The rule has no such option, so that the message must not suggest it.
    assert "allow_unconverged" not in str(caught.value)


def test_importance_by_name_is_put_in_the_order_of_the_alignment():
    rule = rules.steady(NAMED, alignment=ALIGNED)
    plain = rules.steady(SHARES, alignment=ALIGNED)
    targets, cohorts = np.array([1.0, -2.0, 3.0]), [[0, 1], [2, 0], [1, 2], [0, 1]]
    assert run_points(rule, targets, cohorts) == run_points(plain, targets, cohorts)
    online = fa.OnlineAligner({"ann": 0.5, "bob": 0.3, "cy": 0.2}, step=1.0)
    assert rules.steady(NAMED, alignment=online).n_clients == 3


def test_damping_may_be_more_than_one_round():
    assert rules.steady(P, damping=1.5).n_clients == N
