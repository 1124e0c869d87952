"""Uniformly drawn cohorts of one size, in closed form.

f(I) = 1 − C(N−|I|, K)/C(N, K) depends on |I| alone and is concave in it, so the worst sets are
prefixes in the order of falling importance. `_circle` computes the expected weights; cohorts of two
are two draws with equal rates, unless the clients are many.
"""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers, as_generator, as_size
from fedavot._clients import Clients, Members
from fedavot.laws._circle import UniformTilt
from fedavot.laws._law import BaseLaw, refuse_too_many_clients
from fedavot.laws._quadrature import Group, GroupedSystem, Nodes, ProductPoint, Tilt
from fedavot.laws._two_draws import TwoDraws

_PAIRED_CLIENTS = 500
"""Number of clients up to which integrals of two draws take less time than sums over circles."""


class UniformCohorts(BaseLaw):
    """Every cohort of ``size`` clients is equally likely.

    Parameters
    ----------
    n_clients : int
        Number of clients.
    size : int
        Number of clients in every cohort.
    clients : sequence of str, optional
        The clients' names, in the order of their indices.
    """

    def __init__(self, n_clients: int, size: int, *, clients: Sequence[str] | None = None) -> None:
        self._n_clients = as_size(n_clients, what="n_clients", low=1)
        self._size = as_size(size, what="size", low=1, high=self._n_clients)
        refuse_too_many_clients(
            self._n_clients, remedy="align a sample of the clients, or groups of similar clients"
        )
        self._clients = Clients(self._n_clients, clients)

    def _detail(self) -> str:
        return f"size {self._size}"

    @property
    def size(self) -> int:
        """Number of clients in every cohort."""
        return self._size

    def inclusion(self) -> Floats:
        return np.full(self._n_clients, self._size / self._n_clients)

    @cached_property
    def _log_missed(self) -> Floats:
        """Log-probability that a cohort has none of n given clients, for n = 0..n_clients."""
        missed = np.arange(self._n_clients)
        # Products of C(N−n−1, K)/C(N−n, K) = (N−n−K)/(N−n); zero once no cohort avoids the set.
        ratios = np.maximum(self._n_clients - missed - self._size, 0) / (self._n_clients - missed)
        with np.errstate(divide="ignore"):
            return np.concatenate(([0.0], np.cumsum(np.log(ratios))))

    @cached_property
    def _coverage_by_count(self) -> Floats:
        """Coverage of any set of n clients, for n = 0..n_clients."""
        return np.abs(np.expm1(self._log_missed))  # not minus, which would make −0.0 of 0.0

    def coverage(self, clients: Members) -> float:
        return float(self._coverage_by_count[np.count_nonzero(self._clients.mask(clients))])

    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        rng = as_generator(rng)
        return [
            np.sort(rng.choice(self._n_clients, self._size, replace=False, shuffle=False))
            for _ in range(as_size(rounds, what="rounds", low=0))
        ]

    def system(self, levels: Integers | None = None) -> GroupedSystem:
        if self._size == 2 and self._n_clients <= _PAIRED_CLIENTS:
            return TwoDraws.of(np.full(self._n_clients, 1.0 / self._n_clients)).system(levels)
        return GroupedSystem(partial(ProductPoint, self), levels)

    def prefix_gains(self, order: Integers) -> Floats:
        left = self._n_clients - np.arange(self._n_clients)
        return np.exp(self._log_missed[:-1]) * np.minimum(self._size / left, 1.0)

    def worst_order(self, importance: Floats) -> Integers:
        """Return the clients by falling importance."""
        return np.argsort(-importance)

    def bounds(self, group: Group, potentials: Floats) -> tuple[float, float]:
        """Return the logs of the least and of the largest Σ_{k∈A} exp(x_k) in the group."""
        # With enough later clients a cohort may have a single member of the group; the least sum
        # is that of the smallest potentials.
        fewest = min(max(1, self._size - group.later.size), potentials.size)
        most = min(self._size, potentials.size)
        ordered = np.partition(potentials, (fewest - 1, potentials.size - most))
        return float(_log_sum(ordered[:fewest])), float(_log_sum(ordered[-most:]))

    def reach(self, group: Group) -> float:
        """Return the probability that the group's level is a cohort's lowest."""
        first = group.earlier.size
        return float(
            self._coverage_by_count[first + group.clients.size] - self._coverage_by_count[first]
        )

    def tilt(self, group: Group, potentials: Floats, nodes: Nodes) -> Tilt:
        """Return the uniform law on clients outside earlier levels, tilted by e^{−t s_A}."""
        eligible = self._n_clients - group.earlier.size
        absent = 1.0 - self._coverage_by_count[group.earlier.size]
        return UniformTilt(self._size, eligible, potentials, nodes, float(absent))


def _log_sum(values: Floats) -> Any:
    return np.logaddexp.reduce(values)
