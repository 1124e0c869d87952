"""Serialise plain data as JSON and named arrays: numbers, text, paths, arrays, records, containers.

A value is restored with its original type, such as a Counter, a defaultdict or a random generator.
Types are compared exactly: an object of a derived class may hold more data, and is refused. Client
names are packed as bytes: a hundred thousand names are one array.
"""

import json
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from numpy.typing import NDArray

from fedavot.errors import CheckpointError
from fedavot.flower.worth.records import view

Arrays = dict[str, NDArray[Any]]

DEFAULTS: dict[str, Any] = {
    kind.__name__: kind for kind in (int, float, bool, str, list, dict, set, tuple, Counter)
}
"""What a defaultdict may have as its default."""


def _pairs(value: Any) -> list[Any]:
    return [[key, item] for key, item in value.items()]


def _generator(state: dict[str, Any]) -> np.random.Generator:
    bits = getattr(np.random, state["bit_generator"])()
    bits.state = state
    return np.random.Generator(bits)


def _random(state: Any) -> random.Random:
    generator = random.Random()
    generator.setstate(state)
    return generator


_KINDS: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    tuple: (list, tuple),
    set: (list, set),
    frozenset: (list, frozenset),
    deque: (lambda it: [list(it), it.maxlen], lambda of: deque(*of)),
    dict: (_pairs, dict),
    OrderedDict: (_pairs, OrderedDict),
    Counter: (_pairs, lambda of: Counter(dict(of))),
    defaultdict: (
        lambda it: [getattr(it.default_factory, "__name__", None), _pairs(it)],
        lambda of: defaultdict(DEFAULTS.get(of[0]), of[1]),
    ),
    ConfigRecord: (_pairs, lambda of: ConfigRecord(dict(of))),
    MetricRecord: (_pairs, lambda of: MetricRecord(dict(of))),
    ArrayRecord: (
        lambda it: [[key, view(array)] for key, array in it.items()],
        lambda of: ArrayRecord({key: Array(np.asarray(value)) for key, value in of}),
    ),
    np.random.Generator: (lambda it: it.bit_generator.state, _generator),
    random.Random: (lambda it: it.getstate(), _random),
    PosixPath: (str, Path),
    WindowsPath: (str, Path),
    PurePosixPath: (str, PurePosixPath),
    PureWindowsPath: (str, PureWindowsPath),
}
"""How a value is split into simpler ones and rebuilt from them, by its type."""

_NAMED = {kind.__name__: kind for kind in _KINDS}


class Packer:
    """Serialise values as JSON; collect their arrays under a prefix and running numbers."""

    def __init__(self, prefix: str = "strategy") -> None:
        self._prefix = prefix
        self.arrays: Arrays = {}

    def pack(self, value: Any, label: str) -> Any:
        """Return a value as JSON; raise with ``label`` if its type cannot be serialised."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is list:
            return [self.pack(item, label) for item in value]
        if isinstance(value, bytes | np.generic | np.ndarray):
            return self._array(value, label)
        if kind not in _KINDS or (kind is defaultdict and has_own_default(value)):
            raise CheckpointError(
                f"{label} is or holds a {kind.__name__}, which a checkpoint cannot hold; add "
                "state_dict() and load_state_dict(state) to the strategy, or leave out folder"
            )
        made_of, _ = _KINDS[kind]
        return {"kind": kind.__name__, "of": self.pack(made_of(value), label)}

    def _array(self, value: Any, label: str) -> dict[str, Any]:
        array = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.asarray(value)
        if array.dtype.hasobject:
            raise CheckpointError(f"{label} is an array of Python objects; use an array of numbers")
        name = f"{self._prefix}/{len(self.arrays)}"
        self.arrays[name] = array
        kind = {bytes: "bytes", np.ndarray: "array"}.get(type(value), "scalar")
        return {"array": name, "kind": kind}


def has_own_default(value: defaultdict[Any, Any]) -> bool:
    """Return whether the default of a defaultdict is a user-defined function."""
    default = value.default_factory
    return default is not None and default not in DEFAULTS.values()


def unpack(packed: Any, arrays: Arrays) -> Any:
    """Return the value that `Packer.pack` serialised."""
    if isinstance(packed, list):
        return [unpack(item, arrays) for item in packed]
    if not isinstance(packed, dict):
        return packed
    if "array" in packed:
        array = arrays[packed["array"]]
        if packed["kind"] == "bytes":
            return array.tobytes()
        return array[()] if packed["kind"] == "scalar" else array
    _, made = _KINDS[_NAMED[packed["kind"]]]
    return made(unpack(packed["of"], arrays))


def packed(names: Iterable[str]) -> bytes:
    """Return names as JSON strings separated by commas; such texts can be appended to."""
    return json.dumps(list(names)).encode()[1:-1]


def as_array(text: bytes | bytearray) -> NDArray[np.uint8]:
    """Return the bytes of packed names as an array."""
    return np.frombuffer(bytes(text), dtype=np.uint8)


def unpacked(array: NDArray[Any]) -> list[str]:
    """Return the names in an array; raise a ValueError if it does not hold names."""
    names = json.loads(b"[" + array.tobytes() + b"]")
    if not all(isinstance(name, str) for name in names):
        raise ValueError("the names of the clients are not text")
    return list(names)
