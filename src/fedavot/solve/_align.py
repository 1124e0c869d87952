"""`align`, the entry to all solvers.

It checks its input, chooses a solver, and returns an `Alignment` whose residual meets the tolerance
or whose status says that it does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import as_amount, as_importance, as_size, one_of
from fedavot._clients import agreed_names, in_client_order
from fedavot.alignment import OBJECTIVES, Alignment, Status
from fedavot.certificate import FEASIBLE_SLACK
from fedavot.errors import OptionError
from fedavot.laws._law import Law, SolvableLaw, as_law
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.successive import SuccessiveDraws
from fedavot.solve.dual import DualProblem, Iterate, StoppingRule
from fedavot.solve.ipfp import ipfp
from fedavot.solve.search import decompose
from fedavot.solve.soft import align_softly
from fedavot.solve.variance import align_with_least_variance

_DEFAULT_MAX_ITER = {"auto": 2_000, "ipfp": 100_000, "newton": 2_000}


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
    names = getattr(law, "clients", None)
    if clients is not None:
        names = agreed_names(law.n_clients, clients, names)
    shares = as_importance(in_client_order(importance, names), law.n_clients, names)
    one_of(objective, OBJECTIVES, what="objective")
    one_of(method, tuple(_DEFAULT_MAX_ITER), what="method")
    softness = as_amount(softness, what="softness")
    _refuse_combinations(objective, softness, method, law)
    tol = as_amount(tol, what="tol", positive=True)
    if max_iter is None:
        max_iter = _DEFAULT_MAX_ITER[method]
    stop = StoppingRule(tol, as_size(max_iter, what="max_iter", low=1), method)
    idle = shares == 0
    status, levels = Status.EXACT, idle.astype(np.int64)
    if softness:
        soft = align_softly(shares, law, softness, stop)
        status, levels, iterate = Status.SOFT, soft.levels, soft.iterate
        error = soft.gradient(shares, iterate.marginal, softness)
    elif method == "ipfp":
        # The paper's algorithm, with a second level for clients without importance only.
        system = law.system(levels if levels.any() else None)
        problem = DualProblem(system, shares, ~idle & (law.inclusion() > 0), idle, levels)
        iterate = ipfp(problem, Iterate.start(np.zeros(shares.size)), stop, budget=stop.max_iter)
        error = problem.error(iterate.marginal)
    else:
        solve = align_with_least_variance if objective == "variance" else decompose
        solution = solve(shares, law, stop)
        split, iterate = solution.partition, solution.iterate
        levels = split.levels
        # Shift each level to a weighted mean of zero, so that the answer is unique.
        weight = np.where(split.target > 0, split.target, 1e-300)
        mean = np.bincount(levels, weight * iterate.potentials) / np.bincount(levels, weight)
        iterate = replace(iterate, potentials=iterate.potentials - mean[levels])
        if np.maximum(shares - split.target, 0.0).sum() > FEASIBLE_SLACK:
            status = Status.NEAREST
        error = np.where(idle, 0.0, split.target - iterate.marginal)
    if not iterate.residual <= tol:
        status = Status.UNCONVERGED
    return Alignment(
        importance=shares,
        potentials=iterate.potentials,
        levels=levels,
        attained=iterate.marginal,
        residual=iterate.residual,
        iterations=iterate.evaluations,
        status=status,
        objective=objective,
        softness=softness,
        law=law,
        unmet=int(np.abs(error).argmax()) if status is Status.UNCONVERGED else None,
        clients=names,
    )


def _refuse_combinations(objective: str, softness: float, method: str, law: SolvableLaw) -> None:
    if objective == "variance" and not isinstance(law, Cohorts | SuccessiveDraws):
        names = "" if getattr(law, "clients", None) is None else ", clients=law.clients"
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
