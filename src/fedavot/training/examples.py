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
    missing = [name for name in ("features", "targets") if name not in arrays]
    if missing:
        raise TaskError(
            f"{path} has no array {missing[0]!r}, only {', '.join(map(repr, arrays)) or 'none'}; "
            "it needs features, targets and, for groups, clients"
        )
    examples = Examples(arrays["features"], arrays["targets"], arrays.get("clients"))
    shapes = {name: part.shape for name, part in examples._asdict().items() if part is not None}
    ranks = [len(shape) for shape in shapes.values()]
    lengths = {shape[:1] for shape in shapes.values()}
    if ranks != [2, 1, 1][: len(ranks)] or len(lengths) > 1 or not examples.features.size:
        listed = ", ".join(f"{name} of shape {shape}" for name, shape in shapes.items())
        raise TaskError(
            f"{path} has {listed}; features must be (n_examples, n_features), the others "
            "(n_examples,), with at least one example"
        )
    return examples


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
