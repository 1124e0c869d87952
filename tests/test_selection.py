"""Selection has a fixed size, exact inclusion probabilities, and weights that sum to one."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedavot.selection import inclusion_probabilities, select, systematic

EXACT = 1e-12
"""Room for the rounding of sums of a hundred shares."""

MNIST_TEXT = np.exp(-np.arange(1, 101) / 10) / np.exp(-np.arange(1, 101) / 10).sum()


@st.composite
def weights_and_sizes(draw):
    """Draw weights over up to thirty clients, zeros and spreads of e^60 included, and a size."""
    logs = draw(st.lists(st.none() | st.floats(-30.0, 30.0), min_size=1, max_size=30))
    odds = np.array([0.0 if log is None else np.exp(log) for log in logs])
    if not odds.any():
        odds[0] = 1.0
    return odds / odds.sum(), draw(st.integers(1, 35))


def integrate_over_offsets(inclusion, order):
    """Return each client's exact chance of being drawn, the offset being uniform.

    The draw only changes where a point passes an end of a stretch, so that it is constant between
    the fractional parts of the ends.
    """
    ends = np.cumsum(inclusion[order])
    breaks = np.unique(np.concatenate([[0.0, 1.0], ends % 1.0]))
    chance = np.zeros(inclusion.size)
    for low, high in itertools.pairwise(breaks):
        chance[systematic(inclusion, order, (low + high) / 2)] += high - low
    return chance


def expected_answers(weights, size, order_seed):
    """Return the expected weight of each client, exactly, for one random order."""
    inclusion = inclusion_probabilities(weights, size)
    uncertain = np.flatnonzero((inclusion > 0) & (inclusion < 1))
    chance = np.where(inclusion == 1, 1.0, 0.0)
    if uncertain.size:
        order = np.random.default_rng(order_seed).permutation(uncertain.size)
        chance[uncertain] = integrate_over_offsets(inclusion[uncertain], order)
    return chance, inclusion


@given(weights_and_sizes())
def test_inclusion_is_proportional_below_the_cap_and_sums_to_the_size(case):
    weights, size = case
    inclusion = inclusion_probabilities(weights, size)
    assert abs(inclusion.sum() - min(size, np.count_nonzero(weights))) < 1e-9
    assert inclusion.max() <= 1
    assert not inclusion[weights == 0].any()
    below = (inclusion > 0) & (inclusion < 1)
    if below.any():
        ratio = inclusion[below] / weights[below]
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)
        assert (weights[inclusion == 1] * ratio[0] >= 1 - 1e-12).all()


@given(weights_and_sizes(), st.integers(0, 2**32))
def test_every_draw_has_the_size_asked_for_and_weights_that_sum_to_one(case, seed):
    weights, size = case
    chosen, answers = select(weights, size, np.random.default_rng(seed))
    assert chosen.dtype == np.int64
    assert chosen.size == min(size, np.count_nonzero(weights))
    assert (np.diff(chosen) > 0).all()
    assert (weights[chosen] > 0).all()
    assert abs(answers.sum() - 1) < EXACT
    inclusion = inclusion_probabilities(weights, size)
    np.testing.assert_allclose(answers, weights[chosen] / inclusion[chosen], rtol=1e-12)


@given(weights_and_sizes(), st.integers(0, 2**32))
def test_inclusion_is_exact_when_the_offset_is_integrated_out(case, seed):
    weights, size = case
    chance, inclusion = expected_answers(weights, size, seed)
    np.testing.assert_allclose(chance, inclusion, atol=EXACT)


@pytest.mark.parametrize("seed", range(5))
def test_with_everyone_available_the_expected_weights_are_the_importance(seed):
    chance, inclusion = expected_answers(MNIST_TEXT, 2, seed)
    np.testing.assert_allclose(chance * MNIST_TEXT / inclusion, MNIST_TEXT, rtol=0, atol=EXACT)


@pytest.mark.parametrize(
    ("weights", "size"),
    [(MNIST_TEXT, 2), ([0.7, 0.1, 0.1, 0.06, 0.04, 0.0], 3)],
    ids=["no cap binds", "a cap binds"],
)
def test_frequencies_are_within_four_standard_errors_over_25_000_draws(weights, size):
    draws = 25_000
    rng = np.random.default_rng(2)
    counts = np.zeros(len(weights))
    for _ in range(draws):
        counts[select(weights, size, rng)[0]] += 1
    inclusion = inclusion_probabilities(weights, size)
    error = np.sqrt(inclusion * (1 - inclusion) / draws)
    assert (np.abs(counts / draws - inclusion) <= 4 * error).all()


def test_caps_are_met_one_after_another():
    # Only the first client is above the cap at first; what it gives up lifts the second there.
    inclusion = inclusion_probabilities([0.6, 0.3, 0.05, 0.05], 3)
    np.testing.assert_allclose(inclusion, [1.0, 1.0, 0.5, 0.5], rtol=1e-15)


def test_the_same_seed_gives_the_same_selection():
    first = [select(MNIST_TEXT, 5, np.random.default_rng(9))[0] for _ in range(2)]
    np.testing.assert_array_equal(*first)


@pytest.mark.parametrize("offset", [0.0, 5e-324, 0.5, np.nextafter(1.0, 0.0)])
def test_the_size_survives_rounding_at_the_ends_of_the_offset(offset):
    for n_clients in (3, 10, 49, 1000):
        inclusion = np.full(n_clients, (n_clients - 1) / n_clients)
        drawn = systematic(inclusion, np.arange(n_clients), offset)
        assert np.unique(drawn).size == n_clients - 1


def test_inclusion_a_hair_below_one_never_draws_a_client_twice():
    # Laid end to end, stretches this close to 1 round to 1 or more, and points to their ends.
    inclusion = np.append(np.full(999, np.nextafter(1.0, 0.0)), 999 * 2.0**-53)
    for offset in np.concatenate([np.linspace(0, 0.999, 50), 1 - 2.0 ** -np.arange(20, 54)]):
        drawn = systematic(inclusion, np.arange(1000), offset)
        assert np.unique(drawn).size == 999
