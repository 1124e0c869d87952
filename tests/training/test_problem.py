"""Problems by name, models of any structure and where they start, and what a run reports."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from fedavot import rules, training
from fedavot.errors import ImportanceError, OptionError
from fedavot.training import Ending, Problem, Run, from_clients, train

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
    jax.tree.map(
        lambda *pair: np.testing.assert_allclose(*pair, rtol=AGREE, atol=AGREE), found, expected
    )


@pytest.mark.parametrize("rule", [small.SHARES, rules.mifa(small.P)], ids=lambda rule: rule.name)
def test_a_model_is_any_pytree_and_keeps_its_structure(rule):
    run = train(problem_of(TASK), rule, OPTIONS)
    assert jax.tree.structure(run.params) == jax.tree.structure(TARGET)
    for at, seed in enumerate(OPTIONS.seeds):
        with jax.enable_x64(True):
            start = jax.tree.map(np.asarray, drawn(jax.random.key(seed)))
        assert_models(jax.tree.map(lambda leaf, at=at: leaf[at], run.params), shrunk(start))


def test_a_start_such_as_the_model_of_another_run_replaces_the_drawn_model_for_every_seed():
    first = train(problem_of(TASK), small.SHARES, OPTIONS)
    start = jax.tree.map(lambda leaf: leaf[0], first.params)
    run = train(problem_of(TASK), small.SHARES, dataclasses.replace(OPTIONS, start=start))
    for at in range(2):
        assert_models(jax.tree.map(lambda leaf, at=at: leaf[at], run.params), shrunk(start))


def loss(params, batch):
    return jnp.mean(params * batch)


def zero(key):
    return jnp.zeros(())


LOSSES = np.array([[8.0, 4.0, 2.0, 1.0], [5.0, 4.0, 3.0, 3.0]])
WEIGHTS = np.array([[0.5, 0.25, 0.25], [0.2, 0.3, 0.5]])
MODELS, RECORDED = np.zeros((2, 1)), np.array([4, 8, 12, 14])
RUN = Run("mine", (0, 1), MODELS, MODELS, RECORDED, LOSSES, WEIGHTS, WEIGHTS < 0, 14, 1.0)


def test_the_tail_is_the_mean_of_the_records_of_the_last_rounds():
    assert RUN.final_loss.tolist() == [1.0, 3.0]
    assert RUN.ending is Ending.FINISHED
    for rounds, records in ((1, 1), (2, 1), (3, 2), (6, 2), (7, 3), (14, 4), (100, 4)):
        expected = [sum(row[-records:]) / records for row in RUN.losses]
        np.testing.assert_allclose(RUN.tail_loss(rounds), expected)
    with pytest.raises(OptionError, match="rounds is 0; it must be at least 1"):
        RUN.tail_loss(0)


def test_the_realised_gap_is_half_the_distance_to_the_importance():
    np.testing.assert_allclose(RUN.realised_gap([0.5, 0.5, 0.0]), [0.25, 0.5])
    with pytest.raises(ImportanceError, match="importance has 2 entries"):
        RUN.realised_gap([0.5, 0.5])


def test_clients_keep_their_names_and_importance_may_be_given_by_them():
    data = [np.zeros(2), np.ones(3)]
    task = from_clients("t", data, loss=loss, init=zero, clients=["porto", "lyon"])
    assert task.clients == ("porto", "lyon")
    problem = Problem(task, {"lyon": 0.25, "porto": 0.75}, lambda rng, rounds: [[0]] * rounds)
    np.testing.assert_array_equal(problem.shares, [0.75, 0.25])
    with pytest.raises(ImportanceError, match="no entry for .*'lyon'"):
        Problem(task, {"porto": 1.0}, lambda rng, rounds: [[0]] * rounds)
