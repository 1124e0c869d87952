"""A mixture averages its states, each counted by how often it has anybody at all."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import agreement
import fedavot as fa
from strategies import (
    enumerate_cohorts,
    enumerate_mixture,
    mixture_parts,
)


@given(mixture_parts())
def test_the_whole_is_conditioned_on_somebody_reporting(parts):
    assert agreement.same_table(enumerate_cohorts(fa.Mixture(*parts)), enumerate_mixture(*parts))


@given(mixture_parts(max_clients=5), st.floats(0.01, 0.99))
def test_a_mixture_of_mixtures_is_one_mixture(parts, share):
    laws, weights = parts
    other = fa.IndependentClients(np.full(laws[0].n_clients, 0.25))
    nested = fa.Mixture([fa.Mixture(laws, weights), other], [share, 1.0 - share])
    flat = enumerate_mixture([*laws, other], np.append(share * weights, 1.0 - share))
    assert agreement.same_table(enumerate_cohorts(nested), flat)


def test_states_that_never_occur_are_left_out():
    law = fa.Mixture([fa.UniformCohorts(3, 1), fa.UniformCohorts(3, 2)], [0.0, 1.0])
    (part,) = law.laws
    assert isinstance(part, fa.UniformCohorts)
    assert part.size == 2
    assert law.probabilities.tolist() == [1.0]


def test_states_that_are_nearly_always_empty_keep_their_proportions():
    tiny = 2.0**-1070
    laws = [fa.IndependentClients([tiny, 3 * tiny]), fa.IndependentClients([0.0, 4 * tiny])]
    law = fa.Mixture(laws, [0.5, 0.5])
    assert agreement.close(law.inclusion(), [1 / 8, 7 / 8])
    assert agreement.close(law.expected_weights([0.0, 3.0]), [1 / 8, 7 / 8])
