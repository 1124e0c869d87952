"""The one entry to the solvers.

Data enters here and is checked here. What comes out is an `Alignment` whose residual either meets
the tolerance or whose status says that it does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_amount, as_importance, as_size, one_of
from fedavot._clients import agreed_names, in_client_order
from fedavot.alignment import OBJECTIVES, Alignment, Status
from fedavot.certificate import FEASIBLE_SLACK
from fedavot.errors import OptionError
from fedavot.laws._law import Law, SolvableLaw, System
from fedavot.laws._user_law import as_law
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.successive import SuccessiveDraws, listed
from fedavot.solve._problem import Problem, Run
from fedavot.solve.climbing import Effort, Solution, from_zero, one_level
from fedavot.solve.decompose import decompose
from fedavot.solve.ipfp import ipfp
from fedavot.solve.levels import Partition, partition
from fedavot.solve.maxflow import split_by_flow
from fedavot.solve.soft import SoftSolution, soften
from fedavot.solve.variance import least_variance

_SOFT_STEPS = 40
"""Evaluations after which soft alignment had better start from the exact levels."""
_SOFT_ROUNDING = 1e-10
"""Error up to which potentials far apart are kept in one vector, without levels."""
_ROUGH = 1e-3
"""Error of an entropic plan that is used for its levels alone."""
_DEFAULT_MAX_ITER = {"auto": 2_000, "newton": 2_000, "ipfp": 100_000}


def align(
    importance: ArrayLike | Mapping[str, float],
    law: Law,
    *,
    objective: Literal["entropy", "variance"] = "entropy",
    softness: float = 0.0,
    method: Literal["auto", "ipfp", "newton"] = "auto",
    tol: float = 1e-9,
    max_iter: int | None = None,
    clients: Sequence[str] | None = None,
) -> Alignment:
    """Find weights for every cohort whose expectation is the importance, or the nearest to it.

    Parameters
    ----------
    importance : array-like of shape (n_clients,), or mapping from client name to float
        The importance wanted of each client, summing to one. A client of importance zero gets
        weight only in cohorts where nobody else has any.
    law : Law
        The availability law: one of this package, or an object with the members of `Law`.
    objective : {"entropy", "variance"}
        Which plan, when there are several: the paper's, a softmax of the potentials, or the one
        of least variance E‖Y_A‖², their projection onto the simplex (explicit cohorts only).
    softness : float
        Price on the spread of the potentials: 0 aligns exactly, large values tend to 1/|A|.
    method : {"auto", "ipfp", "newton"}
        "ipfp" is the paper's Algorithm 1 and knows no levels: infeasible and tight problems end
        unconverged. "newton" and "auto" find levels; "auto" prefers accelerated sweeps where
        there are many clients.
    tol : float
        L1 distance to the best attainable importance at which to stop.
    max_iter : int, optional
        Most evaluations of the law's expected weights, 2,000 by default; for "ipfp", most sweeps,
        100,000 by default, each of which takes one evaluation after the first.
    clients : sequence of str, optional
        The clients' names, in the order of their indices; the law's by default.

    Returns
    -------
    Alignment
        With ``status`` "exact", "nearest" (out of reach), "soft" or "unconverged".

    Examples
    --------
    >>> from fedavot import UniformCohorts
    >>> alignment = align([0.4, 0.3, 0.2, 0.1], UniformCohorts(4, 2))
    >>> alignment.status.value, alignment.weights([3, 0]).round(3).tolist()
    ('exact', [0.096, 0.904])
    """
    law = as_law(law)
    names = agreed_names(law.n_clients, clients, getattr(law, "clients", None))
    wanted = as_importance(in_client_order(importance, names), law.n_clients)
    one_of(objective, OBJECTIVES, what="objective")
    one_of(method, ("auto", "ipfp", "newton"), what="method")
    amount = as_amount(softness, what="softness")
    _refuse_combinations(objective, amount, method, law)
    effort = Effort(
        as_amount(tol, what="tol", positive=True),
        _DEFAULT_MAX_ITER[method]
        if max_iter is None
        else as_size(max_iter, what="max_iter", low=1),
        method,
    )
    if amount:
        found = _soft(wanted, law, amount, effort)
    elif method == "ipfp":
        found = _plain(wanted, law, effort)
    else:
        cohorts = listed(law) if objective == "variance" else None
        solution = (
            decompose(wanted, law, effort)
            if cohorts is None
            else _least_variance(wanted, law, cohorts, effort)
        )
        found = _report(wanted, law, solution, objective, effort.tol)
    return replace(found, clients=names)


def _refuse_combinations(objective: str, softness: float, method: str, law: SolvableLaw) -> None:
    if objective == "variance" and not isinstance(law, Cohorts | SuccessiveDraws):
        raise OptionError(
            f"objective 'variance' needs explicit cohorts, found {type(law).__name__}; align a "
            "sample of it: Cohorts(law.sample(rng, rounds), n_clients=law.n_clients)"
        )
    if objective == "variance" and softness:
        raise OptionError("softness applies to objective 'entropy' only; leave one of them out")
    if method == "ipfp" and (softness or objective == "variance"):
        raise OptionError(
            "method 'ipfp' solves exact entropic alignment only; use 'auto' or 'newton'"
        )


def _least_variance(
    importance: Floats, law: SolvableLaw, cohorts: Cohorts, effort: Effort
) -> Solution:
    """Find levels, and the plan of least variance inside them.

    Meeting the target proves the levels right, by whatever weights: a rough entropic plan has to
    tell them and no more, for softmaxes may need potentials without end to meet what projections
    meet with ease. Where the levels turn out wrong, they are found for sure.
    """
    rough = replace(effort, tol=max(effort.tol, _ROUGH), max_iter=max(1, effort.max_iter // 4))
    guess = decompose(importance, law, rough)
    first = least_variance(importance, cohorts, guess, effort, sure=False)
    left = effort.max_iter - first.run.evaluations
    if first.run.residual <= effort.tol or left <= 0:
        return first
    rest = replace(effort, max_iter=left)
    again = least_variance(importance, cohorts, _levels(importance, law, cohorts, rest), rest)
    best = min(again, first, key=lambda found: found.run.residual)
    spent = first.run.evaluations + again.run.evaluations
    return replace(best, run=replace(best.run, evaluations=spent))


def _levels(importance: Floats, law: SolvableLaw, cohorts: Cohorts, effort: Effort) -> Solution:
    """Find the levels for sure: by max-flow, but for draws of pairs, whose list is too long."""
    if isinstance(law, SuccessiveDraws) and law.size == 2:
        return decompose(importance, law, replace(effort, max_iter=max(1, effort.max_iter // 2)))
    start = one_level(importance, cohorts)
    parts = split_by_flow(importance, cohorts, start, np.zeros(importance.size))
    return Solution(parts, from_zero(parts, 0))


def _plain(importance: Floats, law: SolvableLaw, effort: Effort) -> Alignment:
    """Run the paper's algorithm as it stands: no levels beyond the idle clients'."""
    levels = (importance == 0).astype(np.int64)
    free = (importance > 0) & (law.inclusion() > 0)
    problem = Problem(_system(law, levels), importance, free, importance == 0, levels)
    run = ipfp(problem, np.zeros(importance.size), tol=effort.tol, max_iter=effort.max_iter)
    status = Status.EXACT if run.residual <= effort.tol else Status.UNCONVERGED
    error = problem.error(run.marginal)
    return _alignment(importance, law, levels, run, error, status=status)


def _soft(importance: Floats, law: SolvableLaw, softness: float, effort: Effort) -> Alignment:
    start, spent = np.zeros(importance.size), 0
    known = law.worst_order(importance)
    if known is not None:
        start = _spread(partition(importance, law, known), importance, softness)
    found = soften(importance, law, softness, start, tol=effort.tol, max_iter=_first(effort, known))
    if not found.run.residual <= effort.tol:
        # Levels out of reach of one another: begin where the exact ones put them.
        exact = decompose(importance, law, effort)
        spent = found.run.evaluations + exact.run.evaluations
        start = _spread(exact.parts, importance, softness) + exact.run.potentials
        budget = max(1, effort.max_iter - spent)
        found = soften(importance, law, softness, start, tol=effort.tol, max_iter=budget)
    run = replace(found.run, evaluations=spent + found.run.evaluations)
    levels, run = _in_one_level(importance, law, found, softness, run, effort.tol)
    status = Status.SOFT if run.residual <= effort.tol else Status.UNCONVERGED
    error = _soft_error(importance, run.marginal, found, softness)
    alignment = _alignment(importance, law, levels, run, error, status=status)
    return replace(alignment, softness=softness)


def _in_one_level(
    importance: Floats, law: SolvableLaw, found: SoftSolution, softness: float, run: Run, tol: float
) -> tuple[Integers, Run]:
    """Join levels whose potentials floats can tell apart and keep exact, as one vector."""
    idle = (importance == 0).astype(np.int64)
    marginal = _system(law, idle).marginal(found.totals)
    residual = float(np.abs(_soft_error(importance, marginal, found, softness)).sum())
    if not residual <= max(run.residual, min(run.residual + _SOFT_ROUNDING, tol)):
        return found.levels, run
    return idle, Run(found.totals, marginal, residual, run.evaluations + 1)


def _soft_error(
    importance: Floats, marginal: Floats, found: SoftSolution, softness: float
) -> Floats:
    """Return the gradient of the soft dual, zero for clients without importance."""
    pulled = importance * (found.totals - importance @ found.totals)
    error = found.reachable * importance - marginal - softness * pulled
    return np.where(importance > 0, error, 0.0)


def _first(effort: Effort, known: Integers | None) -> int:
    return effort.max_iter if known is not None else min(effort.max_iter, _SOFT_STEPS)


def _spread(parts: Partition, importance: Floats, softness: float) -> Floats:
    """Return where softness puts each level's potentials, at first glance: (1 − λ)/ρ."""
    ratios = np.where(importance > 0, parts.ratios[parts.levels], 1.0)
    return np.asarray((1.0 - ratios) / softness)


def _report(
    importance: Floats, law: SolvableLaw, solution: Solution, objective: str, tol: float
) -> Alignment:
    parts, run = solution.parts, solution.run
    short = np.maximum(importance - parts.target, 0.0).sum()
    status = Status.EXACT if short <= FEASIBLE_SLACK else Status.NEAREST
    if not run.residual <= tol:
        status = Status.UNCONVERGED
    centred = replace(run, potentials=_centre(run.potentials, parts))
    error = np.where(importance > 0, parts.target - run.marginal, 0.0)
    alignment = _alignment(importance, law, parts.levels, centred, error, status=status)
    return replace(alignment, objective=objective)


def _centre(potentials: Floats, parts: Partition) -> Floats:
    """Shift each level so that its weighted mean is zero: one answer, not one up to constants."""
    weight = np.where(parts.target > 0, parts.target, 1e-300)
    mean = np.bincount(parts.levels, weight * potentials) / np.bincount(parts.levels, weight)
    return potentials - mean[parts.levels]


def _alignment(
    importance: Floats,
    law: SolvableLaw,
    levels: Integers,
    run: Run,
    error: Floats,
    *,
    status: Status,
) -> Alignment:
    return Alignment(
        importance=importance,
        potentials=run.potentials,
        levels=levels,
        attained=run.marginal,
        residual=run.residual,
        evaluations=run.evaluations,
        status=status,
        law=law,
        unmet=int(np.abs(error).argmax()) if status is Status.UNCONVERGED else None,
    )


def _system(law: SolvableLaw, levels: Integers) -> System:
    return law.system(levels if levels.any() else None)
