"""Projections are Euclidean: inside, idempotent, and at no acute angle to the set."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st

from fedavot import training
from fedavot.errors import OptionError
from fedavot.training import Ball, Box, train

ROUNDING = 1e-12
"""Relative; room for a norm of six entries."""
RADIUS, LOW, HIGH = 1.5, -0.7, 1.2

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


@jax.jit
def _ball(model):
    return Ball(RADIUS)(model)


@jax.jit
def _box(model):
    return Box(LOW, HIGH)(model)


def project(projection, vector):
    with jax.enable_x64(True):
        return as_vector(projection(as_model(vector)))


def in_ball(vector):
    return np.linalg.norm(vector) <= RADIUS * (1 + ROUNDING)


def in_box(vector):
    return vector.min() >= LOW and vector.max() <= HIGH


SETS = {
    "ball": (_ball, in_ball, lambda vector: vector / max(1, np.linalg.norm(vector) / RADIUS)),
    "box": (_box, in_box, lambda vector: np.clip(vector, LOW, HIGH)),
}
each_set = pytest.mark.parametrize("kind", SETS)


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
def test_projecting_again_changes_nothing(kind, point):
    projection = SETS[kind][0]
    once = project(projection, point)
    np.testing.assert_allclose(project(projection, once), once, rtol=ROUNDING)


@each_set
@given(vectors)
def test_what_is_inside_stays_as_it_is(kind, point):
    projection, inside, into = SETS[kind]
    member = into(point) * 0.999
    assert inside(member)
    np.testing.assert_array_equal(project(projection, member), member)


def test_a_ball_takes_all_leaves_together():
    model = Ball(1.0)({"a": jnp.array([3.0]), "b": jnp.array(4.0)})
    np.testing.assert_allclose([model["a"][0], model["b"]], [0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize("size", [1e18, 1e25, 1e38])
def test_a_ball_holds_models_whose_norm_overflows(size):
    found = Ball(2.0)({"a": jnp.array([3.0]) * size / 4, "b": jnp.array(size, jnp.float32)})
    np.testing.assert_allclose([found["a"][0], found["b"]], [1.2, 1.6], rtol=1e-5)


def test_what_is_not_a_number_stays_so():
    for projection in (Ball(1.0), Box(-1.0, 1.0)):
        assert np.isnan(projection(jnp.array([np.nan, 0.0]))[0])
    assert np.isnan(Ball(1.0)(jnp.array([np.inf, 0.0]))[0])


@pytest.mark.parametrize("radius", [0.0, -1.0, np.nan, np.inf])
def test_a_ball_needs_a_radius(radius):
    with pytest.raises(OptionError, match="radius is .*; it must be finite and above 0"):
        Ball(radius)


@pytest.mark.parametrize(("low", "high"), [(1.0, -1.0), (1.0, 1.0), (np.nan, 1.0), (0.0, np.nan)])
def test_a_box_needs_room(low, high):
    with pytest.raises(OptionError, match="a box from .* is empty; low must be below"):
        Box(low, high)


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
