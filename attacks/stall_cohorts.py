"""Lists of cohorts that are hard to align: lines, grids, trees, nested sets and logs.

Each function takes a generator and the number of clients, and returns an importance, up to its
sum, and a law.
"""

import numpy as np

import fedavot as fa

ROUNDS, PER_ROUND = 1_000, 20
"""A log as most are: a thousand rounds of twenty clients."""


def _chain(n):
    return fa.Cohorts(np.column_stack((np.arange(n - 1), np.arange(1, n))))


def chain(rng, n):
    """Pairs of neighbours in a line, importance of random potentials."""
    law = _chain(n)
    return law.expected_weights(3.0 * rng.normal(size=n)), law


def chain_steep(rng, n):
    """Pairs of neighbours in a line, importance of potentials that rise all the way."""
    law = _chain(n)
    return law.expected_weights(np.arange(float(n))), law


def chain_random(rng, n):
    """Pairs of neighbours in a line, random importance: many levels."""
    return rng.random(n), _chain(n)


def chain_uniform(rng, n):
    """Pairs of neighbours in a line, equal importance: the ends have half a neighbour too few."""
    return np.ones(n), _chain(n)


def nested(rng, n):
    """Cohorts {0}, {0, 1}, {0, 1, 2}, … of which 500 are kept, equal importance."""
    return np.ones(n), fa.Cohorts(
        [np.arange(last + 1) for last in range(0, n, max(1, n // 500))], n_clients=n
    )


def log(rng, n, rounds=ROUNDS):
    """Draw a log of twenty clients a round, or half of them if there are fewer than forty."""
    size = min(PER_ROUND, n // 2)
    members = np.array([rng.choice(n, size, replace=False) for _ in range(rounds)])
    return fa.Cohorts(members, n_clients=n)


def log_random(rng, n):
    """Log a thousand rounds of twenty clients, random importance."""
    return rng.random(n), log(rng, n)


def log_wide(rng, n):
    """Log a thousand rounds of twenty clients, importance over eight orders."""
    return 10.0 ** rng.uniform(-8, 0, n), log(rng, n)


def log_tight(rng, n):
    """Log three thousand rounds, an importance with fifty tight sets."""
    law = log(rng, n, 3 * ROUNDS)
    return law.expected_weights(rng.normal(size=n), rng.integers(0, 50, n)), law


def log_near(rng, n):
    """Log three thousand rounds, an importance that is nearly out of reach."""
    law = log(rng, n, 3 * ROUNDS)
    return law.expected_weights(8.0 * rng.normal(size=n)), law


def _large_cohorts(rng, n):
    return fa.Cohorts([np.flatnonzero(rng.random(n) < 0.5) for _ in range(2 * ROUNDS)], n_clients=n)


def large_cohorts(rng, n):
    """Two thousand rounds of half of all clients, random importance."""
    law = _large_cohorts(rng, n)
    return rng.random(n), law


def large_cohorts_power(rng, n):
    """Two thousand rounds of half of all clients, steep importance."""
    return np.arange(1, n + 1) ** -1.2, _large_cohorts(rng, n)


def _grid(n):
    side = int(np.sqrt(n))
    index = np.arange(side * side).reshape(side, side)
    along = np.column_stack((index[:, :-1].ravel(), index[:, 1:].ravel()))
    across = np.column_stack((index[:-1].ravel(), index[1:].ravel()))
    return side, fa.Cohorts(np.concatenate((along, across)))


def grid_steep(rng, n):
    """Neighbours in a square grid, importance of potentials that rise from corner to corner."""
    side, law = _grid(n)
    return law.expected_weights(0.7 * np.add.outer(np.arange(side), np.arange(side)).ravel()), law


def grid_random(rng, n):
    """Neighbours in a square grid, random importance: many levels."""
    side, law = _grid(n)
    return rng.random(side * side), law


def tree(rng, n):
    """Parents and children of a binary tree, equal importance."""
    children = np.arange(1, n)
    return np.ones(n), fa.Cohorts(np.column_stack((children, (children - 1) // 2)))


def cycle_tight(rng, n):
    """Neighbours in a ring, an importance with fifty tight sets."""
    law = fa.Cohorts(np.column_stack((np.arange(n), (np.arange(n) + 1) % n)))
    return law.expected_weights(rng.normal(size=n), rng.integers(0, 50, n)), law


def _sparse_graph(rng, n):
    pairs = np.array([rng.choice(n, 2, replace=False) for _ in range(2 * n)])
    return fa.Cohorts(pairs, n_clients=n)


def graph_random(rng, n):
    """Pairs of a sparse random graph, random importance: many levels."""
    law = _sparse_graph(rng, n)
    return rng.random(n), law


def graph_wide(rng, n):
    """Pairs of a sparse random graph, importance over fifteen orders."""
    law = _sparse_graph(rng, n)
    return 10.0 ** rng.uniform(-15, 0, n), law
