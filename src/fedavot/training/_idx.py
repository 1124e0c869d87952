"""The IDX format: a magic number, the lengths of the axes, then the entries.

The magic number has four bytes: two zeros, the type (8 for bytes, the only one read here) and the
number of axes; then come one big-endian 32-bit length per axis and the entries, the last axis
fastest. Files may be gzipped. A file that is incomplete, or in another format, is refused by name.
"""

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import refuse_if_too_large
from fedavot.errors import FileFormatError

BYTES = 8
"""The type code of unsigned bytes."""
PIECE = 1 << 24
"""Bytes read at a time."""


def read_idx(path: Path, *, axes: int) -> tuple[NDArray[np.uint8], str]:
    """Return the entries of an IDX file of bytes, and the SHA-256 of its uncompressed content.

    Parameters
    ----------
    path : Path
        The file, gzipped if its name ends in ``.gz``.
    axes : int
        Number of axes that it must have: 1 for labels, 3 for images.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as stream:
            header = stream.read(4 + 4 * axes)
            shape = _shape(path, header, axes)
            expected = int(np.prod(shape, dtype=object))
            refuse_if_too_large(
                expected, what=f"the content {path} announces", remedy="its header may be damaged"
            )
            # Reading one byte more than announced shows whether the file ends where it should.
            body = b"".join(_pieces(stream.read, expected + 1))
    except (EOFError, gzip.BadGzipFile, zlib.error) as cause:
        raise FileFormatError(
            f"{path} is not a complete gzip file ({cause}); it may be cut off: fetch it again"
        ) from None
    if len(body) != expected:
        found = f"only {len(body)}" if len(body) < expected else "more"
        raise FileFormatError(
            f"{path} announces {expected} bytes after its header, shape {shape}, and has {found}; "
            "it may be cut off: fetch it again"
        )
    digest = hashlib.sha256(header)
    digest.update(body)
    return np.frombuffer(body, dtype=np.uint8).reshape(shape), digest.hexdigest()


def _pieces(read: Callable[[int], bytes], length: int) -> Iterator[bytes]:
    """Yield up to ``length`` bytes in pieces: a header may announce more than fits in memory."""
    while length and (piece := read(min(length, PIECE))):
        length -= len(piece)
        yield piece


def _shape(path: Path, header: bytes, axes: int) -> tuple[int, ...]:
    magic = bytes((0, 0, BYTES, axes))
    if header[:4] != magic:
        raise FileFormatError(
            f"{path} begins with {header[:4].hex() or 'nothing'}, not {magic.hex()}: it is no IDX "
            f"file of bytes with {axes} axes"
        )
    if len(header) != 4 + 4 * axes:
        raise FileFormatError(f"{path} ends within its header; it is cut off: fetch it again")
    return tuple(int(length) for length in np.frombuffer(header, dtype=">u4", offset=4))
