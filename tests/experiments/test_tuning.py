"""Every rule gets its best steps: those that all choices tried one by one would give."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from fedavot import UniformCohorts
from fedavot.errors import InputError, InterruptedStudyError
from fedavot.experiments import tuning
from fedavot.experiments.outcome import Outcome, file_name
from fedavot.experiments.study import COMMON, Instance, Setting, common
from fedavot.experiments.tuning import OWN, SCHEDULES, Choice, conduct
from fedavot.rules import Known, build, with_server
from fedavot.training import Problem, Training, constant, decaying, train
from fedavot.training.tasks.linear import heterogeneous_regression, optimum

N = 6
IMPORTANCE = np.arange(N, 0, -1.0) / np.arange(N, 0, -1.0).sum()
LAW = UniformCohorts(N, 2)
TASK = heterogeneous_regression(n_clients=N, n_features=3, n_examples=8)
PROBLEM = Problem(TASK, IMPORTANCE, LAW.sample)
OPTIMUM = optimum(TASK, IMPORTANCE)[1]
AGREE = 1e-6


def silent(*_):
    """Ignore progress."""


def setting(*names, step=0.02, schedule=constant, **changes):
    held = Setting(
        "tiny",
        (Instance(PROBLEM, (0, 1), OPTIMUM),),
        tuple(build(name, Known(IMPORTANCE, LAW)) for name in names),
        Training(40, schedule(step), local_steps=2, record_every=10),
        tail=20,
        tuning=(Instance(PROBLEM, (7, 8)),),
    )
    return dataclasses.replace(held, **changes)


def tail(one, rule, choice, instances):
    """Return the tail loss of one choice by seed, from a run of its own."""
    if rule.moves:
        rule = with_server(rule, step=choice.server_step, momentum=choice.momentum)
    step = SCHEDULES[choice.schedule](choice.step)
    own = dataclasses.replace(one.training, step=step, seeds=instances[0].seeds)
    return train(instances[0].problem, rule, own).tail_loss(one.tail)


@pytest.fixture
def tried(monkeypatch):
    """Collect every choice that is tuned over."""
    found, inner = [], tuning._Tuning._steps
    monkeypatch.setattr(
        tuning._Tuning, "_steps", lambda self, choice: found.append(choice) or inner(self, choice)
    )
    return found


def test_the_best_choice_is_that_of_all_choices_tried_one_by_one(tmp_path, monkeypatch, tried):
    monkeypatch.setattr(tuning, "WAVES", 0)
    one = setting("fedavg")
    best, shared = conduct([one], tmp_path, progress=silent)
    (rule,) = one.rules
    grid = set(tried)
    n_server_steps = sum(map(len, tuning.SERVER.values()))
    assert len(grid) == len(tuning.LOCAL) * n_server_steps * len(SCHEDULES)
    assert {choice.momentum for choice in grid} == {*tuning.SERVER}
    means = {choice: tail(one, rule, choice, one.tuning).mean() for choice in grid}
    expected = min(means, key=means.get)
    assert best.steps == str(expected)
    assert (best.setting, shared.setting) == ("tiny", common("tiny"))
    assert shared.steps == COMMON
    reported = tail(one, rule, expected, one.instances)
    assert best.seeds == (0, 1)
    np.testing.assert_allclose(best.values("tail_loss"), reported, rtol=AGREE)
    np.testing.assert_allclose(best.values("excess"), reported - OPTIMUM, rtol=1e-4)
    ours = tail(one, rule, Choice("constant", 0.02), one.instances)
    np.testing.assert_allclose(shared.values("tail_loss"), ours, rtol=AGREE)


@pytest.mark.parametrize("step", [1e-4, 0.3])
def test_the_grid_is_extended_where_the_best_lies_at_an_edge(tmp_path, tried, step):
    best, _ = conduct([setting("mifa", step=step)], tmp_path, progress=silent)
    steps = [choice.step for choice in tried]
    low, high = min(tuning.LOCAL) * step, max(tuning.LOCAL) * step
    if step < 0.01:
        assert max(steps) > 2 * high - 1e-12
        # Each momentum has a grid of its own, with edges of its own.
        for momentum, server_steps in tuning.SERVER.items():
            own = [one.server_step for one in tried if one.momentum == momentum]
            assert max(own) > max(server_steps)
    else:
        assert min(steps) < low / 2
    assert not best.diverged


def test_a_choice_that_diverges_is_never_chosen(tmp_path):
    # At the common step, and at all but the least steps of the grid, models grow without bound.
    best, shared = conduct([setting("fedavg", step=30.0)], tmp_path, progress=silent)
    assert shared.diverged
    assert "diverged" in shared.message
    assert float(best.steps.split()[0]) < 30.0
    kept = Outcome.load(tmp_path / file_name(common("tiny"), "fedavg"))
    assert kept.diverged
    assert kept.losses.shape == (2, kept.recorded.size)
    assert np.isfinite(kept.losses).all()


def test_a_rule_that_cannot_move_has_server_step_one_and_no_momentum(tmp_path, tried):
    conduct([setting("fedavg-k")], tmp_path, progress=silent)
    assert {choice[2:] for choice in tried} == {(1.0, 0.0)}


def test_a_rule_with_an_optimiser_of_its_own_keeps_it(tmp_path, monkeypatch, tried):
    monkeypatch.setattr(tuning, "WAVES", 0)
    for name in ("fedavgm", "fedadam"):
        conduct([setting(name)], tmp_path, progress=silent)
    assert {choice.momentum for choice in tried} == {0.0}
    assert {choice.server_step for choice in tried} == {*tuning.SERVER[0.0]}


def test_a_choice_says_what_differs_from_the_plain_rule():
    assert str(Choice("cosine", 0.1)) == "0.1 cosine"
    assert str(Choice("constant", 0.03, 8.0, 0.9)) == "0.03 constant, server 8, momentum 0.9"


def test_a_schedule_of_the_settings_own_is_a_choice_as_well(tmp_path, monkeypatch, tried):
    monkeypatch.setattr(tuning, "WAVES", 0)
    monkeypatch.setattr(tuning, "LOCAL", (1000.0,))  # all of the grid is far too much
    falling = setting("fedavg", schedule=lambda step: decaying(step, 5.0))
    best, shared = conduct([falling], tmp_path, progress=silent)
    assert best.steps == str(Choice(OWN, 0.02))
    np.testing.assert_array_equal(best.losses, shared.losses)
    tried.clear()
    conduct([setting("fedavg")], tmp_path, progress=silent)
    assert {choice.schedule for choice in tried} == {*SCHEDULES}


def test_finished_outcomes_are_found_again_and_other_options_are_run(tmp_path, monkeypatch):
    one = setting("fedavg")
    first = conduct([one], tmp_path, progress=silent)
    said = []
    monkeypatch.setattr(tuning, "sweep", None)
    again = conduct([one], tmp_path, progress=lambda *told: said.append(told))
    assert [own.steps for own in again] == [own.steps for own in first]
    np.testing.assert_array_equal(again[0].losses, first[0].losses)
    assert len(said) == 1
    assert said[0][1] == said[0][2]
    with pytest.raises(TypeError, match="NoneType"):
        conduct([dataclasses.replace(one, tail=10)], tmp_path, progress=silent)
    # A pair of which one file is missing is run again.
    (tmp_path / file_name(common("tiny"), "fedavg")).unlink()
    with pytest.raises(TypeError, match="NoneType"):
        conduct([one], tmp_path, progress=silent)


def test_an_interruption_keeps_what_is_finished(tmp_path):
    def stop(label, done, total):
        if "FedAVOT" in label:
            raise KeyboardInterrupt

    with pytest.raises(InterruptedStudyError) as stopped:
        conduct([setting("fedavg", "fedavot")], tmp_path, progress=stop)
    finished: list[Any] = list(stopped.value.outcomes)
    assert [one.rule for one in finished] == ["fedavg", "fedavg"]
    done = conduct([setting("fedavg", "fedavot")], tmp_path, progress=silent)
    assert [one.rule for one in done] == ["fedavg", "fedavg", "fedavot", "fedavot"]


def test_bad_input_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(InputError, match="symbolic link"):
        conduct([setting("fedavg")], tmp_path / "link", progress=silent)
    with pytest.raises(InputError, match="'tiny'"):
        conduct([setting("fedavg", tuning=())], tmp_path / "real", progress=silent)
    seeds = (Instance(PROBLEM, (1, 2)),)
    with pytest.raises(InputError, match="seed 1 "):
        conduct([setting("fedavg", tuning=seeds)], tmp_path / "real", progress=silent)
