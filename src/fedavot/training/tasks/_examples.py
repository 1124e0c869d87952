"""Examples as they enter a ready-made task: one pair (features, targets) per client."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import as_array
from fedavot.errors import TaskError
from fedavot.training.task import in_words

Pair = tuple[NDArray[Any], NDArray[Any]]
Examples = Sequence[tuple[ArrayLike, ArrayLike]]
"""One pair (features, targets) per client."""


class Own(NamedTuple):
    """One client's examples, features as floats."""

    who: str
    """The client and its task in words, for messages."""
    features: NDArray[Any]
    targets: NDArray[Any]


def examples_of(name: str, data: Examples, clients: Sequence[str] | None) -> list[Own]:
    """Return every client's examples: features (n_i, n_features) and targets (n_i,)."""
    return [_own(who, pair) for who, pair in zip(in_words(name, data, clients), data, strict=True)]


def as_numbers(who: str, values: NDArray[Any], what: str) -> NDArray[Any]:
    """Return numbers as floats; floats keep their precision."""
    if np.issubdtype(values.dtype, np.floating):
        return values
    if not (np.issubdtype(values.dtype, np.integer) or values.dtype == np.bool_):
        raise TaskError(f"{who} has {what} of type {values.dtype}; they must be numbers")
    return values.astype(np.float64)


def _own(who: str, pair: Any) -> Own:
    try:
        features, targets = pair
    except (TypeError, ValueError):
        raise TaskError(f"{who} must be a pair (features, targets)") from None
    where = f"{who} has arrays that do not line up"
    features = as_array(features, otherwise=where, error=TaskError)
    targets = as_array(targets, otherwise=where, error=TaskError)
    if features.ndim != 2 or targets.ndim != 1:
        raise TaskError(
            f"{who} has features of shape {features.shape} and targets of shape {targets.shape}; "
            "they must be (n_examples, n_features) and (n_examples,)"
        )
    return Own(who, as_numbers(who, features, "features"), targets)
