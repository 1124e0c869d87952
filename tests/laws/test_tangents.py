"""Tangents bound the coverage of every set from above, and fall as the set grows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import brute
import fedavot as fa
from fedavot.laws.tangents import slopes_along
from strategies import any_law, enumerate_cohorts

ROUNDING = 1e-12
"""Absolute: coverages are sums of at most 2^7 probabilities."""


@st.composite
def laws_with_levels(draw):
    law = draw(any_law(max_clients=7).filter(lambda law: law.n_clients > 1))
    count = draw(st.integers(1, law.n_clients))
    drawn = draw(st.lists(st.integers(0, count), min_size=law.n_clients, max_size=law.n_clients))
    return law, np.unique(drawn, return_inverse=True)[1]


@given(laws_with_levels())
def test_the_bound_lies_above_the_coverage_of_every_set_and_touches_its_own(case):
    law, levels = case
    slopes = slopes_along(law, levels)
    if slopes is None:
        return
    sets = brute.all_sets(law.n_clients)
    covered = brute.all_coverages(enumerate_cohorts(law), law.n_clients).astype(np.float64)
    for count in range(levels.max() + 2):
        inside = levels < count
        own = covered[np.flatnonzero((sets == inside).all(axis=1))[0]]
        change = sets.astype(np.int64) - inside
        bound = own + change @ slopes(np.full(law.n_clients, count))
        assert np.all(covered <= bound + ROUNDING)


@given(laws_with_levels())
def test_slopes_fall_as_levels_are_added(case):
    law, levels = case
    slopes = slopes_along(law, levels)
    if slopes is None:
        return
    along = [slopes(np.full(law.n_clients, count)) for count in range(levels.max() + 2)]
    assert np.all(np.diff(along, axis=0) <= ROUNDING)


@given(laws_with_levels(), st.data())
def test_every_client_may_ask_at_its_own_number_of_levels(case, data):
    law, levels = case
    slopes = slopes_along(law, levels)
    if slopes is None:
        return
    most = int(levels.max()) + 1
    counts = data.draw(
        st.lists(st.integers(0, most), min_size=law.n_clients, max_size=law.n_clients)
    )
    one_by_one = [slopes(np.full(law.n_clients, count))[i] for i, count in enumerate(counts)]
    assert slopes(np.array(counts)).tolist() == one_by_one


@pytest.mark.parametrize(
    "law",
    [
        fa.IndependentClients([0.2, 0.5, 1.0]),
        fa.UniformCohorts(3, 2),
        fa.Cohorts([[0, 1], [1, 2], [2]]),
        fa.Mixture([fa.UniformCohorts(3, 1), fa.Cohorts([[0, 1, 2]])], [0.5, 0.5]),
    ],
)
def test_laws_that_are_concave_in_a_sum_have_tangents(law):
    assert slopes_along(law, np.zeros(3, dtype=np.int64)) is not None


def test_a_mixture_with_a_state_without_tangents_has_none():
    draws = fa.SuccessiveDraws([0.5, 0.3, 0.2], 2)
    law = fa.Mixture([fa.UniformCohorts(3, 1), draws], [0.5, 0.5])
    assert slopes_along(law, np.zeros(3, dtype=np.int64)) is None
