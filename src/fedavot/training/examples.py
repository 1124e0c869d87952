"""Labelled examples: a pair (features, targets) per client, and arrays read from a user's file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import Integers, as_array
from fedavot.errors import FileFormatError, TaskError
from fedavot.training.task import in_words

Pair = tuple[NDArray[Any], NDArray[Any]]
Pairs = Sequence[tuple[ArrayLike, ArrayLike]]
"""One pair (features, targets) per client."""


class Examples(NamedTuple):
    """Labelled examples, not yet split among clients."""

    features: NDArray[Any]
    """Inputs of the model, shape (n_examples, n_features)."""
    targets: NDArray[Any]
    """What the model should predict, shape (n_examples,)."""
    clients: NDArray[Any] | None = None
    """The client of each example, shape (n_examples,)."""

    def of(self, parts: Sequence[Integers]) -> list[Pair]:
        """Return one pair of features and targets for each part."""
        return [(self.features[part], self.targets[part]) for part in parts]


def read_examples(path: Path) -> Examples:
    """Read an .npz of ``features``, ``targets`` and optionally ``clients``, no pickled objects."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = dict(archive)
    except Exception as cause:  # whatever NumPy and zipfile raise on a damaged file
        raise FileFormatError(
            f"{path} is not an .npz of plain arrays ({cause}); write it with numpy.savez"
        ) from None
    parts = {name: arrays[name] for name in Examples._fields if name in arrays}
    ranks = {name: len(part.shape) for name, part in parts.items()}
    needed = {"features": 2, "targets": 1} | ({"clients": 1} if "clients" in parts else {})
    lengths = {part.shape[:1] for part in parts.values()}
    if ranks != needed or len(lengths) > 1 or not parts["features"].size:
        listed = ", ".join(f"{name} of shape {part.shape}" for name, part in parts.items())
        raise TaskError(
            f"{path} has {listed or 'none of the arrays'}; it needs features (n_examples, "
            "n_features), targets (n_examples,) and, for groups, clients (n_examples,), with at "
            "least one example"
        )
    return Examples(**parts)


def examples_of(
    name: str, data: Pairs, clients: Sequence[str] | None
) -> list[tuple[str, NDArray[Any], NDArray[Any]]]:
    """Return every client in words, its features (n_i, n_features), floats, and targets (n_i,)."""
    examples = []
    for who, pair in zip(in_words(name, data, clients), data, strict=True):
        where = f"{who} must be a pair (features, targets)"
        try:
            features, targets = (as_array(part, otherwise=where, error=TaskError) for part in pair)
        except (TypeError, ValueError):
            raise TaskError(where) from None
        if features.ndim != 2 or targets.ndim != 1:
            raise TaskError(
                f"{who} has features of shape {features.shape} and targets of shape "
                f"{targets.shape}; they must be (n_examples, n_features) and (n_examples,)"
            )
        examples.append((who, as_numbers(who, features, "features"), targets))
    return examples


def as_numbers(who: str, values: NDArray[Any], what: str) -> NDArray[Any]:
    """Return numbers as floats; floats keep their precision."""
    if np.issubdtype(values.dtype, np.floating):
        return values
    if not (np.issubdtype(values.dtype, np.integer) or values.dtype == np.bool_):
        raise TaskError(f"{who} has {what} of type {values.dtype}; they must be numbers")
    return values.astype(np.float64)
