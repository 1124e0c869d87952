"""Maximum flow from clients through cohorts, in whole units up to 2^60.

SciPy's flow counts in 32 bits. Coarse units come first, 2^30 of them out of the source. The
residual capacity of the minimum cut bounds what rounding left, so finer units of that are the next
round, on top of the flow so far, until a unit is one. Three or four rounds suffice. OR-Tools counts
in 64 bits and needs one round; it is used where it is installed, because it is several times
faster on a million entries.
"""

from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence

UNITS = 2.0**60
"""Flow out of the source, in whole units: below the 2^63 that capacities may add up to."""
_UNLIMITED = 2**61
_BITS = 30
"""Capacities of this many bits add up without overflow in SciPy's 32."""


class Flow(NamedTuple):
    """A maximum flow and its minimum cut.

    ``sent`` is the flow out of each client, ``carried`` that from each member of a cohort to the
    cohort, and ``reached`` says which clients are on the source side of the minimum cut.
    """

    sent: Floats
    carried: Floats
    reached: NDArray[np.bool_]


def maximum_flow(incidence: Incidence, supply: Floats, demand: Floats) -> Flow:
    """Return a maximum flow from the clients through their cohorts.

    Clients may send, in all at most `UNITS`, and cohorts may take whole units.
    """
    solve = by_ortools if find_spec("ortools") is not None else by_scipy
    return solve(incidence, supply, demand)


def by_ortools(incidence: Incidence, supply: Floats, demand: Floats) -> Flow:
    """Return the flow by OR-Tools' push-relabel."""
    from ortools.graph.python import max_flow

    n_clients, n_cohorts = incidence.n_clients, incidence.n_cohorts
    source = n_clients + n_cohorts
    flow = max_flow.SimpleMaxFlow()
    tails, heads, capacities = _arcs(incidence, supply, demand)
    arcs = flow.add_arcs_with_capacity(tails, heads, capacities)
    flow.solve(source, source + 1)
    inside = np.zeros(source + 2, dtype=bool)
    inside[np.asarray(flow.get_source_side_min_cut(), dtype=np.int64)] = True
    return _flow(flow.flows(arcs).astype(np.float64), inside, n_clients, n_cohorts)


def by_scipy(incidence: Incidence, supply: Floats, demand: Floats) -> Flow:
    """Return the flow by SciPy's algorithm of Dinic, in ever finer units."""
    from scipy import sparse
    from scipy.sparse.csgraph import maximum_flow as flow_in_32_bits

    n_clients, n_cohorts = incidence.n_clients, incidence.n_cohorts
    source = n_clients + n_cohorts
    tails, heads, capacities = _arcs(incidence, supply, demand)
    both_tails, both_heads = np.concatenate((tails, heads)), np.concatenate((heads, tails))
    order = np.lexsort((both_heads, both_tails))
    index = both_heads[order].astype(np.int32)
    starts = np.searchsorted(both_tails[order], np.arange(source + 3)).astype(np.int32)
    # Residual capacities of the arcs, then of the arcs the other way.
    residual = np.concatenate((capacities, np.zeros_like(capacities)))

    def graph(values: NDArray[Any]) -> Any:
        # SciPy works in place on what it is given.
        layout = (values[order], index.copy(), starts.copy())
        return sparse.csr_array(layout, shape=(source + 2, source + 2))

    bound = int(supply.sum())
    while True:
        unit = max(1, -(-bound >> _BITS))
        coarse = np.minimum(residual // unit, 1 << _BITS).astype(np.int32)
        found = flow_in_32_bits(graph(coarse), source, source + 1, method="dinic").flow
        moved = np.empty(residual.size, dtype=np.int64)
        moved[order] = found.data
        residual -= moved * unit
        inside = _reached(graph((residual >= unit).astype(np.int8)), source)
        bound = int(residual[inside[both_tails] & ~inside[both_heads]].sum())
        if unit == 1 or bound == 0:
            return _flow(residual[tails.size :].astype(np.float64), inside, n_clients, n_cohorts)


def _arcs(
    incidence: Incidence, supply: Floats, demand: Floats
) -> tuple[Integers, Integers, Integers]:
    """Return tails, heads and capacities: out of the source, inside, and into the sink."""
    clients, cohorts = np.arange(incidence.n_clients), np.arange(incidence.n_cohorts)
    source = clients.size + cohorts.size
    rows = incidence.spread_over_members(cohorts) + clients.size
    tails = (np.full(clients.size, source), incidence.members, cohorts + clients.size)
    heads = (clients, rows, np.full(cohorts.size, source + 1))
    inner = np.full(rows.size, _UNLIMITED, dtype=np.int64)
    capacities = (supply.astype(np.int64), inner, demand.astype(np.int64))
    return np.concatenate(tails).astype(np.int64), np.concatenate(heads), np.concatenate(capacities)


def _reached(graph: Any, source: int) -> NDArray[np.bool_]:
    from scipy.sparse.csgraph import breadth_first_order

    graph.eliminate_zeros()
    inside = np.zeros(graph.shape[0], dtype=bool)
    inside[breadth_first_order(graph, source, return_predecessors=False)] = True
    return inside


def _flow(flows: Floats, inside: NDArray[np.bool_], n_clients: int, n_cohorts: int) -> Flow:
    inner = flows[n_clients : flows.size - n_cohorts]
    return Flow(flows[:n_clients], inner, inside[:n_clients])
