"""What every client said last, on disk: memory that removes the bias of the absent.

    θ ← θ + Σ_j p_j m_j + Σ_{i∈A} w_i (Δ_i − m_i),   then m_i ← Δ_i for i ∈ A

with Δ_i = θ_i − θ and m_j client j's last update. The wrapped strategy still averages by weight:
since the weights sum to one, handing it θ + Σ p m + Δ_i − m_i in client i's name gives exactly
this. Only floating-point arrays are remembered, and updates as they came: where clients' steps
change over the rounds, what the absent said last is of the step they took then.

The rows are one memory-mapped file, n_clients × model size. A round's new rows go to a journal
first and into the file once the round's checkpoint is written, so that a crash between the two
leaves either the old rows or what it takes to write the new ones. The checkpoint has a digest of
every row: a resumed run refuses rows that were damaged.
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
from fedavot.flower.records import view

ROWS = "memory.bin"
JOURNAL = "memory.journal.npz"


class Memory:
    """The last update of every client, by client number.

    Parameters
    ----------
    folder : path
        Where the file lies.
    model : ArrayRecord
        Gives the arrays' names, shapes and types.
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
        # Σ a_j m_j, with a_j the importance on its own scale: clients may join without a change.
        self.total: Floats = np.zeros(self._size)
        self.digests: NDArray[np.uint64] = np.zeros(0, np.uint64)

    def bytes_for(self, n_clients: int) -> int:
        """Return how many bytes that many clients take on disk."""
        return n_clients * self._size * self._dtype.itemsize

    def refuse_without_room(self, n_clients: int) -> None:
        """Raise if the disk has no room for that many clients."""
        path, free = self._folder / ROWS, shutil.disk_usage(self._folder).free
        # What the file takes already; it may be sparse.
        taken = path.stat().st_blocks * 512 if path.exists() else 0
        needed = self.bytes_for(n_clients)
        if needed - taken > free:
            raise TooLargeError(
                f"memory of {n_clients} clients takes {needed / 1e9:,.1f} GB, and "
                f"{self._folder} has {free / 1e9:,.1f} GB left; use another folder, or no memory"
            )

    def replace(
        self,
        replies: Sequence[Message],
        clients: Sequence[int],
        amounts: Floats,
        model: ArrayRecord,
    ) -> None:
        """Put what the wrapped strategy is to average into the replies, and note the new rows.

        Parameters
        ----------
        replies : sequence of Message
            Usable replies; their floating-point arrays are exchanged.
        clients : sequence of int
            Who sent them.
        amounts : ndarray of shape (n_clients,)
            Importance of all clients now, on any scale.
        model : ArrayRecord
            What the round started from.
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
        """Take the round's updates for good, or forget them if nothing was made of them."""
        if aggregated and self._pending[0]:
            self.total += self._change
        else:
            self._pending = ([], [])

    def write_journal(self, server_round: int) -> None:
        """Write the round's new rows beside the file, whole or not at all, and take digests."""
        clients, rows = self._pending
        table = np.array(rows, dtype=self._dtype).reshape(len(clients), self._size)
        content = {"round": server_round, "clients": np.array(clients, np.int64), "rows": table}
        write_archive(self._folder / JOURNAL, content)
        if clients:
            self._reach(max(clients) + 1)
            self.digests[clients] = [_digest(row) for row in table]

    def commit(self, n_clients: int) -> None:
        """Write the round's new rows into the file."""
        clients, rows = self._pending
        if clients:
            table = self._table(n_clients)
            for client, row in zip(clients, rows, strict=True):
                table[client] = row
            table.flush()
        self._pending = ([], [])
        (self._folder / JOURNAL).unlink(missing_ok=True)

    def clear(self) -> None:
        """Forget whatever an earlier run left."""
        for name in (ROWS, JOURNAL):
            (self._folder / name).unlink(missing_ok=True)

    def size(self) -> int:
        """Return how many bytes the rows have on disk."""
        path = self._folder / ROWS
        return path.stat().st_size if path.exists() else 0

    def recover(
        self, server_round: int, n_clients: int, size: int, digests: NDArray[Any] | None
    ) -> None:
        """After a crash, finish the rows of the last round that has a checkpoint; check them all.

        Parameters
        ----------
        server_round : int
            That round.
        n_clients : int
            How many clients there were.
        size : int
            How many bytes the rows had.
        digests : ndarray of uint64, or None
            Of the rows of the first clients, 0 for none yet; None in checkpoints of version 1.
        """
        if self.size() < size:
            raise CheckpointError(
                f"{self._folder / ROWS} has {self.size()} bytes of the {size} that the checkpoint "
                "counts on; put it back, or start in another folder"
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
        """Return a journal's round, clients and rows; it must be sealed if the checkpoint is."""
        try:
            held, sealed = read_archive(path)
            number, clients, rows = held["round"], held["clients"], held["rows"]
            if seal and not sealed:
                raise ValueError("it has no checksum")
            if number.ndim or number.dtype.kind != "i":
                raise ValueError("it does not say of which round it is")
            if not clients.size:
                return int(number), [], []
            if (rows.shape, rows.dtype) != ((clients.size, self._size), self._dtype):
                raise ValueError(f"its rows are of shape {rows.shape} and type {rows.dtype}")
            known = clients.dtype.kind == "i" and ((clients >= 0) & (clients < n_clients)).all()
            if clients.ndim != 1 or not known:
                raise ValueError(f"it is of other clients than the {n_clients} of the checkpoint")
        except ARCHIVE_FAILURES as cause:
            raise CheckpointError(
                f"{path} is not a journal of this run, or damaged ({cause}); put it back, or start "
                "in another folder"
            ) from None
        return int(number), clients.tolist(), list(rows)

    def _digests_of_rows(self, n_clients: int) -> NDArray[np.uint64]:
        """Return the digests of all rows in the file, 0 for clients that have none yet."""
        table = self._table(n_clients) if n_clients else []
        return np.array([_digest(row) for row in table], dtype=np.uint64)

    def _refuse_damaged(self, wanted: NDArray[Any], n_clients: int) -> None:
        """Raise if a row has another digest than the checkpoint says."""
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
                "checkpoint; put the file back, or start in another folder"
            )

    def _reach(self, n_clients: int) -> None:
        """Have a digest for so many clients, 0 for those that have no row yet."""
        more = max(n_clients - self.digests.size, 0)
        self.digests = np.concatenate([self.digests, np.zeros(more, np.uint64)])

    def _table(self, n_clients: int) -> Any:
        """Return the rows of all clients, the file grown to hold them; new rows are zero."""
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
    """Return 64 bits that tell a row from a damaged one; 0 for a row of zeros, as before any."""
    # A zero with its sign bit flipped equals zero: what is compared are the bytes.
    content = row.tobytes()
    if content.count(0) == len(content):
        return 0
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
