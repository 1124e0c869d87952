"""What is no task or problem is refused where it enters, with the client and the value."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedavot as fa
from fedavot.errors import ImportanceError, OptionError, TaskError
from fedavot.training import Ending, Problem, Run, Task, from_clients

EVEN = np.full(3, 1 / 3)


def loss(params, batch):
    return jnp.mean(params * batch)


def zero(key):
    return jnp.zeros(())


def task_of(data, counts=None):
    return Task("t", data, loss, zero, counts)


def clients_of(*clients):
    return from_clients("t", clients, loss=loss, init=zero)


def with_entry(value):
    data = np.zeros((3, 2, 2))
    data[1, 0, 1] = value
    return data


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: task_of(()), "task 't' has no data; give at least one array"),
        (lambda: task_of(np.zeros(3)), r"arrays of shapes \[\(3,\)\]; each must begin with"),
        (lambda: task_of(np.zeros((3, 0))), r"\(3, 0\).*both at least 1; from_clients takes"),
        (
            lambda: task_of((np.zeros((3, 2)), np.zeros((3, 4)))),
            r"shapes \[\(3, 2\), \(3, 4\)\]; each must begin with the same",
        ),
        (lambda: task_of(with_entry(np.nan)), "client 1 in task 't' has entries that are not fini"),
        (lambda: task_of(with_entry(-np.inf)), "client 1 in task 't' has entries that are not"),
        (lambda: task_of(np.full((3, 2), "a")), "array of type <U1; give numbers"),
        (lambda: task_of(np.full((3, 2), None)), "array of type object; give numbers"),
        (
            lambda: task_of(np.zeros((3, 2), np.longdouble)),
            "array of type float128; give numbers of at most 64 bits",
        ),
        (lambda: task_of(np.zeros((3, 2)), [1, 2]), "counts of task 't' must be 3 integers from 1"),
        (lambda: task_of(np.zeros((3, 2)), [1, 2, 3]), r"from 1 to 2, found \[1 2 3\]"),
        (lambda: task_of(np.zeros((3, 2)), [0, 1, 2]), r"from 1 to 2, found \[0 1 2\]"),
        (lambda: task_of(np.zeros((3, 2)), [1, 1.5, 2]), r"must be 3 integers .* 1\.5"),
        (lambda: task_of(np.zeros((3, 2)), [1, np.nan, 2]), r"must be 3 integers .*nan"),
        (clients_of, "task 't' has no clients"),
        (
            lambda: clients_of((np.zeros(2), np.zeros(3))),
            r"client 0 of task 't' has arrays of shapes \[\(2,\), \(3,\)\]; .* at least one",
        ),
        (lambda: clients_of(np.zeros(2), np.zeros(0)), r"client 1 .* shapes \[\(0,\)\]"),
        (lambda: clients_of(np.zeros(2), np.float64(1.0)), r"client 1 .* shapes \[\(\)\]"),
        (lambda: clients_of([1.0, 2.0]), r"numpy.asarray makes an array of a list"),
        (
            lambda: clients_of(np.zeros((2, 3)), np.zeros((4, 5))),
            r"client 1 of task 't' has examples of shapes \[\(5,\)\], and client 0 .* \[\(3,\)\]",
        ),
        (
            lambda: clients_of({"x": np.zeros(2)}, {"y": np.zeros(2)}),
            "client 1 of task 't' has data of structure .*'y'.*, and client 0 .*'x'",
        ),
        (lambda: clients_of(np.zeros(2), np.array([0, np.nan])), "client 1 .* not finite"),
    ],
)
def test_what_is_no_task_is_refused(make, message):
    if "float128" in message and np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("long doubles are doubles here")
    with pytest.raises(TaskError, match=message):
        make()


def test_counts_may_be_a_list_and_data_any_pytree():
    task = task_of({"x": np.zeros((3, 2)), "y": [np.zeros((3, 2, 7), np.int32)]}, [1, 2, 1])
    assert (task.n_clients, task.n_examples) == (3, 2)
    assert task.counts.dtype == np.int64
    assert set(task.data) == {"x", "y"}


def sample(rng, rounds):
    return [np.arange(3)] * rounds


@pytest.mark.parametrize(
    ("importance", "message"),
    [
        ([0.5, 0.5], "importance has 2 entries, but .* 3 clients"),
        ([0.5, 0.6, -0.1], "importance of client 2 is -0.1"),
        ([0.5, 0.5, np.nan], "importance of client 2 is nan"),
        ([0.2, 0.2, 0.2], "importance sums to 0.6"),
    ],
)
def test_an_importance_that_is_none_is_refused(importance, message):
    with pytest.raises(ImportanceError, match=message):
        Problem(task_of(np.zeros((3, 2))), importance, sample)


def test_a_law_in_the_place_of_its_sample_is_refused():
    law = fa.UniformCohorts(3, 2)
    with pytest.raises(TaskError, match="give a function of .rng, rounds., such as a law's sample"):
        Problem(task_of(np.zeros((3, 2))), EVEN, law)
    assert Problem(task_of(np.zeros((3, 2))), EVEN, law.sample).shares.sum() == pytest.approx(1)


RUN = Run(
    rule="mine",
    seeds=(0, 1),
    params=np.zeros((2, 1)),
    average=np.zeros((2, 1)),
    recorded=np.array([4, 8, 12, 14]),
    losses=np.array([[8.0, 4.0, 2.0, 1.0], [5.0, 4.0, 3.0, 3.0]]),
    weights=np.array([[0.5, 0.25, 0.25], [0.2, 0.3, 0.5]]),
    unseen=np.zeros((2, 3), dtype=bool),
    rounds=14,
    seconds=1.0,
)


def test_the_tail_is_the_mean_of_the_records_of_the_last_rounds():
    assert RUN.final_loss.tolist() == [1.0, 3.0]
    for rounds, records in ((1, 1), (2, 1), (3, 2), (6, 2), (7, 3), (14, 4), (100, 4)):
        expected = [sum(row[-records:]) / records for row in RUN.losses]
        np.testing.assert_allclose(RUN.tail_loss(rounds), expected)


@pytest.mark.parametrize("rounds", [0, -3])
def test_a_tail_has_at_least_one_round(rounds):
    with pytest.raises(OptionError, match=f"rounds is {rounds}; it must be at least 1"):
        RUN.tail_loss(rounds)


def test_the_realised_gap_is_half_the_distance_to_the_importance():
    np.testing.assert_allclose(RUN.realised_gap([0.5, 0.5, 0.0]), [0.25, 0.5])
    with pytest.raises(ImportanceError, match="importance has 2 entries"):
        RUN.realised_gap([0.5, 0.5])


def test_a_run_finishes_unless_it_says_otherwise():
    assert RUN.ending is Ending.FINISHED
    assert RUN.message == ""


def test_clients_keep_their_names_and_importance_may_be_given_by_them():
    data = [np.zeros(2), np.ones(3)]
    task = from_clients("t", data, loss=loss, init=zero, clients=["porto", "lyon"])
    assert task.clients == ("porto", "lyon")
    problem = Problem(task, {"lyon": 0.25, "porto": 0.75}, lambda rng, rounds: [[0]] * rounds)
    np.testing.assert_array_equal(problem.shares, [0.75, 0.25])
    with pytest.raises(ImportanceError, match="no entry for .*'lyon'"):
        Problem(task, {"porto": 1.0}, lambda rng, rounds: [[0]] * rounds)


def test_a_refusal_names_the_client():
    with pytest.raises(TaskError, match="client 'lyon' .* not finite"):
        from_clients(
            "t", [np.zeros(1), np.array([np.nan])], loss=loss, init=zero, clients=["porto", "lyon"]
        )


def test_tasks_print_as_their_name_and_size():
    task = from_clients("t", [np.zeros(2), np.ones(3)], loss=loss, init=zero)
    assert repr(task) == "Task('t', 2 clients of at most 3 examples)"
