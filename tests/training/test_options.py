"""Step schedules by their formulas; projections inside, idempotent, and at no acute angle."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st

from fedavot import training
from fedavot.errors import OptionError
from fedavot.training import Ball, Box, Training, constant, cosine, decaying, inverse_root, train

ROUNDING = 1e-12
"""Relative; room for a norm of six entries."""
RADIUS, LOW, HIGH = 1.5, -0.7, 1.2

sizes = st.floats(1e-6, 1e3)
lengths = st.integers(1, 60)

FORMULAS = {
    "constant": (constant, lambda a, t, rounds, steps: a),
    "inverse root": (inverse_root, lambda a, t, rounds, steps: a / math.sqrt(rounds * steps)),
    "cosine": (cosine, lambda a, t, rounds, steps: a * math.cos(math.pi * t / (2 * rounds)) ** 2),
    "decaying": (lambda a: decaying(a, 7.5), lambda a, t, rounds, steps: 7.5 * a / (7.5 + t)),
}


@pytest.mark.parametrize("kind", FORMULAS)
@given(sizes, lengths, st.integers(1, 9))
def test_a_schedule_is_its_formula(kind, size, rounds, local_steps):
    make, formula = FORMULAS[kind]
    expected = [formula(size, t, rounds, local_steps) for t in range(rounds)]
    found = make(size)(rounds, local_steps)
    np.testing.assert_allclose(found, expected, rtol=ROUNDING)
    assert (found > 0).all()


def test_a_step_that_vanishes_in_single_precision_is_refused():
    training = Training(2, constant(1e-60))
    assert training.step_sizes(np.dtype(np.float64)).tolist() == [1e-60, 1e-60]
    with pytest.raises(OptionError, match="round 1 is 1e-60; in float32 it must be .* above 0"):
        training.step_sizes(np.dtype(np.float32))


entries = st.integers(-4000, 4000).map(lambda thousandths: thousandths / 1000)
vectors = st.lists(entries, min_size=6, max_size=6).map(np.array)


def as_model(vector):
    """Return six numbers as a model of several leaves, one without axes."""
    return {
        "a": (vector[:1].reshape(()), vector[1:3]),
        "b": [vector[3:5].reshape(2, 1), vector[5:]],
    }


def as_vector(model):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)])


SETS = {
    "ball": (
        *(jax.jit(Ball(RADIUS)), lambda vector: np.linalg.norm(vector) <= RADIUS * (1 + ROUNDING)),
        lambda vector: vector / max(1, np.linalg.norm(vector) / RADIUS),
    ),
    "box": (
        *(jax.jit(Box(LOW, HIGH)), lambda vector: vector.min() >= LOW and vector.max() <= HIGH),
        lambda vector: np.clip(vector, LOW, HIGH),
    ),
}
each_set = pytest.mark.parametrize("kind", SETS)


def project(projection, vector):
    with jax.enable_x64(True):
        return as_vector(projection(as_model(vector)))


@each_set
@given(vectors, vectors)
def test_the_angle_at_the_projection_is_never_acute(kind, point, other):
    projection, inside, into = SETS[kind]
    found, member = project(projection, point), into(other)
    assert inside(found)
    # This characterises the nearest point of a convex set.
    assert (point - found) @ (member - found) <= 100 * ROUNDING


@each_set
@given(vectors)
def test_projecting_again_and_what_is_inside_change_nothing(kind, point):
    projection, inside, into = SETS[kind]
    once, member = project(projection, point), into(point) * 0.999
    np.testing.assert_allclose(project(projection, once), once, rtol=ROUNDING)
    assert inside(member)
    np.testing.assert_array_equal(project(projection, member), member)


@pytest.mark.parametrize("size", [1e18, 1e25, 1e38])
def test_a_ball_holds_models_whose_norm_overflows(size):
    found = Ball(2.0)({"a": jnp.array([3.0]) * size / 4, "b": jnp.array(size, jnp.float32)})
    np.testing.assert_allclose([found["a"][0], found["b"]], [1.2, 1.6], rtol=1e-5)


def test_what_is_not_a_number_stays_so():
    for projection in (Ball(1.0), Box(-1.0, 1.0)):
        assert np.isnan(projection(jnp.array([np.nan, 0.0]))[0])
    assert np.isnan(Ball(1.0)(jnp.array([np.inf, 0.0]))[0])


def test_every_local_step_and_every_aggregate_is_projected():
    task = training.Task(
        "line", small.TARGETS, lambda x, batch: -x + 0 * batch.sum(), lambda key: jnp.zeros(())
    )
    problem = training.Problem(task, small.P, small.everybody)
    doubled = small.asking(lambda number, cohort: (cohort, 2 * small.P[cohort]))
    options = small.options(
        1,
        step=training.constant(1.0),
        local_steps=3,
        batch_size=None,
        start=-0.5,
        projection=Box(-1.0, 0.25),
    )
    run = train(problem, doubled, options)
    # Three steps would lead to 2.5, local models stop at .25; twice their update leads to 1.
    np.testing.assert_array_equal(run.params, [0.25, 0.25])
    back = small.asking(lambda number, cohort: (cohort, -small.P[cohort] / 3))
    np.testing.assert_array_equal(train(problem, back, options).params, [-0.75, -0.75])
