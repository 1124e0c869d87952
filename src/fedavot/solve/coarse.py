"""A first guess for many independent clients, from a few types that represent them.

Independent clients with the same probability and the same importance have the same potential, and
for small probabilities the potential depends on p_i/π_i alone. So the clients are sorted by that
ratio and grouped into types; the problem is solved for the types, and the result interpolated. Of a
type with π clients on average in a round, a Poisson number takes part, so that its expected weight
is ∫ t u π e^{−tu} exp(Σ_k π_k (e^{−t u_k} − 1)) dt/t, as in `laws._quadrature`.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._law import SolvableLaw
from fedavot.laws._quadrature import place_nodes, scaled_times
from fedavot.laws.independent import IndependentClients
from fedavot.solve._problem import DualProblem
from fedavot.solve.ipfp import accelerated

_MANY = 50_000
_TYPES = 2_048
_EVALUATIONS = 40


class _Point(NamedTuple):
    """Expected weights of types, and expected squared weights, shape (n_types,)."""

    marginal: Floats
    squares: Floats


@dataclass(frozen=True, eq=False)
class _Types:
    """Types with their mean numbers of clients in a round, shape (n_types,)."""

    numbers: Floats

    def marginal(self, potentials: Floats) -> Floats:
        marginal: Floats = self.curvature(potentials).marginal
        return marginal

    def curvature(self, potentials: Floats) -> Any:
        values = potentials - potentials.max()
        high = np.log(max(float(np.exp(values) @ self.numbers), 1.0))
        nodes = place_nodes(float(values.min()), high)
        scale = scaled_times(values, nodes)
        weights = nodes.steps * np.exp(self.numbers @ np.expm1(-scale))
        mass = scale * np.exp(-scale)
        sums = self.numbers * np.stack((mass @ weights, (mass * scale) @ weights))
        return _Point(*(sums / sums[0].sum()))


def first_guess(importance: Floats, law: SolvableLaw, order: Integers) -> Floats:
    """Return potentials to start from, shape (n_clients,); zeros if nothing better is known.

    The order is the law's worst one, which sorts independent clients by p_i/a_i.
    """
    usual = np.zeros(importance.size)
    if not isinstance(law, IndependentClients) or law.n_clients < _MANY:
        return usual
    if importance.min() <= 0 or law.probabilities.min() <= 0 or law.probabilities.max() >= 1:
        return usual
    starts = _cuts(importance.size)
    ratios = np.log(importance[order] / law.probabilities[order])
    numbers = np.add.reduceat(law.probabilities[order], starts)
    target = np.add.reduceat(importance[order], starts)
    everyone = np.ones(starts.size, dtype=bool)
    problem = DualProblem(
        _Types(numbers), target, everyone, ~everyone, np.zeros(starts.size, dtype=np.int64)
    )
    iterate = accelerated(problem, np.zeros(starts.size), tol=1e-10, max_iter=_EVALUATIONS)
    # np.interp needs rising abscissae, and the ratios fall along the worst order.
    middles = np.log(target / numbers)[::-1]
    guess = np.empty(importance.size)
    guess[order] = np.interp(ratios, middles, iterate.potentials[::-1])
    return guess


def _cuts(n_clients: int) -> Integers:
    """Return where types begin: closer together towards both ends, where ratios are sparse."""
    angles = np.linspace(0.0, np.pi, _TYPES, endpoint=False)
    return np.unique((n_clients * (1.0 - np.cos(angles)) / 2).astype(np.int64))
