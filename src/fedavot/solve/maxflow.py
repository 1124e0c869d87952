"""Levels of explicit cohorts by max-flow: slower than sorting by potentials, and sure.

In a level S with ratio λ = f(S)/p(S), the flow from clients (capacity λ p_i) through cohorts
(capacity q(A)) saturates the clients iff λ p is attainable inside S. If not, the clients on the
source side of the minimum cut are the set that maximises λ p(I) − f(I), a union of lower levels:
split it off and go on in both halves (Dinkelbach's iteration, applied to all levels at once). If it
is, tight sets remain to be found: sets I with λ p(I) = f(I), whose cohorts get flow from I alone.
They are the sets closed under "a client's cohorts" and "the clients that feed a cohort", so the
strongly connected components of that graph, sinks first, are the finest chain of them
(Picard and Queyranne 1980): one flow finds them all, however many they are.

Flows are counted in whole units up to 2^60, and SciPy's flow in 32 bits. So it solves in units of
2^-30 of the supply first; then the residual network is solved in finer units, until one unit is 1.
The residual capacity of the minimum cut bounds what rounding left, so three or four rounds suffice.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, Integers
from fedavot._incidence import Incidence, total_by
from fedavot.laws.cohorts import Cohorts
from fedavot.solve.levels import Partition, partition

# Flow out of the source, in whole units: below the 2^63 that capacities may add up to.
UNITS = 2.0**60
# Capacities of this many bits add up without overflow in SciPy's 32.
_BITS = 30
# Share of a level's importance that may stay unmet by rounding, and share of its flow below which
# a set takes so little that it counts as tight.
_UNMET, _TRICKLE = 1e-12, 1e-12


def split_by_flow(
    importance: Floats, cohorts: Cohorts, parts: Partition, potentials: Floats
) -> Partition:
    """Split every level that does not attain its ratio, or has tight sets, until none does.

    Ties are broken by falling potentials: clients that lack weight tend to have the highest.
    """
    levels = parts.levels
    done = np.zeros(importance.size, dtype=bool)
    for _ in range(importance.size + 1):
        key, attained = _refine(importance, cohorts, levels, done)
        split = partition(importance, cohorts, np.lexsort((-potentials, key, levels)))
        split = _served(importance, cohorts, split)
        # Only the order is taken from the flow; levels that need not part are joined again.
        if np.array_equal(split.levels, levels):
            split = _repaired(importance, cohorts, split)
            if np.array_equal(split.levels, levels):
                break
        # Settled are attained levels that still have the same members.
        before, levels = levels, split.levels
        pairs = before * (int(levels.max()) + 1) + levels
        _, place, counts = np.unique(pairs, return_inverse=True, return_counts=True)
        done = attained & (counts[place] == np.bincount(before)[before])
        done &= counts[place] == np.bincount(levels)[levels]
    return split


def _served(importance: Floats, cohorts: Cohorts, parts: Partition) -> Partition:
    """Move clients that get nothing in their level to the last one in which they get weight.

    That changes no level's coverage. Clients of tiny importance, whose place a flow cannot tell,
    would otherwise move by one level with every flow.
    """
    incidence, levels = cohorts.incidence, parts.levels
    last = np.full(importance.size, -1)
    lowest = incidence.minimum(levels)
    np.maximum.at(last, incidence.members, incidence.spread_over_members(lowest))
    idle = (last < levels) & (last >= 0) & (importance > 0)
    if not idle.any():
        return parts
    order = np.argsort(np.where(idle, last, levels), kind="stable")
    return partition(importance, cohorts, order)


def _repaired(importance: Floats, cohorts: Cohorts, parts: Partition) -> Partition:
    """Move clients that their level cannot serve to the last one that can.

    Importance of 1e-20 is below the units of a flow; a client by itself is judged without one.
    """
    incidence, levels = cohorts.incidence, parts.levels
    members = incidence.members
    lowest = incidence.spread_over_members(incidence.minimum(levels))
    mass = incidence.spread_over_members(cohorts.probabilities)
    own = lowest == levels[members]
    served = total_by(members[own], mass[own], importance.size)
    short = (served < (1.0 - 1e-9) * parts.target) & (importance > 0)
    if not short.any():
        return parts
    # Without enough anywhere a client is among the most deficient.
    moved = np.where(short, -1, levels)
    theirs = np.flatnonzero(short[members])
    theirs = theirs[np.lexsort((-lowest[theirs], members[theirs]))]
    starts = np.flatnonzero(np.diff(members[theirs], prepend=-1))
    for entries in np.split(theirs, starts[1:]) if starts.size else ():
        client, offered = members[entries[0]], lowest[entries]
        enough = np.cumsum(mass[entries]) >= parts.ratios[offered] * importance[client]
        if enough.any():
            moved[client] = offered[np.argmax(enough)]
    return partition(importance, cohorts, np.argsort(moved, kind="stable"))


def _refine(
    importance: Floats, cohorts: Cohorts, levels: Integers, done: NDArray[np.bool_]
) -> tuple[Integers, NDArray[np.bool_]]:
    """Return a key by which to order clients within levels, and whose level is attained."""
    lowest = cohorts.incidence.minimum(levels)
    count = int(levels.max()) + 1
    covered = np.bincount(lowest, cohorts.probabilities, minlength=count)
    mass = np.bincount(levels, importance, minlength=count)
    open_levels = (covered > 0) & (mass > 0)
    open_levels[levels[done]] = False
    active = open_levels[lowest]
    reduced = cohorts.incidence.within(levels).chosen(active)
    # Levels do not share cohorts, so each has units of its own, as fine as can be: shares of the
    # level's importance and coverage, either of which may be 1e-300.
    shares = np.zeros_like(importance)
    np.divide(importance, mass[levels], out=shares, where=open_levels[levels])
    supply = np.round(shares * (UNITS / count))
    demand = np.round(cohorts.probabilities[active] / covered[lowest[active]] * (UNITS / count))
    flow = maximum_flow(reduced, supply, demand)
    unmet = np.bincount(levels, supply - flow.sent, minlength=count)
    sizes = np.bincount(levels, minlength=count)
    wanting = unmet > np.maximum(_UNMET * UNITS / count, sizes)
    # Clients lead to their cohorts, and cohorts to the clients that feed them.
    fed = flow.carried > _TRICKLE * UNITS / count
    rows = reduced.spread_over_members(np.arange(reduced.n_cohorts)) + levels.size
    tails = np.concatenate((reduced.members, rows[fed]))
    heads = np.concatenate((rows, reduced.members[fed]))
    components = _topological(tails, heads, levels.size + reduced.n_cohorts)[: levels.size]
    key = np.where(wanting[levels], np.where(flow.reached, 0, 1), components)
    return np.where(done, 0, key), ~wanting[levels]


def _topological(tails: Integers, heads: Integers, n_nodes: int) -> Integers:
    """Return component numbers such that arcs never lead to a higher one, shape (n_nodes,).

    SciPy's algorithm, Pearce's, numbers a component after those that it leads to.
    """
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    graph: Any = sparse.csr_array(
        (np.ones(tails.size, dtype=np.int8), (tails, heads)), shape=(n_nodes, n_nodes)
    )
    labels = connected_components(graph, directed=True, connection="strong")[1]
    return np.asarray(labels, dtype=np.int64)


class Flow(NamedTuple):
    """A maximum flow and its minimum cut.

    ``sent`` is the flow out of each client, ``carried`` that from each member of a cohort to the
    cohort, and ``reached`` says which clients are on the source side of the minimum cut.
    """

    sent: Floats
    carried: Floats
    reached: NDArray[np.bool_]


def maximum_flow(incidence: Incidence, supply: Floats, demand: Floats) -> Flow:
    """Return a maximum flow from the clients through their cohorts, by Dinic's algorithm.

    Clients may send, in all at most `UNITS`, and cohorts may take whole units.
    """
    from scipy import sparse
    from scipy.sparse.csgraph import breadth_first_order
    from scipy.sparse.csgraph import maximum_flow as flow_in_32_bits

    clients, cohorts = np.arange(incidence.n_clients), np.arange(incidence.n_cohorts)
    source = clients.size + cohorts.size
    rows = incidence.spread_over_members(cohorts) + clients.size
    # Arcs out of the source, inside, and into the sink.
    tails = np.concatenate(
        (np.full(clients.size, source), incidence.members, cohorts + clients.size)
    )
    heads = np.concatenate((clients, rows, np.full(cohorts.size, source + 1)))
    unlimited = np.full(rows.size, 2.0 * UNITS)
    both_tails, both_heads = np.concatenate((tails, heads)), np.concatenate((heads, tails))
    # The place of every arc in compressed rows.
    shape = (source + 2, source + 2)
    layout = sparse.csr_array((np.arange(both_tails.size), (both_tails, both_heads)), shape)
    layout.sort_indices()
    order = layout.data
    # Residual capacities of the arcs, then of the arcs the other way.
    residual = np.zeros(both_tails.size, dtype=np.int64)
    residual[: tails.size] = np.concatenate((supply, unlimited, demand))

    def graph(values: NDArray[Any]) -> Any:
        # SciPy works in place on what it is given.
        return sparse.csr_array((values[order], layout.indices.copy(), layout.indptr.copy()), shape)

    bound = int(supply.sum())
    while True:
        unit = max(1, -(-bound >> _BITS))
        coarse = np.minimum(residual // unit, 1 << _BITS).astype(np.int32)
        moved = np.empty_like(residual)
        moved[order] = flow_in_32_bits(graph(coarse), source, source + 1, method="dinic").flow.data
        residual -= moved * unit
        left = graph((residual >= unit).astype(np.int8))
        left.eliminate_zeros()
        inside = np.zeros(source + 2, dtype=bool)
        inside[breadth_first_order(left, source, return_predecessors=False)] = True
        bound = int(residual[inside[both_tails] & ~inside[both_heads]].sum())
        if unit == 1 or bound == 0:
            sent, carried, _ = np.split(
                residual[tails.size :].astype(np.float64), [clients.size, clients.size + rows.size]
            )
            return Flow(sent, carried, inside[: clients.size])
