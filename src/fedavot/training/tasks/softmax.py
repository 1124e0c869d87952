"""Multinomial logistic regression: mean cross-entropy of softmax(Wᵀx + b).

    f_i(W, b) = (1/n_i) Σ_k [log Σ_c exp(z_kc) − z_k,label],   z_k = Wᵀx_k + b

Convex, and zero before training. The logarithm of the sum is taken relative to the largest score,
so that no score overflows.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, as_size
from fedavot.errors import TaskError
from fedavot.training.task import Task, from_clients, labels_of
from fedavot.training.tasks._examples import Examples, Pair, as_pairs


def cross_entropy(scores: Any, labels: Any) -> Any:
    """Return the mean over examples of log Σ_c exp(score_c) − score_label.

    Parameters
    ----------
    scores : array of shape (n_batch, n_classes)
        Unnormalised log-probabilities.
    labels : int array of shape (n_batch,)
        The true classes.
    """
    import jax
    import jax.numpy as jnp

    right = jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(scores, axis=1) - right)


def class_scores(params: Any, features: Any) -> Any:
    """Return the scores Wᵀx + b, shape (n_batch, n_classes)."""
    return features @ params["weights"] + params["bias"]


def softmax_loss(params: Any, batch: Any) -> Any:
    """Return the mean cross-entropy over a batch.

    Parameters
    ----------
    params : dict
        ``weights`` of shape (n_features, n_classes) and ``bias`` of shape (n_classes,).
    batch : pair of arrays
        Features, shape (n_batch, n_features), and labels, shape (n_batch,).
    """
    features, labels = batch
    return cross_entropy(class_scores(params, features), labels)


def zero_model(n_features: int, n_classes: int, key: Any) -> dict[str, Floats]:
    """Return the model before training, whatever the key: zeros."""
    return {"weights": np.zeros((n_features, n_classes)), "bias": np.zeros(n_classes)}


def softmax_task(
    name: str,
    data: Examples,
    n_classes: int = 10,
    *,
    clients: Sequence[str] | None = None,
) -> Task:
    """Return multinomial logistic regression on labelled features.

    Parameters
    ----------
    name : str
        Name of the task in tables and messages.
    data : sequence of pairs
        Client i's features, shape (n_i, n_features), and integer labels from 0 to
        n_classes − 1, shape (n_i,).
    n_classes : int
        Number of classes, at least 2; a client need not hold all.
    clients : sequence of str, optional
        The clients' names.
    """
    pairs = as_labelled(name, data, n_classes, clients)
    n_features = pairs[0][0].shape[1] if pairs else 0
    init = functools.partial(zero_model, n_features, n_classes)
    return from_clients(name, pairs, loss=softmax_loss, init=init, clients=clients)


def as_labelled(
    name: str, data: Examples, n_classes: int, clients: Sequence[str] | None
) -> list[Pair]:
    """Return one pair (features, labels) per client, the labels checked to be classes."""
    classes = as_size(n_classes, what="n_classes", low=2)
    pairs = as_pairs(name, data, clients)
    for label, (_, labels) in zip(labels_of(data, clients), pairs, strict=True):
        _refuse_foreign_labels(f"client {label} of task {name!r}", labels, classes)
    return [(features, labels.astype(np.int32)) for features, labels in pairs]


def _refuse_foreign_labels(who: str, labels: NDArray[Any], n_classes: int) -> None:
    if not np.issubdtype(labels.dtype, np.integer):
        raise TaskError(f"{who} has labels of type {labels.dtype}; they must be integers")
    foreign = labels[(labels < 0) | (labels >= n_classes)]
    if foreign.size:
        raise TaskError(
            f"{who} has label {foreign[0]}, but classes run from 0 to "
            f"{n_classes - 1}; give n_classes"
        )
