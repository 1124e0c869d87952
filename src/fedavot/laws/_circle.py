"""Uniform cohorts of one size under the tilt e^{−t s_A}, by Fourier sums over circles.

The expected weights need elementary symmetric polynomials of v_k = e^{−t u_k}: the coefficient of
z^K in the generating function Π_k (1 + z v_k). The coefficient is a Fourier sum over a circle
|z| = r; with r at the saddle point, where independent clients with probabilities
c_k = r v_k/(1 + r v_k) would number K on average, nothing cancels. Their number then has the
variance V = Σ c_k(1 − c_k): a circle of some multiple of √V points is enough, and of those only the
ones within some multiple of 1/√V of the positive axis matter. That is about twenty points at each
node, whatever the number of clients and the size of the cohorts.

What a client contributes to a sum and what it gets are smooth functions of its potential. Clients
of equal potentials are one type. Where many potentials lie close together, a few types at the
Chebyshev points of their cell stand for all of them: sums over the clients become sums over the
types with *copies*, and values at the types are interpolated back, both by the same polynomials and
exact up to rounding.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from numpy.typing import NDArray
from scipy import sparse

from fedavot._checks import Floats, Integers
from fedavot.laws._quadrature import Nodes, blocks_of, clients_per_block, scaled_times

_TAIL_EXPONENT = 40.0
"""Terms bounded by e^-40 are dropped."""
_SADDLE_STEPS = 6
"""Newton steps towards the saddle; two gave full accuracy in every case tried."""
_SADDLE_TOLERANCE = 1e-6
"""Tolerance of the saddle, which only keeps sums from cancelling: any radius is exact."""
_SMOOTH_SHARE = 0.75
"""Largest share of clients in a cohort for which types stand for those of close potentials."""
_WIDTH = 0.5
"""Width of a cell of potentials."""
_POINTS = 16
"""Chebyshev points of a cell. What is interpolated has its singularities at a distance of .8 or
more from the real axis, where it matters: the error falls like 6.5 to minus this number."""
_CROWDED = 3 * _POINTS
"""Number of different potentials in a cell from which on its points stand for them."""
_CELL = 0.15
"""Width of the cells of potentials that two clients each represent, with errors below 1 %."""
_MOST_CELLS = 300
_NEGLIGIBLE = 1e-6
"""Share of the largest eigenvalue below which others are left out of a factor."""


@dataclass(frozen=True, eq=False)
class Types:
    """Types of clients, with one row of polynomials per distinct potential.

    ``potentials`` are those of the types, shape (n_types,); ``matrix`` has shape (n_distinct,
    n_types), or is None if types are distinct potentials; and ``place`` is the row of each client,
    shape (n_clients,).
    """

    potentials: Floats
    matrix: Any
    place: Integers

    @cached_property
    def copies(self) -> Floats:
        """How many clients each type stands for, shape (n_types,); not always a whole number."""
        counts = np.bincount(self.place).astype(np.float64)
        return counts if self.matrix is None else np.asarray(self.matrix.T @ counts)

    def spread(self, values: Floats) -> Floats:
        """Interpolate values at the types, shape (n_types, n), for each client."""
        distinct = values if self.matrix is None else self.matrix @ values
        return np.asarray(distinct[self.place])


def types_of(potentials: Floats, *, close: bool) -> Types:
    """Return types for these clients: of equal potentials, or also of close ones.

    With Chebyshev's T_k, Lagrange's polynomials of n Chebyshev points x_j of [−1, 1] are
    ℓ_j(x) = (1/n) (1 + 2 Σ_{k=1}^{n−1} T_k(x_j) T_k(x)).
    """
    distinct, place = np.unique(potentials, return_inverse=True)
    cell = np.floor((distinct - distinct[0]) / _WIDTH)
    cells, cell, sizes = np.unique(cell, return_inverse=True, return_counts=True)
    crowded = sizes > _CROWDED
    shared = crowded[cell] & close
    if not shared.any():
        return Types(distinct, None, place)
    points = np.cos(np.pi * (np.arange(_POINTS) + 0.5) / _POINTS)
    centres = distinct[0] + _WIDTH * (cells[crowded] + 0.5)
    nodes = np.add.outer(centres, points * (_WIDTH / 2)).ravel()
    own = (np.cumsum(crowded) - 1)[cell[shared]]
    here = 2.0 * chebvander(points, _POINTS - 1)
    here[:, 0] = 1.0
    there = chebvander((distinct[shared] - centres[own]) * (2.0 / _WIDTH), _POINTS - 1)
    widths = np.where(shared, _POINTS, 1)
    theirs = np.repeat(shared, widths)
    entries, indices = np.ones(theirs.size), np.empty(theirs.size, dtype=np.int32)
    entries[theirs] = (there @ here.T / _POINTS).ravel()
    indices[theirs] = np.add.outer(_POINTS * own, np.arange(_POINTS)).ravel()
    indices[~theirs] = np.arange(nodes.size, nodes.size + np.count_nonzero(~shared))
    matrix = sparse.csr_array((entries, indices, np.append(0, np.cumsum(widths))))
    return Types(np.append(nodes, distinct[~shared]), matrix, place)


@dataclass(frozen=True, eq=False)
class UniformTilt:
    """Uniform cohorts of ``size`` among ``eligible`` clients, of which one group gets weight.

    The other eligible clients act as clients with u = 0: they fill cohorts and get no weight.
    """

    size: int
    eligible: int
    potentials: Floats
    nodes: Nodes
    absent: float

    @property
    def _others(self) -> int:
        return self.eligible - self.potentials.size

    @cached_property
    def _types(self) -> Types:
        # With most clients in every cohort, what is interpolated is less smooth.
        return types_of(self.potentials, close=self.size <= _SMOOTH_SHARE * self.eligible)

    def _blocks(self) -> Iterator[tuple[slice, Floats, Floats]]:
        """Yield blocks of types with their numbers of clients, and t u at every node."""
        types = self._types
        width = clients_per_block(self.nodes.log_times.size)
        if types.potentials.size <= width:
            yield slice(None), types.copies, self._scale
            return
        for block in blocks_of(types.potentials.size, width):
            yield block, types.copies[block], scaled_times(types.potentials[block], self.nodes)

    @cached_property
    def _scale(self) -> Floats:
        return scaled_times(self._types.potentials, self.nodes)

    @cached_property
    def _circle(self) -> tuple[Floats, NDArray[np.complex128], NDArray[np.complex128]]:
        """Find the saddle at each node, and half of the circle's points.

        The others are their conjugates. Returned are the logs of the radii, shape (n_times,);
        points of the unit circle, shape (n_layers, n_times); and the weight of each point's term in
        the coefficient of z^K: 1/n or 2/n times z^−K, and zero beyond the last point of a smaller
        circle.

        Newton's method solves the logarithm of Σ_k r v_k/(1 + r v_k) = K, which is concave in
        log r: from the left it does not overshoot. If K of K clients are needed the radius grows
        without bound, and stopping early loses no accuracy that matters.
        """
        total = np.full(self.nodes.log_times.size, float(self._others))
        for _, copies, scale in self._blocks():
            total += copies @ np.exp(-scale)
        with np.errstate(divide="ignore"):
            log_odds = np.log(self.size) - np.log(np.maximum(total, 1e-300))
        target = min(self.size, self.eligible - 0.5)
        mean, variance = self._moments(log_odds)
        for _ in range(_SADDLE_STEPS):
            move = np.log(target / mean) * mean / np.maximum(variance, 1e-12)
            log_odds = log_odds + np.clip(move, -5.0, 5.0)
            mean, variance = self._moments(log_odds)
            if np.max(np.abs(move)) < _SADDLE_TOLERANCE:
                break
        # Bernstein's inequality bounds the probability of K ± n clients, which a circle of n points
        # cannot tell from K.
        third = _TAIL_EXPONENT / 3.0
        reach = third + np.sqrt(third**2 + 2.0 * _TAIL_EXPONENT * variance)
        reach = np.ceil(reach + np.abs(mean - self.size))
        counts = np.minimum(reach, self.eligible).astype(np.int64) + 1
        counts += 1 - counts % 2
        # At the angle φ all clients but two multiply to at most e^{−(V − ½)(1 − cos φ)}.
        steepness = np.maximum(variance - 0.5, _TAIL_EXPONENT / 2.0)
        widest = np.arccos(1.0 - _TAIL_EXPONENT / steepness)
        most = np.minimum(np.ceil(widest * counts / (2.0 * np.pi)) + 1, counts // 2 + 1)
        layers = np.arange(int(most.max()))[:, None]
        turns = 2j * np.pi / counts
        copies = np.where(layers == 0, 1.0, 2.0) * (layers <= counts // 2)
        shares = copies / counts * np.exp(-turns * (layers * self.size % counts))
        return log_odds, np.exp(turns * np.minimum(layers, counts // 2)), shares

    def _moments(self, log_odds: Floats) -> tuple[Floats, Floats]:
        other = _logistic(log_odds)
        mean, variance = self._others * other, self._others * other * (1.0 - other)
        for _, copies, scale in self._blocks():
            chance = _logistic(log_odds - scale)
            mean += copies @ chance
            variance += copies @ (chance * (1.0 - chance))
        return np.maximum(mean, 1e-300), variance

    @cached_property
    def weights(self) -> NDArray[np.complex128]:
        """Fourier terms of the coefficient at each node, shape (n_layers, n_times)."""
        from scipy.special import gammaln

        log_odds, phases, shares = self._circle
        if self.eligible < self.size:
            return np.zeros_like(shares)
        turns = phases - 1.0
        product = (1.0 + _logistic(log_odds) * turns) ** self._others
        log_scale = self._others * np.logaddexp(0.0, log_odds)
        for _, copies, scale in self._blocks():
            exponent = log_odds - scale
            log_scale = log_scale + copies @ np.logaddexp(0.0, exponent)
            chance = _logistic(exponent)
            for layer, turn in enumerate(turns):
                # No factor is 0, because circles have odd numbers of points.
                real, imaginary = 1.0 + chance * turn.real, chance * turn.imag
                log_size = 0.5 * (copies @ np.log(np.square(real) + np.square(imaginary)))
                angle = copies @ np.arctan2(imaginary, real)
                product[layer] *= np.exp(log_size + 1j * angle)
        n, k = self.eligible, self.size
        log_scale -= k * log_odds + gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        scale = self.absent * self.nodes.steps * np.exp(log_scale)
        return np.asarray(shares * product * scale)

    def sums(self) -> Floats:
        """Return ∫ a dΩ and ∫ t u a dΩ, shape (2, n_clients).

        With the probability c and z = e^{iφ}, the real part of w c z/(1 − c + c z) is
        c (q + c (Re w − q))/(cos²(φ/2) + (1 − 2c)² sin²(φ/2)), where q = Re(w z).
        """
        log_odds, phases, _ = self._circle
        first = self.weights.real
        turned = (self.weights * phases).real
        sine = (1.0 - phases.real) / 2.0
        sums = np.empty((self._types.potentials.size, 2))
        for block, _, scale in self._blocks():
            chance = _logistic(log_odds - scale)
            skew = np.square(1.0 - 2.0 * chance)
            total = np.zeros_like(scale)
            for layer in range(len(phases)):
                term = chance * (first[layer] - turned[layer])
                term += turned[layer]
                term /= skew * sine[layer] + (1.0 - sine[layer])
                total += term
            total *= chance * scale
            sums[block, 0] = total.sum(axis=1)
            sums[block, 1] = (total * scale).sum(axis=1)
        return self._types.spread(sums).T

    def factor(self) -> tuple[Floats, Floats]:
        """Return columns and signs whose signed outer products sum to about E[Y_i Y_j].

        Clients differ only in their potentials, so E[Y_i Y_j] is a smooth function of two
        potentials: it is evaluated at representative clients and, divided by u_i u_j,
        interpolated linearly between them.
        """
        if self.size == 1:
            return np.empty((self.potentials.size, 0)), np.empty(0)
        order = np.argsort(self.potentials, kind="stable")
        values = self.potentials[order]
        places = _representatives(values)
        joint = self.joint(order[places])
        scale = np.sqrt(np.maximum(np.abs(joint).sum(axis=1), 1e-300))
        eigenvalues, vectors = np.linalg.eigh(joint / np.multiply.outer(scale, scale))
        large = np.abs(eigenvalues) > _NEGLIGIBLE * np.abs(eigenvalues).max()
        heads = vectors[:, large] * np.sqrt(np.abs(eigenvalues[large])) * scale[:, None]
        left = np.clip(np.searchsorted(places, np.arange(values.size), side="right") - 1, 0, None)
        right = np.minimum(left + 1, places.size - 1)
        width = values[places[right]] - values[places[left]]
        share = (values - values[places[left]]) / np.where(width > 0, width, 1.0)
        columns = np.empty((values.size, heads.shape[1]))
        columns[order] = ((1.0 - share) * np.exp(values - values[places[left]]))[:, None] * heads[
            left
        ] + (share * np.exp(values - values[places[right]]))[:, None] * heads[right]
        return columns, np.sign(eigenvalues[large])

    def joint(self, block: slice | Integers = slice(None)) -> Floats:
        """Return ∫ a_i a_j dΩ for a block of clients, shape (n_block, n_block)."""
        scale = scaled_times(self.potentials[block], self.nodes)
        log_odds, phases, _ = self._circle
        chance = _logistic(log_odds - scale)
        joint = np.zeros((len(scale), len(scale)))
        for weight, phase in zip(self.weights, phases, strict=True):
            mass = scale * (chance * phase / (1.0 + chance * (phase - 1.0)))
            other = mass * weight
            joint += other.real @ mass.real.T
            joint -= other.imag @ mass.imag.T
        return joint


def _representatives(ascending: Floats) -> Integers:
    """Return the positions of the first and the last client of every cell."""
    width = max(_CELL, float(ascending[-1] - ascending[0]) / _MOST_CELLS)
    if width > _CELL and ascending.size <= 2 * _MOST_CELLS:
        return np.arange(ascending.size)
    ends = np.diff(np.floor((ascending - ascending[0]) / width)) > 0
    return np.flatnonzero(np.append(True, ends) | np.append(ends, True))


def _logistic(values: Floats) -> Floats:
    """Return 1/(1 + e^−x) without overflow at either end."""
    small = np.exp(-np.abs(values))
    return np.where(values >= 0, 1.0, small) / (1.0 + small)
