"""Uniformly drawn cohorts of one size, in closed form.

f(I) = 1 − C(N−|I|, K)/C(N, K) depends on |I| alone and is concave in it, so only prefixes in the
order of falling importance can be worst. The expected weights need the elementary symmetric
polynomials of v_k = e^{−t u_k}, read off the generating function Π_k (1 + z v_k) as the coefficient
of z^K. The coefficient is a Fourier sum over a circle |z| = r; with r at the saddle point, where
independent clients with odds r v_k would number K on average, nothing cancels and the sum needs
only some multiple of √K terms, however many clients there are.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import Floats, Integers, as_size, refuse_if_too_large
from fedavot.laws._law import as_levels, as_potentials, client_mask
from fedavot.laws._quadrature import (
    Group,
    Nodes,
    ProductSystem,
    Tilt,
    blockwise_sums,
    client_blocks,
    scaled_times,
)

_TAIL_EXPONENT = 40.0
"""Terms of the Fourier sum are dropped where a Chernoff bound puts them below e^-40."""
_SADDLE_STEPS = 6
"""Newton steps towards the saddle; two already give full accuracy on everything tried."""
_BYTES_A_CLIENT = 64
"""Peak memory of evaluating the law once, measured a client."""


class UniformCohorts:
    """Every cohort of ``size`` clients is equally likely.

    Parameters
    ----------
    n_clients : int
        How many clients there are.
    size : int
        How many take part in each round.
    """

    nonempty = 1.0

    def __init__(self, n_clients: int, size: int) -> None:
        self._n_clients = as_size(n_clients, what="n_clients", low=1)
        self._size = as_size(size, what="size", low=1, high=self._n_clients)
        refuse_if_too_large(
            _BYTES_A_CLIENT * self._n_clients,
            what=f"a law over {self._n_clients:,} clients",
            remedy="align a sample of the clients, or groups of clients alike",
        )

    @property
    def n_clients(self) -> int:
        """How many clients there are."""
        return self._n_clients

    @property
    def size(self) -> int:
        """How many clients take part in each round."""
        return self._size

    def inclusion(self) -> Floats:
        """Return P(i ∈ A) for every client, shape (n_clients,)."""
        return np.full(self._n_clients, self._size / self._n_clients)

    @cached_property
    def _coverage_by_count(self) -> Floats:
        """Coverage of any set of n clients, for n = 0..n_clients."""
        missed = np.arange(self._n_clients)
        # C(N−n−1, K)/C(N−n, K) = (N−n−K)/(N−n), multiplied up; zero once a cohort cannot avoid it.
        ratios = np.maximum(self._n_clients - missed - self._size, 0) / (self._n_clients - missed)
        with np.errstate(divide="ignore"):
            return -np.expm1(np.concatenate(([0.0], np.cumsum(np.log(ratios)))))

    def coverage(self, clients: Iterable[int]) -> float:
        """Return P(A ∩ clients ≠ ∅)."""
        return float(self._coverage_by_count[client_mask(clients, self._n_clients).sum()])

    def expected_weights(self, potentials: ArrayLike, levels: ArrayLike | None = None) -> Floats:
        """Return E[Y_i] for softmax weights, lexicographic in the levels if given."""
        point = as_potentials(potentials, self._n_clients)
        return self.system(as_levels(levels, self._n_clients)).marginal(point)

    def sample(self, rng: np.random.Generator, rounds: int) -> list[Integers]:
        """Draw one cohort a round, members ascending."""
        return [
            np.sort(rng.choice(self._n_clients, self._size, replace=False, shuffle=False))
            for _ in range(as_size(rounds, what="rounds", low=0))
        ]

    def system(self, levels: Integers | None = None) -> ProductSystem:
        """Return the map from potentials to expected weights within these levels."""
        return ProductSystem(self, self._n_clients, levels)

    def prefix_coverage(self, order: Integers) -> Floats:
        """Return the coverage of each prefix of an order of all clients, shape (n_clients,)."""
        return self._coverage_by_count[1:]

    def worst_order(self, importance: Floats) -> Integers:
        """Return the clients by falling importance."""
        return np.argsort(-importance)

    def bounds(self, group: Group, potentials: Floats) -> tuple[float, float]:
        """Return log of the least and the largest sum of a cohort's exponentials."""
        # Later clients may fill a cohort up to a single member of the group; without them it has
        # `size` members, and the least sum is that of the smallest.
        fewest = max(1, self._size - group.later.size)
        most = min(self._size, potentials.size)
        ordered = np.sort(potentials)
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
        return _UniformTilt(self._size, eligible, potentials, nodes, float(absent))


def _log_sum(values: Floats) -> Any:
    return np.logaddexp.reduce(values)


def _log_binomial(n: int, k: int) -> float:
    from scipy.special import gammaln

    return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


@dataclass(frozen=True, eq=False)
class _UniformTilt:
    """Uniform cohorts among ``eligible`` clients, of which the group's carry potentials.

    The others act as clients with u = 0: they fill cohorts and take no weight.
    """

    size: int
    eligible: int
    potentials: Floats
    nodes: Nodes
    factor: float

    @property
    def _others(self) -> int:
        return self.eligible - self.potentials.size

    def _scale(self, block: slice) -> Floats:
        return scaled_times(self.potentials[block], self.nodes)

    @cached_property
    def _phases(self) -> NDArray[np.complex128]:
        """Half of an odd number of points on the unit circle; the rest are conjugates."""
        reach = 13.4 + np.sqrt(180.0 + 2 * _TAIL_EXPONENT * self.size)
        count = int(min(self.eligible, np.ceil(reach))) + 1
        count += 1 - count % 2
        return np.asarray(np.exp(2j * np.pi * np.arange(count // 2 + 1) / count))

    @cached_property
    def _log_odds(self) -> Floats:
        """The saddle radius log r at each node, shape (n_times,).

        Newton's method on the logarithm of Σ_k r v_k/(1 + r v_k) = K, which is concave in log r:
        from the left it climbs without overshooting. Where K of K clients are needed the radius
        grows without bound, and stopping early only costs accuracy that is not missed.
        """
        total = np.full(self.nodes.log_times.size, float(self._others))
        for block in client_blocks(self.potentials.size, total.size):
            total += np.exp(-self._scale(block)).sum(axis=0)
        with np.errstate(divide="ignore"):
            log_odds = np.log(self.size) - np.log(np.maximum(total, 1e-300))
        target = min(self.size, self.eligible - 0.5)
        for _ in range(_SADDLE_STEPS):
            mean, variance = self._moments(log_odds)
            log_odds = log_odds + np.clip(
                np.log(target / mean) * mean / np.maximum(variance, 1e-12), -5.0, 5.0
            )
        return np.asarray(log_odds)

    def _moments(self, log_odds: Floats) -> tuple[Floats, Floats]:
        other = 1.0 / (1.0 + np.exp(-log_odds))
        mean, variance = self._others * other, self._others * other * (1.0 - other)
        for block in client_blocks(self.potentials.size, log_odds.size):
            chance = _logistic(log_odds - self._scale(block))
            mean += chance.sum(axis=0)
            variance += (chance * (1.0 - chance)).sum(axis=0)
        return np.maximum(mean, 1e-300), variance

    @cached_property
    def weights(self) -> NDArray[np.complex128]:
        """The coefficient's Fourier terms at each node, shape (n_layers, n_times)."""
        if self.eligible < self.size:
            return np.zeros((self._phases.size, self.nodes.steps.size), dtype=np.complex128)
        turns = self._phases[:, None] - 1.0
        other = _logistic(self._log_odds)
        product = (1.0 + other * turns) ** self._others
        log_scale = self._others * np.logaddexp(0.0, self._log_odds)
        for block in client_blocks(self.potentials.size, self._log_odds.size):
            exponent = self._log_odds - self._scale(block)
            log_scale = log_scale + np.logaddexp(0.0, exponent).sum(axis=0)
            chance = _logistic(exponent)
            for layer, turn in enumerate(turns):
                product[layer] *= np.multiply.reduce(1.0 + chance * turn, axis=0)
        log_scale -= self.size * self._log_odds + _log_binomial(self.eligible, self.size)
        copies = np.where(np.arange(self._phases.size) == 0, 1.0, 2.0)
        count = 2 * self._phases.size - 1
        circle = (copies / count * self._phases**-self.size)[:, None]
        scale = self.factor * self.nodes.steps * np.exp(log_scale)
        return np.asarray(circle * product * scale)

    def sums(self) -> Floats:
        """Return ∫ a dΩ and ∫ t u a dΩ, shape (2, n_clients)."""
        return blockwise_sums(self, self.potentials.size)

    def inclusions(self, block: slice) -> tuple[Floats, Iterator[NDArray[np.complex128]]]:
        """Return t·u, and z v/(1 + z v) on each point of the circle."""
        scale = self._scale(block)
        chance = _logistic(self._log_odds - scale)
        return scale, (chance * phase / (1.0 + chance * (phase - 1.0)) for phase in self._phases)


def _logistic(values: Floats) -> Floats:
    """Return 1/(1 + e^−x) without overflow at either end."""
    small = np.exp(-np.abs(values))
    return np.where(values >= 0, 1.0, small) / (1.0 + small)
