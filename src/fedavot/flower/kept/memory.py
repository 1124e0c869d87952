"""Memory: the last update of every client, on disk, to correct for absent clients.

    θ ← θ + Σ_j p_j m_j + Σ_{i∈A} w_i (Δ_i − m_i),   then m_i ← Δ_i for i ∈ A

with Δ_i = θ_i − θ and m_j the last update of client j. The wrapped strategy still averages by
weight: since the weights sum to one, passing it θ + Σ p m + Δ_i − m_i as the reply of client i
gives exactly this step. Only floating-point arrays are remembered. Updates are stored unscaled: if
the clients' step size changes over the rounds, an old update has the old step size.

The rows are stored in one memory-mapped file of n_clients × model size. The new rows of a round are
first written to a journal, and to the file once the checkpoint of the round is written; after a
crash in between, either the old rows or the journal with the new ones are complete. The checkpoint
holds a digest of every row, and a resumed run refuses damaged rows.
"""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message
from numpy.typing import NDArray

from fedavot._checks import Floats
from fedavot._files import ARCHIVE_FAILURES, read_archive, write_archive
from fedavot.errors import CheckpointError, TooLargeError
from fedavot.flower.worth.records import view

ROWS = "memory.bin"
JOURNAL = "memory.journal.npz"


class Memory:
    """The last update of every client, by client index.

    Parameters
    ----------
    folder : path
        Folder of the file.
    model : ArrayRecord
        A model with the names, shapes and types of the arrays.
    """

    def __init__(self, folder: Path, model: ArrayRecord) -> None:
        arrays = {key: view(array) for key, array in model.items()}
        self._shapes = {
            key: array.shape
            for key, array in arrays.items()
            if np.issubdtype(array.dtype, np.floating)
        }
        kinds = [arrays[key].dtype for key in self._shapes] or [np.dtype(np.float32)]
        self._dtype = np.result_type(np.float32, *kinds)
        self._size = sum(int(np.prod(shape)) for shape in self._shapes.values())
        self._folder = folder
        self._pending: tuple[list[int], list[NDArray[Any]]] = ([], [])
        self._change: Floats = np.zeros(0)
        # Σ a_j m_j, with a_j the unnormalised importance: it does not change when clients join.
        self.total: Floats = np.zeros(self._size)
        self.digests: NDArray[np.uint64] = np.zeros(0, np.uint64)

    def bytes_for(self, n_clients: int) -> int:
        """Return the disk space in bytes for a number of clients."""
        return n_clients * self._size * self._dtype.itemsize

    def refuse_without_room(self, n_clients: int) -> None:
        """Raise if the disk has no room for that many clients."""
        path, free = self._folder / ROWS, shutil.disk_usage(self._folder).free
        # Space that the file takes already; it may be sparse.
        taken = path.stat().st_blocks * 512 if path.exists() else 0
        needed = self.bytes_for(n_clients)
        if needed - taken > free:
            raise TooLargeError(
                f"memory for {n_clients} clients takes {needed / 1e9:,.1f} GB, and "
                f"{self._folder} has {free / 1e9:,.1f} GB left; use another folder, or memory=False"
            )

    def replace(
        self,
        replies: Sequence[Message],
        clients: Sequence[int],
        amounts: Floats,
        model: ArrayRecord,
    ) -> None:
        """Replace the arrays of replies by what the wrapped strategy averages; keep the new rows.

        Parameters
        ----------
        replies : sequence of Message
            Usable replies; their floating-point arrays are replaced.
        clients : sequence of int
            Indices of the clients that sent them.
        amounts : ndarray of shape (n_clients,)
            Current importance of all clients, on any scale.
        model : ArrayRecord
            Global model at the start of the round.
        """
        table = self._table(amounts.size)
        mean = self.total / amounts.sum()
        change = np.zeros(self._size)
        start = self._flat({key: view(array) for key, array in model.items()})
        rows = []
        for reply, client in zip(replies, clients, strict=True):
            record = next(iter(reply.content.array_records.values()))
            fresh = self._flat({key: view(array) for key, array in record.items()})
            fresh -= start
            news = fresh - table[client]
            change += amounts[client] * news
            self._put(record, start + mean + news)
            rows.append(fresh)
        self._change = change
        self._pending = (list(clients), rows)

    def keep(self, *, aggregated: bool) -> None:
        """Accept the updates of the round, or discard them if the round was not aggregated."""
        if aggregated and self._pending[0]:
            self.total += self._change
        else:
            self._pending = ([], [])

    def write_journal(self, server_round: int) -> None:
        """Write the new rows of the round to the journal, atomically, and update the digests."""
        clients, rows = self._pending
        table = np.array(rows, dtype=self._dtype).reshape(len(clients), self._size)
        content = {"round": server_round, "clients": np.array(clients, np.int64), "rows": table}
        write_archive(self._folder / JOURNAL, content)
        if clients:
            self._reach(max(clients) + 1)
            self.digests[clients] = [_digest(row) for row in table]

    def commit(self, n_clients: int) -> None:
        """Write the new rows of the round to the file."""
        clients, rows = self._pending
        if clients:
            table = self._table(n_clients)
            for client, row in zip(clients, rows, strict=True):
                table[client] = row
            table.flush()
        self._pending = ([], [])
        (self._folder / JOURNAL).unlink(missing_ok=True)

    def clear(self) -> None:
        """Delete the files of an earlier run."""
        for name in (ROWS, JOURNAL):
            (self._folder / name).unlink(missing_ok=True)

    def bytes_on_disk(self) -> int:
        """Return the length of the file of rows in bytes; 0 if there is none."""
        path = self._folder / ROWS
        return path.stat().st_size if path.exists() else 0

    def recover(
        self, server_round: int, n_clients: int, n_bytes: int, digests: NDArray[Any] | None
    ) -> None:
        """After a crash, complete the rows of the round of the checkpoint, and check all rows.

        Parameters
        ----------
        server_round : int
            Round of the checkpoint.
        n_clients : int
            Number of clients in the checkpoint.
        n_bytes : int
            Length of the file of rows, according to the checkpoint.
        digests : ndarray of uint64, or None
            Digests of the rows of the first clients, 0 for a client without one; None in
            checkpoints of version 1.
        """
        found = self.bytes_on_disk()
        if found < n_bytes:
            raise CheckpointError(
                f"{self._folder / ROWS} has {found} of the {n_bytes} bytes that the checkpoint "
                "requires; restore the file, or start in another folder"
            )
        path = self._folder / JOURNAL
        if path.exists():
            number, clients, rows = self._read_journal(path, n_clients, digests is not None)
            if number == server_round:
                self._pending = (clients, rows)
        self.commit(n_clients)
        self.digests = self._digests_of_rows(n_clients)
        if digests is not None:
            self._refuse_damaged(digests, n_clients)

    def _read_journal(
        self, path: Path, n_clients: int, seal: bool
    ) -> tuple[int, list[int], list[NDArray[Any]]]:
        """Return round, clients and rows of a journal; require a checksum if ``seal``."""
        try:
            held, sealed = read_archive(path)
            number, clients, rows = held["round"], held["clients"], held["rows"]
            if seal and not sealed:
                raise ValueError("it has no checksum")
            if number.ndim or number.dtype.kind != "i":
                raise ValueError("it has no round number")
            if not clients.size:
                return int(number), [], []
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
        return int(number), clients.tolist(), list(rows)

    def _digests_of_rows(self, n_clients: int) -> NDArray[np.uint64]:
        """Return the digests of all rows in the file, 0 for clients without an update."""
        table = self._table(n_clients) if n_clients else []
        return np.array([_digest(row) for row in table], dtype=np.uint64)

    def _refuse_damaged(self, wanted: NDArray[Any], n_clients: int) -> None:
        """Raise if the digest of a row differs from that in the checkpoint."""
        if wanted.dtype != np.uint64 or wanted.ndim != 1 or wanted.size > n_clients:
            raise CheckpointError(
                f"the checkpoint in {self._folder} has no digests of {n_clients} rows; start in "
                "another folder"
            )
        padded = np.concatenate([wanted, np.zeros(n_clients - wanted.size, np.uint64)])
        damaged = np.flatnonzero(self.digests != padded)
        if damaged.size:
            raise CheckpointError(
                f"row {damaged[0]} of {self._folder / ROWS} was damaged or changed since the "
                "checkpoint; restore the file, or start in another folder"
            )

    def _reach(self, n_clients: int) -> None:
        """Extend the digests to that many clients, with 0 for new ones."""
        more = max(n_clients - self.digests.size, 0)
        self.digests = np.concatenate([self.digests, np.zeros(more, np.uint64)])

    def _table(self, n_clients: int) -> Any:
        """Return the rows of all clients; extend the file with zeros if it is too short."""
        path = self._folder / ROWS
        path.touch()
        needed = self.bytes_for(n_clients)
        if path.stat().st_size < needed:
            self.refuse_without_room(n_clients)
            with path.open("r+b") as stream:
                stream.truncate(needed)
        shape = (n_clients, self._size)
        return np.memmap(path, dtype=self._dtype, mode="r+", shape=shape)

    def _flat(self, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        parts = [arrays[key].reshape(-1).astype(self._dtype) for key in self._shapes]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=self._dtype)

    def _put(self, record: ArrayRecord, flat: NDArray[Any]) -> None:
        place = 0
        for key, shape in self._shapes.items():
            size = int(np.prod(shape))
            values = flat[place : place + size].reshape(shape)
            record[key] = Array(np.asarray(values, dtype=record[key].dtype))
            place += size


def _digest(row: NDArray[Any]) -> int:
    """Return a 64-bit digest of a row; 0 for a row of zeros, as of a client without an update."""
    # Compare bytes, not numbers: a zero whose sign bit was flipped still equals zero.
    content = row.tobytes()
    if content.count(0) == len(content):
        return 0
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
