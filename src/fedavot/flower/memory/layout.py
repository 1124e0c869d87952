"""The floating-point arrays of a model, the ones that are remembered, as lists of arrays.

Arithmetic uses at least single precision. A model that is sent is rounded to its own types, so both
sides compute an update as the model that arrives minus the model that was sent, and agree to the
bit.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedavot.flower.worth.records import view
from fedavot.rules._held_client import Model


class Layout:
    """Names, shapes and types of the floating-point arrays of a model.

    Parameters
    ----------
    model : ArrayRecord
        Any model with these arrays; its other arrays are left as they are.
    """

    def __init__(self, model: ArrayRecord) -> None:
        arrays = {key: view(array) for key, array in model.items()}
        self.shapes = {key: array.shape for key, array in arrays.items() if array.dtype.kind == "f"}
        self._kinds = {key: arrays[key].dtype for key in self.shapes}
        self.dtype = np.result_type(np.float32, *self._kinds.values())
        self.size = sum(int(np.prod(shape)) for shape in self.shapes.values())

    def zeros(self) -> Model:
        """Return a model of zeros in double precision."""
        return [np.zeros(shape) for shape in self.shapes.values()]

    def take(self, record: ArrayRecord) -> Model:
        """Return the arrays of a record; raise ValueError if it lacks any or has other shapes."""
        taken = []
        for key, shape in self.shapes.items():
            if key not in record:
                raise ValueError(f"array {key!r} is missing")
            values = view(record[key])
            if values.shape != shape or values.dtype.kind != "f":
                raise ValueError(
                    f"array {key!r} has shape {values.shape} and type {values.dtype}; expected "
                    f"floating-point numbers of shape {shape}"
                )
            taken.append(values.astype(self._work(key)))
        return taken

    def put(self, record: ArrayRecord, model: Sequence[NDArray[Any]]) -> None:
        """Write a model into a record, in the types of the layout."""
        record.update(self._arrays(model, self._kinds))

    def record(self, model: Sequence[NDArray[Any]]) -> ArrayRecord:
        """Return a model as a record, in the precision of the arithmetic."""
        return ArrayRecord(self._arrays(model, {key: self._work(key) for key in self._kinds}))

    def flat(self, model: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return a model as one row."""
        parts = [np.asarray(array, self.dtype).reshape(-1) for array in model]
        return np.concatenate(parts) if parts else np.zeros(0, self.dtype)

    def parts(self, row: NDArray[Any]) -> Model:
        """Return a row as a model."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])
        pieces = np.split(row, ends[:-1]) if len(ends) else []
        return [
            np.asarray(piece, self._work(key)).reshape(shape)
            for piece, (key, shape) in zip(pieces, self.shapes.items(), strict=True)
        ]

    def _arrays(self, model: Sequence[NDArray[Any]], kinds: dict[str, Any]) -> dict[str, Array]:
        pairs = zip(self.shapes, model, strict=True)
        with np.errstate(over="ignore"):
            return {key: Array(np.asarray(values, kinds[key])) for key, values in pairs}

    def _work(self, key: str) -> np.dtype[Any]:
        return np.result_type(np.float32, self._kinds[key])


def minus(left: Model, right: Model) -> Model:
    """Return the difference of two models."""
    return [one - other for one, other in zip(left, right, strict=True)]
