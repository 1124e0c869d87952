"""MNIST's published files, and how to download them from a mirror.

A file is written under a temporary name, and renamed once its length and SHA-256 are right: a file
with the final name is complete. A correct file that already exists is not downloaded again; an
existing file that differs is never overwritten.
"""

import functools
import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from fedavot._checks import as_amount
from fedavot._files import write_whole
from fedavot.errors import FileFormatError, UnavailableError

CHUNK = 1 << 16

# A full disk is not among these: its own error says more.
_FAILURES = (
    *(urllib.error.URLError, http.client.HTTPException, ssl.SSLError),
    *(ConnectionError, TimeoutError, ValueError),
)

Progress = Callable[[str, int, int], None]
"""A function of (file name, bytes received, total bytes)."""


class Remote(NamedTuple):
    """A gzipped file as published."""

    name: str
    n_bytes: int
    sha256: str
    content: str = ""
    """SHA-256 of the uncompressed content."""


MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
"""The default mirror, as torchvision uses it."""

# For the files whose published MD5s are, in order, f68b3c2dcbeaaa9fbdd348bbdeb94873,
# d53e105ee54ea40749a09fcbcd1e9432, 9fb629c4189551a2d022fa330f9573f3 and
# ec29112dd5afa0611ce80d1b7f02629c.
PUBLISHED = (
    Remote(
        "train-images-idx3-ubyte.gz",
        9_912_422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    Remote(
        "train-labels-idx1-ubyte.gz",
        28_881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    Remote(
        "t10k-images-idx3-ubyte.gz",
        1_648_877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    Remote(
        "t10k-labels-idx1-ubyte.gz",
        4_542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)


def fetch_mnist(
    data_dir: str | os.PathLike[str],
    *,
    mirror: str = MIRROR,
    files: Sequence[Remote] = PUBLISHED,
    timeout: float = 30.0,
    progress: Progress | None = None,
) -> None:
    """Download the four gzipped files into a folder, 11.6 MB in total.

    Parameters
    ----------
    data_dir : path
        The folder; created if it does not exist.
    mirror : str
        The address to which the file names are appended.
    files : sequence of Remote
        Names, lengths and SHA-256.
    timeout : float
        Seconds without an answer after which a transfer is abandoned.
    progress : function of (name, received, total), optional
        Called at the start of a transfer and after each piece.
    """
    seconds = as_amount(timeout, what="timeout", positive=True)
    folder = Path(data_dir)
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        target = folder / file.name
        if target.exists():
            _refuse_if_different(target, file)
            continue
        address = f"{mirror.rstrip('/')}/{file.name}"
        transfer = functools.partial(
            _transfer, file=file, address=address, timeout=seconds, progress=progress
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
            # One byte more than expected shows that it is another file: read no further.
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
        found = f"{received}" if received <= file.n_bytes else f"more than {file.n_bytes}"
        raise FileFormatError(
            f"{address} is not the published {file.name}: {found} bytes, SHA-256 "
            f"{digest.hexdigest()}, expected {file.sha256}; give another mirror"
        )


def _refuse_if_different(target: Path, file: Remote) -> None:
    with target.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != file.sha256:
        raise FileFormatError(
            f"{target} is there, but is not the published file: SHA-256 {found}, expected "
            f"{file.sha256}; move it away, or give another folder"
        )
