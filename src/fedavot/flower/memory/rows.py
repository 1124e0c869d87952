"""Memories on disk: one row per client in one memory-mapped file.

The new rows of a round are first written to a journal, and to the file once the checkpoint of the
round is written; after a crash in between, either the old rows or the journal with the new ones is
complete. The checkpoint holds a digest of every row, and a resumed run refuses damaged rows.
"""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedavot._files import ARCHIVE_FAILURES, read_archive, write_archive
from fedavot.errors import CheckpointError, TooLargeError

ROWS = "memory.bin"
JOURNAL = "memory.journal.npz"

Digests = NDArray[np.uint64]


class Rows:
    """Rows of equal length by client index, zero until they are written.

    Parameters
    ----------
    folder : Path
        Folder of the files.
    size : int
        Number of entries of a row.
    dtype : numpy.dtype
        Their type.
    """

    def __init__(self, folder: Path, size: int, dtype: np.dtype[Any]) -> None:
        self._folder, self._size, self._dtype = folder, size, dtype
        self._pending: Mapping[int, NDArray[Any]] = {}
        self.digests: Digests = np.zeros(0, np.uint64)

    def bytes_for(self, n_clients: int) -> int:
        """Return the disk space in bytes for a number of clients."""
        return n_clients * self._size * self._dtype.itemsize

    def refuse_without_room(self, n_clients: int) -> None:
        """Raise if the disk has no room for that many clients."""
        path, free = self._folder / ROWS, shutil.disk_usage(self._folder).free
        # Space that the file already takes; it may be sparse.
        taken = path.stat().st_blocks * 512 if path.exists() else 0
        needed = self.bytes_for(n_clients)
        if needed - taken > free:
            raise TooLargeError(
                f"memory for {n_clients} clients takes {needed / 1e9:,.1f} GB, and "
                f"{self._folder} has {free / 1e9:,.1f} GB left; use another folder, or "
                "memory='clients'"
            )

    def read(self, clients: Sequence[int]) -> list[NDArray[Any]]:
        """Return copies of rows."""
        if not clients:
            return []
        table = self._table(max(clients) + 1)
        return [np.array(table[client]) for client in clients]

    def stage(self, rows: Mapping[int, NDArray[Any]]) -> None:
        """Keep the new rows of a round, by client, until they are written."""
        self._pending = rows

    def write_journal(self, server_round: int) -> None:
        """Write the new rows to the journal, whole or not at all, and update the digests."""
        clients, rows = list(self._pending), list(self._pending.values())
        table = np.array(rows, dtype=self._dtype).reshape(len(clients), self._size)
        content = {"round": server_round, "clients": np.array(clients, np.int64), "rows": table}
        write_archive(self._folder / JOURNAL, content)
        if clients:
            more = max(max(clients) + 1 - self.digests.size, 0)
            self.digests = np.concatenate([self.digests, np.zeros(more, np.uint64)])
            self.digests[clients] = [_digest(row) for row in table]

    def commit(self) -> None:
        """Write the new rows to the file."""
        if self._pending and self._size:
            table = self._table(max(self._pending) + 1)
            for client, row in self._pending.items():
                table[client] = row
            table.flush()
        self._pending = {}
        (self._folder / JOURNAL).unlink(missing_ok=True)

    def clear(self) -> None:
        """Delete the files of an earlier run."""
        for name in (ROWS, JOURNAL):
            (self._folder / name).unlink(missing_ok=True)

    def bytes_on_disk(self) -> int:
        """Return the length of the file of rows in bytes; 0 if there is none."""
        path = self._folder / ROWS
        return path.stat().st_size if path.exists() else 0

    def recover(self, server_round: int, n_bytes: int, digests: Digests) -> None:
        """After a crash, complete the rows of the round of the checkpoint, and check all rows.

        The checkpoint has the length of the file in bytes, and the digests of the rows of the first
        clients, 0 for a client without one.
        """
        if digests.dtype != np.uint64 or digests.ndim != 1:
            raise CheckpointError(
                f"the checkpoint in {self._folder} has no digests of rows; start in another folder"
            )
        found = self.bytes_on_disk()
        if found < n_bytes:
            raise CheckpointError(
                f"{self._folder / ROWS} has {found} of the {n_bytes} bytes that the checkpoint "
                "requires; restore the file, or start in another folder"
            )
        path = self._folder / JOURNAL
        if path.exists():
            number, rows = self._read_journal(path, digests.size)
            if number == server_round:
                self._pending = rows
        self.commit()
        self.digests = digests
        self._refuse_damaged()

    def _read_journal(self, path: Path, n_clients: int) -> tuple[int, dict[int, NDArray[Any]]]:
        """Return the round of a journal, and its rows by client."""
        try:
            held, sealed = read_archive(path)
            number, clients, rows = held["round"], held["clients"], held["rows"]
            if not sealed:
                raise ValueError("it has no checksum")
            if number.ndim or number.dtype.kind != "i":
                raise ValueError("it has no round number")
            if not clients.size:
                return int(number), {}
            if (rows.shape, rows.dtype) != ((clients.size, self._size), self._dtype):
                raise ValueError(f"its rows have shape {rows.shape} and type {rows.dtype}")
            known = clients.dtype.kind == "i" and ((clients >= 0) & (clients < n_clients)).all()
            if clients.ndim != 1 or not known:
                raise ValueError(f"its clients are not among the {n_clients} of the checkpoint")
        except ARCHIVE_FAILURES as cause:
            raise CheckpointError(
                f"{path} is not a journal of this run, or is damaged ({cause}); restore it, or "
                "start in another folder"
            ) from None
        return int(number), dict(zip(clients.tolist(), rows, strict=True))

    def _refuse_damaged(self) -> None:
        """Raise if the digest of a row differs from that in the checkpoint."""
        count = max(self.digests.size, self.bytes_on_disk() // max(self.bytes_for(1), 1))
        table = self._table(count) if count else []
        found = np.array([_digest(row) for row in table], dtype=np.uint64)
        wanted = np.zeros(found.size, np.uint64)
        wanted[: self.digests.size] = self.digests[: found.size]
        damaged = np.flatnonzero(found != wanted)
        if damaged.size:
            raise CheckpointError(
                f"row {damaged[0]} of {self._folder / ROWS} was damaged or changed since the "
                "checkpoint; restore the file, or start in another folder"
            )

    def _table(self, n_clients: int) -> Any:
        """Return the rows of the first clients; extend the file with zeros if it is too short."""
        if not self._size:  # an empty file cannot be mapped
            return np.zeros((n_clients, 0), self._dtype)
        path = self._folder / ROWS
        path.touch()
        needed = self.bytes_for(n_clients)
        if path.stat().st_size < needed:
            self.refuse_without_room(n_clients)
            with path.open("r+b") as stream:
                stream.truncate(needed)
        shape = (n_clients, self._size)
        return np.memmap(path, dtype=self._dtype, mode="r+", shape=shape)


def _digest(row: NDArray[Any]) -> int:
    """Return a 64-bit digest of a row; 0 for zeros, as for a client without an update."""
    # Compare bytes, not numbers: a zero whose sign bit was flipped still equals zero.
    content = row.tobytes()
    if content.count(0) == len(content):
        return 0
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
