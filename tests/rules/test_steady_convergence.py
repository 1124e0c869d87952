"""What is true of the steady rule: its fixed point, its mean step, and where it ends."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from player import EVERYBODY, Player, words
from points import EXACT, N, choose

import fedavot as fa
from fedavot import rules, training
from fedavot.rules._history import tilt
from fedavot.training.tasks.classifiers import heterogeneous_softmax

ALL_COHORTS = [
    list(cohort) for size in range(1, N + 1) for cohort in itertools.combinations(EVERYBODY, size)
]
COHORTS, CHANCES = [[0, 1], [1, 2, 3], [4, 0], [2], [3, 4, 1]], [0.25, 0.2, 0.2, 0.15, 0.2]
LAW = fa.Cohorts(COHORTS, CHANCES)
P = LAW.expected_weights(np.array([0.8, -0.4, 0.3, 1.0, 0.0]))
"""The marginal of a plan, so that alignment is possible."""
ALIGNED = 1e-8
"""Room for an alignment's tolerance."""
WAYS = [{}, {"trust": 1.0}, {"trust": 1.0, "damping": 5.0}, {"trust": 1.0, "correction": 0.5}]
"""With everybody's updates as they are remembered, learnt trust is one."""


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def remembering(said, **options):
    """Return a player in whose rule everybody is remembered as said, for another three rounds."""
    player = Player(rules.steady(P, **options))
    for cohort in (EVERYBODY, [0], [1], *[EVERYBODY] * 12):
        player.change(cohort, said)
    return player


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_with_memories_up_to_date_every_cohort_steps_as_full_participation(options):
    said = words(0)
    for cohort in ALL_COHORTS:
        player = remembering(said, **options)
        for _ in range(2):
            np.testing.assert_allclose(player.change(cohort, said), P @ said, atol=EXACT)
        np.testing.assert_allclose(player.state.last, said, atol=EXACT)
        np.testing.assert_allclose(player.state.total, P @ said, atol=EXACT)


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_the_optimum_is_a_fixed_point_whatever_the_cohorts(options):
    said = words(1)
    said = said - P @ said
    for cohort in ALL_COHORTS:
        change = remembering(said, **options).change(cohort, said)
        np.testing.assert_allclose(change, 0.0, atol=EXACT)


@pytest.mark.parametrize("trust", [0.0, 0.3])
def test_at_the_optimum_a_step_is_what_the_cohort_says_beyond_what_is_trusted(trust):
    said = words(1)
    said = said - P @ said
    for cohort in ALL_COHORTS:
        player = remembering(said, trust=trust)
        change = player.change(cohort, said)
        np.testing.assert_allclose(change, (1 - trust) * (player.weights @ said), atol=EXACT)


@pytest.mark.parametrize("options", [{"trust": 0.6}, {"trust": 1.0, "damping": 3.0}], ids=str)
def test_given_trust_memories_leave_the_mean_of_a_step_as_it_is_whatever_they_hold(options):
    alignment, said, mean = fa.align(P, LAW), words(3), 0.0
    for cohort, chance in zip(COHORTS, CHANCES, strict=True):
        player = Player(rules.steady(P, alignment=alignment, **options))
        for number in range(2):
            player.change(EVERYBODY, words(number))
        mean = mean + chance * player.change(cohort, said)
    np.testing.assert_allclose(mean, P @ said, atol=ALIGNED)


PAIRS, TIMES = [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]], np.array([5, 2, 5, 3, 5])
"""Cohorts that have the same importance if all clients do, and how often they come."""
BLOCK = [PAIRS[i] for missing in (4, 3, 2, 1, 0) for i in np.flatnonzero(missing < TIMES)]
"""As often as that; nobody stays away for long at the end, so that no memory expires."""


@pytest.mark.parametrize(("noise", "full"), [(0.1, True), (1.3, False)])
def test_with_learnt_trust_memories_leave_the_mean_of_a_step_to_the_weights_used(noise, full):
    # Clients have attended as often as in the law, and all cohorts have the same tilt.
    even, law, said = np.full(N, 1 / N), fa.Cohorts(PAIRS, TIMES / TIMES.sum()), words(0)
    alignment, mean, usual = fa.align(even, law), 0.0, np.zeros(N)
    for cohort, chance in zip(PAIRS, TIMES / TIMES.sum(), strict=True):
        player = Player(rules.steady(even, alignment=alignment))
        for number, pair in enumerate(BLOCK):
            player.change(pair, words(1) + noise * words(number + 2))
        far = tilt(player.state.history, 2 / N)
        assert (far == 1.0) == full
        assert player.trust > 0.1
        mean = mean + chance * player.change(cohort, said)
        usual[cohort] += chance / 2
        assert (player.state.history.seen > 0).all()
    np.testing.assert_allclose(mean, (far * even + (1 - far) * usual) @ said, atol=ALIGNED)


@pytest.mark.parametrize("options", [{}, {"trust": 0.6}, {"trust": 0.6, "correction": 0.5}])
def test_with_everybody_always_there_every_step_is_full_participation(options):
    player = Player(rules.steady(P, **options))
    for number in range(4):
        said = words(number)
        np.testing.assert_allclose(player.change(EVERYBODY, said), P @ said, atol=EXACT)


@pytest.mark.parametrize("options", [{}, {"trust": 0.6}], ids=str)
def test_with_everybody_there_a_step_corrects_the_memories_mean_by_their_weights(options):
    player, said = Player(rules.steady(P, **options)), words(9)
    for number, cohort in enumerate([[0, 2, 4], [2, 1], [], [1, 0, 3]]):
        player.change(cohort, words(number))
    old, total, alpha = player.state.last, player.state.total, options.get("trust", player.trust)
    change, weights = player.change(EVERYBODY, said), player.weights
    assert np.abs(weights - P).max() > 0.01
    np.testing.assert_allclose(change, weights @ said + alpha * (total - weights @ old), atol=EXACT)


def one_after_another(rng, rounds):
    """Return the law's cohorts in blocks, as often as their probabilities say."""
    block = np.repeat(np.arange(5), [5, 4, 4, 3, 4])
    return [COHORTS[number] for number in np.resize(block, rounds)]


def in_turn(rng, rounds):
    return [[number % N] for number in range(rounds)]


MEMORIES = words(2)


def added(aligner, cohorts):
    """Return what fixed memories add to the mean step with trust one, and observe the cohorts."""
    given = np.zeros(N)
    for asked in choose(rules.steady(P, alignment=aligner), *cohorts):
        given[asked.members] += asked.weights / len(cohorts)
    for cohort in cohorts:
        aligner.observe(cohort)
    return (P - given) @ MEMORIES


@pytest.mark.parametrize("draw", [LAW.sample, one_after_another, in_turn])
@pytest.mark.parametrize("rounds", [50, 1_000])
def test_fixed_memories_add_to_the_mean_step_what_the_potentials_have_moved(draw, rounds):
    aligner = fa.OnlineAligner(P, softness=0, around="equal", step=0.5, bound=None)
    found = added(aligner, draw(np.random.default_rng(3), rounds))
    moved = aligner.potentials / (0.5 * rounds)
    np.testing.assert_allclose(found, moved @ MEMORIES, atol=EXACT)


@pytest.mark.parametrize("draw", [LAW.sample, one_after_another])
def test_what_fixed_memories_add_vanishes_in_the_mean_over_rounds(draw):
    bounds = []
    for rounds in (200, 20_000):
        aligner = fa.OnlineAligner(P, softness=0, around="equal", step=0.5, bound=None)
        found = added(aligner, draw(np.random.default_rng(3), rounds))
        bounds.append(np.abs(aligner.potentials).max() / (0.5 * rounds))
        assert (np.abs(found) <= bounds[-1] * np.abs(MEMORIES).sum(axis=0)).all()
    assert bounds[1] < bounds[0] / 20


@pytest.mark.parametrize("draw", [LAW.sample, one_after_another, in_turn])
def test_with_soft_weights_they_add_the_pull_of_the_penalty_besides(draw):
    softness, step, rounds = 2.0, 0.7, 300
    options = {"softness": softness, "step": step, "around": "importance"}
    cohorts, pull = draw(np.random.default_rng(5), rounds), np.zeros(N)
    found = added(fa.OnlineAligner(P, **options), cohorts)
    aligner = fa.OnlineAligner(P, **options)
    for cohort in cohorts:
        aligner.observe(cohort)
        x = aligner.potentials
        pull += softness * P * (x - P @ x) / rounds
    np.testing.assert_allclose(found, (x / (step * rounds) + pull) @ MEMORIES, atol=EXACT)


def quadratic_loss(params, batch):
    curvature, target = batch
    away = params - target
    return 0.5 * jnp.einsum("ni,nij,nj->n", away, curvature, away).mean()


@pytest.mark.parametrize("options", [{}, {"trust": 1.0}, {"correction": 0.5}], ids=str)
def test_the_optimum_of_quadratics_is_reached_at_a_constant_step(options):
    rng = np.random.default_rng(2)
    turns = np.linalg.qr(rng.standard_normal((N, 2, 2)))[0]
    curvature = np.einsum("nij,nj,nkj->nik", turns, rng.uniform(0.3, 1.0, (N, 2)), turns)
    target = 3 * rng.standard_normal((N, 2))
    data = curvature[:, None], target[:, None]
    task = training.Task("quadratics", data, quadratic_loss, lambda key: jnp.zeros(2))
    pulls = np.einsum("n,nij,nj->i", P, curvature, target)
    best = np.linalg.solve(np.tensordot(P, curvature, 1), pulls)
    there = rng.random((2_000, N)) < np.linspace(0.6, 0.2, N)
    problem = training.Problem(task, P, lambda rng, rounds: [np.flatnonzero(row) for row in there])
    plan = training.Training(2_000, training.constant(0.05), record_every=2_000)
    run = training.train(problem, rules.steady(P, **options), plan)
    np.testing.assert_allclose(run.params[0], best, atol=1e-9)
    plain = training.train(problem, rules.fedavg(), plan)
    assert np.abs(plain.params[0] - best).max() > 0.1


def camps(rng, rounds):
    """Return cohorts of two camps, each there for three rounds at a time."""
    return [[0, 2] if number // 3 % 2 else [1, 3, 4] for number in range(rounds)]


def as_rare_as_allowed(rng, rounds):
    """Return cohorts of one: in seven rounds each of the others once, then client 0 three times."""
    return [[1 + number % 7] if number % 7 < N - 1 else [0] for number in range(rounds)]


def at_random(rng, rounds):
    """Return random cohorts, with everybody who would otherwise stay away for too long."""
    last, cohorts = np.full(N, -1), []
    for number in range(rounds):
        there = np.flatnonzero((rng.random(N) < 0.15) | (number - last >= WITHIN))
        cohorts.append(there.tolist() or [int(last.argmin())])
        last[cohorts[-1]] = number
    return cohorts


WITHIN = 7
"""In the cohorts above, everybody is there at least once in this many rounds."""
CURVATURES, TARGETS = np.linspace(0.3, 1.0, N), np.array([3.0, -1.0, 0.0, 1.0, 2.0])


class Parabolas:
    """Strongly convex losses."""

    def gradients(self, model):
        return CURVATURES * (model - TARGETS)

    def excess(self, model):
        best = P @ (CURVATURES * TARGETS) / (P @ CURVATURES)
        return P @ CURVATURES * (model - best) ** 2 / 2


class Waves:
    """Losses that are not convex."""

    def gradients(self, model):
        return np.sin(model - TARGETS)

    def excess(self, model):
        places = np.linspace(-np.pi, np.pi, 100_001)
        least = (P @ (1 - np.cos(places - TARGETS[:, None]))).min()
        return P @ (1 - np.cos(model - TARGETS)) - least


def path_of(losses, cohorts, step, **options):
    """Return the models of a run with full gradients and one local step."""
    aggregator, path = fa.Aggregator(dict(enumerate(P)), **options), [np.zeros(1)]
    for cohort in cohorts:
        changes = -step * losses.gradients(path[-1])
        path.append(aggregator.apply(path[-1], {i: changes[i : i + 1] for i in cohort}, lr=step))
    return np.array(path)[:, 0]


def start_of(losses, path, step):
    """Return the round from which the theorem holds here, and its bound on the excess there."""
    first = 3 * WITHIN
    moves = np.diff(path)[first - WITHIN : first]
    return first, losses.excess(path[first]) + moves @ moves / (3 * step)


@pytest.mark.parametrize("draw", [in_turn, camps, as_rare_as_allowed, at_random])
@pytest.mark.parametrize("seed", range(3))
def test_runs_stay_below_the_theorems_bounds(draw, seed):
    rounds, step = 600, 1 / (3 * WITHIN)
    cohorts = draw(np.random.default_rng(seed), rounds)
    convex = P @ CURVATURES
    path = path_of(Parabolas(), cohorts, step, trust=1.0)
    first, psi = start_of(Parabolas(), path, step)
    after, excess = np.arange(1, rounds + 1 - first), Parabolas().excess(path[first + 1 :])
    assert (excess <= (1 - step * convex) ** after * psi + EXACT).all()
    assert (excess <= (4 * psi / convex / step + 3 * WITHIN * psi) / after).all()
    path = path_of(Waves(), cohorts, step, trust=1.0)
    first, psi = start_of(Waves(), path, step)
    slopes = np.array([P @ Waves().gradients(model) for model in path[first:-1]])
    assert slopes @ slopes <= 2 * psi / step


def test_a_step_of_more_than_the_theorems_order_diverges():
    step = 12 / WITHIN
    cohorts = as_rare_as_allowed(None, 600)
    path = path_of(Parabolas(), cohorts, step, trust=1.0)
    assert np.abs(path[-1]) > 1e3


def test_where_two_fifths_leave_early_the_rule_ends_no_worse_than_the_plain_average():
    n_clients, leaving, rounds = 30, 12, 300
    task = heterogeneous_softmax(n_clients=n_clients, n_features=10, n_examples=20, n_classes=5)

    def cohorts(rng, rounds):
        there = rng.random((rounds, n_clients)) < 0.3
        there[5:, :leaving] = False
        return [np.flatnonzero(row) for row in there]

    problem = training.Problem(task, np.full(n_clients, 1 / n_clients), cohorts)
    plan = training.Training(
        rounds, training.constant(0.3), local_steps=3, seeds=(0, 1, 2), record_every=10
    )
    compared = rules.steady(problem.importance), rules.fedavg(), rules.mifa(problem.importance)
    ours, plain, frozen = (
        training.train(problem, rule, plan).tail_loss(50).mean() for rule in compared
    )
    assert ours <= plain < frozen
