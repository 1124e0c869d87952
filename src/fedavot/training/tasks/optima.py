"""Exact minima of F(θ) = Σ p_i f_i(θ) for the losses of `linear`, also over a box |θ_j| ≤ radius.

Each of client i's n_i examples has the weight w_k = p_i/n_i. Least squares is solved directly; the
other two are linear programs, solved by HiGHS:

    absolute deviations    minimise Σ w_k (u_k + v_k)  subject to  x_kᵀθ + u_k − v_k = y_k
    hinge                  minimise Σ w_k t_k          subject to  t_k ≥ 1 − y_k x_kᵀθ

with u, v and t at least 0.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, eye_array, hstack

from fedavot._checks import Floats, as_amount, as_importance
from fedavot.errors import TaskError
from fedavot.training.task import Task
from fedavot.training.tasks.linear import mean_deviation, mean_hinge, mean_square

LOSSES = (mean_square, mean_deviation, mean_hinge)
"""The losses whose optima are known."""


def optimum(
    task: Task, importance: ArrayLike, *, radius: float | None = None
) -> tuple[Floats, float]:
    """Return a minimiser of F, and the minimum.

    Parameters
    ----------
    task : Task
        A task with one of the losses of `linear`.
    importance : array_like of shape (n_clients,)
        A distribution over the clients.
    radius : float, optional
        Upper bound on every |θ_j|; no bound if not given.

    Returns
    -------
    params : ndarray of shape (n_features,)
        A minimiser; for squares without a radius, the one of least norm.
    value : float
        F at the minimiser.
    """
    if task.loss not in LOSSES:
        found = getattr(task.loss, "__name__", repr(task.loss))
        raise TaskError(
            f"task {task.name!r} has loss {found}; optima are known for mean_square, "
            "mean_deviation and mean_hinge"
        )
    reach = np.inf if radius is None else as_amount(radius, what="radius", positive=True)
    features, targets, weights = _weighted_examples(task, importance)
    if task.loss is mean_square:
        params = _least_squares(np.sqrt(weights), features, targets, reach)
        losses = (features @ params - targets) ** 2
    elif task.loss is mean_deviation:
        parts = eye_array(targets.size, format="csr")
        rows = hstack([csr_array(features), parts, -parts], format="csr")
        params = _solve(task, np.tile(weights, 2), {"A_eq": rows, "b_eq": targets}, reach)
        losses = np.abs(features @ params - targets)
    else:
        signed = targets[:, None] * features
        rows = hstack([csr_array(-signed), -eye_array(targets.size, format="csr")], format="csr")
        limits = np.full(targets.size, -1.0)
        params = _solve(task, weights, {"A_ub": rows, "b_ub": limits}, reach)
        losses = np.maximum(0.0, 1.0 - signed @ params)
    return params, float(weights @ losses)


def _weighted_examples(task: Task, importance: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Return features, targets and weights in F of every example with weight, without padding."""
    shares = as_importance(importance, task.n_clients)
    features, targets = (np.asarray(leaf, dtype=np.float64) for leaf in task.data)
    counts = task.sizes
    counted = (np.arange(task.n_examples) < counts[:, None]) & (shares[:, None] > 0)
    weights = np.broadcast_to((shares / counts)[:, None], counted.shape)
    return features[counted], targets[counted], weights[counted]


def _least_squares(roots: Floats, features: Floats, targets: Floats, reach: float) -> Floats:
    design, right = roots[:, None] * features, roots * targets
    if np.isinf(reach):
        return np.asarray(np.linalg.lstsq(design, right)[0])
    from scipy.optimize import lsq_linear

    # An active-set method ends exactly at the optimum, and exactly on the box if that is there.
    return np.asarray(lsq_linear(design, right, bounds=(-reach, reach), method="bvls").x)


def _solve(task: Task, costs: Floats, rows: dict[str, Any], reach: float) -> Floats:
    """Return θ of the linear program whose variables are θ and slacks of the given costs."""
    from scipy.optimize import linprog

    n_features = int(np.shape(task.data[0])[2])
    # Divided by the largest, the costs are well above the solver's absolute tolerances.
    objective = np.concatenate([np.zeros(n_features), costs / costs.max()])
    bounds = [(-reach, reach)] * n_features + [(0.0, np.inf)] * costs.size
    result = linprog(objective, bounds=bounds, method="highs", **rows)
    if result.status != 0:
        raise TaskError(
            f"the linear program of task {task.name!r} was not solved: {result.message}; "
            "bring features and targets to a common scale"
        )
    return np.asarray(result.x[:n_features])
