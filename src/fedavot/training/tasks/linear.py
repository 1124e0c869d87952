"""Linear regression: mean squared error of xᵀθ, no intercept.

    f_i(θ) = (1/n_i) Σ_k (x_ikᵀθ − y_ik)²

A model is an array of shape (n_features,), zero before training. The importance-weighted objective
has a closed-form minimum, `least_squares_optimum`.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, as_seed
from fedavot.errors import UnavailableError
from fedavot.training.task import Task, from_clients
from fedavot.training.tasks._examples import Examples, as_float_pairs, weighted_examples
from fedavot.training.tasks._heterogeneous import heterogeneous_clients

NOISE = 0.1
"""Standard deviation of the noise in the targets of both ready-made regressions."""


def mean_square(params: Any, batch: Any) -> Any:
    """Return the mean squared error over a batch.

    Parameters
    ----------
    params : array of shape (n_features,)
        The model.
    batch : pair of arrays
        Features, shape (n_batch, n_features), and targets, shape (n_batch,).
    """
    import jax.numpy as jnp

    features, targets = batch
    return jnp.mean((features @ params - targets) ** 2)


def zero_model(n_features: int, key: Any) -> Floats:
    """Return the model before training, whatever the key: zeros, shape (n_features,)."""
    return np.zeros(n_features)


def regression_task(name: str, data: Examples, *, clients: Sequence[str] | None = None) -> Task:
    """Return the linear regression on a user's arrays.

    Parameters
    ----------
    name : str
        Name of the task in tables and messages.
    data : sequence of pairs
        Client i's features, shape (n_i, n_features), and targets, shape (n_i,). There is no
        intercept: add a column of ones for one.
    clients : sequence of str, optional
        The clients' names.
    """
    pairs = as_float_pairs(name, data, clients)
    return from_clients(name, pairs, loss=mean_square, init=zeros_for(pairs), clients=clients)


def zeros_for(pairs: Sequence[tuple[Any, Any]]) -> functools.partial[Floats]:
    """Return the init of a linear model on these clients' features."""
    return functools.partial(zero_model, pairs[0][0].shape[1] if pairs else 0)


def heterogeneous_regression(
    *, n_clients: int = 100, n_features: int = 10, n_examples: int = 30, seed: int = 0
) -> Task:
    """Return a regression whose clients differ in features and in the model behind them.

    Features and models as in `_heterogeneous`; targets y = xᵀθ_i + .1 ε.

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
    return regression_task("heterogeneous regression", list(zip(features, targets, strict=True)))


def iid_regression() -> Task:
    """Return the regression of the authors' script: one model, dealt out at random.

    scikit-learn's ``make_regression`` with 3,000 examples of 100 features and noise .1, features
    standardised, targets as they are; 100 clients of 30 examples. The clients do not differ but
    by chance, and none has as many examples as there are features.
    """
    try:
        from sklearn.datasets import make_regression
    except ImportError:
        raise UnavailableError(
            "the authors' regression is drawn by scikit-learn, which is not installed: "
            "pip install 'fedavot[experiments]'"
        ) from None
    features, targets = make_regression(n_samples=3000, n_features=100, noise=NOISE, random_state=0)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    # The legacy generator is part of the setting: another deals the examples out differently.
    order = np.random.RandomState(0).permutation(3000).reshape(100, 30)
    return regression_task("IID regression", [(features[own], targets[own]) for own in order])


def least_squares_optimum(task: Task, importance: ArrayLike) -> tuple[Floats, float]:
    """Return the minimiser of F(θ) = Σ p_i f_i(θ) and the minimum.

    Parameters
    ----------
    task : Task
        A task of this module.
    importance : array_like of shape (n_clients,)
        A distribution over the clients.

    Returns
    -------
    params : ndarray of shape (n_features,)
        The minimiser; the one of least norm where there are many.
    value : float
        F there.
    """
    examples = weighted_examples(task, importance, mean_square)
    roots = np.sqrt(examples.weights)
    design = roots[:, None] * examples.features
    params = np.asarray(np.linalg.lstsq(design, roots * examples.targets)[0])
    residuals = examples.features @ params - examples.targets
    return params, float(examples.weights @ residuals**2)
