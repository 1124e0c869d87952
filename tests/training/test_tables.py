"""Tables on the host: the same runs, and rows on the device only of the clients that are asked."""

import dataclasses

import jax
import numpy as np
import pytest
import small

from fedavot import rules, training
from fedavot.errors import OptionError
from fedavot.rules.server import with_server
from fedavot.training import engine, train
from fedavot.training.sweep import Steps, sweep

pytestmark = pytest.mark.usefixtures("optimised")  # bit for bit in the programs that users run

ROUNDS = 12
RULES = {
    "steady": rules.steady(small.P),
    "scaffold": rules.scaffold(small.P),
    "focus": rules.focus(small.P),
    "area": rules.area(small.P),
    "with momentum": with_server(rules.steady(small.P), step=2.0, momentum=0.9),
    "without a table": rules.importance_average(small.P),
    "with a table of its own": rules.amplified_scaffold(small.P, period=3),
}
HOST = small.options(ROUNDS, local_steps=2, tables="host")


def pairs(rng, rounds):
    """Draw two clients, and nobody in the third round; every round is a piece of its own."""
    drawn = [rng.choice(small.N_CLIENTS, 2, replace=False) for _ in range(rounds)]
    return [*drawn[:2], np.zeros(0, dtype=np.int64), *drawn[3:]]


PROBLEM = training.Problem(small.TASK, small.P, pairs)


def on(options, place):
    return dataclasses.replace(options, tables=place)


@pytest.mark.parametrize("name", RULES)
def test_a_run_is_the_same_wherever_its_tables_are(name):
    runs = [train(PROBLEM, RULES[name], on(HOST, place)) for place in ("device", "host")]
    np.testing.assert_array_equal(*(small.flat(run.params) for run in runs))
    np.testing.assert_array_equal(*(run.losses for run in runs))


def test_the_device_has_the_rows_of_the_clients_of_a_piece_and_no_others():
    run = engine.prepare(PROBLEM, RULES["steady"], HOST)
    for place, leaf in (("device", run.begun(0)), ("host", run.carry)):
        table = jax.tree.leaves(leaf.state.last)[0]
        assert isinstance(table, np.ndarray)
        assert table.shape[:2] == (len(small.SEEDS), 2 if place == "device" else small.N_CLIENTS)


def test_a_run_with_host_tables_resumes_where_it_was_interrupted(tmp_path):
    whole = train(PROBLEM, RULES["steady"], HOST)

    def stop(done, total):
        if done >= ROUNDS // 2:
            raise KeyboardInterrupt

    path = tmp_path / "run.npz"
    first = train(PROBLEM, RULES["steady"], HOST, progress=stop, checkpoint=path)
    assert first.rounds < ROUNDS
    again = train(PROBLEM, RULES["steady"], HOST, checkpoint=path)
    np.testing.assert_array_equal(small.flat(again.params), small.flat(whole.params))
    np.testing.assert_array_equal(again.losses, whole.losses)


def test_a_run_with_host_tables_that_diverges_says_where():
    problem = small.fragile([3.0, 9.0, 9.0, 9.0], small.P)
    options = training.Training(
        8, training.constant(1.0), seeds=small.SEEDS, record_every=2, tables="host"
    )
    messages = [
        train(problem, rules.mifa(small.P), on(options, place)).message
        for place in ("device", "host")
    ]
    assert "diverged" in messages[0]
    assert messages[0] == messages[1]


def test_a_sweep_takes_its_tables_to_the_device():
    options = on(small.options(4, record_every=2), "host")
    choices = [Steps(training.constant(0.05)), Steps(training.constant(0.02), 2.0)]
    found = sweep(PROBLEM, RULES["steady"], options, choices)
    wanted = sweep(PROBLEM, RULES["steady"], on(options, "device"), choices)
    np.testing.assert_array_equal(found, wanted)


def test_a_place_that_does_not_exist_is_refused():
    with pytest.raises(OptionError, match="tables is 'disk'; it must be one of 'device', 'host'"):
        small.options(tables="disk")
