"""Linear models xᵀθ without an intercept, under three losses.

    squares                f_i(θ) = (1/n_i) Σ_k (x_ikᵀθ − y_ik)²
    absolute deviations    f_i(θ) = (1/n_i) Σ_k |x_ikᵀθ − y_ik|
    hinge                  f_i(θ) = (1/n_i) Σ_k max(0, 1 − y_ik x_ikᵀθ),   y = ±1

A model is an array of shape (n_features,), zero before training; a batch is a pair of features,
shape (n_batch, n_features), and targets, shape (n_batch,). At a corner JAX takes one of the
subgradients.

`optimum` gives the exact minimum of F(θ) = Σ p_i f_i(θ), also over a box |θ_j| ≤ radius. Each of
client i's n_i examples has the weight w_k = p_i/n_i. Least squares is solved directly; the other
two are linear programs, solved by HiGHS, with u, v and t at least 0:

    absolute deviations    minimise Σ w_k (u_k + v_k)  subject to  x_kᵀθ + u_k − v_k = y_k
    hinge                  minimise Σ w_k t_k          subject to  t_k ≥ 1 − y_k x_kᵀθ

Heterogeneous clients differ in the mean and spread of their features, and in their true model:

    x = μ_i/2 + s_i ε,   θ_i = base + (i − (N+1)/2)/(N/2) · direction + .3 ε_i,   i = 1, …, N

with μ_i, base, direction and every ε standard normal and s_i uniform on (.5, 1.5). The models drift
along one direction with the client's number, so that wrong client weights move the optimum.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, eye_array, hstack

from fedavot._checks import Floats, as_amount, as_importance, as_seed, as_size, require
from fedavot.errors import OptionError, TaskError
from fedavot.training.examples import Pairs, as_numbers, examples_of
from fedavot.training.task import Task, from_clients

NOISE = 0.1
"""Standard deviation of the noise in the targets of both ready-made regressions."""


def mean_square(params: Any, batch: Any) -> Any:
    """Return the mean squared error over a batch."""
    import jax.numpy as jnp

    features, targets = batch
    return jnp.mean((features @ params - targets) ** 2)


def mean_deviation(params: Any, batch: Any) -> Any:
    """Return the mean absolute deviation over a batch."""
    import jax.numpy as jnp

    features, targets = batch
    return jnp.mean(jnp.abs(features @ params - targets))


def mean_hinge(params: Any, batch: Any) -> Any:
    """Return the mean hinge loss over a batch with labels ±1."""
    import jax.numpy as jnp

    features, labels = batch
    return jnp.mean(jnp.maximum(0.0, 1.0 - labels * (features @ params)))


def sign_accuracy(params: Any, batch: Any) -> Any:
    """Return the share of a batch with labels ±1 on the right side of zero."""
    import jax.numpy as jnp

    features, labels = batch
    return jnp.mean(labels * (features @ params) > 0)


def zero_model(n_features: int, key: Any) -> Floats:
    """Return the model before training, whatever the key: zeros, shape (n_features,)."""
    return np.zeros(n_features)


def linear_task(
    name: str,
    data: Pairs,
    *,
    loss: Callable[[Any, Any], Any] = mean_square,
    clients: Sequence[str] | None = None,
) -> Task:
    """Return a linear model's task on a user's arrays.

    Parameters
    ----------
    name : str
        Name of the task in tables and messages.
    data : sequence of pairs
        Client i's features, shape (n_i, n_features), and targets, shape (n_i,); labels −1 or 1 for
        the hinge loss. There is no intercept: add a column of ones for one.
    loss : function of (params, batch)
        `mean_square`, `mean_deviation`, `mean_hinge`, or another mean over examples.
    clients : sequence of str, optional
        The clients' names.
    """
    pairs = []
    for who, features, responses in examples_of(name, data, clients):
        targets = as_numbers(who, responses, "targets")
        foreign = targets[np.abs(targets) != 1]
        if loss is mean_hinge and foreign.size:
            raise TaskError(f"{who} has label {foreign[0]}; the hinge loss takes labels -1 and 1")
        pairs.append((features, targets))
    init = functools.partial(zero_model, pairs[0][0].shape[1])
    accuracy = sign_accuracy if loss is mean_hinge else None
    return from_clients(name, pairs, loss=loss, init=init, clients=clients, accuracy=accuracy)


def heterogeneous_regression(
    *,
    n_clients: int = 100,
    n_features: int = 10,
    n_examples: int = 30,
    seed: int = 0,
    loss: Callable[[Any, Any], Any] = mean_square,
) -> Task:
    """Return a regression on heterogeneous clients, with targets y = xᵀθ_i + .1 ε.

    Parameters
    ----------
    n_clients, n_features, n_examples : int
        Number of clients, of features, and of examples per client.
    seed : int
        Seed for drawing the data.
    loss : function of (params, batch)
        As in `linear_task`; the data do not depend on it.
    """
    rng = np.random.default_rng(as_seed(seed))
    features, responses = _heterogeneous_clients(n_clients, n_features, n_examples, rng)
    targets = responses + NOISE * rng.standard_normal(responses.shape)
    data = list(zip(features, targets, strict=True))
    return linear_task("heterogeneous regression", data, loss=loss)


def heterogeneous_classification(
    *,
    n_clients: int = 100,
    n_features: int = 10,
    n_examples: int = 30,
    seed: int = 0,
    flipped: float = 0.1,
) -> Task:
    """Return a classification task on heterogeneous clients with the hinge loss.

    Labels are the signs of xᵀθ_i, some of them flipped, so that no model has zero loss.

    Parameters
    ----------
    n_clients, n_features, n_examples, seed : int
        As in `heterogeneous_regression`.
    flipped : float
        Probability that a label is flipped, from 0 to 1.
    """
    chance = as_amount(flipped, what="flipped")
    if chance > 1:
        raise OptionError(f"flipped is {chance}; it is a probability and must be at most 1")
    rng = np.random.default_rng(as_seed(seed))
    features, responses = _heterogeneous_clients(n_clients, n_features, n_examples, rng)
    flips = rng.random(responses.shape) < chance
    data = list(zip(features, np.where((responses > 0) != flips, 1.0, -1.0), strict=True))
    return linear_task("heterogeneous classification", data, loss=mean_hinge)


def iid_regression() -> Task:
    """Return the regression of the authors' script: one model, examples assigned at random.

    It uses scikit-learn's ``make_regression`` with 3,000 examples of 100 features and noise .1,
    features standardised, targets unchanged; 100 clients of 30 examples each. The clients differ
    only by chance, and each has fewer examples than there are features.
    """
    require("experiments", "sklearn", by="the authors' regression")
    from sklearn.datasets import make_regression

    features, targets = make_regression(n_samples=3000, n_features=100, noise=NOISE, random_state=0)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    # The legacy generator is part of the setting: another would assign examples differently.
    order = np.random.RandomState(0).permutation(3000).reshape(100, 30)
    return linear_task("IID regression", [(features[own], targets[own]) for own in order])


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
    if task.loss not in (mean_square, mean_deviation, mean_hinge):
        raise TaskError(
            f"task {task.name!r} has the loss {task.loss}; optima are known for mean_square, "
            "mean_deviation and mean_hinge"
        )
    reach = np.inf if radius is None else as_amount(radius, what="radius", positive=True)
    shares = as_importance(importance, task.n_clients)
    # Every example with weight, without padding.
    present = (np.arange(task.n_examples) < task.sizes[:, None]) & (shares[:, None] > 0)
    features, targets = (np.asarray(leaf, dtype=np.float64)[present] for leaf in task.data)
    weights = np.broadcast_to((shares / task.sizes)[:, None], present.shape)[present]
    if task.loss is mean_square:
        from scipy.optimize import lsq_linear

        roots = np.sqrt(weights)
        design, right = roots[:, None] * features, roots * targets
        # An active-set method ends exactly at the optimum, and exactly on the box if that is there.
        params = (
            np.linalg.lstsq(design, right)[0]
            if radius is None
            else lsq_linear(design, right, bounds=(-reach, reach), method="bvls").x
        )
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
    return np.asarray(params), float(weights @ losses)


def _heterogeneous_clients(
    n_clients: int, n_features: int, n_examples: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draw the clients' features, and xᵀθ_i of each example, shape (n_clients, n_examples)."""
    clients = as_size(n_clients, what="n_clients", low=1)
    width = as_size(n_features, what="n_features", low=1)
    examples = as_size(n_examples, what="n_examples", low=1)
    base, direction = rng.standard_normal((2, width))
    means = rng.standard_normal((clients, 1, width))
    scales = rng.uniform(0.5, 1.5, (clients, 1, 1))
    features = 0.5 * means + scales * rng.standard_normal((clients, examples, width))
    drift = (np.arange(1, clients + 1) - (clients + 1) / 2) / (clients / 2)
    models = base + drift[:, None] * direction + 0.3 * rng.standard_normal((clients, width))
    return features, np.einsum("nmd,nd->nm", features, models)


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
