"""Uniformly drawn cohorts of one size, in closed form.

f(I) = 1 − C(N−|I|, K)/C(N, K) depends on |I| alone and is concave in it, so the worst sets are
prefixes in the order of falling importance. The expected weights are integrals as in `_quadrature`,
level by level, over what `_circle` computes at every node; the pairs of few clients are listed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from fedavot._checks import Floats, Integers, as_generator, as_size
from fedavot._clients import Clients, Members
from fedavot.laws._circle import UniformTilt
from fedavot.laws._laplacian import Factor, as_laplacian
from fedavot.laws._law import SolvableLaw, System, refuse_too_many_clients
from fedavot.laws._quadrature import LeveledSystem, LevelOrder, place_nodes, thin
from fedavot.laws.cohorts import Cohorts

_LISTED_CLIENTS = 300
"""Number of clients up to which a list of their pairs takes less time than the integrals."""


class UniformCohorts(SolvableLaw):
    """Every cohort of ``size`` clients is equally likely.

    Parameters
    ----------
    n_clients : int
        Number of clients.
    size : int
        Number of clients in every cohort; also an attribute.
    clients : sequence of str, optional
        The clients' names, in the order of their indices.
    """

    def __init__(self, n_clients: int, size: int, *, clients: Sequence[str] | None = None) -> None:
        count = as_size(n_clients, what="n_clients", low=1)
        self.size = as_size(size, what="size", low=1, high=count)
        remedy = "align a sample of the clients, or groups of similar clients"
        refuse_too_many_clients(count, remedy=remedy)
        self._clients = Clients(count, clients)

    def _detail(self) -> str:
        return f"size {self.size}"

    def inclusion(self) -> Floats:
        return np.full(self.n_clients, self.size / self.n_clients)

    @cached_property
    def _log_missed(self) -> Floats:
        """Log-probability that a cohort has none of n given clients, for n = 0..n_clients."""
        missed = np.arange(self.n_clients)
        # Products of C(N−n−1, K)/C(N−n, K) = (N−n−K)/(N−n); zero once no cohort avoids the set.
        ratios = np.maximum(self.n_clients - missed - self.size, 0) / (self.n_clients - missed)
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
            np.sort(rng.choice(self.n_clients, self.size, replace=False, shuffle=False))
            for _ in range(as_size(rounds, what="rounds", low=0))
        ]

    @cached_property
    def _pairs(self) -> Cohorts:
        return Cohorts(np.column_stack(np.triu_indices(self.n_clients, 1)))

    def system(self, levels: Integers | None = None) -> System:
        if self.size == 2 and self.n_clients <= _LISTED_CLIENTS:
            return self._pairs.system(levels)
        return LeveledSystem(partial(_Point, self), levels)

    def prefix_gains(self, order: Integers) -> Floats:
        left = self.n_clients - np.arange(self.n_clients)
        return np.exp(self._log_missed[:-1]) * np.minimum(self.size / left, 1.0)

    def worst_order(self, importance: Floats) -> Integers:
        """Return the clients by falling importance."""
        return np.argsort(-importance)


@dataclass(frozen=True, eq=False)
class _Point:
    """Expected weights and curvature at one vector of potentials, level by level."""

    law: UniformCohorts
    order: LevelOrder
    potentials: Floats

    @cached_property
    def _sums(self) -> Floats:
        """E[Y_i] and E[Y_i²], shape (2, n_clients)."""
        clients, starts, sizes = *self.order, self.order.sizes
        covered = self.law._coverage_by_count
        reach = covered[starts + sizes] - covered[starts]
        sums = np.empty((2, self.potentials.size))
        # A client that is alone in its level gets all weight that reaches the level.
        sums[:, clients] = np.repeat(reach, sizes)
        for level, members, tilt in self._tilts():
            inner = tilt.sums()
            # A level's weights sum to the probability of reaching it, which is known exactly:
            # scaling to it removes the rounding in normalisers of thousands of factors.
            total = inner[0].sum()
            sums[:, members] = inner * (reach[level] / total if total > 0 else 1.0)
        return sums

    @property
    def marginal(self) -> Floats:
        return np.asarray(self._sums[0])

    @property
    def squares(self) -> Floats:
        return np.asarray(self._sums[1])

    def dense(self) -> Floats:
        joint = np.zeros((self.potentials.size, self.potentials.size))
        for _, members, tilt in self._tilts():
            joint[np.ix_(members, members)] = tilt.joint()
        return as_laplacian(joint)

    def factors(self) -> list[Factor]:
        """Return the curvature of each level of several clients as a low-rank factor."""
        return [Factor(members, *tilt.factor()) for _, members, tilt in self._tilts(thinned=True)]

    def _tilts(self, *, thinned: bool = False) -> Iterator[tuple[int, Integers, UniformTilt]]:
        """Yield the levels of several clients, their members, and the law tilted by e^{−t s_A}."""
        size, covered = self.law.size, self.law._coverage_by_count
        sizes = self.order.sizes
        for level in np.flatnonzero(sizes > 1).tolist():
            first, count = int(self.order.starts[level]), int(sizes[level])
            members = self.order.clients[first : first + count]
            # Only differences matter, and t scales with the largest potential, now zero.
            values = self.potentials[members] - self.potentials[members].max()
            # With enough later clients a cohort may have a single member of the level; the least
            # sum of its members' exp(x_k) is that of the smallest potentials.
            fewest = min(max(1, size - (self.potentials.size - first - count)), count)
            most = min(size, count)
            ordered = np.partition(values, (fewest - 1, count - most))
            sums = (np.logaddexp.reduce(part) for part in (ordered[:fewest], ordered[-most:]))
            nodes = place_nodes(*map(float, sums))
            eligible, absent = self.potentials.size - first, 1.0 - float(covered[first])
            nodes = thin(nodes) if thinned else nodes
            yield level, members, UniformTilt(size, eligible, values, nodes, absent)
