"""A run that is no longer finite stops before the round that did it, and says which."""

import jax.numpy as jnp
import numpy as np
import pytest
import small

from fedavot import rules, training
from fedavot.training import Ending, train

ROUNDS = 40
EVEN = np.full(4, 0.25)
LAST_COUNTS_FOR_NOTHING = np.array([0.5, 0.3, 0.2, 0.0])
NEVER = 1000.0


def counting(record_every=1, rounds=ROUNDS, seeds=(0,)):
    return training.Training(rounds, training.constant(1.0), seeds=seeds, record_every=record_every)


def records(rounds, every):
    """Return where a run of so many rounds is recorded."""
    return sorted({*range(every, rounds + 1, every), rounds} - {0})


def assert_ends_before(run, number, every):
    """The run is the one that stops a round earlier, by itself."""
    assert run.ending is Ending.DIVERGED
    assert run.rounds == number - 1
    assert run.recorded.tolist() == records(number - 1, every)
    assert run.losses.shape == (len(run.seeds), run.recorded.size)
    assert np.isfinite(run.losses).all()
    assert f"diverged in round {number}: " in run.message
    assert f"the run keeps its first {number - 1} rounds" in run.message
    assert ("check the loss" in run.message) == (number == 1)


@pytest.mark.parametrize("every", [1, 7, 100])
@pytest.mark.parametrize("limit", [0, 1, 9, 17])
@pytest.mark.parametrize("kind", ["update", "loss"])
def test_the_round_whose_update_or_loss_fails_is_named(kind, limit, every):
    # In the first case the client counts for nothing, so that only its update can do harm.
    shares = LAST_COUNTS_FOR_NOTHING if kind == "update" else EVEN
    limits, silent = [NEVER, NEVER, NEVER, limit], kind == "loss"
    cohorts = {0: small.cohorts_of(0, ROUNDS)}
    number, broken, _ = small.first_break(limits, shares, cohorts, silent=silent)
    assert broken == kind
    run = train(small.fragile(limits, shares, silent=silent), rules.fedavg(), counting(every))
    assert_ends_before(run, number, every)
    assert "rule 'fedavg' diverged" in run.message
    # Until then the model counts the rounds in which somebody came.
    counts = np.cumsum([cohort.size > 0 for cohort in cohorts[0][: number - 1]])
    np.testing.assert_array_equal(run.losses, [-counts[run.recorded - 1]])
    assert run.params["x"] == (counts[-1] if counts.size else 0)


@pytest.mark.parametrize("every", [1, 6])
def test_the_first_seed_to_fail_stops_them_all(every):
    seeds, limits = (4, 5, 6), [NEVER, NEVER, NEVER, 6]
    cohorts = {seed: small.cohorts_of(seed, ROUNDS) for seed in seeds}
    number, _, seed = small.first_break(limits, LAST_COUNTS_FOR_NOTHING, cohorts)
    assert seed == 5  # not the first of the seeds
    problem = small.fragile(limits, LAST_COUNTS_FOR_NOTHING)
    run = train(problem, rules.fedavg(), counting(every, seeds=seeds))
    assert_ends_before(run, number, every)
    for at, one in enumerate(seeds):
        came = [cohort.size > 0 for cohort in cohorts[one][: number - 1]]
        assert run.params["x"][at] == sum(came)


def test_clients_of_no_importance_may_have_an_infinite_loss():
    limits = [NEVER, NEVER, NEVER, 1]
    problem = small.fragile(limits, LAST_COUNTS_FOR_NOTHING, silent=True)
    run = train(problem, rules.fedavg(), counting())
    assert run.ending is Ending.FINISHED
    assert run.losses[0, -1] == -run.params["x"][0]
    np.testing.assert_array_equal(training.objective(problem, run.params), run.losses[:, -1])


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("number", [1, 6, 30])
def test_an_aggregate_that_overflows_though_its_updates_are_finite_stops_the_run(number, every):
    def weigh(at, cohort):
        return cohort, np.full(cohort.size, 1e308 if at == number else 1 / cohort.size)

    problem = small.fragile([NEVER] * 4, EVEN, availability=small.everybody)
    run = train(problem, small.asking(weigh, "overflowing"), counting(every))
    assert_ends_before(run, number, every)
    assert "rule 'overflowing' diverged" in run.message


def half_blind_loss(params, batch):
    """Return −x and nothing of u, whose gradient is NaN at u = 0 once x reaches the limit."""
    broken = params["x"] >= batch[0, 0]
    hidden = jnp.where(broken & ~jnp.isnan(params["u"]), params["u"], 1.0)
    return jnp.mean(0.0 * batch) - params["x"] + 0.0 * jnp.sqrt(hidden)


@pytest.mark.parametrize("every", [2, 100])
def test_a_parameter_the_objective_does_not_see_is_watched_all_the_same(every):
    task = training.Task(
        "half blind",
        np.full((4, 1, 1), 11.0),
        half_blind_loss,
        lambda key: {"x": jnp.zeros(()), "u": jnp.zeros(())},
    )
    problem = training.Problem(task, EVEN, small.everybody)
    assert_ends_before(train(problem, rules.fedavg(), counting(every)), 12, every)


def test_a_run_that_fails_is_resumed_to_the_same_failure(tmp_path):
    path = tmp_path / "run.npz"
    problem = small.fragile([NEVER, NEVER, 17, NEVER], EVEN)
    first, again = (train(problem, rules.fedavg(), counting(4), checkpoint=path) for _ in range(2))
    assert first.message == again.message
    assert first.rounds == again.rounds
    np.testing.assert_array_equal(first.losses, again.losses)
