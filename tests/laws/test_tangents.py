"""Tangents bound the coverage of every set from above, and fall as the set grows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import brute
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
    along = [slopes(np.full(law.n_clients, count)) for count in range(levels.max() + 2)]
    assert np.all(np.diff(along, axis=0) <= ROUNDING), "slopes fall as levels are added"
    for count, slope in enumerate(along):
        inside = levels < count
        own = covered[np.flatnonzero((sets == inside).all(axis=1))[0]]
        change = sets.astype(np.int64) - inside
        bound = own + change @ slope
        assert np.all(covered <= bound + ROUNDING)
