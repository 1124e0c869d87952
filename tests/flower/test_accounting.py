"""The ε spent agrees with integrating the privacy loss of the Gaussian mechanism."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from fedavot.errors import OptionError
from fedavot.flower import epsilon_spent

CHARGES = [(1.0, 1, 1e-5), (1.0, 100, 1e-5), (0.3, 10, 1e-10), (50.0, 1, 1e-5), (2.0, 10, 0.3)]


@pytest.mark.parametrize(("multiplier", "releases", "delta"), CHARGES)
def test_integrating_the_privacy_loss_at_epsilon_gives_delta(multiplier, releases, delta):
    mu = math.sqrt(releases) / multiplier
    epsilon = epsilon_spent(multiplier, releases, delta=delta)

    def excess(x):
        return norm.pdf(x, mu) * -math.expm1(epsilon - (mu * x - mu * mu / 2))

    start = epsilon / mu + mu / 2  # where the likelihood ratio passes e^ε
    found = quad(excess, start, start + 40, epsabs=0, epsrel=1e-10, limit=200)[0]
    assert found == pytest.approx(delta, rel=1e-8)


@pytest.mark.parametrize(("multiplier", "releases", "delta"), CHARGES)
def test_epsilon_is_below_the_bound_by_renyi_divergence_and_near_it(multiplier, releases, delta):
    rho = releases / multiplier**2 / 2
    orders = 1 + np.geomspace(1e-3, 1e4, 20_000)
    bounds = orders * rho + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    epsilon = epsilon_spent(multiplier, releases, delta=delta)
    assert epsilon < bounds.min() < 1.8 * epsilon


@given(st.floats(0.01, 100), st.integers(1, 10**6), st.floats(1e-300, 0.9))
def test_releases_cost_what_one_with_less_noise_costs(multiplier, releases, delta):
    many = epsilon_spent(multiplier, releases, delta=delta)
    one = epsilon_spent(multiplier / math.sqrt(releases), 1, delta=delta)
    assert many == pytest.approx(one, rel=1e-9, abs=1e-12)
    assert epsilon_spent(multiplier, releases + 1, delta=delta) >= many


def test_nothing_released_costs_nothing_and_no_noise_costs_everything():
    assert epsilon_spent(1.0, 0, delta=1e-5) == 0.0
    assert epsilon_spent(0.0, 1, delta=1e-5) == math.inf
    assert epsilon_spent(100.0, 1, delta=0.1) == 0.0


@pytest.mark.parametrize(
    ("arguments", "delta", "message"),
    [
        ((1.0, 1), 1.0, "delta is 1.0; it must be below 1"),
        ((1.0, 1), 0.0, "delta is 0.0; it must be finite and above 0"),
        ((1.0, -1), 1e-5, "releases is -1"),
        ((-1.0, 1), 1e-5, "noise_multiplier is -1.0"),
    ],
)
def test_accounting_refuses_what_has_no_answer(arguments, delta, message):
    with pytest.raises(OptionError, match=message):
        epsilon_spent(*arguments, delta=delta)
