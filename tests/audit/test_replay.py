"""The replay: its arithmetic is that of the training engine, on the rounds of the log."""

import numpy as np
import pytest

import fedavot as fa
from fedavot import rules
from fedavot.audit.auditing import ReplayOptions, audit
from fedavot.audit.federation import Federation
from fedavot.audit.replay import problems as made
from fedavot.audit.replay import scene as scenes
from fedavot.audit.replay.replaying import _Losses, _trained
from fedavot.audit.replay.scene import Way, scene_of
from fedavot.audit.replay.training import train, train_all
from fedavot.audit.statistics.case import opened
from fedavot.audit.statistics.rules import softly_learned
from fedavot.audit.statistics.window import Window
from fedavot.errors import OptionError, TaskError
from fedavot.rules import with_server
from fedavot.rules._rule import Asked, Rule, add_updates
from fedavot.training import Problem, Training, constant
from fedavot.training import train as engine
from fedavot.training.tasks.linear import linear_task
from logs import drawn, log_of, slack

ROUNDING = 1e-9
"""Relative difference of losses between two ways of computing them in double precision."""
STEPS, LOCAL_STEPS = np.array([0.05, 0.4]), 3


@pytest.fixture
def rounds():
    """Return cohorts of nine clients, and their importance.

    The first has none, and the last leaves for good.
    """
    rng = np.random.default_rng(3)
    there = [9] * 10 + [8] * 30
    cohorts = [np.sort(rng.permutation(n)[: rng.integers(2, 6)]) for n in there]
    importance = np.r_[0.0, np.arange(1.0, 9.0)]
    return log_of(cohorts, 9).cohorts, importance / importance.sum()


@pytest.fixture
def silent(monkeypatch, rounds):
    """Return problems without noise, in three groups."""
    monkeypatch.setattr(made, "NOISES", (0.0,))
    rng = np.random.default_rng(0)
    return made.problems(
        rounds[1], [np.arange(9) % 3], steps=STEPS, local_steps=LOCAL_STEPS, rng=rng
    )


def by_engine(of, rule, rounds, place):
    """Return the excess loss after every round of a problem, by the training engine."""
    cohorts, importance = rounds
    step, number = place
    curvature = (1 - (1 - of.pull[:, step, number].T) ** (1 / LOCAL_STEPS)) / STEPS[step]
    minimum = of.minimum[:, 0, number].T
    # The mean square over as many examples as dimensions is the quadratic loss.
    roots = np.sqrt(curvature * made.DIMENSION / 2)
    data = [(np.diag(root), root * centre) for root, centre in zip(roots, minimum, strict=True)]
    listed = [cohorts.row(t).astype(np.int64) for t in range(cohorts.n_cohorts)]
    problem = Problem(linear_task("quadratic", data), importance, lambda rng, count: listed)
    training = Training(cohorts.n_cohorts, constant(STEPS[step]), local_steps=LOCAL_STEPS)
    run = engine(problem, rule, training)
    least = importance @ (curvature * (minimum - of.best[:, number]) ** 2).sum(axis=1) / 2
    return run.losses[0] - least


def weighing(cohorts, weights):
    """Return a rule with given weights, one for each entry."""

    def choose(found, rng):
        parts = np.split(weights, cohorts.offsets[1:-1])
        return [Asked(cohort, part) for cohort, part in zip(found, parts, strict=True)]

    return Rule("given", "", "", choose, add_updates)


@pytest.mark.parametrize("place", [(0, 0), (1, 5), (1, 11)])
def test_training_is_that_of_the_engine(silent, rounds, place):
    cohorts, importance = rounds
    rng = np.random.default_rng(1)
    weights = rng.random(cohorts.members.size)
    learned = softly_learned(Window(cohorts, np.arange(40), importance, None))
    ways = [
        Way("given", cohorts, weights),
        Way("momentum", cohorts, weights, momentum=0.9),
        Way("steady", cohorts, learned, "memory"),
    ]
    found = train(silent, ways, importance, rng)
    given = weighing(cohorts, weights)
    expected = {
        "given": given,
        "momentum": with_server(given, momentum=0.9),
        "steady": rules.steady(importance),
    }
    for name, rule in expected.items():
        wanted = by_engine(silent, rule, rounds, place)
        assert found[name][:, *place] == pytest.approx(wanted, rel=ROUNDING), name


def test_full_participation_is_that_of_the_engine(silent, rounds):
    found = train_all(silent, rounds[1], 40, np.random.default_rng(0))
    wanted = by_engine(silent, rules.full(rounds[1]), rounds, (1, 2))
    assert found[:, 1, 2] == pytest.approx(wanted)


def test_noise_has_the_deviation_of_its_local_steps(monkeypatch):
    # One client with weight one, after one round of many problems: mean and variance are known.
    monkeypatch.setattr(made, "SEEDS", 4000)
    monkeypatch.setattr(made, "STRENGTHS", (1.0,))
    monkeypatch.setattr(made, "NOISES", (2.0,))
    rng = np.random.default_rng(0)
    one = np.array([1.0])
    of = made.problems(one, [None], steps=np.array([0.3]), local_steps=4, rng=rng)
    curvature = (1 - (1 - of.pull[:, 0, :, 0]) ** (1 / 4)) / 0.3
    model = np.zeros_like(curvature)
    for _ in range(4):
        slope = curvature * (model - of.minimum[:, 0, :, 0])
        model = model - 0.3 * (slope + 2.0 * rng.standard_normal(model.shape))
    spread = (model - (of.pull * of.minimum)[:, 0, :, 0]) / of.noise[:, 0, :, 0]
    assert spread.mean() == pytest.approx(0.0, abs=0.02)
    assert spread.var() == pytest.approx(1.0, abs=0.03)


def test_an_audit_trains_with_every_rule_and_what_is_in_use_is_one_of_them():
    law, importance = slack()
    found = audit(drawn(law, importance, 120, 0))
    replayed = {one.rule: one for one in found.replay.trained}
    assert {"fedavg", "full", "fedavot-steady", "fedavgm", "importance-average"} <= {*replayed}
    assert found.in_use == "fedavg"
    assert tuple(replayed["fedavg"].to_use) == (1.0, 1.0, 1.0)
    assert not replayed["fedavg"].better
    assert found.replay.fitted_rounds + found.replay.held_out_rounds == found.rounds
    for one in replayed.values():
        assert one.middle.shape == found.replay.recorded.shape
        assert (one.low <= one.middle).all()
        assert (one.middle <= one.high).all()
    assert found.recommendation.best.rule == "fedavot-steady"


def test_memory_is_advised_for_day_and_night_and_never_what_trains_worse():
    # Either half of the clients takes part for twelve rounds; the plain average is even over the
    # log, and alignment can do nothing.
    rng = np.random.default_rng(0)
    half = np.arange(20) >= 10
    there = [rng.random(20) < np.where(half == (t // 12 % 2 == 1), 0.3, 0.01) for t in range(240)]
    cohorts = [np.flatnonzero(one) for one in there]
    log = log_of(cohorts, 20)
    groups = {"groups": ("day", "night"), "group_of": half.astype(np.int64)}
    found = audit(Federation(log, fa.importance.uniform(20), **groups))
    assert found.recommendation.action == "use memory"
    assert found.recommendation.second.rule == "fedavgm"
    without = audit(Federation(log, fa.importance.uniform(20), **groups), can=())
    assert without.recommendation.best.rule == "fedavgm"


@pytest.mark.parametrize(("weights", "rule"), [(None, "by-examples"), ("equal", "fedavg")])
def test_weights_in_use_are_recognised_or_said(weights, rule):
    rng = np.random.default_rng(0)
    cohorts = [np.sort(rng.permutation(6)[:3]) for _ in range(60)]
    sizes = np.array([1.0, 1.0, 1.0, 9.0, 9.0, 9.0])
    log = log_of(cohorts, 6, examples=np.concatenate([sizes[cohort] for cohort in cohorts]))
    found = audit(Federation(log, fa.importance.uniform(6)), weights=weights)
    assert found.in_use == rule
    assert found.price.find("by-examples").gap > 0.2
    assert found.replay.find(rule).to_use.value == 1.0
    # FedAvg by examples optimises another objective here, and is worse than equal weights.
    assert found.replay.find("by-examples").to_plain.value > 1.0


def test_weights_that_the_log_does_not_have_are_refused():
    federation = Federation(log_of([[0], [1]], 2), np.array([0.5, 0.5]))
    with pytest.raises(OptionError, match="no column of examples"):
        audit(federation, weights="examples")
    with pytest.raises(OptionError, match="'heavy'"):
        audit(federation, weights="heavy")
    with pytest.raises(OptionError, match="'magic'"):
        audit(federation, can=["magic"])


def test_a_large_log_is_made_smaller_with_cohorts_of_their_size(monkeypatch):
    monkeypatch.setattr(scenes, "MOST_CLIENTS", 50)
    monkeypatch.setattr(scenes, "MOST_ROUNDS", 100)
    rng = np.random.default_rng(0)
    cohorts = [np.sort(rng.permutation(400)[:4]) for _ in range(3000)]
    importance = fa.importance.by_examples(np.arange(1, 401))
    case = opened(Federation(log_of(cohorts, 400), importance), "log", rng)
    scene = scene_of(case, rng)
    assert scene.clients.size == 50
    assert scene.window.n_rounds == 100
    assert scene.window.incidence.sizes.mean() == pytest.approx(4.0, rel=0.2)
    # Every eighth client, by importance: the sample's importance is spread like that of all.
    assert scene.window.importance.sum() == pytest.approx(1.0)
    assert np.sort(scene.clients) == pytest.approx(np.arange(4, 400, 8), abs=8)


def test_a_small_log_is_replayed_as_it_is(rounds):
    cohorts, importance = rounds
    log = log_of([cohorts.row(t) for t in range(cohorts.n_cohorts)], 9)
    rng = np.random.default_rng(0)
    scene = scene_of(opened(Federation(log, importance), "log", rng), rng)
    assert scene.window.incidence.members.tolist() == cohorts.members.tolist()
    assert scene.clients.tolist() == list(range(9))


@pytest.fixture
def arrays(tmp_path):
    """Return a function that writes examples of some clients, of two groups of labels."""

    def write(names, **more):
        rng = np.random.default_rng(0)
        owners = np.repeat(names, 12)
        group = np.array([int(name.rpartition("-")[2]) % 2 for name in owners])
        labels = 2 * group + rng.integers(0, 2, owners.size)
        features = np.eye(4)[labels] + 0.3 * rng.standard_normal((owners.size, 4))
        held = {"features": features, "targets": labels, "clients": owners, **more}
        path = tmp_path / "mine.npz"
        np.savez(path, **{name: array for name, array in held.items() if array is not None})
        return path

    return write


def test_a_task_of_the_users_own_takes_the_place_of_the_problems(arrays):
    law, importance = slack(8)
    federation = drawn(law, importance, 61, 0)
    task = arrays(federation.participation.clients)
    found = audit(federation, training=ReplayOptions(local_steps=2, task=task)).replay
    assert (found.task, found.variants, found.local_steps) == ("mine.npz", 1, 2)
    assert found.recorded[-1] == 61
    assert found.find("fedavg").to_use.value == 1.0
    assert found.find("full").middle[-1] < found.find("full").middle[0]


def test_a_task_without_an_example_of_every_client_is_refused(arrays):
    law, importance = slack(8)
    federation = drawn(law, importance, 20, 0)
    names = federation.participation.clients
    with pytest.raises(TaskError, match="'client-7'"):
        audit(federation, training=ReplayOptions(task=arrays(names[:-1])))
    with pytest.raises(TaskError, match="no array 'clients'"):
        audit(federation, training=ReplayOptions(task=arrays(names, clients=None)))


def test_without_groups_clients_that_take_turns_may_be_alike():
    rng = np.random.default_rng(0)
    night = np.arange(12) >= 6
    rates = [np.where(night == (t // 10 % 2), 0.5, 0.02) for t in range(200)]
    log = log_of([np.flatnonzero(rng.random(12) < rate) for rate in rates], 12)
    untold = Federation(log, np.full(12, 1 / 12))
    told = Federation(log, untold.importance, ("day", "night"), night.astype(np.int64))
    none, alike = scene_of(opened(untold, "log", rng), rng).groupings()
    assert none is None
    assert not set(alike[night]) & set(alike[~night])
    (own,) = scene_of(opened(told, "log", rng), rng).groupings()
    assert np.array_equal(own, night)


def test_a_rule_is_recommended_only_if_it_beats_the_plain_average_as_well():
    losses = {"full": 0.1, "fedavg": 1.0, "by-examples": 2.0, "fedavgm": 0.99, "fedavot": 0.5}
    nobody = log_of([np.array([0])], 1).cohorts
    noise = 1 + 1e-3 * np.random.default_rng(0).standard_normal((2, 4))
    found = {
        rule: _Losses(
            Way(rule, nobody, np.ones(1)), np.ones(2), loss * noise, loss * noise, np.ones((2, 1))
        )
        for rule, loss in losses.items()
    }
    better = {rule for rule, one in found.items() if _trained(one, found, "by-examples").better}
    assert better == {"full", "fedavg", "fedavot"}
    better = {rule for rule, one in found.items() if _trained(one, found, "fedavg").better}
    assert better == {"full", "fedavot"}
