"""A network with one hidden layer: scores W₂ᵀ max(0, W₁ᵀx + b₁) + b₂, and their cross-entropy.

A model is a dict of ``hidden`` and ``output``, each with ``weights`` and ``bias``.
"""

import functools
from collections.abc import Sequence
from typing import Any

from fedavot._checks import as_size
from fedavot.training.task import Task
from fedavot.training.tasks._classification import affine, classification_task, he_layers
from fedavot.training.tasks._examples import Examples


def class_scores(params: Any, features: Any) -> Any:
    """Return the network's scores, shape (n_batch, n_classes)."""
    import jax

    return affine(params["output"], jax.nn.relu(affine(params["hidden"], features)))


def he_model(n_hidden: int, n_features: int, n_classes: int, key: Any) -> dict[str, dict[str, Any]]:
    """Draw the network before training from a JAX key."""
    return he_layers({"hidden": (n_features, n_hidden), "output": (n_hidden, n_classes)}, key)


def mlp_task(
    name: str,
    data: Examples,
    n_classes: int = 10,
    *,
    n_hidden: int = 64,
    clients: Sequence[str] | None = None,
) -> Task:
    """Return the network's task on labelled features, in single precision.

    Parameters
    ----------
    name, data, n_classes, clients
        As in `softmax_task`.
    n_hidden : int
        Number of hidden units.
    """
    model = functools.partial(he_model, as_size(n_hidden, what="n_hidden", low=1))
    return classification_task(
        name, data, n_classes, scores=class_scores, model=model, clients=clients, single=True
    )
