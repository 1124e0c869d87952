"""Uniform cohorts of one size: the closed form equals the list of all combinations."""

import numpy as np
import pytest

import agreement
import fedavot as fa

DIRECT = 1e-11
"""Two quadratures and 300 recursions apart, relative to the largest weight."""


def direct_weights(x, size):
    """Integrate u_i e^{−t u_i} e_{K−1}(v without v_i)/C(N, K) on a plain grid in log t.

    The symmetric polynomials of v = e^{−tu} come from the textbook recursion, whose terms are all
    positive, over the clients before i and after i.
    """
    u = np.exp(x - x.max())
    log_t = np.arange(-45.0, np.log(60.0 / np.sort(u)[:size].sum()), 0.15)
    v = np.exp(-np.outer(u, np.exp(log_t)))
    before, after = _polynomials(v, size), _polynomials(v[::-1], size)[::-1]
    total = _polynomials(np.ones((u.size, 1)), size + 1)[-1][size, 0]
    without = np.stack(
        [(b * a[::-1]).sum(axis=0) for b, a in zip(before[:-1], after[1:], strict=True)]
    )
    integrand = u[:, None] * v * without * np.exp(log_t)
    return 0.15 * integrand.sum(axis=1) / total


def _polynomials(v, count):
    """Return e_0 … e_{count−1} of each prefix of the rows, shape (n+1, count, n_columns)."""
    e = np.zeros((len(v) + 1, count, v.shape[1]))
    e[0, 0] = 1.0
    for row, value in enumerate(v):
        e[row + 1] = e[row]
        e[row + 1, 1:] += value * e[row, :-1]
    return e


@pytest.mark.parametrize(("n_clients", "size"), [(300, 40), (300, 150), (60, 59), (200, 2)])
def test_many_clients_agree_with_the_recursion_of_symmetric_polynomials(n_clients, size):
    x = np.random.default_rng(1).normal(0.0, 1.5, n_clients)
    wanted = direct_weights(x, size)
    # The direct sum vouches for itself: nothing in it makes the weights sum to one.
    assert abs(wanted.sum() - 1.0) <= agreement.EXACT
    found = fa.UniformCohorts(n_clients, size).expected_weights(x)
    assert agreement.close(found, wanted, DIRECT * wanted.max())


@pytest.mark.parametrize(("n_clients", "size"), [(600, 2), (300, 5), (200, 100), (200, 190)])
@pytest.mark.parametrize("kind", ["close", "equal", "both"])
def test_clients_that_share_types_agree_with_the_recursion(n_clients, size, kind):
    rng = np.random.default_rng(2)
    x = {
        "close": rng.normal(0.0, 0.4, n_clients),
        "equal": rng.choice([0.0, 0.7, 3.0], n_clients),
        "both": np.append(rng.normal(0.0, 0.2, n_clients - 50), np.repeat([-4.0, 2.0], 25)),
    }[kind]
    found = fa.UniformCohorts(n_clients, size).expected_weights(x)
    wanted = direct_weights(x, size)
    assert agreement.close(found, wanted, DIRECT * wanted.max())
