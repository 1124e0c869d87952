"""Types of clients carry sums and values of smooth functions exactly."""

import numpy as np
import pytest

from fedavot.laws._types import types_of

ROUNDING = 1e-13
"""Of two thousand terms of order one, and of polynomials of degree 15."""


def smooth(x):
    """A sum and two functions of a client, of the kind that laws interpolate."""
    return np.stack((np.log1p(0.1 * np.exp(-np.exp(x))), np.exp(x)), axis=1)


@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("decimals", [1, 12], ids=["equal", "close"])
def test_sums_over_types_and_values_at_clients_are_those_of_the_clients(spread, decimals):
    x = np.random.default_rng(0).normal(0.0, spread, 2_000).round(decimals)
    types = types_of(x, close=True)
    assert types.potentials.size < x.size / 2
    wanted = smooth(x)
    assert np.allclose(types.spread(smooth(types.potentials)), wanted, rtol=ROUNDING, atol=ROUNDING)
    assert np.allclose(types.copies @ smooth(types.potentials), wanted.sum(axis=0), rtol=ROUNDING)
    assert abs(types.copies.sum() - x.size) <= ROUNDING * x.size


def test_without_close_types_only_equal_potentials_are_shared():
    x = np.repeat(np.linspace(0.0, 1.0, 300), 2)
    types = types_of(x, close=False)
    assert types.potentials.tolist() == x[::2].tolist()
    assert types.copies.tolist() == [2.0] * 300
    assert types.spread(types.potentials[:, None])[:, 0].tolist() == x.tolist()
