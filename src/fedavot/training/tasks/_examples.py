"""Examples as they enter a task, and all of them with their weights in the objective.

Tasks on features and targets hold a pair of arrays per client. The optima stack them: each of
client i's n_i examples counts p_i/n_i in F(θ) = Σ p_i f_i(θ).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import Floats, as_array, as_importance
from fedavot.errors import TaskError
from fedavot.training.task import Task, labels_of

Pair = tuple[NDArray[Any], NDArray[Any]]
Examples = Sequence[tuple[ArrayLike, ArrayLike]]
"""One pair (features, targets) per client."""


class Weighted(NamedTuple):
    """Every example that counts, clients one after another, in double precision."""

    features: Floats
    """Shape (n_examples, n_features)."""
    targets: Floats
    """Shape (n_examples,)."""
    weights: Floats
    """How much each example counts in the objective, shape (n_examples,); positive."""


def as_pairs(name: str, data: Examples, clients: Sequence[str] | None = None) -> list[Pair]:
    """Return one pair (features, targets) per client, features as floats.

    Parameters
    ----------
    name : str
        The task's name, for messages.
    data : sequence of pairs
        Client i's features, shape (n_i, n_features), and targets, shape (n_i,).
    clients : sequence of str, optional
        The clients' names, for messages.
    """
    labels = labels_of(data, clients)
    return [_as_pair(name, label, pair) for label, pair in zip(labels, data, strict=True)]


def as_float_pairs(name: str, data: Examples, clients: Sequence[str] | None = None) -> list[Pair]:
    """Return pairs as `as_pairs` does, the targets as floats too."""
    pairs = zip(labels_of(data, clients), as_pairs(name, data, clients), strict=True)
    return [
        (features, _as_floats(name, label, targets, "targets"))
        for label, (features, targets) in pairs
    ]


def weighted_examples(
    task: Task, importance: ArrayLike, loss: Callable[[Any, Any], Any]
) -> Weighted:
    """Return the examples of a task, without padding and clients of importance zero.

    Parameters
    ----------
    task : Task
        A task whose data is a pair of features and targets.
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


def _as_pair(name: str, label: str, pair: Any) -> Pair:
    try:
        features, targets = pair
    except (TypeError, ValueError):
        raise TaskError(
            f"client {label} of task {name!r} must be a pair (features, targets)"
        ) from None
    where = f"client {label} of task {name!r} has arrays that do not line up"
    features = as_array(features, otherwise=where, error=TaskError)
    targets = as_array(targets, otherwise=where, error=TaskError)
    if features.ndim != 2 or targets.ndim != 1:
        raise TaskError(
            f"client {label} of task {name!r} has features of shape {features.shape} and targets "
            f"of shape {targets.shape}; they must be (n_examples, n_features) and (n_examples,)"
        )
    return _as_floats(name, label, features, "features"), targets


def _as_floats(name: str, label: str, values: NDArray[Any], what: str) -> NDArray[Any]:
    if np.issubdtype(values.dtype, np.floating):
        return values
    if not (np.issubdtype(values.dtype, np.integer) or values.dtype == np.bool_):
        raise TaskError(
            f"client {label} of task {name!r} has {what} of type {values.dtype}; "
            "they must be numbers"
        )
    return values.astype(np.float64)
