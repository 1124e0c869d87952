"""Files written whole or not at all, and versioned JSON documents.

A document is one JSON object with the keys ``format`` and ``version`` beside its content. Floats
are written with Python's shortest exact representation, so arrays come back bit for bit; infinite
values are refused (no content of ours has any), NaN likewise.
"""

import json
import os
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from fedavot.errors import FileFormatError

PathLike = str | os.PathLike[str]

ARCHIVE_FAILURES = (
    *(OSError, ValueError, TypeError, EOFError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)
"""What NumPy and zipfile raise on an .npz that is cut off, damaged or something else."""


def write_document(path: PathLike, *, format: str, version: int, content: dict[str, Any]) -> None:
    """Write a versioned JSON document, whole or not at all."""
    text = json.dumps({"format": format, "version": version, **content}, allow_nan=False)
    write_whole(path, lambda stream: stream.write(f"{text}\n".encode()))


def write_whole(path: PathLike, write: Callable[[IO[bytes]], Any]) -> None:
    """Write to a temporary name beside ``path``, flush to disk, then rename.

    Parameters
    ----------
    path : path
        What the file is called once it is whole.
    write : function of a binary stream
        Writes the content.
    """
    target = Path(path)
    temporary = target.parent / f".{target.stem}.{os.urandom(8).hex()}{target.suffix}"
    try:
        # With the permissions the umask leaves; to read that would be to set it, for all threads.
        with temporary.open("xb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
        _settle(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _settle(folder: Path) -> None:
    """Flush a folder's entries to disk, so that a rename outlives a loss of power."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def read_document(path: PathLike, *, format: str, version: int) -> dict[str, Any]:
    """Read a document of the given format, at most as new as ``version``."""
    name = os.fspath(path)
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as cause:
        raise FileFormatError(
            f"{name} is not a complete JSON document ({cause}); it may be cut off: write it again"
        ) from None
    if not isinstance(document, dict) or document.get("format") != format:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise FileFormatError(f"{name} holds {found!r}, not {format!r}")
    found_version = document.get("version")
    if not isinstance(found_version, int) or isinstance(found_version, bool) or found_version < 1:
        raise FileFormatError(f"{name} has version {found_version!r}; expected a positive integer")
    if found_version > version:
        raise FileFormatError(
            f"{name} has version {found_version} of {format!r}, and this library reads up to "
            f"{version}; upgrade fedavot"
        )
    return document
