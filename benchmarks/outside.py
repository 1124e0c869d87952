"""Peers from other libraries: POT, HiGHS, choix and OR-Tools, each given its data ready-made.

A peer's data (a dense mask, a constraint matrix, a matrix of comparisons) is made before the
clock starts; its answer is turned into a plan after it has stopped.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.evaluate import Answer
from benchmarks.problems import ExplicitProblem, Floats

_UNITS = 2**50
"""Probabilities become whole numbers of this many units for max-flow."""

Solver = Callable[[], Any]
Reader = Callable[[Any], Answer]


def pot_sinkhorn(problem: ExplicitProblem) -> tuple[Solver, Reader]:
    """Return POT's Sinkhorn on the dense cost, 0 inside and infinite outside the mask."""
    import ot

    count, rows = len(problem.members), np.arange(len(problem.members))[:, None]
    cost = np.full((count, problem.n_clients), np.inf)
    cost[rows, problem.members] = 0.0
    # POT tests the L2 norm of the second marginal's error: ask for what makes L1 small enough.
    threshold = problem.tol / np.sqrt(problem.n_clients)

    def solve() -> Floats:
        return ot.sinkhorn(
            problem.probabilities,
            problem.importance,
            cost,
            reg=1.0,
            numItermax=1_000_000,
            stopThr=threshold,
        )

    return solve, lambda plan: Answer(plan=np.asarray(plan)[rows, problem.members])


def highs(problem: ExplicitProblem) -> tuple[Solver, Reader]:
    """Return HiGHS on the transport polytope: any plan with both marginals.

    Where none exists, the plan nearest in L1 is asked for: importance may be missed at a cost.
    """
    from scipy import sparse
    from scipy.optimize import linprog

    matrix = problem.matrix
    count, size = problem.members.shape
    entries = count * size
    by_client = sparse.csr_array(
        (np.ones(entries), (matrix.indices, np.arange(entries))),
        shape=(problem.n_clients, entries),
    )
    by_cohort = sparse.csr_array(
        (np.ones(entries), np.arange(entries), matrix.indptr), shape=(count, entries)
    )
    missed = sparse.eye_array(problem.n_clients)
    constraints = sparse.block_array([[by_client, missed, -missed], [by_cohort, None, None]])
    right = np.concatenate((problem.importance, problem.probabilities))
    cost = np.concatenate((np.zeros(entries), np.ones(2 * problem.n_clients)))

    def solve() -> Any:
        options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
        return linprog(cost, A_eq=constraints.tocsc(), b_eq=right, method="highs", options=options)

    return solve, lambda found: Answer(
        plan=found.x[:entries].reshape(count, size), note="any plan, not the entropic one"
    )


def choix_ilsr(problem: ExplicitProblem) -> tuple[Solver, Reader]:
    """Return choix's I-LSR on wins that have our importance as shares.

    The likelihood Σ p_i x_i − Σ q_ij log(e^{x_i} + e^{x_j}) sees wins only through their row
    sums p and the pairs' totals q, so any plan serves as the matrix of wins. The entropic one
    would give the answer away (it is in detailed balance, so that one step suffices); a max-flow
    is what p and q alone provide, and its time is not charged.
    """
    import choix

    flow, arcs = _network(problem)
    flow.solve(*_ends(problem))
    first, second = problem.columns
    wins = np.zeros((problem.n_clients, problem.n_clients))
    plan = np.asarray(flow.flows(arcs)).reshape(problem.members.shape) / _UNITS
    wins[first, second], wins[second, first] = plan.T
    return lambda: choix.ilsr_pairwise_dense(wins), lambda potentials: Answer(
        potentials, note="wins by max-flow, not charged"
    )


def max_flow(problem: ExplicitProblem) -> tuple[Solver, Reader]:
    """Return OR-Tools' max-flow: whether a plan exists, and one that does."""

    def solve() -> tuple[Any, Any]:
        flow, arcs = _network(problem)
        flow.solve(*_ends(problem))
        return flow, arcs

    def read(found: tuple[Any, Any]) -> Answer:
        flow, arcs = found
        plan = np.asarray(flow.flows(arcs)).reshape(problem.members.shape) / _UNITS
        return Answer(plan=plan, note="feasibility only")

    return solve, read


def _ends(problem: ExplicitProblem) -> tuple[int, int]:
    source = problem.n_clients + len(problem.members)
    return source, source + 1


def _network(problem: ExplicitProblem) -> tuple[Any, Any]:
    """Return clients → cohorts with a source and a sink, and the arcs in between."""
    from ortools.graph.python import max_flow as ortools

    (count, size), n_clients = problem.members.shape, problem.n_clients
    source, sink = _ends(problem)
    cohorts = np.arange(count) + n_clients
    flow = ortools.SimpleMaxFlow()
    supply = np.round(problem.importance * _UNITS).astype(np.int64)
    demand = np.round(problem.probabilities * _UNITS).astype(np.int64)
    flow.add_arcs_with_capacity(np.full(n_clients, source), np.arange(n_clients), supply)
    arcs = flow.add_arcs_with_capacity(
        problem.members.ravel(), np.repeat(cohorts, size), np.full(count * size, _UNITS)
    )
    flow.add_arcs_with_capacity(cohorts, np.full(count, sink), demand)
    return flow, arcs
