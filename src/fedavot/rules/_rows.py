"""One row of numbers per client, in memory or in a file.

A round writes new rows beside the old ones; until `end` the old ones are in use, so a round that
fails changes nothing. In a file, the rows that the last saved state refers to are not overwritten
either: whatever happens after it, that state can be loaded. A *mark* beside the file names the
states whose rows it has, so that older ones are refused.
"""

import contextlib
import itertools
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import refuse_if_too_large
from fedavot._files import write_whole
from fedavot.errors import FileFormatError, UnavailableError

Row = NDArray[Any]
ROWS, MARKS = "memory.rows", "memory.json"


class RowsInMemory:
    """Rows as arrays; a row is read and written in parts, from entry ``at``."""

    def __init__(self, size: int, dtype: Any) -> None:
        self.size, self.dtype = size, np.dtype(dtype)
        self.arrays: dict[int, Row] = {}
        """The rows in use, by client."""
        self._next: dict[int, Row] = {}
        self._spare: list[Row] = []

    def begin(self, clients: Iterable[int]) -> None:
        """Make room for new rows of these clients; drop what an earlier round wrote."""
        self._spare += self._next.values()
        self._next = {}
        new = list(clients)
        missing = len(new) - len(self._spare)
        if missing > 0:
            refuse_if_too_large(
                missing * self.size * self.dtype.itemsize,
                what=f"the memory of {missing} more clients",
                remedy="keep it in a folder, or go without: memory=folder, memory=False",
            )
        self._spare += [np.empty(self.size, self.dtype) for _ in range(missing)]
        self._next = {client: self._spare.pop() for client in new}

    def read(self, client: int, at: int, row: Row) -> None:
        """Read part of a row in use, as long as ``row``, into it; zeros if there is none."""
        row[:] = self.arrays[client][at : at + row.size] if client in self.arrays else 0

    def write(self, client: int, at: int, row: Row) -> None:
        """Write part of a new row."""
        self._next[client][at : at + row.size] = row

    def end(self) -> None:
        """Use the new rows; keep the old ones for the next round."""
        self._spare = [self.arrays[client] for client in self._next if client in self.arrays]
        self.arrays |= self._next
        self._next = {}

    def forget(self, client: int) -> None:
        """Free a row."""
        self.arrays.pop(client, None)


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
        self,
        folder: str | os.PathLike[str],
        size: int,
        dtype: Any,
        *,
        mark: str = "",
        places: Mapping[int, int] | None = None,
    ) -> None:
        self.folder, self.size, self.dtype = Path(folder), size, np.dtype(dtype)
        self._row: int = size * self.dtype.itemsize
        self._marks = self.folder / MARKS
        if mark:
            self._refuse_without(mark)
        elif self._marks.exists():
            raise FileFormatError(
                f"{self.folder} has the memory of another run; give an empty folder, or load the "
                "state that was saved with it"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.folder / ROWS, os.O_RDWR | os.O_CREAT, 0o666)
        self.places: dict[int, int] = dict(places or {})
        """The place of each client's row in the file, counted in rows."""
        if os.fstat(self._file).st_size < (1 + max(self.places.values(), default=-1)) * self._row:
            raise self._cut_off()
        self._saved = dict(self.places)
        self._next: dict[int, int] = {}
        self._mark, self._user = mark or secrets.token_hex(8), secrets.token_hex(8)
        self._write_marks([self._mark])

    def __reduce__(self) -> NoReturn:
        raise UnavailableError("memory in a folder cannot be copied or pickled; use save and load")

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._file)

    def begin(self, clients: Iterable[int]) -> None:
        """Choose free places, and reserve them on the disk, so that no write runs out of room."""
        self._refuse_without(self._user)
        used = {*self.places.values(), *self._saved.values()}
        free = (place for place in itertools.count() if place not in used)
        self._next = dict(zip(clients, free, strict=False))
        if self._row and hasattr(os, "posix_fallocate"):
            try:
                for place in self._next.values():
                    os.posix_fallocate(self._file, place * self._row, self._row)
            except OSError as cause:
                where = os.fspath(self.folder / ROWS)
                raise OSError(cause.errno, cause.strerror, where) from None

    def read(self, client: int, at: int, row: Row) -> None:
        """Read part of a row."""
        if client not in self.places:
            row[:] = 0
            return
        start = self.places[client] * self._row + at * self.dtype.itemsize
        if os.preadv(self._file, [row.data], start) != row.nbytes:
            raise self._cut_off()

    def write(self, client: int, at: int, row: Row) -> None:
        """Write part of a new row."""
        os.pwrite(self._file, row.data, self._next[client] * self._row + at * self.dtype.itemsize)

    def end(self) -> None:
        """Use the new rows."""
        self.places |= self._next
        self._next = {}

    def forget(self, client: int) -> None:
        """Give up a row."""
        self.places.pop(client, None)

    def before_save(self) -> str:
        """Flush the rows; return the mark of the state that is about to be saved."""
        self._refuse_without(self._user)
        os.fsync(self._file)
        new = secrets.token_hex(8)
        self._write_marks([self._mark, new])
        self._mark = new
        return new

    def after_save(self) -> None:
        """Protect the rows of the state that was just saved, in place of the one before."""
        self._write_marks([self._mark])
        self._saved = dict(self.places)

    def _cut_off(self) -> FileFormatError:
        return FileFormatError(f"{self.folder / ROWS} is cut off; take a whole copy")

    def _write_marks(self, marks: list[str]) -> None:
        text = json.dumps([*marks, self._user]).encode()
        write_whole(self._marks, lambda stream: stream.write(text))

    def _refuse_without(self, mark: str) -> None:
        """Refuse rows that are gone, or those of another state or user."""
        try:
            found = json.loads(self._marks.read_text())
        except (FileNotFoundError, ValueError):
            found = []
        if mark not in found:
            raise FileFormatError(
                f"{self.folder} does not have the memory of this state: it was moved, or used by "
                "another since; load the state that was last saved, with its own folder"
            )


Rows = RowsInMemory | RowsOnDisk
"""Where the rows are."""
