"""Columns of many numbers in one binary file, written and checked as a stream, read by mapping.

The file holds its columns one after the other, as little-endian 64-bit numbers, and nothing else. A
JSON header elsewhere says which columns, how long they are, the file's name and its SHA-256. Each
write takes a new name, so that the header that names it switches from old to new in one rename.
"""

import hashlib
import operator
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedavot._device import CHUNK, DeviceVector
from fedavot._files import PathLike, remove_if_stale, write_whole
from fedavot.errors import FileFormatError

_KINDS = {"f": "<f8", "i": "<i8"}
_ITEM = 8


def write_columns(path: PathLike, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Write columns of equal length beside ``path``, and return what its header must say."""
    token = os.urandom(8).hex()
    target = Path(path).with_name(f"{Path(path).stem}.{token}.bin")
    digest = hashlib.sha256()

    def write(stream: IO[bytes]) -> None:
        for values in columns.values():
            for chunk in _chunks(values):
                data = np.ascontiguousarray(chunk, dtype=_KINDS[chunk.dtype.kind]).data
                digest.update(data)
                stream.write(data)

    write_whole(target, write)
    first = next(iter(columns.values()))
    kinds = {name: _KINDS[_kind(values)] for name, values in columns.items()}
    return {
        "file": target.name,
        "sha256": digest.hexdigest(),
        "length": len(first),
        "columns": kinds,
    }


def remove_other_columns(path: PathLike, header: Mapping[str, Any]) -> None:
    """Remove columns that earlier writes left beside ``path``, except those in the header."""
    place = Path(path)
    token, stem = "[0-9a-f]{16}", re.escape(place.stem)
    for entry in os.listdir(place.parent):
        if re.fullmatch(rf"{stem}\.{token}\.bin", entry) and entry != header["file"]:
            (place.parent / entry).unlink(missing_ok=True)
        elif re.fullmatch(rf"\.{stem}\.{token}\.{token}\.bin", entry):
            # Of a write that was killed: no later one has the same name and would remove it.
            remove_if_stale(place.parent / entry)


def read_columns(path: PathLike, header: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Map the columns that a header names, after checking the file's length and checksum."""
    try:
        source = Path(path).with_name(Path(str(header["file"])).name)
        length, kinds = operator.index(header["length"]), dict(header["columns"])
        clear = length > 0 and set(kinds.values()) <= set(_KINDS.values())
    except (LookupError, TypeError, ValueError):
        clear = False
    if not clear:
        raise FileFormatError(f"{os.fspath(path)} was not written by save: its columns are unclear")
    expected = length * len(kinds) * _ITEM
    try:
        found = source.stat().st_size
        digest = _digest(source)
    except OSError as cause:
        raise FileFormatError(
            f"{os.fspath(path)} needs {source.name} beside it, which cannot be read: {cause}"
        ) from None
    if found != expected or digest != header["sha256"]:
        raise FileFormatError(
            f"{source} was damaged or replaced: its {found:,} bytes do not match the {expected:,} "
            f"bytes and the checksum in {Path(path).name}; take a copy that is whole"
        )
    return {
        name: np.memmap(source, kind, mode="r", offset=place * length * _ITEM, shape=(length,))
        for place, (name, kind) in enumerate(kinds.items())
    }


def _chunks(values: Any) -> Iterator[NDArray[Any]]:
    if isinstance(values, DeviceVector):
        yield from values.chunks()
        return
    for first in range(0, len(values), CHUNK):
        yield values[first : first + CHUNK]


def _kind(values: Any) -> str:
    return "f" if isinstance(values, DeviceVector) else str(values.dtype.kind)


def _digest(source: Path) -> str:
    with source.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
