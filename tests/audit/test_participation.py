"""Participation as an object: cohorts, shares of known rounds, slices."""

import numpy as np
import pytest

from fedavot._incidence import Incidence
from fedavot.audit import Participation
from fedavot.errors import OptionError


def example():
    return Participation(
        clients=("a", "b", "c"),
        offsets=np.array([0, 2, 2, 3]),
        members=np.array([0, 2, 0], dtype=np.int32),
        times=np.array([0.0, 10.0, 20.0]),
        available=Incidence(np.array([0, 1, 2, 0], dtype=np.int32), np.array([0, 3, 3, 4]), 3),
        unknown=Incidence(np.array([2, 1, 2], dtype=np.int32), np.array([0, 0, 1, 3]), 3),
        applied=np.array([0.25, 0.75, 1.0]),
        notes=("odd",),
    )


def test_its_sizes_are_those_of_its_arrays():
    log = example()
    assert (log.n_clients, log.n_rounds, log.n_entries) == (3, 3, 3)


def test_a_cohort_is_who_took_part():
    assert [example().cohort(t).tolist() for t in range(3)] == [[0, 2], [], [0]]


@pytest.mark.parametrize("t", [-1, 3])
def test_a_round_that_is_not_there_is_refused(t):
    with pytest.raises(OptionError, match="round is -?[0-9]; it must be at least 0 and at most 2"):
        example().cohort(t)


def test_inclusion_is_a_share_of_the_rounds_a_client_is_known_in():
    np.testing.assert_array_equal(example().inclusion(), [2 / 3, 0.0, 1.0])


def test_a_client_known_in_no_round_has_no_inclusion():
    log = example().rounds_between(2, 3)
    np.testing.assert_array_equal(log.inclusion(), [1.0, np.nan, np.nan])


def test_without_gaps_inclusion_is_a_share_of_all_rounds():
    log = Participation(("a", "b"), np.array([0, 1, 3]), np.array([0, 0, 1], dtype=np.int32))
    np.testing.assert_array_equal(log.inclusion(), [1.0, 0.5])


def test_a_slice_has_its_rounds_and_all_clients():
    log = example().rounds_between(1, 3)
    assert log.clients == ("a", "b", "c")
    assert log.offsets.tolist() == [0, 0, 1]
    assert log.members.tolist() == [0]
    assert log.times.tolist() == [10.0, 20.0]
    assert log.applied.tolist() == [1.0]
    assert [log.available.row(t).tolist() for t in range(2)] == [[], [0]]
    assert [log.unknown.row(t).tolist() for t in range(2)] == [[2], [1, 2]]
    assert log.notes == ("odd",)


def test_a_slice_may_be_empty_but_not_backwards():
    assert example().rounds_between(2, 2).n_rounds == 0
    with pytest.raises(OptionError, match="last is 1; it must be at least 2 and at most 3"):
        example().rounds_between(2, 1)
