"""Models of any structure, where they start, and losses that do not take them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from fedavot import rules, training
from fedavot.errors import TaskError
from fedavot.training import train

AGREE = 1e-12
"""Room for a product of few factors."""
TARGET = {
    "deep": ({"scalar": np.array(2.0)}, [np.array([1.0, -1.0]), np.ones((2, 1, 3))]),
    "empty": np.zeros((0, 2)),
    "none": None,
}


def distance(params, batch):
    """Return half the square distance to the target: a step shrinks it by 1 − η."""
    gaps = jax.tree.map(lambda leaf, goal: jnp.sum((leaf - goal) ** 2) / 2, params, TARGET)
    return sum(jax.tree.leaves(gaps)) + 0.0 * jnp.mean(batch)


def drawn(key):
    return jax.tree.map(lambda leaf: jax.random.normal(key, leaf.shape), TARGET)


TASK = training.Task("target", small.TARGETS, distance, drawn)
OPTIONS = small.options(3, local_steps=2, step=training.constant(0.25), batch_size=None)


def problem_of(task):
    return training.Problem(task, small.P, small.everybody)


def shrunk(start):
    """Return where six steps of .25 lead."""
    return jax.tree.map(lambda leaf, goal: goal + 0.75**6 * (leaf - goal), start, TARGET)


def assert_models(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=AGREE, atol=AGREE)


@pytest.mark.parametrize("rule", [small.SHARES, rules.mifa(small.P)], ids=lambda rule: rule.name)
def test_a_model_is_any_pytree_and_keeps_its_structure(rule):
    run = train(problem_of(TASK), rule, OPTIONS)
    assert jax.tree.structure(run.params) == jax.tree.structure(TARGET)
    for at, seed in enumerate(OPTIONS.seeds):
        with jax.enable_x64(True):
            start = jax.tree.map(np.asarray, drawn(jax.random.key(seed)))
        assert_models(jax.tree.map(lambda leaf, at=at: leaf[at], run.params), shrunk(start))


def test_a_start_replaces_the_drawn_model_for_every_seed():
    start = jax.tree.map(lambda leaf: leaf + 3.0, TARGET)
    run = train(problem_of(TASK), small.SHARES, dataclasses.replace(OPTIONS, start=start))
    for at in range(2):
        assert_models(jax.tree.map(lambda leaf, at=at: leaf[at], run.params), shrunk(start))


def test_a_run_goes_on_from_the_model_of_another():
    first = train(problem_of(TASK), small.SHARES, OPTIONS)
    start = jax.tree.map(lambda leaf: leaf[0], first.params)
    second = train(problem_of(TASK), small.SHARES, dataclasses.replace(OPTIONS, start=start))
    assert_models(jax.tree.map(lambda leaf: leaf[0], second.params), shrunk(start))


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"level": 0.0}, "arrays of start have shapes .*'level'.*; init .*'slope'"),
        (np.zeros(3), "arrays of start have shapes"),
        ({"level": 0.0, "slope": np.zeros(3)}, r"'slope': \(3,\).*'regression' .*'slope': \(2,\)"),
        ({"level": np.zeros(1), "slope": np.zeros(2)}, r"'level': \(1,\)"),
        (
            {"level": 0, "slope": np.zeros(2)},
            r"first model of task 'regression' at \['level'\] has type int64; .* must be floats",
        ),
        (
            {"level": 0.0, "slope": np.array([0.0, np.nan])},
            r"at \['slope'\] has entries that are not finite",
        ),
    ],
)
def test_a_start_unlike_the_tasks_model_is_refused(start, message):
    with pytest.raises(TaskError, match=message):
        train(small.PROBLEM, small.SHARES, small.options(start=start))


def failing(key):
    raise RuntimeError("no more memory")


@pytest.mark.parametrize(
    ("init", "message"),
    [
        (failing, "init of task 'regression' fails .RuntimeError: no more memory.; it must take a"),
        (lambda: 0.0, "init of task 'regression' fails .TypeError"),
        (lambda key: "zeros", "init of task 'regression' fails"),
        (lambda key: {}, "the model of task 'regression' has no parameters"),
        (lambda key: jnp.zeros(2, int), "has type int64; parameters must be floats"),
        (lambda key: jnp.log(jnp.zeros(2)), "'regression' has entries that are not finite"),
        (
            lambda key: {"level": jnp.zeros(()), "slope": jnp.zeros(5)},
            r"loss .* fails on a model of shapes .*\(5,\).* and a batch of shapes \(\(2, 2\)",
        ),
    ],
)
def test_an_init_that_makes_no_model_is_refused(init, message):
    task = dataclasses.replace(small.TASK, init=init)
    with pytest.raises(TaskError, match=message):
        train(training.Problem(task, small.P, small.some), small.SHARES, small.options())


def errors(params, batch):
    features, targets = batch
    return (features @ params["slope"] + params["level"] - targets) ** 2


def missing(params, batch):
    return params["width"]


@pytest.mark.parametrize("counts", [None, [5, 4, 3, 5]], ids=["even", "uneven"])
@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (errors, r"task 'regression' returns .*shape=\(\d,\).*; it must return one float"),
        (lambda params, batch: errors(params, batch).mean(keepdims=True), r"shape=\(1,\)"),
        (lambda params, batch: (errors(params, batch).mean(), 1.0), r"returns \(.*one float"),
        (lambda params, batch: None, "returns None; it must return one float"),
        (lambda params, batch: 3, r"dtype=int\d\d.*; it must return one float"),
        (missing, "loss of task 'regression' fails on a model of .*KeyError: 'width'"),
    ],
)
def test_a_loss_that_is_no_scalar_is_refused_before_training(loss, message, batch_size, counts):
    task = dataclasses.replace(small.TASK, loss=loss, counts=counts)
    with pytest.raises(TaskError, match=message):
        train(
            training.Problem(task, small.P, small.some),
            small.SHARES,
            small.options(batch_size=batch_size),
        )


def test_the_cause_of_a_failing_loss_is_kept():
    task = dataclasses.replace(small.TASK, loss=missing)
    with pytest.raises(TaskError, match="'width'") as caught:
        train(training.Problem(task, small.P, small.some), small.SHARES, small.options())
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda params: jax.tree.map(lambda leaf: leaf[0], params),
        lambda params: params | {"level": params["slope"]},
        lambda params: params | {"level": params["level"][:1]},
        lambda params: params["slope"],
    ],
)
def test_the_objective_refuses_models_without_seeds_or_of_other_shapes(wrong):
    params = train(small.PROBLEM, small.SHARES, small.options()).params
    assert training.objective(small.PROBLEM, params).shape == (len(small.SEEDS),)
    with pytest.raises(TaskError, match="leading axis of seeds, .* models have shapes"):
        training.objective(small.PROBLEM, wrong(params))
