"""Values as JSON, with arrays set aside: what a wrapped strategy keeps, made fit for a file."""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from numpy.typing import NDArray

from fedavot.errors import CheckpointError
from fedavot.flower.records import view

Arrays = dict[str, NDArray[Any]]

_MAPPINGS: dict[str, Any] = {
    "dict": dict,
    "ConfigRecord": ConfigRecord,
    "MetricRecord": MetricRecord,
}


class Packer:
    """Turn values into JSON; arrays are collected under numbered names."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}

    def pack(self, value: Any, label: str) -> Any:
        """Return a value as JSON, or raise naming ``label`` if it is of a kind that has none."""
        if isinstance(value, bytes | np.generic | np.ndarray):
            return self._array(value, label)  # first of all: NumPy's float64 is a float, too
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
                f"{label} is a {type(value).__name__}, which a checkpoint cannot hold; give the "
                "strategy state_dict() and load_state_dict(state), or leave folder out"
            )
        pairs = [[self.pack(key, label), self.pack(item, label)] for key, item in value.items()]
        return {"pairs": pairs, "kind": kind}

    def _array(self, value: Any, label: str) -> dict[str, Any]:
        array = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.asarray(value)
        if array.dtype.hasobject:
            raise CheckpointError(f"{label} is an array of Python objects; make it one of numbers")
        name = f"strategy/{len(self.arrays)}"
        self.arrays[name] = array
        kind = {bytes: "bytes", np.ndarray: "array"}.get(type(value), "scalar")
        return {"array": name, "kind": kind}


def is_same(left: Any, right: Any) -> bool:
    """Return whether two values would be written alike."""
    packers = Packer(), Packer()
    packed = [packer.pack(value, "") for packer, value in zip(packers, (left, right), strict=True)]
    arrays = [packer.arrays.values() for packer in packers]
    return packed[0] == packed[1] and all(
        one.dtype == other.dtype and np.array_equal(one, other)
        for one, other in zip(*arrays, strict=True)
    )


def unpack(packed: Any, arrays: Arrays) -> Any:
    """Return the value that `Packer.pack` was given."""
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
