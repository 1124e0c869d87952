"""Clients of different sizes: padding is never seen, batches are fair draws of real examples."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small
from scipy import stats

from fedavot import training
from fedavot.training import from_clients, train
from fedavot.training.local import batch_key, batch_positions

UNLIKELY = 1e-4
"""A fair draw is refused by this test once in ten thousand seeds; this one is fixed."""
SIZES = (4, 2, 6, 3)
ROUNDS = 6

_rng = np.random.default_rng(9)
CLIENTS = [(_rng.normal(size=(n, 2)), _rng.normal(size=n)) for n in SIZES]
TASK = from_clients("uneven", CLIENTS, loss=small.square_loss, init=small.drawn_model)
PROBLEM = training.Problem(TASK, small.P, small.some)


def test_clients_are_padded_to_the_largest_and_counted():
    assert TASK.counts.tolist() == list(SIZES)
    assert (TASK.n_clients, TASK.n_examples) == (4, 6)
    for client, (features, targets) in enumerate(CLIENTS):
        np.testing.assert_array_equal(TASK.data[0][client, : SIZES[client]], features)
        np.testing.assert_array_equal(TASK.data[1][client, : SIZES[client]], targets)


@pytest.mark.parametrize("batch_size", [None, 2], ids=["full batches", "mini-batches"])
def test_uneven_clients_train_as_in_a_loop_over_their_own_arrays(batch_size):
    options = small.options(ROUNDS, batch_size=batch_size, local_steps=2)
    run = train(PROBLEM, small.SHARES, options)
    steps = {"local_steps": 2, "batch_size": batch_size}
    small.assert_as_in_a_plain_loop(
        run, CLIENTS, lambda seed: small.cohorts_of(seed, ROUNDS), **steps
    )


def root_loss(params, batch):
    """Return a loss whose value and gradient are not finite at an example of zeros."""
    features, targets = batch
    return jnp.mean(jnp.sqrt(jnp.abs(features @ params["slope"])) / targets + params["level"] ** 2)


@pytest.mark.parametrize("padding", [0.0, 1e300, np.nan])
def test_what_lies_in_the_padding_has_no_influence(padding):
    real = np.arange(6) < np.array(SIZES)[:, None]
    features, targets = TASK.data
    data = np.where(real[..., None], features, padding), np.where(real, targets, padding)
    clean = dataclasses.replace(TASK, loss=root_loss)
    filled = dataclasses.replace(clean, data=data)
    options = small.options(ROUNDS, batch_size=None)
    expected, found = (
        train(training.Problem(task, small.P, small.some), small.SHARES, options)
        for task in (clean, filled)
    )
    assert expected.rounds == found.rounds == ROUNDS
    np.testing.assert_array_equal(small.flat(found.params), small.flat(expected.params))
    np.testing.assert_array_equal(found.losses, expected.losses)


def draws(count, size, *, room=6, rounds=50, clients=10, steps=8):
    """Return the batches of many rounds, clients and steps of one seed, as the engine keys them."""

    def one(number, client, step):
        key = batch_key(jax.random.key(2), number, client, step)
        return batch_positions(key, room, count, size)

    grid = np.indices((rounds, clients, steps)).reshape(3, -1)
    found = np.asarray(jax.jit(jax.vmap(one))(*grid))
    return found.reshape(rounds, clients, steps, size)


@pytest.mark.parametrize(("count", "size"), [(5, 2), (6, 3), (4, 4), (3, 1)])
def test_a_batch_has_distinct_real_examples_and_every_set_is_as_likely(count, size):
    batches = np.sort(draws(count, size).reshape(-1, size), axis=1)
    assert batches.min() >= 0
    assert batches.max() < count
    assert (np.diff(batches, axis=1) > 0).all()
    sets = list(itertools.combinations(range(count), size))
    counts = [int((batches == np.array(one)).all(axis=1).sum()) for one in sets]
    assert sum(counts) == len(batches)
    if len(sets) > 1:
        assert stats.chisquare(counts).pvalue > UNLIKELY


@pytest.mark.parametrize("axis", [0, 1, 2], ids=["rounds", "clients", "steps"])
def test_batches_of_neighbouring_rounds_clients_and_steps_are_independent(axis):
    single = draws(4, 1)[..., 0]
    before = np.take(single, np.arange(single.shape[axis] - 1), axis=axis)
    after = np.take(single, np.arange(1, single.shape[axis]), axis=axis)
    table = np.zeros((4, 4))
    np.add.at(table, (before.ravel(), after.ravel()), 1)
    assert stats.chi2_contingency(table).pvalue > UNLIKELY


def test_a_clients_batches_do_not_depend_on_who_else_trains():
    def always(who):
        return lambda rng, rounds: [who] * rounds

    alone, crowded = (
        train(
            training.Problem(small.TASK, small.P, always(who)),
            small.asking(lambda number, cohort: (cohort, (cohort == 2).astype(float))),
            small.options(ROUNDS),
        )
        for who in (np.array([2]), np.array([3, 0, 2]))
    )
    small.assert_close(small.flat(crowded.params), small.flat(alone.params))
