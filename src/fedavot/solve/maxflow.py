"""Levels of explicit cohorts by max-flow: slower than sorting by potentials, and sure.

In a level S with ratio λ = f(S)/p(S), the flow from clients (capacity λ p_i) through cohorts
(capacity q(A)) saturates the clients iff λ p is attainable inside S. If not, the clients on the
source side of the minimum cut are the set that maximises λ p(I) − f(I), a union of lower levels:
split it off and go on in both halves (Dinkelbach's iteration, applied to all levels at once).
"""

from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._incidence import Incidence
from fedavot.laws.cohorts import Cohorts
from fedavot.solve.levels import Partition, partition

_UNITS = 2**50
"""Probabilities become whole numbers of this many units, far below any capacity's overflow."""


def split_by_flow(importance: Floats, cohorts: Cohorts, parts: Partition) -> Partition:
    """Split every level that does not attain its ratio, until all do."""
    levels = parts.levels
    while True:
        side = _cut(cohorts, levels, _ratios(importance, cohorts, levels)[levels] * importance)
        split = np.unique(2 * levels + side, return_inverse=True)[1]
        found = partition(importance, cohorts, np.argsort(split, kind="stable"))
        # Only the order is taken from the flow; levels that need not part are joined again.
        if np.array_equal(found.levels, levels) or not side.any():
            return found
        levels = found.levels


def _ratios(importance: Floats, cohorts: Cohorts, levels: Integers) -> Floats:
    """Return coverage over importance of each level, after those below it."""
    lowest = cohorts.incidence.minimum(levels)
    count = int(levels.max()) + 1
    covered = np.bincount(lowest, cohorts.probabilities, minlength=count)
    wanted = np.bincount(levels, importance, minlength=count)
    return np.divide(covered, wanted, out=np.zeros(count), where=wanted > 0)


def _cut(cohorts: Cohorts, levels: Integers, target: Floats) -> Integers:
    """Return 0 for clients on the source side of the minimum cut where it cuts, else 1.

    Where a level attains its target, all of its clients get 0, so that it stays whole.
    """
    reduced = cohorts.incidence.within(levels)
    supply = np.round(target * _UNITS).astype(np.int64)
    flow, arcs = _network(reduced, supply, cohorts.probabilities)
    n_clients, source = reduced.n_clients, reduced.n_clients + reduced.n_cohorts
    flow.solve(source, source + 1)
    unmet = supply - flow.flows(arcs)
    wanting = np.bincount(levels, unmet) > _UNITS * 1e-12
    reached = np.asarray(flow.get_source_side_min_cut())
    inside = np.zeros(n_clients, dtype=bool)
    inside[reached[reached < n_clients]] = True
    return np.where(wanting[levels] & ~inside, 1, 0)


def _network(reduced: Incidence, supply: Integers, probabilities: Floats) -> tuple[Any, Any]:
    """Return the flow problem, and the arcs that carry each client's target."""
    from ortools.graph.python import max_flow

    n_clients, n_cohorts = reduced.n_clients, reduced.n_cohorts
    source = n_clients + n_cohorts
    flow = max_flow.SimpleMaxFlow()
    clients = np.arange(n_clients)
    demand = np.round(probabilities * _UNITS).astype(np.int64)
    arcs = flow.add_arcs_with_capacity(np.full(n_clients, source), clients, supply)
    rows = reduced.spread_over_members(np.arange(n_cohorts)) + n_clients
    flow.add_arcs_with_capacity(
        reduced.members.astype(np.int64), rows, np.full(rows.size, 2 * _UNITS)
    )
    flow.add_arcs_with_capacity(
        np.arange(n_cohorts) + n_clients, np.full(n_cohorts, source + 1), demand
    )
    return flow, arcs
