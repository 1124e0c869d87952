"""The data decides the precision, and the caller's settings stay what they were."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from fedavot import rules, training
from fedavot.errors import TaskError
from fedavot.training import train

SINGLE = 1e-5
"""Room for single precision over six rounds."""
OPTIONS = small.options(6)
START = {"level": np.array([0.2]), "slope": np.array([[0.5, -0.5]])}
"""A model of one seed."""


def task_of(kind):
    data = (small.FEATURES.astype(kind), small.TARGETS.astype(kind))
    return dataclasses.replace(small.TASK, data=data)


def run_in(kind):
    return train(training.Problem(task_of(kind), small.P, small.some), small.SHARES, OPTIONS)


@pytest.mark.parametrize(
    ("kind", "trained"),
    [(np.float64, np.float64), (np.float32, np.float32), (np.float16, np.float32)],
)
def test_models_have_the_precision_of_the_data_but_never_half(kind, trained):
    run = run_in(kind)
    for model in (run.params, run.average):
        assert {leaf.dtype for leaf in model.values()} == {np.dtype(trained)}
    assert run.losses.dtype == np.float64


def test_the_widest_array_decides():
    mixed = dataclasses.replace(small.TASK, data=(small.FEATURES.astype(np.float32), small.TARGETS))
    assert mixed.dtype == np.float64
    labelled = (small.FEATURES.astype(np.float32), np.zeros((4, 5), np.int64))
    assert dataclasses.replace(small.TASK, data=labelled).dtype == np.float32


def test_single_and_double_precision_draw_the_same_cohorts_and_batches():
    options = dataclasses.replace(OPTIONS, start=jax.tree.map(lambda leaf: leaf[0], START))
    problems = (
        training.Problem(task_of(kind), small.P, small.some) for kind in (float, np.float32)
    )
    runs = (train(problem, small.SHARES, options) for problem in problems)
    models = (small.flat(run.params) for run in runs)
    np.testing.assert_allclose(*models, rtol=SINGLE, atol=SINGLE)


def settings():
    return jax.config.jax_enable_x64, jnp.ones(1).dtype, jnp.asarray(np.ones(1)).dtype


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_callers_settings_stay_what_they_were_and_change_nothing(kind):
    models = []
    for outside in (False, True):
        with jax.enable_x64(outside):
            before = settings()
            run = run_in(kind)
            training.objective(small.PROBLEM, run.params)
            assert settings() == before
        assert before[1] == (np.float64 if outside else np.float32)
        assert run.params["slope"].dtype == kind
        models.append(small.flat(run.params))
    np.testing.assert_array_equal(*models)


def test_progress_is_called_with_the_callers_settings():
    seen = []
    before = settings()
    train(small.PROBLEM, small.SHARES, OPTIONS, progress=lambda *_: seen.append(settings()))
    assert seen == [before] * 6


def test_the_settings_are_restored_when_training_fails():
    failing = dataclasses.replace(small.TASK, loss=lambda params, batch: 1 / 0)
    before = settings()
    with pytest.raises(TaskError, match="division by zero"):
        train(training.Problem(failing, small.P, small.some), small.SHARES, OPTIONS)
    assert settings() == before


def test_data_of_integers_alone_trains_in_single_precision():
    counts = np.arange(20).reshape(4, 5) % 7
    task = training.Task(
        "counts", counts, lambda x, batch: jnp.mean((x - batch) ** 2), lambda key: jnp.zeros(())
    )
    problem = training.Problem(task, small.P, small.everybody)
    run = train(problem, small.SHARES, small.options(6, batch_size=None))
    assert run.params.dtype == np.float32
    expected, mean = 0.0, small.P @ counts.mean(axis=1)
    for _ in range(6):
        expected -= 0.05 * 2 * (expected - mean)
    np.testing.assert_allclose(run.params, expected, rtol=SINGLE)


def test_integers_keep_their_64_bits_beside_doubles():
    data = (np.full((4, 5), 2**40 + 5), np.zeros((4, 5)))
    task = training.Task(
        "long",
        data,
        lambda x, batch: jnp.mean(x * (batch[0] % 7) + batch[1]),
        lambda key: jnp.zeros(()),
    )
    run = train(
        training.Problem(task, small.P, small.everybody),
        rules.fedavg(),
        small.options(6, batch_size=None),
    )
    np.testing.assert_allclose(run.params, -6 * 0.05 * ((2**40 + 5) % 7), rtol=1e-12)
