"""Problems of moderate size that are hard for one method or another, by construction.

Each function takes a generator and the number of clients, and returns an importance, up to its
sum, and a law; `stall_cohorts` has those with lists of cohorts. A scenario is such a function with
the size it is tried at and options of `align`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import fedavot as fa
from attacks.stall_cohorts import (
    chain,
    chain_random,
    chain_steep,
    chain_uniform,
    cycle_tight,
    graph_random,
    graph_wide,
    grid_random,
    grid_steep,
    large_cohorts,
    large_cohorts_power,
    log,
    log_near,
    log_random,
    log_tight,
    log_wide,
    nested,
    tree,
)


class Scenario(NamedTuple):
    """How to make a problem, how large, and how to align it."""

    make: Callable[[np.random.Generator, int], tuple[Any, Any]]
    size: int
    options: dict[str, Any]

    def problem(self, n_clients):
        """Return the importance and the law."""
        importance, law = self.make(np.random.default_rng(0), n_clients)
        once = np.asarray(importance) / np.sum(importance)
        # Once more, as callers do: a solver may depend on the last digit where sets are tight.
        return once / once.sum(), law


def uniform_half(rng, n):
    """Half of all clients a round, importance within a factor of three."""
    return rng.random(n) + 0.5, fa.UniformCohorts(n, n // 2)


def uniform_half_tight(rng, n):
    """Half of all clients a round, one of them wanted nearly as often as it takes part."""
    importance = np.full(n, (1 - 0.4999) / (n - 1))
    importance[0] = 0.4999
    return importance, fa.UniformCohorts(n, n // 2)


def uniform_half_power(rng, n):
    """Half of all clients a round, importance by Zipf's law."""
    return 1.0 / np.arange(1, n + 1), fa.UniformCohorts(n, n // 2)


def uniform_half_exponential(rng, n):
    """Half of all clients a round, importance over thirteen orders of magnitude."""
    return np.exp(-30.0 * np.arange(n) / n), fa.UniformCohorts(n, n // 2)


def uniform_half_wide(rng, n):
    """Half of all clients a round, importance over eight orders, at random."""
    return 10.0 ** rng.uniform(-8, 0, n), fa.UniformCohorts(n, n // 2)


def uniform_all_but_one(rng, n):
    """All clients but one a round."""
    return rng.random(n) + 0.1, fa.UniformCohorts(n, n - 1)


def uniform_pairs(rng, n):
    """Two clients a round, linear importance."""
    return np.arange(n, 0, -1), fa.UniformCohorts(n, 2)


def _mixture(laws):
    return fa.Mixture(laws, np.full(len(laws), 1.0 / len(laws)))


def mixture_day_night(rng, n):
    """Two states of independent clients, one of them with few."""
    day = fa.IndependentClients(np.clip(0.02 * rng.random(n), 1e-6, 1))
    night = fa.IndependentClients(np.clip(0.02 * rng.random(n) ** 8, 1e-9, 1))
    return rng.random(n), _mixture([day, night])


def mixture_hours(rng, n):
    """Twenty-four states of independent clients."""
    chances = [np.clip(rng.random(n) ** 4 * 20 / n, 1e-9, 1) for _ in range(24)]
    return rng.random(n) ** 3, _mixture([fa.IndependentClients(part) for part in chances])


def mixture_infeasible(rng, n):
    """Three states of independent clients, an importance out of reach."""
    chances = [np.clip(rng.random(n) ** 4 * 5 / n, 1e-9, 1) for _ in range(3)]
    law = _mixture([fa.IndependentClients(part) for part in chances])
    return 1.0 / np.arange(1, n + 1), law


def _regions(n, count, elsewhere):
    laws = []
    for region in range(count):
        chances = np.full(n, elsewhere)
        chances[region::count] = 0.05
        laws.append(fa.IndependentClients(chances))
    return _mixture(laws)


def mixture_regions(rng, n):
    """Ten regions, each nearly alone in its own state, of different importance."""
    return 1.0 + np.arange(n) % 10, _regions(n, 10, 1e-9)


def mixture_tight(rng, n):
    """Five regions, each alone in its own state and wanted as often as that occurs."""
    return np.ones(n), _regions(n, 5, 0.0)


def mixture_uniform(rng, n):
    """Two uniform states, pairs and a tenth of all clients."""
    law = _mixture([fa.UniformCohorts(n, 2), fa.UniformCohorts(n, max(2, n // 10))])
    return np.arange(n, 0.0, -1) ** 2, law


def mixture_log(rng, n):
    """Mix a short log with independent clients."""
    law = _mixture([log(rng, n, 300), fa.IndependentClients(rng.random(n) * 10 / n)])
    return rng.random(n), law


def mixture_logs(rng, n):
    """Two short logs."""
    return rng.random(n), _mixture([log(rng, n, 300), log(rng, n, 300)])


def independent_wide(rng, n):
    """Spread importance over fifteen orders, probabilities over twelve."""
    return 10.0 ** rng.uniform(-15, 0, n), fa.IndependentClients(10.0 ** rng.uniform(-12, 0, n))


def independent_sure(rng, n):
    """Half of the clients always there."""
    chances = rng.random(n)
    chances[: n // 2] = 1.0
    return rng.random(n), fa.IndependentClients(chances)


def independent_near(rng, n):
    """About three clients a round, an importance of potentials spread over sixty."""
    law = fa.IndependentClients(rng.random(n) * 5 / n)
    return law.expected_weights(np.linspace(0, 60, n)), law


def independent_nearer(rng, n):
    """Three clients a round, an importance of potentials spread over two hundred."""
    law = fa.IndependentClients(np.full(n, 3 / n))
    return law.expected_weights(25.0 * rng.normal(size=n)), law


def independent_few(rng, n):
    """About three clients a round, importance over eight orders."""
    return 10.0 ** rng.uniform(-8, 0, n), fa.IndependentClients(rng.random(n) * 5 / n)


def successive_pairs(rng, n):
    """Two draws by random rates, random importance."""
    return rng.random(n), fa.SuccessiveDraws(rng.random(n), 2)


def successive_ten(rng, n):
    """Ten draws by random rates."""
    return rng.random(n), fa.SuccessiveDraws(rng.random(n) ** 3, min(10, n // 2))


def successive_opposed(rng, n):
    """Ten draws by rates that rise where the importance falls."""
    law = fa.SuccessiveDraws(1.0 / np.arange(n, 0, -1), min(10, n // 2))
    return 1.0 / np.arange(1, n + 1), law


EXACT = {
    1_200: (
        *(uniform_half, uniform_half_tight, uniform_half_power, uniform_half_exponential),
        *(uniform_all_but_one, uniform_pairs, large_cohorts, large_cohorts_power),
        *(mixture_hours, mixture_uniform),
    ),
    2_000: (nested,),
    5_000: (
        *(chain, chain_steep, chain_random, chain_uniform),
        *(log_random, log_tight, log_near),
        *(mixture_day_night, mixture_infeasible, mixture_regions, mixture_tight),
        *(mixture_log, mixture_logs),
        *(independent_wide, independent_sure, independent_near, independent_nearer),
        *(successive_pairs, successive_ten, successive_opposed),
        *(grid_steep, grid_random, tree, cycle_tight, graph_random, graph_wide),
    ),
}
"""What is aligned without options, by the number of clients it is tried at."""
VARIANCE = {
    1_200: (large_cohorts,),
    2_000: (nested,),
    5_000: (chain, chain_uniform, log_random, log_tight, log_near, successive_ten),
}
SOFT = {1_200: {uniform_half_wide: 1e-4}, 5_000: {independent_few: 1e-6, log_wide: 1e-6}}
"""How softly, for each."""


def _name(make, kind=""):
    return "-".join(filter(None, (*make.__name__.split("_"), kind)))


SCENARIOS = {
    **{_name(make): Scenario(make, size, {}) for size in EXACT for make in EXACT[size]},
    **{
        _name(make, "variance"): Scenario(make, size, {"objective": "variance"})
        for size in VARIANCE
        for make in VARIANCE[size]
    },
    **{
        _name(make, "soft"): Scenario(make, size, {"softness": softness})
        for size in SOFT
        for make, softness in SOFT[size].items()
    },
}
