"""Alignment of very many independent clients on an accelerator, in one level.

Newton's method with the low-rank curvature of `direction`, from the potentials of a few hundred
types of clients, as in `coarse`; here the types are buckets of log p_i/a_i, which need no sorting.
Between evaluations only a few hundred numbers travel. What needs levels, or clients without
importance, is left to the other solvers: meeting the target in one level proves that none are
needed.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedavot._checks import Floats
from fedavot._device import DeviceVector
from fedavot.alignment import Alignment, Status
from fedavot.errors import UnavailableError
from fedavot.laws import _programs as run
from fedavot.laws._accelerated import (
    DeviceClients,
    histogram_of,
    nodes_for,
    ordinary,
    place,
    states_of,
)
from fedavot.laws._law import SolvableLaw
from fedavot.laws._quadrature import Nodes, thinned
from fedavot.laws.independent import IndependentClients
from fedavot.solve._problem import DualProblem
from fedavot.solve.climbing import StoppingRule
from fedavot.solve.newton import newton

_TYPE_EVALUATIONS = 40
_MOST_ON_HOST = 10**8
"""Largest number of clients whose levels are searched for on the host."""
_MOST_STEPS = 12
"""Newton steps after which levels are probably needed."""


@dataclass(frozen=True, eq=False)
class _Point:
    """Expected weights at one vector of potentials, up to ``factor``."""

    nodes: Nodes
    marginal: Any
    masses: Any
    factor: float
    residual: float


def align_accelerated(
    importance: Floats | DeviceVector, law: SolvableLaw, stop: StoppingRule
) -> Alignment | None:
    """Align in one level on the accelerator; None if the problem is not of that kind.

    ``importance`` sums to one. Results stay where it lies.
    """
    states = states_of(law)
    if states is None:
        return None
    on_device = isinstance(importance, DeviceVector)
    values = importance.values if isinstance(importance, DeviceVector) else importance
    with jax.enable_x64(True):
        clients = place(values, *states)
        found = _climb(clients, stop) if ordinary(clients) else None
        if found is None:
            _refuse_many(law.n_clients)
            return None
        potentials = _vector(run.centred(clients.importance, found[0]), clients)
        attained = _vector(found[1].marginal * found[1].factor, clients)
    arrays = (importance, potentials, attained)
    held: Any = arrays if on_device else map(np.asarray, arrays)
    wanted, potentials, attained = held
    return Alignment(
        importance=wanted,
        potentials=potentials,
        levels=np.broadcast_to(np.int64(0), law.n_clients),
        attained=attained,
        residual=found[1].residual,
        iterations=found[2],
        status=Status.EXACT,
        law=law,
    )


def _refuse_many(n_clients: int) -> None:
    if n_clients > _MOST_ON_HOST:
        raise UnavailableError(
            f"the importance of these {n_clients:,} clients cannot be attained in one level, and "
            f"levels are searched for among at most {_MOST_ON_HOST:,} clients; align a sample of "
            "them, or lower the importance of clients that rarely take part"
        )


def _climb(clients: DeviceClients, stop: StoppingRule) -> tuple[Any, _Point, int] | None:
    """Return potentials, the point there, and the evaluations spent; None if Newton fails."""
    potentials = _first_guess(clients)
    point = _evaluate(clients, potentials)
    best, evaluations = np.inf, 1
    while point is not None and not point.residual <= stop.tol:
        if evaluations >= min(stop.max_iter, _MOST_STEPS) or not point.residual < best:
            return None
        best = point.residual
        potentials = _step(clients, potentials, point)
        point = _evaluate(clients, potentials)
        evaluations += 1
    return None if point is None else (potentials, point, evaluations)


def _vector(blocks: Any, clients: DeviceClients) -> DeviceVector:
    return DeviceVector(blocks.reshape(-1)[: clients.n_clients])


def _evaluate(clients: DeviceClients, potentials: Any) -> _Point | None:
    nodes = nodes_for(clients, potentials)
    if nodes is None:
        return None
    times = np.exp(nodes.log_times)
    marginal, masses = run.marginal(clients.chances, clients.shares, potentials, times, nodes.steps)
    factor = 1.0 / float(run.total(marginal))
    residual = float(run.error(clients.importance, marginal, factor))
    return _Point(nodes, marginal, np.asarray(masses), factor, residual)


def _step(clients: DeviceClients, potentials: Any, point: _Point) -> Any:
    """Return the potentials after one Newton step."""
    few = thinned(point.nodes)
    # Every fourth node, of four times the weight, is enough for a direction.
    kept = np.searchsorted(point.nodes.log_times, few.log_times)
    ratio = few.steps / point.nodes.steps[kept]
    roots = np.sqrt(point.factor * point.masses[:, kept] * ratio)
    times = np.exp(few.log_times)
    sums = run.column_sums(clients.chances, potentials, times, roots)
    held = (times, roots, sums, point.factor)
    rest = (clients.chances, clients.importance, potentials, point.marginal)
    gram, right = (np.asarray(one) for one in run.reduced(held, *rest))
    inner = np.linalg.lstsq(np.eye(gram.shape[0]) - gram, right, rcond=1e-15)[0]
    return run.moved(held, inner, *rest)[0]


def _first_guess(clients: DeviceClients) -> Any:
    """Return potentials from types of clients; for several states, from one sweep."""
    if clients.chances.shape[0] > 1:
        chances = jnp.tensordot(clients.shares, clients.chances, axes=1)
        real = clients.importance > 0
        return jnp.where(real, jnp.log(clients.importance / jnp.where(real, chances, 1.0)), 0.0)
    found = histogram_of(clients)
    used = np.flatnonzero(found.counts)
    copies = found.counts[used]
    types = IndependentClients.of_types(-np.expm1(-found.exponents[used] / copies), copies)
    everyone = np.ones(used.size, dtype=bool)
    levels = np.zeros(used.size, dtype=np.int64)
    problem = DualProblem(types.system(), found.importance[used], everyone, ~everyone, levels)
    iterate = newton(problem, np.zeros(used.size), tol=1e-10, max_iter=_TYPE_EVALUATIONS)
    values = np.interp(np.arange(found.counts.size), used, iterate.potentials)
    return run.interpolated(clients.importance, clients.chances, found.low, found.width, values)
