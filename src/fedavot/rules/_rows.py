"""One row of numbers per client, in memory or in a file.

The file has two places per client. A row that a saved state refers to is never overwritten: the
next one goes to the other place. So whatever happens between two saves, the last saved state still
has its rows. A `mark` beside the file names the states whose rows it has; older ones are refused.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import refuse_if_too_large
from fedavot._files import write_whole
from fedavot.errors import FileFormatError

Row = NDArray[Any]


class Rows(Protocol):
    """Where the rows are. A row is read and written in parts, from entry ``at``."""

    def begin(self, clients: Iterable[int]) -> None:
        """Make room for the rows of clients about to be written, or refuse."""

    def read(self, client: int, at: int, row: Row) -> None:
        """Read part of a row, as long as ``row``, into it."""

    def write(self, client: int, at: int, row: Row) -> None:
        """Write part of a row whose client was announced by `begin`."""

    def end(self) -> None:
        """Use the rows written since `begin` from now on."""

    def forget(self, client: int) -> None:
        """Give up a row."""


class RowsInMemory:
    """Rows as arrays."""

    def __init__(self, size: int, dtype: Any) -> None:
        self._size, self._dtype = size, np.dtype(dtype)
        self._rows: dict[int, Row] = {}

    def begin(self, clients: Iterable[int]) -> None:
        """Allocate the rows that are new."""
        new = [client for client in clients if client not in self._rows]
        refuse_if_too_large(
            len(new) * self._size * self._dtype.itemsize,
            what=f"the memory of {len(new)} more clients",
            remedy="keep it in a folder, or go without: memory=folder, memory=False",
        )
        self._rows |= {client: np.zeros(self._size, self._dtype) for client in new}

    def read(self, client: int, at: int, row: Row) -> None:
        """Read part of a row."""
        row[:] = self._rows[client][at : at + row.size]

    def write(self, client: int, at: int, row: Row) -> None:
        """Write part of a row."""
        self._rows[client][at : at + row.size] = row

    def end(self) -> None:
        """Do nothing: rows are written in place."""

    def forget(self, client: int) -> None:
        """Free a row."""
        self._rows.pop(client, None)


class RowsOnDisk:
    """Rows in a file of a folder, for models that do not fit in memory once per client.

    Parameters
    ----------
    folder : path
        Made if needed. It must not have the rows of another run, unless ``mark`` names them.
    size, dtype
        Number and type of a row's entries.
    mark : str, optional
        The mark of a saved state to continue from, with ``places`` as `places` was then.
    """

    def __init__(
        self, folder: Any, size: int, dtype: Any, *, mark: str = "", places: Any = None
    ) -> None:
        self.folder = Path(folder)
        self._size, self._dtype = size, np.dtype(dtype)
        self._row: int = self._size * self._dtype.itemsize
        self._marks = self.folder / "memory.json"
        self._refuse_foreign(mark)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.folder / "memory.rows", os.O_RDWR | os.O_CREAT, 0o666)
        self.places: dict[int, int] = dict(places or {})
        """0 or 1 for each client with a row."""
        self._saved = dict(self.places)
        self._next: dict[int, int] = {}
        self._mark = mark or secrets.token_hex(8)
        self._write_marks([self._mark])

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._file)

    def begin(self, clients: Iterable[int]) -> None:
        """Choose places, and reserve room on the disk, so that no write runs out of it."""
        self._next = {}
        for client in clients:
            now = self.places.get(client)
            saved = self._saved.get(client, 1)
            self._next[client] = 1 - saved if now in (None, saved) else now
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, self._start(client, self._next[client]), self._row)

    def read(self, client: int, at: int, row: Row) -> None:
        """Read part of a row."""
        start = self._start(client, self.places[client]) + at * self._dtype.itemsize
        if os.preadv(self._file, [row.data], start) != row.nbytes:
            raise FileFormatError(f"{self.folder / 'memory.rows'} is cut off; take a whole copy")

    def write(self, client: int, at: int, row: Row) -> None:
        """Write part of a row."""
        start = self._start(client, self._next[client]) + at * self._dtype.itemsize
        os.pwrite(self._file, row.data, start)

    def end(self) -> None:
        """Use the rows written since `begin` from now on."""
        self.places |= self._next

    def forget(self, client: int) -> None:
        """Give up a row."""
        self.places.pop(client, None)

    def before_save(self) -> str:
        """Flush the rows; return the mark of the state that is about to be saved."""
        os.fsync(self._file)
        new = secrets.token_hex(8)
        self._write_marks([self._mark, new])
        self._mark = new
        return new

    def after_save(self) -> None:
        """Protect the rows of the state that was just saved, in place of the one before."""
        self._write_marks([self._mark])
        self._saved = dict(self.places)

    def _start(self, client: int, place: int) -> int:
        return (2 * client + place) * self._row

    def _write_marks(self, marks: list[str]) -> None:
        text = json.dumps(marks).encode()
        write_whole(self._marks, lambda stream: stream.write(text))

    def _refuse_foreign(self, mark: str) -> None:
        """Refuse the rows of another run, or of a state that was not the last to be saved."""
        try:
            found = json.loads(self._marks.read_text())
        except FileNotFoundError:
            found = None
        except ValueError:
            raise FileFormatError(f"{self._marks} is damaged; take a whole copy") from None
        if found is not None and not mark:
            raise FileFormatError(
                f"{self.folder} has the memory of another run; give an empty folder, or load the "
                "state that was saved with it"
            )
        if mark and (found is None or mark not in found):
            raise FileFormatError(
                f"{self.folder} does not have the memory of this state: only the last state that "
                "was saved can be loaded, and with its own folder"
            )
