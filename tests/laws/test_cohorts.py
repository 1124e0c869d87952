"""An explicit list of cohorts equals its own table, however it is written down."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agreement
import fedavot as fa
from strategies import (
    cohort_lists,
    enumerate_cohorts,
    enumerate_list,
)


@given(cohort_lists())
def test_the_law_is_the_list_with_repeats_added_up(case):
    members, probabilities, n_clients = case
    law = fa.Cohorts(*case)
    assert agreement.same_table(enumerate_cohorts(law), enumerate_list(members, probabilities))
    assert law.n_cohorts == len({frozenset(cohort) for cohort in members})
    assert law.n_clients == n_clients


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4], ids=["even", "narrow", "wide"])
@pytest.mark.parametrize("size", [2, 4], ids=["pairs", "fours"])
def test_blocks_of_cohorts_equal_enumeration_on_any_number_of_cores(monkeypatch, scale, size):
    for name in ("_incidence._BLOCK_ENTRIES", "laws._explicit._BLOCK_ENTRIES"):
        monkeypatch.setattr(f"fedavot.{name}", 30)
    monkeypatch.setattr("fedavot._incidence._BLOCK_DEGREE", 1)
    monkeypatch.setattr("fedavot.laws._explicit._THREADED_ENTRIES", 1)
    rng = np.random.default_rng(0)
    rows = np.sort([rng.permutation(12)[:size] for _ in range(200)], axis=1)
    x = scale * rng.standard_normal(12)
    table = enumerate_list(rows, np.full(200, 1 / 200))
    found = []
    for cores in (1, 3):
        here = set(range(cores))
        monkeypatch.setattr("os.sched_getaffinity", lambda _, here=here: here, raising=False)
        law = fa.Cohorts(rows)
        assert len(law.incidence._blocks) > 1
        agreement.check_curvature(law, table, x, None)
        agreement.check_weights(law, table, x, None)
        found.append(law.expected_weights(x).tolist())
    assert found[0] == found[1]


def test_distinct_cohorts_keep_the_order_of_the_list():
    law = fa.Cohorts([[4], [0, 1], [4], [2, 3]])
    assert law.incidence.members.tolist() == [4, 0, 1, 2, 3]
    assert law.incidence.offsets.tolist() == [0, 1, 3, 5]
    assert law.probabilities.tolist() == [0.5, 0.25, 0.25]


@given(cohort_lists(), st.randoms(use_true_random=False))
def test_a_log_in_any_order_is_the_law_of_its_rounds(case, shuffler):
    members, _, n_clients = case
    rows = [(f"round {k}", client) for k, cohort in enumerate(members) for client in cohort]
    shuffler.shuffle(rows)
    rounds, clients = zip(*rows, strict=True)
    law = fa.Cohorts.from_log(rounds, clients, n_clients)
    wanted = enumerate_list(members, np.full(len(members), 1 / len(members)))
    assert agreement.same_table(enumerate_cohorts(law), wanted)
    assert law.n_clients == n_clients


@pytest.mark.parametrize(
    "rounds", [[1.0, np.nan], ["one", None], np.array(["2026-01-01", "NaT"], "datetime64[D]")]
)
def test_a_row_of_a_log_without_a_round_is_refused(rounds):
    with pytest.raises(fa.errors.LawError, match="rounds has .* for row 1; leave out"):
        fa.Cohorts.from_log(rounds, ["a", "b"])


def test_the_number_of_clients_is_one_more_than_the_largest_unless_given():
    assert fa.Cohorts([[3], [1, 0]]).n_clients == 4
    assert (
        fa.Cohorts([[3], [1, 0]], n_clients=9).inclusion().tolist()
        == [0.5] * 2 + [0, 0.5] + [0] * 5
    )


def test_what_the_caller_does_to_the_arguments_later_does_not_matter():
    rows, chances = np.array([[0, 1], [1, 2]]), np.array([0.5, 0.5])
    law = fa.Cohorts(rows, chances)
    rows[:], chances[:] = 0, 0
    assert law.inclusion().tolist() == [0.5, 1.0, 0.5]


def test_cohorts_may_be_sets_of_indices_or_of_names():
    listed = fa.Cohorts([[0, 1], [2]], [0.9, 0.1])
    for cohorts, clients in (([{1, 0}, frozenset({2})], None), ([{"b", "a"}, {"c"}], "abc")):
        law = fa.Cohorts(cohorts, [0.9, 0.1], clients=clients)
        np.testing.assert_array_equal(law.inclusion(), listed.inclusion())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("n_levels", [3, 12])
def test_weights_equal_enumeration_where_levels_leave_most_cohorts_one_client(seed, n_levels):
    rng = np.random.default_rng(seed)
    cohorts = [[i, j] for i in range(12) for j in range(i)] + [[0, 1, 2], [3, 4, 5, 6], [7]]
    chances = rng.dirichlet(np.full(len(cohorts), 0.3))
    table, law = enumerate_list(cohorts, chances), fa.Cohorts(cohorts, chances)
    agreement.check_weights(law, table, rng.normal(size=12), rng.integers(0, n_levels, 12))
