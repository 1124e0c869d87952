"""A run that was stopped goes on as if it had not been, and only from its own checkpoint."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from fedavot import rules, training
from fedavot.errors import FileFormatError, OptionError
from fedavot.training import Ending, train
from fedavot.training.engine import prepare

pytestmark = pytest.mark.usefixtures("optimised")  # bit for bit in the programs that users run

ROUNDS, EVERY = 12, 4
"""Three pieces."""
RULES = [small.SHARES, rules.mifa(small.P), rules.scaffold(small.P)]
OPTIONS = small.options(ROUNDS, record_every=EVERY, local_steps=2)


def stopping_after(pieces):
    """Return a progress callback that presses Ctrl-C after so many pieces."""
    seen = []

    def progress(done, total):
        seen.append(done)
        if len(seen) == pieces:
            raise KeyboardInterrupt

    return progress


def assert_same(one, other):
    """Every bit of what two runs computed is the same."""
    fields = ("params", "average", "losses", "recorded", "weights", "rounds", "seeds", "rule")
    for field in fields:
        jax.tree.map(np.testing.assert_array_equal, getattr(one, field), getattr(other, field))


@pytest.fixture(scope="module")
def whole():
    """Runs that nobody interrupted."""
    return {rule.name: train(small.PROBLEM, rule, OPTIONS) for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("pieces", [1, 2])
def test_a_resumed_run_ends_bit_for_bit_where_an_uninterrupted_one_does(
    rule, pieces, whole, tmp_path
):
    path, rounds = tmp_path / "run.npz", []
    while not rounds or rounds[-1] < ROUNDS:
        progress = stopping_after(pieces)
        run = train(small.PROBLEM, rule, OPTIONS, progress=progress, checkpoint=path)
        rounds.append(run.rounds)
        assert run.ending is (Ending.FINISHED if len(rounds) * pieces > 3 else Ending.INTERRUPTED)
    assert rounds == [*range(EVERY * pieces, ROUNDS, EVERY * pieces), ROUNDS]
    assert_same(run, whole[rule.name])


def test_a_finished_run_is_read_back_without_playing_a_round(whole, tmp_path):
    path, rule, played = tmp_path / "run.npz", RULES[0], []

    def progress(done, total):
        played.append(done)

    for _ in range(2):
        again = train(small.PROBLEM, rule, OPTIONS, checkpoint=path, progress=progress)
    assert played == [4, 8, 12]
    assert again.ending is Ending.FINISHED
    assert_same(again, whole[rule.name])


def test_ctrl_c_while_compiling_leaves_a_run_without_records(monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedavot.training.engine.ActiveRun.advance", interrupted)
    run = train(small.PROBLEM, RULES[0], OPTIONS)
    assert run.ending is Ending.INTERRUPTED
    assert run.rounds == run.recorded.size == 0
    assert run.losses.shape == (2, 0)
    starts = [small.start_of(seed) for seed in small.SEEDS]
    np.testing.assert_array_equal(small.flat(run.params), starts)
    with pytest.raises(OptionError, match="no record of the objective: interrupted after round 0"):
        _ = run.final_loss


def stop_one(path, problem=small.PROBLEM, rule=RULES[0], options=OPTIONS):
    train(problem, rule, options, progress=stopping_after(1), checkpoint=path)


def with_task(**changes):
    return dataclasses.replace(small.PROBLEM, task=dataclasses.replace(small.TASK, **changes))


def scaled_square(factor):
    return lambda params, batch: factor * small.square_loss(params, batch)


CHANGES = (
    *({"seeds": (3, 12)}, {"seeds": (3,)}, {"step": training.constant(0.0501)}, {"local_steps": 3}),
    *({"batch_size": 3}, {"batch_size": None}, {"record_every": 5}, {"rounds": 16}),
    *({"projection": training.Ball(1.0)}, {"start": {"level": 0.5, "slope": np.ones(2)}}),
)
OTHERS = {
    "other data": {"problem": with_task(data=(small.FEATURES + 1e-12, small.TARGETS))},
    "other importance": {"problem": dataclasses.replace(small.PROBLEM, importance=[0.25] * 4)},
    "other cohorts": {"problem": dataclasses.replace(small.PROBLEM, availability=small.everybody)},
    "other first model": {"problem": with_task(init=small.zero_model)},
    "other rule": {"rule": rules.fedavg_k(small.P)},
    "other hooks": {"rule": dataclasses.replace(RULES[0], proximal=0.5)},
    **{
        f"other {next(iter(one))}, {number}": {"options": dataclasses.replace(OPTIONS, **one)}
        for number, one in enumerate(CHANGES)
    },
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    path = tmp_path_factory.mktemp("stopped") / "run.npz"
    stop_one(path)
    return path


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS.keys())
def test_the_checkpoint_of_another_run_is_refused(changes, stopped):
    before = stopped.read_bytes()
    with pytest.raises(FileFormatError, match="belongs to another run .* save this run elsewhere"):
        stop_one(stopped, **changes)
    assert stopped.read_bytes() == before


def identity_of(problem=small.PROBLEM, rule=RULES[0]):
    return prepare(problem, rule, OPTIONS).fingerprint


def shifted_square(shift):
    """Close over an array, which is no part of the function's text."""
    return lambda params, batch: small.square_loss(params, batch) + params["slope"] @ shift


@pytest.mark.parametrize(
    ("make", "before", "after"),
    [
        (lambda it: {"problem": with_task(loss=scaled_square(it))}, 1.0, 1.0 + 1e-9),
        (lambda it: {"problem": with_task(loss=shifted_square(np.array(it)))}, [0, 1], [0, 2]),
        # The weights are the same, so that only the rule's constant differs.
        (lambda it: {"rule": weighing(rules.fedprox(proximal=it))}, 0.5, 0.5 + 1e-9),
        (lambda it: {"rule": weighing(rules.mifa(it))}, small.P, small.P[::-1]),
        (lambda it: {"rule": weighing(rules.afl(step=it))}, 0.1, 0.2),
    ],
    ids=["number", "array", "proximal", "memory", "adversary"],
)
def test_a_function_with_another_constant_is_another_run_though_its_name_is_the_same(
    make, before, after
):
    assert identity_of(**make(before)) == identity_of(**make(before))
    assert identity_of(**make(before)) != identity_of(**make(after))


def weighing(rule):
    return dataclasses.replace(rule, choose=RULES[0].choose)


def test_seeds_that_differ_in_their_batches_alone_are_other_runs():
    problem = dataclasses.replace(with_task(init=small.zero_model), availability=small.everybody)
    runs = (dataclasses.replace(OPTIONS, seeds=(seed,)) for seed in (1, 2))
    first, second = (prepare(problem, RULES[0], options).fingerprint for options in runs)
    assert first != second


def rectified_loss(params, batch):
    """Return a loss with a derivative of its own, which JAX prints by its address."""
    return jnp.mean(jax.nn.relu(batch[0] @ params["slope"] + params["level"] - batch[1]))


def test_a_run_is_the_same_in_another_process():
    code = (
        f"import sys; sys.path[:0] = {[str(path) for path in Path(__file__).parents[:2]]}; "
        "import test_resume as t; "
        "print(t.identity_of(t.with_task(loss=t.rectified_loss), t.RULES[2]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == identity_of(with_task(loss=rectified_loss), RULES[2])


def test_the_same_run_from_functions_made_anew_is_resumed(stopped, whole, tmp_path):
    path = tmp_path / "run.npz"
    path.write_bytes(stopped.read_bytes())
    problem = with_task(loss=FunctionType(small.square_loss.__code__, vars(small), "anew"))
    run = train(problem, rules.importance_average(small.P), OPTIONS, checkpoint=path)
    assert_same(run, whole[run.rule])


def test_a_checkpoint_in_a_missing_folder_is_refused_before_any_round(tmp_path):
    with pytest.raises(OptionError, match="missing/run.npz, in a folder that does not exist"):
        stop_one(tmp_path / "missing" / "run.npz")


@pytest.mark.parametrize("cause", [OSError("No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_last_checkpoint_and_nothing_else(
    cause, stopped, tmp_path, monkeypatch
):
    path = tmp_path / "run.npz"
    path.write_bytes(stopped.read_bytes())

    def failing(descriptor):
        raise cause

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        if isinstance(cause, OSError):
            with pytest.raises(OSError, match="No space left"):
                train(small.PROBLEM, RULES[0], OPTIONS, checkpoint=path)
        else:
            run = train(small.PROBLEM, RULES[0], OPTIONS, checkpoint=path)
            assert (run.ending, run.rounds) == (Ending.INTERRUPTED, 8)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.npz"]
    assert path.read_bytes() == stopped.read_bytes()


def test_a_run_of_many_records_without_divisors_is_still_cut_into_tens():
    task = training.Task(
        "count", np.zeros((1, 1)), lambda x, batch: jnp.mean(batch - x), lambda key: jnp.zeros(())
    )
    problem = training.Problem(task, [1.0], lambda rng, rounds: [np.array([0])] * rounds)
    done = []
    options = training.Training(211, training.constant(1.0))
    run = train(problem, rules.fedavg(), options, progress=lambda at, total: done.append(at))
    assert run.params == 211
    np.testing.assert_array_equal(run.losses, -np.arange(1.0, 212.0)[None])
    assert 10 <= len(done) <= 20
    assert done[-1] == 211
