"""Parquet files, read in a separate process, since the reader aborts on some damaged files.

Polars raises an error for most damaged files and aborts its process on some. So `parquet_child`
decodes the file and sends its rows as Arrow. If it ends without a message, the file is damaged or
does not fit into memory.

A folder of Parquet files is one log in parts, which all have the same columns.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from fedavot.audit.reading.columns import Sought
from fedavot.audit.reading.files.blocks import PARQUET, Batch, Report, Table, kind_of
from fedavot.audit.reading.files.parquet_child import parts_in
from fedavot.errors import FedavotError, FileFormatError, TooLargeError

TIMES = ("time", "start", "end", "known_from", "known_until")
"""Meanings that a column of times may have; other columns are names or numbers."""
EXACT = 2.0**53
"""Up to this value, every integer is exactly representable as a float."""
CHILD = str(Path(__file__).with_name("parquet_child.py"))
END = "Z"
KILLED = 9
"""The signal with which the system kills a process that uses too much memory."""


class Schema(NamedTuple):
    """The columns of a part, and their Polars types."""

    names: list[str]
    kinds: list[str]


def open_parquet(source: Path, sought: Sought, report: Report, notes: list[str]) -> Table:
    """Read the schema of a Parquet file or folder now, and its rows on demand."""
    parts = _parts_of(source)
    for part in parts:
        _refuse_cut_off(part)
    child = Child(source, parts)
    try:
        child.start()
        layout = sought.layout(child.schema.names, source)
    except BaseException:
        child.close()
        raise
    names = {role: child.schema.names[at] for role, at in layout.places.items()}
    return Table(child.schema.names, layout, _batches(child, names, report), child)


def _parts_of(source: Path) -> list[Path]:
    """Return the files of a log, or refuse a folder that contains other files."""
    parts = [Path(path) for path in parts_in(str(source))]
    if not parts:
        raise FileFormatError(f"{source} is an empty folder; give one that has Parquet files")
    for part in parts if source.is_dir() else ():
        if part.is_dir() or not part.stat().st_size or kind_of(part) != "parquet":
            found = "a folder" if part.is_dir() else "not Parquet"
            raise FileFormatError(
                f"{part} is {found}; a folder that is read as one log has its Parquet files and "
                "nothing else: move it elsewhere"
            )
    return parts


def _refuse_cut_off(part: Path) -> None:
    with part.open("rb") as stream:
        stream.seek(-min(4, part.stat().st_size), io.SEEK_END)
        if stream.read() != PARQUET or part.stat().st_size < 12:
            raise FileFormatError(
                f"{part} is cut off: the end of a Parquet file is missing; write it again"
            )


def _batches(child: "Child", names: Mapping[str, str], report: Report) -> Iterator[Batch]:
    part, done, before = child.part, 0, 0
    try:
        for frame in child.ask(sorted(set(names.values()))):
            if child.part != part:
                part, before = child.part, done
            columns = {role: _as_text(frame[name], role, part) for role, name in names.items()}
            first = done - before + 1
            yield Batch(part, columns, range(first, first + frame.height), unit="row")
            done += frame.height
            report(child.n_bytes * done // max(child.n_rows, 1), child.n_bytes)
    finally:
        child.close()


class Child:
    """The process that reads the parts of a log, and the messages that it sends.

    Attributes
    ----------
    source : path
        The file or the folder.
    part : path
        The part that is being read.
    schema : Schema
        The columns, which are the same in all parts.
    n_rows, n_bytes : int
        The rows and the bytes of all parts.
    """

    def __init__(self, source: Path, parts: list[Path]) -> None:
        self.source, self.part = source, parts[0]
        self.n_bytes = sum(part.stat().st_size for part in parts)
        self.schema, self.n_rows = Schema([], []), 0
        self._parts = parts
        # The child finds Polars where this process found it.
        paths = os.pathsep.join(filter(None, sys.path))
        self._process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-P", CHILD, os.path.abspath(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONUTF8": "1"},
        )

    def start(self) -> None:
        """Read the headers of all parts, and refuse parts that differ."""
        for part in self._parts:
            names, kinds, n_rows = json.loads(self._message()[1])
            found = Schema(names, kinds)
            if part == self._parts[0]:
                self.schema = found
            elif dict(zip(*found, strict=True)) != dict(zip(*self.schema, strict=True)):
                raise FileFormatError(
                    f"{part} has {_columns(found)}, and {self._parts[0]} has "
                    f"{_columns(self.schema)}; write all parts with the same columns and types"
                )
            self.n_rows += n_rows

    def kind_of(self, column: str) -> str:
        """Return the type of a column, without its details."""
        names, kinds = self.schema
        return kinds[names.index(column)].partition("(")[0]

    def ask(self, request: list[str] | dict[str, Any]) -> Iterator[pl.DataFrame]:
        """Send a request, and yield its answer."""
        try:
            self._pipe("stdin").write(f"{json.dumps(request)}\n".encode())
            self._pipe("stdin").flush()
        except BrokenPipeError:
            raise self._ended() from None
        while (message := self._message())[0] != END:
            yield pl.read_ipc(message[1])

    def _message(self) -> tuple[str, bytes]:
        """Return the next message, or raise the error that prevented the child from sending one."""
        stream = self._pipe("stdout")
        while True:
            head = stream.read(9)
            content = stream.read(int.from_bytes(head[1:], "big"))
            if len(head) < 9 or len(content) < int.from_bytes(head[1:], "big"):
                raise self._ended()
            if head[:1] == b"E":
                raise _damaged(self.part, content.decode())
            if head[:1] != b"P":
                return head[:1].decode(), content
            # The child uses absolute paths; messages use the path that the caller gave.
            self.part = self._parts[0].with_name(os.path.basename(os.fsdecode(content)))

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
        """Return the error for a child that ended without a message."""
        code = self._process.wait()
        if code == -KILLED:
            return TooLargeError(
                f"the system ended the process that reads {self.part}, most likely for lack of "
                "memory; close other programs, use a larger machine, or split the file"
            )
        return _damaged(self.part, f"its reader ended with status {code}")


def _columns(schema: Schema) -> str:
    return ", ".join(f"{name!r} ({kind})" for name, kind in zip(*schema, strict=True))


def _as_text(values: pl.Series, role: str, source: Path) -> pl.Series:
    """Return a column as text: times in seconds, but dates that serve as names as dates."""
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
