"""`align`, the entry to all solvers.

It checks its input, chooses a solver, and returns an `Alignment` whose residual meets the tolerance
or whose status says that it does not.
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
from fedavot.laws._law import Law, SolvableLaw, System, as_law
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.successive import SuccessiveDraws, explicit_cohorts
from fedavot.solve._problem import DualProblem, Iterate
from fedavot.solve.climbing import Solution, StoppingRule
from fedavot.solve.decompose import decompose
from fedavot.solve.ipfp import ipfp
from fedavot.solve.levels import Partition, one_level, partition
from fedavot.solve.maxflow import split_by_flow
from fedavot.solve.soft import SoftSolution, soften
from fedavot.solve.variance import least_variance

_SOFT_STEPS = 40
"""Evaluations after which soft alignment starts again from the exact levels."""
_SOFT_ROUNDING = 1e-10
"""Error up to which potentials that are far apart are kept in one vector, without levels."""
_ROUGH = 1e-3
"""Tolerance of an entropic plan that is only used for its levels."""
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
    """Find weights for every cohort whose expectation is the importance, or as near as possible.

    Parameters
    ----------
    importance : array-like of shape (n_clients,), or mapping from client name to float
        Importance of each client, summing to one. A client of importance zero gets weight only in
        cohorts in which nobody has importance.
    law : Law
        The availability law: one of this package, or an object with the members of `Law`.
    objective : {"entropy", "variance"}
        Which of several plans to choose: the paper's, whose weights are softmaxes of potentials,
        or the one of least variance E‖Y_A‖², whose weights are projections of potentials onto the
        simplex (explicit cohorts only).
    softness : float
        Penalty on the spread of the potentials: 0 aligns exactly, large values tend to weights of
        1/|A|.
    method : {"auto", "ipfp", "newton"}
        "ipfp" is the paper's Algorithm 1, which has no levels: infeasible and tight problems end
        unconverged. "newton" and "auto" find levels; "auto" prefers accelerated sweeps if there
        are many clients.
    tol : float
        L1 distance to the best attainable importance at which to stop.
    max_iter : int, optional
        Maximal number of evaluations of the law's expected weights, 2,000 by default; for "ipfp",
        of sweeps, 100,000 by default, which take one evaluation each.
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
    wanted = as_importance(in_client_order(importance, names), law.n_clients, names)
    one_of(objective, OBJECTIVES, what="objective")
    one_of(method, ("auto", "ipfp", "newton"), what="method")
    amount = as_amount(softness, what="softness")
    _refuse_combinations(objective, amount, method, law)
    stop = StoppingRule(
        as_amount(tol, what="tol", positive=True),
        _DEFAULT_MAX_ITER[method]
        if max_iter is None
        else as_size(max_iter, what="max_iter", low=1),
        method,
    )
    return replace(_on_host(wanted, law, objective, amount, stop), clients=names)


def _on_host(
    wanted: Floats, law: SolvableLaw, objective: str, softness: float, stop: StoppingRule
) -> Alignment:
    if softness:
        return _soft(wanted, law, softness, stop)
    if stop.method == "ipfp":
        return _plain(wanted, law, stop)
    cohorts = explicit_cohorts(law) if objective == "variance" else None
    if cohorts is None:
        solution = decompose(wanted, law, stop)
    else:
        solution = _least_variance(wanted, law, cohorts, stop)
    return _report(wanted, law, solution, objective, stop.tol)


def _refuse_combinations(objective: str, softness: float, method: str, law: SolvableLaw) -> None:
    if objective == "variance" and not isinstance(law, Cohorts | SuccessiveDraws):
        named = getattr(law, "clients", None) is not None
        names = ", clients=law.clients" if named else ""
        raise OptionError(
            f"objective 'variance' needs explicit cohorts, found {law!r}; align a sample of the "
            f"law: Cohorts(law.sample(rng, rounds), n_clients=law.n_clients{names})"
        )
    if objective == "variance" and softness:
        raise OptionError(
            "softness needs objective 'entropy', found 'variance'; leave one of them out"
        )
    if method == "ipfp" and (softness or objective == "variance"):
        raise OptionError(
            "method 'ipfp' solves only exact entropic alignment; use 'auto' or 'newton'"
        )


def _least_variance(
    importance: Floats, law: SolvableLaw, cohorts: Cohorts, stop: StoppingRule
) -> Solution:
    """Find levels, and the plan of least variance within them.

    Meeting the target proves the levels right, whatever the weights. So a rough entropic plan is
    enough to guess them, because softmaxes may need infinite potentials for what projections meet
    easily. Levels that turn out wrong are found again by a method that does not fail.
    """
    rough = replace(stop, tol=max(stop.tol, _ROUGH), max_iter=max(1, stop.max_iter // 4))
    guess = decompose(importance, law, rough)
    first = least_variance(importance, cohorts, guess, stop, sure=False)
    left = stop.max_iter - first.iterate.evaluations
    if first.iterate.residual <= stop.tol or left <= 0:
        return first
    rest = replace(stop, max_iter=left)
    again = least_variance(importance, cohorts, _levels(importance, law, cohorts, rest), rest)
    best = min(again, first, key=lambda found: found.iterate.residual)
    spent = first.iterate.evaluations + again.iterate.evaluations
    return replace(best, iterate=replace(best.iterate, evaluations=spent))


def _levels(importance: Floats, law: SolvableLaw, cohorts: Cohorts, stop: StoppingRule) -> Solution:
    """Find the levels by max-flow; for draws of pairs, whose list is too long, by `decompose`."""
    if isinstance(law, SuccessiveDraws) and law.size == 2:
        return decompose(importance, law, replace(stop, max_iter=max(1, stop.max_iter // 2)))
    start = one_level(importance, cohorts)
    split = split_by_flow(importance, cohorts, start, np.zeros(importance.size))
    return Solution(split, Iterate.zero(split.target))


def _plain(importance: Floats, law: SolvableLaw, stop: StoppingRule) -> Alignment:
    """Run the paper's algorithm, with a second level for clients without importance only."""
    levels = (importance == 0).astype(np.int64)
    free = (importance > 0) & (law.inclusion() > 0)
    problem = DualProblem(_system(law, levels), importance, free, importance == 0, levels)
    iterate = ipfp(problem, np.zeros(importance.size), tol=stop.tol, max_iter=stop.max_iter)
    status = Status.EXACT if iterate.residual <= stop.tol else Status.UNCONVERGED
    error = problem.error(iterate.marginal)
    return _alignment(importance, law, levels, iterate, error, status=status)


def _soft(importance: Floats, law: SolvableLaw, softness: float, stop: StoppingRule) -> Alignment:
    start, spent = np.zeros(importance.size), 0
    known = law.worst_order(importance)
    if known is not None:
        start = _spread(partition(importance, law, known), importance, softness)
    first = min(stop.max_iter, _SOFT_STEPS) if known is None else stop.max_iter
    found = soften(importance, law, softness, start, tol=stop.tol, max_iter=first)
    if not found.iterate.residual <= stop.tol:
        # Levels are too far apart: start from where the exact ones put them.
        exact = decompose(importance, law, stop)
        spent = found.iterate.evaluations + exact.iterate.evaluations
        start = _spread(exact.partition, importance, softness) + exact.iterate.potentials
        budget = max(1, stop.max_iter - spent)
        found = soften(importance, law, softness, start, tol=stop.tol, max_iter=budget)
    iterate = replace(found.iterate, evaluations=spent + found.iterate.evaluations)
    levels, iterate = _in_one_level(importance, law, found, softness, iterate, stop.tol)
    status = Status.SOFT if iterate.residual <= stop.tol else Status.UNCONVERGED
    error = _soft_error(importance, iterate.marginal, found, softness)
    alignment = _alignment(importance, law, levels, iterate, error, status=status)
    return replace(alignment, softness=softness)


def _in_one_level(
    importance: Floats,
    law: SolvableLaw,
    found: SoftSolution,
    softness: float,
    iterate: Iterate,
    tol: float,
) -> tuple[Integers, Iterate]:
    """Join levels if one vector of potentials is accurate enough to replace them."""
    idle = (importance == 0).astype(np.int64)
    marginal = _system(law, idle).marginal(found.totals)
    residual = float(np.abs(_soft_error(importance, marginal, found, softness)).sum())
    if not residual <= max(iterate.residual, min(iterate.residual + _SOFT_ROUNDING, tol)):
        return found.levels, iterate
    return idle, Iterate(found.totals, marginal, residual, iterate.evaluations + 1)


def _soft_error(
    importance: Floats, marginal: Floats, found: SoftSolution, softness: float
) -> Floats:
    """Return the gradient of the soft dual, zero for clients without importance."""
    pulled = importance * (found.totals - importance @ found.totals)
    error = found.reachable * importance - marginal - softness * pulled
    return np.where(importance > 0, error, 0.0)


def _spread(split: Partition, importance: Floats, softness: float) -> Floats:
    """Return a first guess at the potentials of each level: (1 − λ)/ρ."""
    ratios = np.where(importance > 0, split.ratios[split.levels], 1.0)
    return np.asarray((1.0 - ratios) / softness)


def _report(
    importance: Floats, law: SolvableLaw, solution: Solution, objective: str, tol: float
) -> Alignment:
    split, iterate = solution.partition, solution.iterate
    short = np.maximum(importance - split.target, 0.0).sum()
    status = Status.EXACT if short <= FEASIBLE_SLACK else Status.NEAREST
    if not iterate.residual <= tol:
        status = Status.UNCONVERGED
    centred = replace(iterate, potentials=_centre(iterate.potentials, split))
    error = np.where(importance > 0, split.target - iterate.marginal, 0.0)
    alignment = _alignment(importance, law, split.levels, centred, error, status=status)
    return replace(alignment, objective=objective)


def _centre(potentials: Floats, split: Partition) -> Floats:
    """Shift each level to a weighted mean of zero, so that the answer is unique."""
    weight = np.where(split.target > 0, split.target, 1e-300)
    mean = np.bincount(split.levels, weight * potentials) / np.bincount(split.levels, weight)
    return potentials - mean[split.levels]


def _alignment(
    importance: Floats,
    law: SolvableLaw,
    levels: Integers,
    iterate: Iterate,
    error: Floats,
    *,
    status: Status,
) -> Alignment:
    return Alignment(
        importance=importance,
        potentials=iterate.potentials,
        levels=levels,
        attained=iterate.marginal,
        residual=iterate.residual,
        iterations=iterate.evaluations,
        status=status,
        law=law,
        unmet=int(np.abs(error).argmax()) if status is Status.UNCONVERGED else None,
    )


def _system(law: SolvableLaw, levels: Integers) -> System:
    return law.system(levels if levels.any() else None)
