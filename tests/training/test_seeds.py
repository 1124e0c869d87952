"""Seeds side by side are seeds alone; records look on; the average is an average."""

import numpy as np
import pytest
import small

from fedavot import training
from fedavot.training import train

AGREE = 1e-12
"""Room for sums taken in another order; models are of order one."""
ROUNDS = 6


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=AGREE, atol=AGREE)


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


def test_who_runs_alongside_changes_nothing(together):
    other = train(small.PROBLEM, small.SHARES, small.options(ROUNDS, seeds=(5, 8, 3)))
    assert_close(small.flat(other.params)[[0, 2]], small.flat(together.params)[[2, 0]])
    assert_close(other.losses[[0, 2]], together.losses[[2, 0]])


def test_seeds_differ(together):
    finals = small.flat(together.params)
    assert min(np.abs(finals[a] - finals[b]).max() for a, b in ((0, 1), (0, 2), (1, 2))) > 1e-3


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
    starts = train(
        training.Problem(small.TASK, small.P, small.everybody),
        small.SHARES,
        small.options(ROUNDS, batch_size=None),
    )
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
    for at, seed in enumerate(small.SEEDS):
        models = small.average_plainly(
            small.start_of(seed),
            small.CLIENTS,
            small.cohorts_of(seed, 10),
            seed=seed,
            step=0.05,
            batch_size=small.BATCH,
        )
        assert_close(small.flat(every_round.params)[at], models[-1])
        assert_close(small.flat(every_round.average)[at], models.mean(axis=0))
        assert_close(
            every_round.losses[at], [small.objective(model, small.CLIENTS) for model in models]
        )


def test_the_average_is_the_mean_of_the_models_of_shorter_runs():
    # The cohorts of a shorter run are the first of a longer one only where they do not vary.
    problem = training.Problem(small.TASK, small.P, small.everybody)
    runs = [train(problem, small.SHARES, small.options(rounds)) for rounds in range(1, ROUNDS + 1)]
    models = [small.flat(run.params) for run in runs]
    assert_close(small.flat(runs[-1].average), np.mean(models, axis=0))


def test_progress_counts_rounds_up_to_the_last():
    seen = []
    train(
        small.PROBLEM,
        small.SHARES,
        small.options(10, record_every=4),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(4, 10), (8, 10), (10, 10)]


def test_the_objective_of_given_models_is_the_plain_sum():
    params = {"level": np.array([0.5, -1.0]), "slope": np.array([[1.0, 2.0], [0.0, -3.0]])}
    expected = [small.objective(model, small.CLIENTS) for model in small.flat(params)]
    assert_close(training.objective(small.PROBLEM, params), expected)
