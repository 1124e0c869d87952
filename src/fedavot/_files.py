"""Files written whole or not at all, and sealed with a SHA-256 of their content.

A document is one JSON object with the keys ``format``, ``version`` and ``checksum`` beside its
content. Floats are written with Python's shortest exact representation, so arrays come back bit for
bit; what is not finite is refused (no content of ours is). The checksum is over the rest in
canonical form: keys sorted, no white space, everything beyond ASCII escaped. An archive is an
``.npz`` whose comment is the checksum of all bytes before it. Checksums are compared before
anything is used, so that NumPy never parses a damaged file.
"""

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedavot._checks import quoted
from fedavot._reading import parse_json
from fedavot.errors import FileFormatError

PathLike = str | os.PathLike[str]

STALE_SECONDS = 3600.0
"""Age at which a temporary file is taken for one that a killed write left behind."""

_DAMAGED = "its content does not match its checksum; take a copy that is whole, or write it again"
_COMMENT = 64
"""Bytes of an archive's comment, after two that say its length."""


def write_document(path: PathLike, *, format: str, version: int, content: dict[str, Any]) -> None:
    """Write a versioned JSON document, whole or not at all."""
    document = {"format": format, "version": version, **content}
    try:
        text = json.dumps(document | {"checksum": _checksum(document)}, allow_nan=False)
    except ValueError as cause:
        raise FileFormatError(
            f"{os.fspath(path)} was not written: its content has a number that JSON cannot hold "
            f"({cause})"
        ) from None
    write_whole(path, lambda stream: stream.write(f"{text}\n".encode()))


def read_document(path: PathLike, *, format: str, version: int) -> dict[str, Any]:
    """Read a document of the given format, at most as new as ``version``, without its checksum."""
    name = os.fspath(path)
    try:
        document = parse_json(Path(path).read_bytes())
    except (ValueError, RecursionError) as cause:
        raise FileFormatError(
            f"{name} is not a complete JSON document ({cause}); it is another kind of file, or cut "
            "off: give the right one, or write it again"
        ) from None
    kind = document.get("format") if isinstance(document, dict) else type(document).__name__
    if not isinstance(document, dict) or kind != format:
        raise FileFormatError(f"{name} holds {quoted(kind)}, not {format!r}")
    number = document.get("version")
    if type(number) is not int or not 1 <= number <= version:
        raise FileFormatError(
            f"{name} has version {quoted(number)} of {format!r}, and this library reads up to "
            f"{version}; upgrade fedavot, or write it again"
        )
    if document.pop("checksum", None) != _checksum(document):
        raise FileFormatError(f"{name} was damaged or edited: {_DAMAGED}")
    return document


def _checksum(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def write_archive(path: PathLike, arrays: Mapping[str, Any]) -> None:
    """Write named arrays as a sealed .npz, whole or not at all."""

    def write(stream: IO[bytes]) -> None:
        np.savez(stream, **arrays)
        # The last two bytes are the length of the comment, which NumPy leaves empty.
        end = stream.seek(-2, os.SEEK_END)
        digest = _digest(stream, end)
        stream.seek(end)
        stream.write(_COMMENT.to_bytes(2, "little") + digest)

    write_whole(path, write)


def read_archive(path: PathLike) -> dict[str, Any]:
    """Return the arrays of an .npz that `write_archive` wrote."""
    with Path(path).open("rb") as stream:
        end = max(stream.seek(0, os.SEEK_END) - _COMMENT - 2, 0)
        digest = _digest(stream, end)
        if stream.read() != _COMMENT.to_bytes(2, "little") + digest:
            raise FileFormatError(
                f"{os.fspath(path)} is damaged, or another kind of file: {_DAMAGED}"
            )
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as archive:
            return dict(archive)


def _digest(stream: IO[bytes], end: int) -> bytes:
    """Return the SHA-256 of a file's bytes up to a place, and leave it there."""
    digest = hashlib.sha256()
    stream.seek(0)
    while chunk := stream.read(min(end - stream.tell(), 1 << 20)):
        digest.update(chunk)
    return digest.hexdigest().encode()


def write_whole(path: PathLike, write: Callable[[IO[bytes]], Any]) -> None:
    """Write to a temporary name beside ``path``, flush to disk, then rename.

    A link at ``path`` is replaced, not followed. Temporary files that writes of the same file left
    when they were killed, an hour ago or more, are removed. ``write`` writes the content to a
    binary stream, which may be read and moved in.
    """
    target = Path(path)
    temporary = target.parent / f".{target.stem}.{os.urandom(8).hex()}{target.suffix}"
    try:
        _remove_leftovers(target)
        stream = temporary.open("x+b")  # with the permissions that the umask leaves
    except OSError as cause:
        # The temporary name means nothing to the caller.
        raise OSError(cause.errno, cause.strerror, os.fspath(path)) from None
    try:
        with stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
        if os.name == "posix":  # so that the rename outlives a loss of power
            number = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _remove_leftovers(target: Path) -> None:
    name = re.compile(rf"\.{re.escape(target.stem)}\.[0-9a-f]{{16}}{re.escape(target.suffix)}")
    # A folder that cannot be listed may be written to.
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if name.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat().st_mtime > STALE_SECONDS:
                        os.unlink(entry)
