"""Parquet files, read in a separate process, since the reader aborts on some damaged files.

Polars raises an error for most damaged files and aborts its process on some. So `parquet_child`
decodes the file and sends its rows as Arrow. If it ends without a message, the file is damaged or
does not fit into memory.

A folder of Parquet files is one log in parts, which all have the same columns. `tables` turns the
rows into batches.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from fedavot.errors import FedavotError, FileFormatError, TooLargeError

CHILD = str(Path(__file__).with_name("parquet_child.py"))
END = "Z"
KILLED = 9
"""The signal with which the system kills a process that uses too much memory."""


class Schema(NamedTuple):
    """The columns of a part, and their Polars types."""

    names: list[str]
    kinds: list[str]


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


def _damaged(source: Path, cause: str) -> FileFormatError:
    return FileFormatError(f"{source} is damaged or not Parquet ({cause}); write it again")
