"""Convex losses with corners, and their exact optima by linear programming.

    least absolute deviations   f_i(θ) = (1/n_i) Σ_k |x_ikᵀθ − y_ik|
    hinge                       f_i(θ) = (1/n_i) Σ_k max(0, 1 − y_ik x_ikᵀθ),   y = ±1

A model is an array of shape (n_features,), zero before training. At a corner JAX takes one of the
subgradients. Both minima, also over a box |θ_j| ≤ radius, are linear programs, solved by HiGHS.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, as_amount, as_seed
from fedavot.errors import OptionError, TaskError
from fedavot.training.task import Task, from_clients, labels_of
from fedavot.training.tasks._examples import Examples, as_float_pairs, weighted_examples
from fedavot.training.tasks._heterogeneous import heterogeneous_clients
from fedavot.training.tasks.linear import NOISE, zeros_for


def mean_deviation(params: Any, batch: Any) -> Any:
    """Return the mean absolute deviation over a batch.

    Parameters
    ----------
    params : array of shape (n_features,)
        The model.
    batch : pair of arrays
        Features, shape (n_batch, n_features), and targets, shape (n_batch,).
    """
    import jax.numpy as jnp

    features, targets = batch
    return jnp.mean(jnp.abs(features @ params - targets))


def mean_hinge(params: Any, batch: Any) -> Any:
    """Return the mean hinge loss over a batch.

    Parameters
    ----------
    params : array of shape (n_features,)
        The model.
    batch : pair of arrays
        Features, shape (n_batch, n_features), and labels ±1, shape (n_batch,).
    """
    import jax.numpy as jnp

    features, labels = batch
    return jnp.mean(jnp.maximum(0.0, 1.0 - labels * (features @ params)))


def lad_task(name: str, data: Examples, *, clients: Sequence[str] | None = None) -> Task:
    """Return least absolute deviations on a user's arrays.

    Parameters
    ----------
    name : str
        Name of the task in tables and messages.
    data : sequence of pairs
        Client i's features, shape (n_i, n_features), and targets, shape (n_i,).
    clients : sequence of str, optional
        The clients' names.
    """
    pairs = as_float_pairs(name, data, clients)
    return from_clients(name, pairs, loss=mean_deviation, init=zeros_for(pairs), clients=clients)


def hinge_task(name: str, data: Examples, *, clients: Sequence[str] | None = None) -> Task:
    """Return a linear classifier with the hinge loss on a user's arrays.

    Parameters
    ----------
    name : str
        Name of the task in tables and messages.
    data : sequence of pairs
        Client i's features, shape (n_i, n_features), and labels −1 or 1, shape (n_i,).
    clients : sequence of str, optional
        The clients' names.
    """
    pairs = as_float_pairs(name, data, clients)
    for label, (_, labels) in zip(labels_of(data, clients), pairs, strict=True):
        foreign = labels[np.abs(labels) != 1]
        if foreign.size:
            raise TaskError(
                f"client {label} of task {name!r} has label {foreign[0]}; "
                "the hinge loss takes labels -1 and 1"
            )
    return from_clients(name, pairs, loss=mean_hinge, init=zeros_for(pairs), clients=clients)


def absolute_deviations(
    *, n_clients: int = 100, n_features: int = 10, n_examples: int = 30, seed: int = 0
) -> Task:
    """Return least absolute deviations on the data of `heterogeneous_regression`.

    Parameters
    ----------
    n_clients, n_features, n_examples : int
        Number of clients, of features, and of examples per client.
    seed : int
        Seed for drawing the data.
    """
    rng = np.random.default_rng(as_seed(seed))
    features, _, responses = heterogeneous_clients(n_clients, n_features, n_examples, rng)
    targets = responses + NOISE * rng.standard_normal(responses.shape)
    return lad_task("absolute deviations", list(zip(features, targets, strict=True)))


def hinge(
    *,
    n_clients: int = 100,
    n_features: int = 10,
    n_examples: int = 30,
    flipped: float = 0.1,
    seed: int = 0,
) -> Task:
    """Return a classification whose clients differ in features and in the model behind them.

    Features and models as in `_heterogeneous`; labels are the signs of xᵀθ_i, some of them turned,
    so that no model is without loss.

    Parameters
    ----------
    n_clients, n_features, n_examples : int
        Number of clients, of features, and of examples per client.
    flipped : float
        Chance of a label's being turned, from 0 to 1.
    seed : int
        Seed for drawing the data.
    """
    chance = as_amount(flipped, what="flipped")
    if chance > 1:
        raise OptionError(f"flipped is {chance}; it is a probability and must be at most 1")
    rng = np.random.default_rng(as_seed(seed))
    features, _, responses = heterogeneous_clients(n_clients, n_features, n_examples, rng)
    turned = rng.random(responses.shape) < chance
    labels = np.where((responses > 0) != turned, 1.0, -1.0)
    return hinge_task("hinge", list(zip(features, labels, strict=True)))


def lad_optimum(
    task: Task, importance: ArrayLike, *, radius: float | None = None
) -> tuple[Floats, float]:
    """Return a minimiser of F(θ) = Σ p_i f_i(θ) for least absolute deviations, and the minimum.

    With every deviation split in two non-negative parts: minimise Σ w_k (u_k + v_k) subject to
    x_kᵀθ + u_k − v_k = y_k.

    Parameters
    ----------
    task : Task
        From `lad_task` or `absolute_deviations`.
    importance : array_like of shape (n_clients,)
        A distribution over the clients.
    radius : float, optional
        Keep every |θ_j| at most this.

    Returns
    -------
    params : ndarray of shape (n_features,)
        A minimiser.
    value : float
        F there.
    """
    from scipy.sparse import csr_array, eye_array, hstack

    features, targets, weights = weighted_examples(task, importance, mean_deviation)
    parts = eye_array(targets.size, format="csr")
    rows = hstack([csr_array(features), parts, -parts], format="csr")
    params = _solve(
        task, np.concatenate([weights, weights]), {"A_eq": rows, "b_eq": targets}, radius
    )
    return params, float(weights @ np.abs(features @ params - targets))


def hinge_optimum(
    task: Task, importance: ArrayLike, *, radius: float | None = None
) -> tuple[Floats, float]:
    """Return a minimiser of F(θ) = Σ p_i f_i(θ) for the hinge loss, and the minimum.

    Minimise Σ w_k t_k subject to t_k ≥ 1 − y_k x_kᵀθ and t_k ≥ 0.

    Parameters
    ----------
    task : Task
        From `hinge_task` or `hinge`.
    importance : array_like of shape (n_clients,)
        A distribution over the clients.
    radius : float, optional
        Keep every |θ_j| at most this.

    Returns
    -------
    params : ndarray of shape (n_features,)
        A minimiser.
    value : float
        F there.
    """
    from scipy.sparse import csr_array, eye_array, hstack

    features, labels, weights = weighted_examples(task, importance, mean_hinge)
    signed = labels[:, None] * features
    rows = hstack([csr_array(-signed), -eye_array(labels.size, format="csr")], format="csr")
    params = _solve(task, weights, {"A_ub": rows, "b_ub": np.full(labels.size, -1.0)}, radius)
    return params, float(weights @ np.maximum(0.0, 1.0 - signed @ params))


def _solve(task: Task, costs: Floats, rows: dict[str, Any], radius: float | None) -> Floats:
    """Return θ of the linear program whose variables are θ and slacks of the given costs."""
    from scipy.optimize import linprog

    reach = np.inf if radius is None else as_amount(radius, what="radius", positive=True)
    n_features = int(np.shape(task.data[0])[2])
    # Divided by the largest, the costs stand well above the solver's absolute tolerances.
    objective = np.concatenate([np.zeros(n_features), costs / costs.max()])
    bounds = [(-reach, reach)] * n_features + [(0.0, np.inf)] * costs.size
    result = linprog(objective, bounds=bounds, method="highs", **rows)
    if result.status != 0:
        raise TaskError(
            f"the linear program of task {task.name!r} was not solved: {result.message}; "
            "bring features and targets to a common scale"
        )
    return np.asarray(result.x[:n_features])
