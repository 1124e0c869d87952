"""Seeds and clients side by side are seeds and clients alone; records look on."""

import dataclasses

import jax
import numpy as np
import pytest
import small
from small import assert_close

from fedavot import rules, training
from fedavot.training import train

ROUNDS = 6


@pytest.fixture(scope="module")
def together():
    """Three seeds that differ in cohorts, batches and first models."""
    return train(small.PROBLEM, small.SHARES, small.options(ROUNDS, seeds=(3, 11, 5)))


def test_a_seed_alone_is_the_same_seed_among_others(together):
    for at, seed in enumerate(together.seeds):
        alone = train(small.PROBLEM, small.SHARES, small.options(ROUNDS, seeds=(seed,)))
        assert_close(small.flat(alone.params)[0], small.flat(together.params)[at])
        assert_close(small.flat(alone.average)[0], small.flat(together.average)[at])
        assert_close(alone.losses[0], together.losses[at])
        np.testing.assert_array_equal(alone.weights[0], together.weights[at])


def test_the_same_seeds_give_the_same_bits(together):
    again = train(small.PROBLEM, small.SHARES, small.options(ROUNDS, seeds=(3, 11, 5)))
    np.testing.assert_array_equal(small.flat(again.params), small.flat(together.params))
    np.testing.assert_array_equal(again.losses, together.losses)


FULL = training.Problem(
    training.Task("full", (small.FEATURES, small.TARGETS), small.square_loss, small.zero_model),
    small.P,
    small.everybody,
)
"""Everybody takes part from one first model: chance has no say unless batches are drawn."""


def test_seeds_on_which_nothing_depends_give_identical_rows():
    run = train(FULL, small.SHARES, small.options(ROUNDS, batch_size=None))
    models = small.flat(run.params)
    assert models.shape == (2, 3)
    assert run.losses.shape == (2, ROUNDS)
    np.testing.assert_array_equal(models[0], models[1])
    np.testing.assert_array_equal(run.losses[0], run.losses[1])
    expected = small.average_plainly(
        np.zeros(3), small.CLIENTS, [np.arange(4)] * ROUNDS, seed=None, step=0.05
    )
    assert_close(models[0], expected[-1])


def test_seeds_that_draw_batches_or_first_models_are_played_each():
    batches = train(FULL, small.SHARES, small.options(ROUNDS))
    assert np.abs(np.diff(small.flat(batches.params), axis=0)).max() > 1e-3
    problem, options = dataclasses.replace(FULL, task=small.TASK), small.options(batch_size=None)
    starts = train(problem, small.SHARES, options)
    assert np.abs(np.diff(small.flat(starts.params), axis=0)).max() > 1e-3


@pytest.fixture(scope="module")
def every_round():
    return train(small.PROBLEM, small.SHARES, small.options(10))


@pytest.mark.parametrize(
    ("every", "recorded"), [(1, list(range(1, 11))), (4, [4, 8, 10]), (10, [10]), (37, [10])]
)
def test_recording_less_often_changes_nothing_but_the_records(every, recorded, every_round):
    run = train(small.PROBLEM, small.SHARES, small.options(10, record_every=every))
    assert run.recorded.tolist() == recorded
    assert_close(run.losses, every_round.losses[:, np.array(recorded) - 1])
    assert_close(small.flat(run.params), small.flat(every_round.params))
    assert_close(small.flat(run.average), small.flat(every_round.average))


def test_models_averages_and_records_are_those_of_a_plain_loop(every_round):
    def cohorts_of(seed):
        return small.cohorts_of(seed, 10)

    small.assert_as_in_a_plain_loop(every_round, small.CLIENTS, cohorts_of, batch_size=small.BATCH)


def test_progress_counts_rounds_up_to_the_last():
    seen, options = [], small.options(10, record_every=4)
    train(small.PROBLEM, small.SHARES, options, progress=lambda *news: seen.append(news))
    assert seen == [(4, 10), (8, 10), (10, 10)]


@pytest.mark.parametrize(
    "rule", [small.SHARES, rules.scaffold(small.P)], ids=lambda rule: rule.name
)
def test_clients_in_parallel_end_where_clients_in_turn_do(monkeypatch, rule):
    options = training.Training(12, small.STEP, local_steps=2, batch_size=2, seeds=small.SEEDS)
    in_turn = training.train(small.PROBLEM, rule, options)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    parallel = training.train(small.PROBLEM, rule, options)
    assert_close(parallel.losses, in_turn.losses)
    jax.tree.map(assert_close, parallel.params, in_turn.params)
