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
from fedavot.training import Ending, checkpoint, train
from fedavot.training.engine import prepare
from sealing import seal_archive

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
    path = tmp_path / "run.npz"
    stopped = train(small.PROBLEM, rule, OPTIONS, progress=stopping_after(pieces), checkpoint=path)
    assert stopped.ending is Ending.INTERRUPTED
    assert stopped.rounds == EVERY * pieces
    resumed = train(small.PROBLEM, rule, OPTIONS, checkpoint=path)
    assert resumed.ending is Ending.FINISHED
    assert_same(resumed, whole[rule.name])


def test_a_run_may_be_stopped_after_every_piece(whole, tmp_path):
    path, rule = tmp_path / "run.npz", RULES[2]
    rounds = []
    for _ in range(3):
        run = train(small.PROBLEM, rule, OPTIONS, progress=stopping_after(1), checkpoint=path)
        rounds.append(run.rounds)
    assert rounds == [4, 8, 12]
    assert_same(run, whole[rule.name])


def test_a_finished_run_is_read_back_without_playing_a_round(whole, tmp_path):
    path, rule, played = tmp_path / "run.npz", RULES[0], []
    train(small.PROBLEM, rule, OPTIONS, checkpoint=path)
    again = train(
        small.PROBLEM,
        rule,
        OPTIONS,
        checkpoint=path,
        progress=lambda done, total: played.append(done),
    )
    assert played == []
    assert again.ending is Ending.FINISHED
    assert_same(again, whole[rule.name])


def test_ctrl_c_keeps_what_was_done(whole):
    rule = RULES[0]
    run = train(small.PROBLEM, rule, OPTIONS, progress=stopping_after(2))
    assert run.ending is Ending.INTERRUPTED
    assert run.message == "interrupted after round 8 of 12"
    assert run.recorded.tolist() == [4, 8]
    np.testing.assert_array_equal(run.losses, whole[rule.name].losses[:, :2])


def test_ctrl_c_while_compiling_leaves_a_run_without_records(monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedavot.training.active_run.ActiveRun.advance", interrupted)
    run = train(small.PROBLEM, RULES[0], OPTIONS)
    assert run.ending is Ending.INTERRUPTED
    assert run.rounds == run.recorded.size == 0
    assert run.losses.shape == (2, 0)
    np.testing.assert_array_equal(
        small.flat(run.params), [small.start_of(seed) for seed in small.SEEDS]
    )
    with pytest.raises(OptionError, match="no record of the objective: interrupted after round 0"):
        _ = run.final_loss


def stop_one(path, problem=small.PROBLEM, rule=RULES[0], options=OPTIONS):
    train(problem, rule, options, progress=stopping_after(1), checkpoint=path)


def with_task(**changes):
    return dataclasses.replace(small.PROBLEM, task=dataclasses.replace(small.TASK, **changes))


def one_entry_changed():
    features = small.FEATURES.copy()
    features[3, 4, 1] += 1e-12
    return with_task(data=(features, small.TARGETS))


def scaled_square(factor):
    return lambda params, batch: factor * small.square_loss(params, batch)


def shifted_square(shift):
    """Close over an array, which is no part of the function's text."""
    shift = np.array(shift)
    return lambda params, batch: small.square_loss(params, batch) + params["slope"] @ shift


OTHERS = {
    "other data": {"problem": one_entry_changed()},
    "other importance": {"problem": dataclasses.replace(small.PROBLEM, importance=[0.25] * 4)},
    "other cohorts": {"problem": dataclasses.replace(small.PROBLEM, availability=small.everybody)},
    "other first model": {"problem": with_task(init=small.zero_model)},
    "other rule": {"rule": rules.fedavg_k(small.P)},
    "other hooks": {"rule": dataclasses.replace(RULES[0], proximal=0.5)},
    "other seed": {"options": dataclasses.replace(OPTIONS, seeds=(3, 12))},
    "fewer seeds": {"options": dataclasses.replace(OPTIONS, seeds=(3,))},
    "other step": {"options": dataclasses.replace(OPTIONS, step=training.constant(0.0501))},
    "other local steps": {"options": dataclasses.replace(OPTIONS, local_steps=3)},
    "other batches": {"options": dataclasses.replace(OPTIONS, batch_size=3)},
    "full batches": {"options": dataclasses.replace(OPTIONS, batch_size=None)},
    "other records": {"options": dataclasses.replace(OPTIONS, record_every=5)},
    "more rounds": {"options": dataclasses.replace(OPTIONS, rounds=16)},
    "in a ball": {"options": dataclasses.replace(OPTIONS, projection=training.Ball(1.0))},
    "other start": {
        "options": dataclasses.replace(OPTIONS, start={"level": 0.5, "slope": np.ones(2)})
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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (scaled_square(1.0), scaled_square(1.0 + 1e-9)),
        (shifted_square([0.1, 0.2]), shifted_square([0.1, 0.3])),
    ],
    ids=["number", "array"],
)
def test_a_loss_that_was_edited_is_another_run_though_its_name_is_the_same(before, after):
    assert before.__qualname__ == after.__qualname__
    assert identity_of(with_task(loss=before)) != identity_of(with_task(loss=after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (rules.fedprox(proximal=0.5), rules.fedprox(proximal=0.5 + 1e-9)),
        (rules.mifa(small.P), rules.mifa(small.P[::-1])),
        (rules.afl(step=0.1), rules.afl(step=0.2)),
    ],
    ids=["proximal", "memory", "adversary"],
)
def test_a_rule_with_another_constant_is_another_run(before, after):
    # The weights are the same, so that only the constant differs.
    after = dataclasses.replace(after, choose=before.choose)
    assert identity_of(rule=before) != identity_of(rule=after)


def test_seeds_that_differ_in_their_batches_alone_are_other_runs():
    problem = training.Problem(
        dataclasses.replace(small.TASK, init=small.zero_model), small.P, small.everybody
    )
    one, other = (dataclasses.replace(OPTIONS, seeds=(seed,)) for seed in (1, 2))
    first, second = (prepare(problem, RULES[0], each).fingerprint for each in (one, other))
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
    played = []
    run = train(
        problem,
        rules.importance_average(small.P),
        OPTIONS,
        checkpoint=path,
        progress=lambda done, total: played.append(done),
    )
    assert played == [8, 12]
    assert_same(run, whole[run.rule])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_checkpoint_that_is_cut_off_is_refused(share, stopped, tmp_path):
    content, path = stopped.read_bytes(), tmp_path / "run.npz"
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(FileFormatError, match="not a complete checkpoint .* remove it"):
        stop_one(path)


def test_a_checkpoint_with_a_flipped_bit_is_refused_or_harmless(stopped, whole, tmp_path):
    # One bit in every 97th byte, headers included: the archive's checksums tell, or it is padding.
    content, path, refused = stopped.read_bytes(), tmp_path / "run.npz", 0
    for at in range(0, len(content), 97):
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        try:
            run = train(small.PROBLEM, RULES[0], OPTIONS, checkpoint=path)
        except FileFormatError:
            refused += 1
        else:
            assert_same(run, whole[RULES[0].name])
    assert refused > 5


def as_text(path):
    path.write_text("not an archive")


def as_array(path):
    with path.open("wb") as stream:
        np.save(stream, np.zeros(3))


def as_foreign_archive(path):
    np.savez(path, weights=np.zeros(3))


def as_checkpoint_without_losses(path):
    stop_one(path)
    with np.load(path) as archive:
        held = dict(archive)
    seal_archive(path, {name: array for name, array in held.items() if name != "losses"})


def edited(**changes):
    """Return a function that writes a checkpoint with other arrays and a fitting checksum."""

    def write(path):
        stop_one(path)
        with np.load(path) as archive:
            held = dict(archive)
        seal_archive(path, held | {name: change(held[name]) for name, change in changes.items()})

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (as_text, "not a complete checkpoint"),
        (as_array, "not a complete checkpoint"),
        (as_foreign_archive, "not a complete checkpoint"),
        (as_checkpoint_without_losses, r"lacks \['losses'\]"),
        (edited(format=lambda _: np.array("fedavot-training-2")), "of this version of fedavot"),
        (edited(leaf0=lambda leaf: leaf[..., None]), "cannot have saved"),
        (edited(leaf0=lambda leaf: leaf.astype(np.float16)), "cannot have saved"),
        (edited(losses=lambda losses: losses * np.nan), "cannot have saved"),
        (edited(losses=lambda losses: losses[:, :0]), "cannot have saved"),
        (edited(losses=lambda losses: losses[0]), "cannot have saved"),
        (edited(recorded=lambda rounds: rounds[:0], losses=lambda all: all[:, :0]), "cannot have"),
        (edited(recorded=lambda rounds: rounds - rounds), "cannot have saved"),
        (edited(recorded=lambda rounds: rounds * 1.0), "cannot have saved"),
    ],
)
def test_a_foreign_file_is_refused_and_left_alone(write, message, tmp_path):
    path = tmp_path / "run.npz"
    write(path)
    before = path.read_bytes()
    with pytest.raises(FileFormatError, match=message):
        stop_one(path)
    assert path.read_bytes() == before


def test_a_checkpoint_in_a_missing_folder_is_refused_before_any_round(tmp_path):
    played = []
    with pytest.raises(OptionError, match="missing/run.npz, in a folder that does not exist"):
        train(
            small.PROBLEM,
            RULES[0],
            OPTIONS,
            checkpoint=tmp_path / "missing" / "run.npz",
            progress=lambda done, total: played.append(done),
        )
    assert played == []


def filling_the_disk(stream, **arrays):
    stream.write(b"half of it")
    raise OSError("No space left on device")


def test_a_failed_write_leaves_the_last_checkpoint_and_nothing_else(stopped, tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    path.write_bytes(stopped.read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr("numpy.savez", filling_the_disk)
        with pytest.raises(OSError, match="No space left"):
            train(small.PROBLEM, RULES[0], OPTIONS, checkpoint=path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.npz"]
    assert path.read_bytes() == stopped.read_bytes()


def test_ctrl_c_while_saving_keeps_the_piece_and_the_last_checkpoint(
    stopped, tmp_path, monkeypatch
):
    path = tmp_path / "run.npz"
    path.write_bytes(stopped.read_bytes())

    def interrupted(descriptor):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        run = train(small.PROBLEM, RULES[0], OPTIONS, checkpoint=path)
    assert run.ending is Ending.INTERRUPTED
    assert run.rounds == 8
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.npz"]
    assert path.read_bytes() == stopped.read_bytes()


def test_a_run_of_many_records_without_divisors_is_still_cut_into_tens():
    task = training.Task(
        "count",
        np.zeros((1, 1)),
        lambda x, batch: jnp.mean(batch - x),
        lambda key: jnp.zeros(()),
    )
    problem = training.Problem(task, [1.0], lambda rng, rounds: [np.array([0])] * rounds)
    done = []
    options = training.Training(211, training.constant(1.0))
    run = train(problem, rules.fedavg(), options, progress=lambda at, total: done.append(at))
    assert run.params == 211
    np.testing.assert_array_equal(run.losses, -np.arange(1.0, 212.0)[None])
    assert 10 <= len(done) <= 20
    assert done[-1] == 211


def test_a_checkpoint_that_takes_long_is_written_less_often_but_when_stopped(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(checkpoint.Checkpoint, "save", lambda self, *given: saved.append(given[1]))
    monkeypatch.setattr(checkpoint, "BYTES_A_SECOND", 1e-3)
    whole = train(small.PROBLEM, RULES[0], OPTIONS, checkpoint=tmp_path / "run.npz")
    assert not saved
    stopped = train(
        *(small.PROBLEM, RULES[0], OPTIONS),
        progress=stopping_after(2),
        checkpoint=tmp_path / "run.npz",
    )
    assert stopped.rounds < whole.rounds
    assert saved[-1][-1] == stopped.rounds
