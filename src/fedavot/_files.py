"""Files written whole or not at all, and sealed with a checksum over their content.

A document is one JSON object with the keys ``format``, ``version`` and ``checksum`` beside its
content. Floats are written with Python's shortest exact representation, so arrays come back bit for
bit; what is not finite is refused (no content of ours is). The checksum is the SHA-256 of the rest
in canonical form: keys sorted, no white space, everything beyond ASCII escaped. An archive is an
``.npz`` with an entry ``checksum`` over the names, types, shapes and bytes of its other arrays.

Documents are sealed from version 2 on. One of version 1 must not have a checksum and a later one
must, so that no damage to the key makes a file pass for an old one; nor can a flipped bit make a 1
of a 2. Old files are read with a `FedavotWarning`.
"""

import contextlib
import hashlib
import io
import json
import lzma
import os
import re
import stat
import struct
import sys
import time
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedavot._checks import quoted
from fedavot._reading import parse_json
from fedavot.errors import FedavotWarning, FileFormatError

PathLike = str | os.PathLike[str]

ARCHIVE_FAILURES = (
    *(OSError, ValueError, TypeError, EOFError, RuntimeError, LookupError, ArithmeticError),
    *(MemoryError, SyntaxError, struct.error, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    tokenize.TokenError,
)
"""What NumPy and zipfile raise on an .npz that is cut off, damaged or something else."""

SEALED_FROM = 2
"""First version of a document that has a checksum."""

STALE_SECONDS = 3600.0
"""Age at which a temporary file is taken for a leftover where files cannot be locked."""


def write_document(path: PathLike, *, format: str, version: int, content: dict[str, Any]) -> None:
    """Write a versioned JSON document, whole or not at all; sealed from version 2 on."""
    document = {"format": format, "version": version, **content}
    try:
        if version >= SEALED_FROM:
            document["checksum"] = checksum(document)
        text = json.dumps(document, allow_nan=False)
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
        found_checksum = document.pop("checksum", None) if isinstance(document, dict) else None
        true_checksum = checksum(document)  # raises if a number is not finite
    except UnicodeDecodeError as cause:
        raise FileFormatError(
            f"{name} is damaged, or no JSON document: byte {cause.start} is not UTF-8 text; take a "
            "copy that is whole"
        ) from None
    except (ValueError, RecursionError) as cause:
        raise FileFormatError(
            f"{name} is not a complete JSON document ({cause}); it is another kind of file, or cut "
            "off: give the right one, or write it again"
        ) from None
    if not isinstance(document, dict) or document.get("format") != format:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise FileFormatError(f"{name} holds {quoted(found)}, not {format!r}")
    found_version = document.get("version")
    if type(found_version) is not int or found_version < 1:
        raise FileFormatError(
            f"{name} has version {quoted(found_version)}; expected a positive integer"
        )
    if found_version > version:
        raise FileFormatError(
            f"{name} has version {quoted(found_version)} of {format!r}, and this library reads up "
            f"to {version}; upgrade fedavot"
        )
    if found_version >= SEALED_FROM and found_checksum != true_checksum:
        raise FileFormatError(
            f"{name} was damaged or edited: its content does not match its checksum; take a copy "
            "that is whole, or write it again"
        )
    if found_version < SEALED_FROM and found_checksum is not None:
        raise FileFormatError(
            f"{name} has a checksum, which version {found_version} of {format!r} has not; it was "
            "damaged or edited: write it again"
        )
    if found_version < SEALED_FROM <= version:
        note_unsealed(name, stacklevel=4)
    return document


def checksum(content: Any) -> str:
    """Return the SHA-256 of JSON content in canonical form."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def note_unsealed(name: PathLike, *, stacklevel: int) -> None:
    """Warn that a file is from before there were checksums."""
    warnings.warn(
        f"{os.fspath(name)} has no checksum, as files of earlier versions of fedavot, so that "
        "damage to it may go unnoticed; save it again to add one",
        FedavotWarning,
        stacklevel=stacklevel,
    )


def write_archive(path: PathLike, arrays: Mapping[str, Any]) -> None:
    """Write named arrays as a sealed .npz, whole or not at all."""
    held = {name: np.asarray(array) for name, array in arrays.items()}
    held["checksum"] = np.array(_archive_checksum(held))
    write_whole(path, lambda stream: _write_npz(stream, held))


def read_archive(path: PathLike) -> tuple[dict[str, Any], bool]:
    """Return the arrays of an .npz, and whether it is sealed; its checksum is checked.

    Raises one of `ARCHIVE_FAILURES`, for the caller to say what the file should have been.
    """
    # Members are read to their end before NumPy parses them, so that their CRC is always checked.
    with Path(path).open("rb") as stream, zipfile.ZipFile(stream) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        if len(set(names)) < len(names):
            raise ValueError("it has an entry more than once")
        entries = zip(names, archive.namelist(), strict=True)
        arrays = {name: _array(archive.read(entry)) for name, entry in entries}
    found = arrays.pop("checksum", None)
    if found is not None and str(found) != _archive_checksum(arrays):
        raise ValueError("it was damaged or edited: its arrays do not match its checksum")
    return arrays, found is not None


def write_whole(path: PathLike, write: Callable[[IO[bytes]], Any]) -> None:
    """Write to a temporary name beside ``path``, flush to disk, then rename.

    A link at ``path`` is replaced, not followed. Temporary files of earlier writes of the same file
    that were killed are removed; those of writes under way are locked, and left alone. ``write``
    writes the content to a binary stream.
    """
    target = Path(path)
    try:
        _remove_leftovers(target)
        temporary, stream = _begin(target)
    except OSError as cause:
        # The temporary name means nothing to the caller.
        raise OSError(cause.errno, cause.strerror, os.fspath(path)) from None
    try:
        with stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
            if sys.platform == "win32":
                stream.close()  # no locks there, and open files cannot be renamed
            os.replace(temporary, target)
        _settle(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _begin(target: Path) -> tuple[Path, IO[bytes]]:
    """Open a temporary file beside the target, locked as long as it is open."""
    while True:
        temporary = target.parent / f".{target.stem}.{os.urandom(8).hex()}{target.suffix}"
        # With the permissions the umask leaves; to read that would be to set it, for all threads.
        stream = temporary.open("xb")
        # Another process may take the file for a leftover before it is locked.
        if _lock(stream.fileno()) is not False and os.fstat(stream.fileno()).st_nlink:
            return temporary, stream
        stream.close()


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files of this target that no process is writing."""
    name = re.compile(rf"\.{re.escape(target.stem)}\.[0-9a-f]{{16}}{re.escape(target.suffix)}")
    with contextlib.suppress(OSError):  # a folder that cannot be listed may be written to
        for entry in os.listdir(target.parent):
            if name.fullmatch(entry):
                with contextlib.suppress(OSError):
                    remove_if_stale(target.parent / entry)


def remove_if_stale(path: Path) -> None:
    """Remove a temporary file unless a process is writing it."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        return
    old = time.time() - status.st_mtime > STALE_SECONDS
    if sys.platform == "win32":
        if old:
            path.unlink(missing_ok=True)
        return
    number = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        locked = _lock(number)
        if locked or (locked is None and old):
            path.unlink(missing_ok=True)
    finally:
        os.close(number)


def _lock(number: int) -> bool | None:
    """Lock an open file: True if that worked, False if another has, None if there are no locks."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _settle(folder: Path) -> None:
    """Flush a folder's entries to disk, so that a rename outlives a loss of power."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _write_npz(stream: IO[bytes], arrays: Mapping[str, Any]) -> None:
    """Write arrays as `numpy.savez` does, which refuses no objects before NumPy 2.1."""
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def _array(data: bytes) -> Any:
    """Return the array of an .npy file's bytes."""
    if re.search(rb"\dL\b", data.split(b"\n", 1)[0]):
        raise ValueError("an array has a header of Python 2")  # which NumPy reads with a warning
    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def _archive_checksum(arrays: Mapping[str, Any]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        kind = np.lib.format.dtype_to_descr(array.dtype)
        digest.update(f"{len(name)}:{name}{kind}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
