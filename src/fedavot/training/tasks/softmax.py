"""Multinomial logistic regression: mean cross-entropy of the scores Wᵀx + b.

Convex, and zero before training. A model is a dict of ``weights``, shape (n_features, n_classes),
and ``bias``, shape (n_classes,).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedavot._checks import Floats
from fedavot.training.task import Task
from fedavot.training.tasks._classification import affine, classification_task
from fedavot.training.tasks._examples import Examples


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
    return classification_task(
        name, data, n_classes, scores=affine, model=zero_model, clients=clients
    )
