"""Files from a mirror, each checked before it gets its name.

A file is written beside its place under a temporary name, and renamed once its length and SHA-256
are what was announced: what stands under the name is whole. One that is there already and right is
not fetched again; one that is there and differs is never overwritten.
"""

import functools
import hashlib
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fedavot._files import write_whole
from fedavot.errors import FileFormatError, UnavailableError

CHUNK = 1 << 16

# A full disk is none of these: its own error says more.
_FAILURES = (
    *(urllib.error.URLError, http.client.HTTPException, ssl.SSLError),
    *(ConnectionError, TimeoutError, ValueError),
)

Progress = Callable[[str, int, int], None]
"""A function of (file name, bytes received, bytes in all)."""


@dataclass(frozen=True)
class Remote:
    """A file as its publisher has it."""

    name: str
    n_bytes: int
    sha256: str


def fetch(
    folder: Path,
    files: Sequence[Remote],
    *,
    mirror: str,
    timeout: float,
    progress: Progress | None = None,
) -> None:
    """Bring files from a mirror into a folder, which is made where missing.

    Parameters
    ----------
    folder : Path
        Where the files go.
    files : sequence of Remote
        Which, and how to know them.
    mirror : str
        The address their names are appended to.
    timeout : float
        Seconds without an answer after which a transfer is given up.
    progress : function of (name, received, total), optional
        Called at the start of a transfer and after each piece.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        target = folder / file.name
        if target.exists():
            _refuse_if_different(target, file)
            continue
        address = f"{mirror.rstrip('/')}/{file.name}"
        transfer = functools.partial(
            _transfer, file=file, address=address, timeout=timeout, progress=progress
        )
        write_whole(target, transfer)


def _transfer(
    stream: IO[bytes], *, file: Remote, address: str, timeout: float, progress: Progress | None
) -> None:
    """Copy one file from its address into the stream, and check it."""
    digest = hashlib.sha256()
    received = 0
    try:
        with urllib.request.urlopen(address, timeout=timeout) as source:
            # A byte more than announced settles that it is another file: read no further.
            while received <= file.n_bytes:
                if progress is not None:
                    progress(file.name, received, file.n_bytes)
                piece = source.read(min(CHUNK, file.n_bytes + 1 - received))
                if not piece:
                    break
                stream.write(piece)
                digest.update(piece)
                received += len(piece)
    except _FAILURES as cause:
        raise UnavailableError(
            f"{address} could not be fetched ({cause}); check the network, give another mirror, "
            "or put the files there by hand"
        ) from cause
    if received != file.n_bytes or digest.hexdigest() != file.sha256:
        raise FileFormatError(
            f"{address} is not the published {file.name}: {_described(received, file.n_bytes)}, "
            f"SHA-256 {digest.hexdigest()}, expected {file.sha256}; give another mirror"
        )


def _refuse_if_different(target: Path, file: Remote) -> None:
    with target.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != file.sha256:
        raise FileFormatError(
            f"{target} is there, but is not the published file: SHA-256 {found}, expected "
            f"{file.sha256}; move it away, or give another folder"
        )


def _described(received: int, expected: int) -> str:
    return f"{received} bytes" if received <= expected else f"more than {expected} bytes"
