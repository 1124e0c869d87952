"""The study on deep networks, on a few small random images."""

import csv
import dataclasses
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")
sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
from studies.deep import data, draw, run
from studies.deep.contenders import NEEDS_LAW, RULES, TUNES_SERVER
from studies.deep.lanes import train_lanes
from studies.deep.world import DESIGNS, Design, Lane, World

from fedavot.training import Training, cosine, train

TINY = Design(
    side=4,
    channels=(8, 8),
    n_clients=12,
    examples=30,
    local_steps=2,
    batch_size=10,
    cohort_size=3,
    steps=(0.05, 0.1),
    short=6,
    long=8,
)
RULE = "fedavot-steady"
ROUNDING = 2e-5
"""Largest difference of a parameter after 6 rounds in single precision, in either order of sums."""
# Without its optimisations, as `make test` sets it, XLA gets the gradient of two such layers inside
# a loop wrong (JAX 0.10.2 on a CPU).
pytestmark = pytest.mark.usefixtures("optimised")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    rng = np.random.default_rng(0)
    labels = {"train": rng.integers(10, size=600), "test": rng.integers(10, size=200)}
    arrays = {f"{name}_labels": own.astype(np.uint8) for name, own in labels.items()}
    for name, own in labels.items():
        noise = rng.integers(200, size=(own.size, 4, 4, 3))
        arrays[f"{name}_pixels"] = (noise + 5 * own[:, None, None, None]).astype(np.uint8)
    path = tmp_path_factory.mktemp("deep") / "tiny.npz"
    traces = rng.random((50, 12)) < 0.3
    np.savez(path, **arrays, phones=np.packbits(traces, axis=0), phone_rounds=np.array(50))
    return path


@pytest.fixture(scope="module")
def world(prepared):
    return World("tiny", TINY, prepared)


def test_lanes_side_by_side_end_with_the_models_of_the_engine(world):
    lanes = [Lane("phones", "skewed", 3, 0.1), Lane("phones", "uniform", 4, 0.05)]
    models = train_lanes(world, RULE, lanes, 6)[1]
    for place, lane in enumerate(lanes):
        training = Training(6, cosine(lane.step), 2, 10, seeds=[lane.seed], record_every=6)
        alone = train(world.problem(RULE, lane), world.rule(RULE, lane, 6), training)
        for found, expected in zip(
            jax.tree.leaves(models), jax.tree.leaves(alone.params), strict=True
        ):
            np.testing.assert_allclose(found[place], expected[0], atol=ROUNDING)


def test_a_run_stops_resumes_and_is_drawn(prepared, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(DESIGNS, "pixels8", TINY)
    monkeypatch.setattr(run, "WAVES", 1)
    call = ["--data", str(prepared), "--out", str(tmp_path), "--settings", "phones", "even"]
    call += ["--rules", "plain", "fedavot-online", "--stages", "tune", "report"]
    run.main([*call, "--minutes", "0"])
    assert "stopped before the limit" in capsys.readouterr().out
    assert not list((tmp_path / "parts").glob("*"))
    run.main(call)
    parts = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").iterdir()}
    run.main(call)
    assert parts == {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").iterdir()}
    shutil.rmtree(tmp_path / "parts")
    run.main(call)
    assert not (tmp_path / "parts").exists()
    with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    reported = [row for row in rows if row["measure"] == "tail_loss" and row["seed"] == "2"]
    assert len(reported) == 2 * 2 * 2  # rules, settings, importances
    assert all(np.isfinite(float(row["value"])) for row in rows)
    draw.main([str(tmp_path / "rows.csv"), "--out", str(tmp_path)])
    assert (tmp_path / "pixels8-6.png").stat().st_size > 0
    assert "| fedavot-online |" in (tmp_path / "pixels8-6.md").read_text(encoding="utf-8")


def test_every_rule_has_a_schedule_in_every_setting_that_it_runs_in(world):
    for rule in RULES:
        server = 0.01 if rule in TUNES_SERVER else None
        for setting in TINY.settings:
            if rule in NEEDS_LAW and setting.startswith("gone"):
                continue
            lane = Lane(setting, "skewed", 0, 0.05, server)
            assert world.rule(rule, lane, 30).name
            members, weights = world.asked(rule, setting, "skewed", 0, 30)
            assert members.shape == weights.shape
            assert (weights[members == TINY.n_clients] == 0).all()


def test_a_diverging_step_is_not_chosen():
    tails = {Lane("even", "uniform", 0, step): loss for step, loss in ((0.1, 2.0), (0.2, np.inf))}
    assert run._beyond(tails, (0.1, 0.2)) == [Lane("even", "uniform", 0, 0.05)]


def test_images_of_classes_in_folders_are_read_and_averaged(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, level in (("cat", 10), ("dog", 200)):
        (tmp_path / name).mkdir()
        for number in range(6):
            grey = np.full((8, 8, 3), level + number, np.uint8)
            image.fromarray(grey).save(tmp_path / name / f"{number}.png")
    train_images, test_images = data.read(tmp_path)
    assert (train_images.labels.size, test_images.labels.size) == (10, 2)
    small = data.pooled(train_images.pixels, 2)
    assert small.shape == (10, 2, 2, 3)
    assert ((small[:, 0, 0, 0] >= 200) == (train_images.labels == 1)).all()


def test_images_of_one_file_per_class_are_read_without_those_that_have_no_pixels(tmp_path):
    for label in range(10):
        images = [[label] * 784] * 3 + [[]]
        (tmp_path / f"{label}.json").write_text(json.dumps({"data": images}))
    train_images, test_images = data.read(tmp_path)
    assert (train_images.labels.size, test_images.labels.size) == (25, 5)
    assert train_images.pixels.shape == (25, 28, 28, 1)
    assert (train_images.pixels[:, 5, 5, 0] == train_images.labels).all()


def test_the_published_design_asks_all_who_are_available(prepared):
    published = dataclasses.replace(
        TINY, settings=("interleaved-sine",), cohort_size=None, falls="root", steps=(0.05,)
    )
    other = World("published", published, prepared)
    members, weights = other.asked("fedawe", "interleaved-sine", "uniform", 0, 40)
    assert (members < 12).sum(axis=1).max() > 3
    np.testing.assert_allclose(weights.sum(axis=1)[(members < 12).any(axis=1)], 1, rtol=1e-6)
