"""Multinomial logistic regression: mean cross-entropy of the scores Wᵀx + b.

The loss is convex, and models are zero before training. A model is a dict of ``weights``, shape
(n_features, n_classes), and ``bias``, shape (n_classes,).
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedavot._checks import Floats, as_seed, as_size
from fedavot.training.task import Task
from fedavot.training.tasks._classification import (
    Accuracy,
    CrossEntropy,
    classification_task,
)
from fedavot.training.tasks._examples import Examples


def zero_model(n_features: int, n_classes: int, key: Any) -> dict[str, Floats]:
    """Return the model before training, whatever the key: zeros."""
    return {"weights": np.zeros((n_features, n_classes)), "bias": np.zeros(n_classes)}


def class_scores(params: Any, features: Any) -> Any:
    """Return Wᵀx + b for every example, shape (n_batch, n_classes).

    XLA's products of single precision for a CPU take up to 1.6 times as long if the classes, of
    which there are few, are the last axis, so the weights are turned around first. The barrier
    keeps XLA from undoing that; the results are the same.
    """
    import jax

    weights = params["weights"]
    if weights.dtype == np.float32 and jax.default_backend() == "cpu":
        weights = jax.lax.optimization_barrier(weights.T).T
    return features @ weights + params["bias"]


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
        Number of classes, at least 2; a client need not hold all of them.
    clients : sequence of str, optional
        The clients' names.
    """
    return classification_task(
        name, data, n_classes, scores=class_scores, model=zero_model, clients=clients
    )


def heterogeneous_softmax(
    *,
    n_clients: int = 100,
    n_features: int = 10,
    n_examples: int = 30,
    n_classes: int = 10,
    seed: int = 0,
) -> Task:
    """Return multinomial logistic regression on clients with different mixes of classes.

    Features are standard normal, and labels have the largest of the scores Wᵀx + 4 b_i, where W is
    common to all clients and b_i is the client's own; both are standard normal. All data are drawn
    at once in single precision, so that a million clients take seconds.

    Parameters
    ----------
    n_clients, n_features, n_examples, n_classes : int
        Number of clients, of features, of examples per client, and of classes, at least 2.
    seed : int
        Seed for drawing the data.
    """
    clients = as_size(n_clients, what="n_clients", low=1)
    width = as_size(n_features, what="n_features", low=1)
    examples = as_size(n_examples, what="n_examples", low=1)
    classes = as_size(n_classes, what="n_classes", low=2)
    rng = np.random.default_rng(as_seed(seed))
    features = rng.standard_normal((clients, examples, width), dtype=np.float32)
    common = rng.standard_normal((width, classes), dtype=np.float32)
    own = rng.standard_normal((clients, 1, classes), dtype=np.float32)
    labels = (features @ common + 4.0 * own).argmax(axis=2).astype(np.int32)
    init = functools.partial(zero_model, width, classes)
    loss, accuracy = CrossEntropy(class_scores), Accuracy(class_scores)
    return Task(
        "heterogeneous softmax regression", (features, labels), loss, init, accuracy=accuracy
    )
