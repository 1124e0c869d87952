"""Examples as they enter a task, and all of them with their weights in the objective.

Tasks on features and targets hold a pair of arrays a client. The optima stack them: with n_i
examples, each of client i's counts p_i/n_i in F(θ) = Σ p_i f_i(θ).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import Floats, as_array, as_importance
from fedavot.errors import TaskError
from fedavot.training.task import Task

Pair = tuple[NDArray[Any], NDArray[Any]]


class Weighted(NamedTuple):
    """Every example that counts, clients one after another, in double precision."""

    features: Floats
    """Shape (n_examples, n_features)."""
    targets: Floats
    """Shape (n_examples,)."""
    weights: Floats
    """How much each example counts in the objective, shape (n_examples,); positive."""


def as_pairs(name: str, clients: Sequence[tuple[ArrayLike, ArrayLike]]) -> list[Pair]:
    """Return one pair (features, targets) a client, features as floats.

    Parameters
    ----------
    name : str
        The task's name, for messages.
    clients : sequence of pairs
        Client i's features, shape (n_i, n_features), and targets, shape (n_i,).
    """
    return [_as_pair(name, number, client) for number, client in enumerate(clients)]


def as_float_pairs(name: str, clients: Sequence[tuple[ArrayLike, ArrayLike]]) -> list[Pair]:
    """Return pairs as `as_pairs` does, the targets as floats too."""
    return [
        (features, _as_floats(name, number, targets, "targets"))
        for number, (features, targets) in enumerate(as_pairs(name, clients))
    ]


def weighted_examples(
    task: Task, importance: ArrayLike, loss: Callable[[Any, Any], Any]
) -> Weighted:
    """Return the examples of a task with the given loss, padding and clients of no weight left out.

    Parameters
    ----------
    task : Task
        Whose data is a pair of features and targets.
    importance : array_like of shape (n_clients,)
        A distribution over the clients.
    loss : function
        The loss for which the caller knows the optimum.
    """
    if task.loss is not loss:
        found = getattr(task.loss, "__name__", repr(task.loss))
        raise TaskError(f"task {task.name!r} has loss {found}; its optimum needs {loss.__name__}")
    shares = as_importance(importance, task.n_clients)
    features, targets = (np.asarray(leaf, dtype=np.float64) for leaf in task.data)
    counts = np.full(task.n_clients, task.n_examples) if task.counts is None else task.counts
    counted = (np.arange(task.n_examples) < np.asarray(counts)[:, None]) & (shares[:, None] > 0)
    weights = np.broadcast_to((shares / counts)[:, None], counted.shape)
    return Weighted(features[counted], targets[counted], weights[counted])


def _as_pair(name: str, number: int, client: Any) -> Pair:
    try:
        features, targets = client
    except (TypeError, ValueError):
        raise TaskError(
            f"client {number} of task {name!r} must be a pair (features, targets)"
        ) from None
    where = f"client {number} of task {name!r} has arrays that do not line up"
    features = as_array(features, otherwise=where, error=TaskError)
    targets = as_array(targets, otherwise=where, error=TaskError)
    if features.ndim != 2 or targets.ndim != 1:
        raise TaskError(
            f"client {number} of task {name!r} has features of shape {features.shape} and targets "
            f"of shape {targets.shape}; they must be (n_examples, n_features) and (n_examples,)"
        )
    return _as_floats(name, number, features, "features"), targets


def _as_floats(name: str, number: int, values: NDArray[Any], what: str) -> NDArray[Any]:
    if np.issubdtype(values.dtype, np.floating):
        return values
    if not (np.issubdtype(values.dtype, np.integer) or values.dtype == np.bool_):
        raise TaskError(
            f"client {number} of task {name!r} has {what} of type {values.dtype}; "
            "they must be numbers"
        )
    return values.astype(np.float64)
