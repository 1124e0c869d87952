"""A first guess for many independent clients, from a few types that represent them.

Independent clients with the same probability and the same importance have the same potential, and
for small probabilities the potential depends on p_i/π_i alone. So the clients are sorted by that
ratio and grouped into types; the problem is solved for the types, and the result interpolated.
"""

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._law import SolvableLaw
from fedavot.laws.independent import IndependentClients
from fedavot.solve._problem import DualProblem
from fedavot.solve.ipfp import accelerated

_MANY = 50_000
_TYPES = 2_048
_EVALUATIONS = 40


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
    copies = np.diff(np.append(starts, importance.size)).astype(np.float64)
    ratios = np.log(importance[order] / law.probabilities[order])
    chances = np.add.reduceat(law.probabilities[order], starts)
    target = np.add.reduceat(importance[order], starts)
    types = IndependentClients.of_types(chances / copies, copies)
    everyone = np.ones(starts.size, dtype=bool)
    problem = DualProblem(
        types.system(), target, everyone, ~everyone, np.zeros(starts.size, dtype=np.int64)
    )
    iterate = accelerated(problem, np.zeros(starts.size), tol=1e-10, max_iter=_EVALUATIONS)
    # np.interp needs rising abscissae, and the ratios fall along the worst order.
    middles = np.log(target / chances)[::-1]
    guess = np.empty(importance.size)
    guess[order] = np.interp(ratios, middles, iterate.potentials[::-1])
    return guess


def _cuts(n_clients: int) -> Integers:
    """Return where types begin: closer together towards both ends, where ratios are sparse."""
    angles = np.linspace(0.0, np.pi, _TYPES, endpoint=False)
    return np.unique((n_clients * (1.0 - np.cos(angles)) / 2).astype(np.int64))
