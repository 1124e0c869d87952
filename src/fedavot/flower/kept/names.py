"""Client names as bytes, for checkpoints: a hundred thousand names are one array."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
