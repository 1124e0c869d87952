"""A user's labelled examples, as read from a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Integers
from fedavot.errors import FileFormatError, TaskError
from fedavot.training.tasks._examples import Pair


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
    shapes = {
        name: arrays[name].shape for name in ("features", "targets", "clients") if name in arrays
    }
    dimensions = [len(shape) for shape in shapes.values()]
    alike = len({shape[:1] for shape in shapes.values()}) == 1
    if dimensions != [2, 1, 1][: len(shapes)] or not alike or not arrays["features"].size:
        listed = ", ".join(f"{name} of shape {shape}" for name, shape in shapes.items())
        raise TaskError(
            f"{path} has {listed}; features must be (n_examples, n_features), the others "
            "(n_examples,), with at least one example"
        )
    return Examples(arrays["features"], arrays["targets"], arrays.get("clients"))
