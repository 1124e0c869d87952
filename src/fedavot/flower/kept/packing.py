"""Serialise the state of a wrapped strategy as JSON and named arrays."""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from numpy.typing import NDArray

from fedavot.errors import CheckpointError
from fedavot.flower.worth.records import view

Arrays = dict[str, NDArray[Any]]

_MAPPINGS: dict[str, Any] = {
    "dict": dict,
    "ConfigRecord": ConfigRecord,
    "MetricRecord": MetricRecord,
}


class Packer:
    """Serialise values as JSON; collect their arrays under a prefix and numbers."""

    def __init__(self, prefix: str = "strategy") -> None:
        self._prefix = prefix
        self.arrays: Arrays = {}

    def pack(self, value: Any, label: str) -> Any:
        """Return a value as JSON; raise with ``label`` if its type cannot be serialised."""
        if isinstance(value, bytes | np.generic | np.ndarray):
            return self._array(value, label)  # first, because NumPy's float64 is also a float
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, ArrayRecord):
            return {"record": self.pack({key: view(array) for key, array in value.items()}, label)}
        if isinstance(value, list | tuple):
            items = [self.pack(item, label) for item in value]
            return {"list" if isinstance(value, list) else "tuple": items}
        kind = next((name for name, kind in _MAPPINGS.items() if isinstance(value, kind)), None)
        if kind is None:
            raise CheckpointError(
                f"{label} is a {type(value).__name__}, which a checkpoint cannot hold; add "
                "state_dict() and restore(state) to the strategy, or leave out folder"
            )
        pairs = [[self.pack(key, label), self.pack(item, label)] for key, item in value.items()]
        return {"pairs": pairs, "kind": kind}

    def _array(self, value: Any, label: str) -> dict[str, Any]:
        array = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.asarray(value)
        if array.dtype.hasobject:
            raise CheckpointError(f"{label} is an array of Python objects; use an array of numbers")
        name = f"{self._prefix}/{len(self.arrays)}"
        self.arrays[name] = array
        kind = {bytes: "bytes", np.ndarray: "array"}.get(type(value), "scalar")
        return {"array": name, "kind": kind}


def is_same(left: Any, right: Any) -> bool:
    """Return whether two values have the same serialised form."""
    packers = Packer(), Packer()
    packed = [packer.pack(value, "") for packer, value in zip(packers, (left, right), strict=True)]
    arrays = [packer.arrays.values() for packer in packers]
    return packed[0] == packed[1] and all(
        one.dtype == other.dtype and np.array_equal(one, other)
        for one, other in zip(*arrays, strict=True)
    )


def unpack(packed: Any, arrays: Arrays) -> Any:
    """Return the value that `Packer.pack` serialised."""
    if not isinstance(packed, dict):
        return packed
    if "array" in packed:
        array = arrays[packed["array"]]
        if packed["kind"] == "bytes":
            return array.tobytes()
        return array[()] if packed["kind"] == "scalar" else array
    if "record" in packed:
        values = unpack(packed["record"], arrays)
        return ArrayRecord({key: Array(np.asarray(value)) for key, value in values.items()})
    if "pairs" in packed:
        pairs = [(unpack(key, arrays), unpack(item, arrays)) for key, item in packed["pairs"]]
        return _MAPPINGS[packed["kind"]](dict(pairs))
    kind, items = next(iter(packed.items()))
    unpacked = [unpack(item, arrays) for item in items]
    return unpacked if kind == "list" else tuple(unpacked)
