"""Parquet files, read in a separate process, since the reader aborts on some damaged files.

Polars raises an error for most damaged files and aborts its process on some. So `parquet_child`
decodes the file and sends its rows as Arrow. If it ends without a message, the file is damaged or
does not fit into memory.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from fedavot.audit.reading.blocks import PARQUET, Batch, Report, Table
from fedavot.audit.reading.columns import Sought
from fedavot.errors import FedavotError, FileFormatError, TooLargeError

TIMES = ("time", "start", "end", "known_from", "known_until")
"""What a column of times may mean; the others are names or numbers."""
EXACT = 2.0**53
"""Up to here every whole number is a float."""
CHILD = str(Path(__file__).with_name("parquet_child.py"))
END = "Z"
KILLED = 9
"""The signal by which a system ends what takes too much memory."""


def open_parquet(source: Path, sought: Sought, report: Report, notes: list[str]) -> Table:
    """Read the schema of a Parquet file, and its rows as they are asked for."""
    with source.open("rb") as stream:
        stream.seek(-min(4, source.stat().st_size), io.SEEK_END)
        if stream.read() != PARQUET or source.stat().st_size < 12:
            raise FileFormatError(
                f"{source} is cut off: the end of a Parquet file is missing; write it again"
            )
    child = _Child(source)
    try:
        header, total = json.loads(child.message()[1])
        layout = sought.layout(header, source)
    except BaseException:
        child.close()
        raise
    names = {role: header[at] for role, at in layout.places.items()}
    return Table(header, layout, _batches(child, names, total, report))


def _batches(
    child: "_Child", names: Mapping[str, str], total: int, report: Report
) -> Iterator[Batch]:
    source = child.source
    n_bytes, done = source.stat().st_size, 0
    try:
        child.ask(sorted(set(names.values())))
        while (message := child.message())[0] != END:
            frame = pl.read_ipc(message[1])
            columns = {role: _as_text(frame[name], role, source) for role, name in names.items()}
            yield Batch(source, columns, range(done + 1, done + frame.height + 1), unit="row")
            done += frame.height
            report(n_bytes * done // max(total, 1), n_bytes)
    finally:
        child.close()


class _Child:
    """The process that reads a file, and what it says."""

    def __init__(self, source: Path) -> None:
        self.source = source
        # Where this process found Polars, the child finds it.
        paths = os.pathsep.join(filter(None, sys.path))
        self._process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-P", CHILD, os.path.abspath(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONUTF8": "1"},
        )

    def ask(self, columns: list[str]) -> None:
        """Say which columns are wanted."""
        try:
            self._pipe("stdin").write(f"{json.dumps(columns)}\n".encode())
            self._pipe("stdin").flush()
        except BrokenPipeError:
            raise self._ended() from None

    def message(self) -> tuple[str, bytes]:
        """Return the next message, or raise what keeps the child from sending one."""
        stream = self._pipe("stdout")
        head = stream.read(9)
        content = stream.read(int.from_bytes(head[1:], "big"))
        if len(head) < 9 or len(content) < int.from_bytes(head[1:], "big"):
            raise self._ended()
        if head[:1] == b"E":
            raise _damaged(self.source, content.decode())
        return head[:1].decode(), content

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()

    def _pipe(self, name: str) -> Any:
        return getattr(self._process, name)

    def _ended(self) -> FedavotError:
        """Return the error for a child that ended without a word."""
        code = self._process.wait()
        if code == -KILLED:
            return TooLargeError(
                f"the system ended the process that reads {self.source}, most likely for lack of "
                "memory; close other programs, use a larger machine, or split the file"
            )
        return _damaged(self.source, f"its reader ended with status {code}")


def _as_text(values: pl.Series, role: str, source: Path) -> pl.Series:
    """Return a column as text: times in seconds, dates that are names as dates."""
    kind = values.dtype
    if kind.is_nested() or kind == pl.Binary:
        raise FileFormatError(
            f"{source}: column {values.name!r} holds {kind}; write it as text or numbers"
        )
    if isinstance(kind, pl.Datetime | pl.Date):
        moments = values.cast(pl.Datetime("us"))
        if role in TIMES:
            values = moments.dt.epoch("us") / 1e6
        elif isinstance(kind, pl.Datetime):
            values = moments.dt.replace_time_zone(None).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
    elif kind == pl.Duration:
        values = values.dt.total_microseconds() / 1e6
    elif kind.is_float():
        values = values.fill_nan(None)
        if role not in TIMES and ((values % 1 == 0) & (values.abs() < EXACT)).all():
            values = values.cast(pl.Int64)
    return values.cast(pl.String).fill_null("")


def _damaged(source: Path, cause: str) -> FileFormatError:
    return FileFormatError(f"{source} is damaged or not Parquet ({cause}); write it again")
