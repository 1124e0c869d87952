"""A text file as blocks of whole lines: decompressed, checked to be UTF-8, with line numbers.

The readers of CSV, JSON lines and Parquet turn the content of a file into batches of rows.

A log may be larger than memory, so only one block is held at a time. If a file does not end with a
line end, its last line is a block of its own, which may be complete or cut off.
"""

import codecs
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedavot._reading import decoded
from fedavot.audit.reading.columns import Layout
from fedavot.audit.reading.files.parquet import Child
from fedavot.errors import FileFormatError

Report = Callable[[int, int], object]
"""Called with the number of bytes read so far, and the size of the file."""

BLOCK = 1 << 23
LONGEST = 1 << 28
"""Longest line of a log in bytes; a file with a longer line is not a log."""

START = 4096
"""Number of bytes at the start of a file that determine its kind."""
GZIP = b"\x1f\x8b"
PARQUET = b"PAR1"
FOREIGN = {
    b"\xff\xfe\0\0": "UTF-32 text; save it as UTF-8",
    b"\0\0\xfe\xff": "UTF-32 text; save it as UTF-8",
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
    b"PK\x03\x04": "a zip archive or a spreadsheet; export the table as CSV",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet; export the table as CSV",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; unpack it, or compress it by gzip",
    b"BZh": "compressed by bzip2; unpack it, or compress it by gzip",
    b"\xfd7zXZ": "compressed by xz; unpack it, or compress it by gzip",
    b"SQLite format 3": "an SQLite database; export the table as CSV",
    b"ARROW1": "an Arrow file; write it as Parquet",
}

NULLS = ("", "\\N", "NULL", "null", "None", "NaN", "nan", "n/a", "N/A")
"""What databases and programs write where there is no value."""


def silent(done: int, total: int) -> None:
    """Report nothing."""


class Block(NamedTuple):
    """Whole lines of a file, the number of the first, and whether the last has its line end."""

    data: bytes
    line: int
    ended: bool


@dataclass(frozen=True)
class Batch:
    """Some rows of a table.

    Attributes
    ----------
    source : path
        The file.
    columns : dict of polars Series
        Columns of text, by their meaning.
    places : sequence of int
        The rows' numbers in the file.
    unit : str
        What the numbers count: ``line`` or ``row``.
    cut_in : str or None
        For a last line without a line end: the column it may be cut off in.
    whole : bool
        Whether each line has all clients of a round: a row without a client says that it had none.
    """

    source: Path
    columns: dict[str, pl.Series]
    places: Sequence[int]
    unit: str = "line"
    cut_in: str | None = None
    whole: bool = False

    def place(self, row: int) -> str:
        """Return where a row of the batch is, for messages."""
        return f"{self.source}, {self.unit} {self.places[row]}"

    def rows(self, chosen: NDArray[Any]) -> "Batch":
        """Return the rows at these positions, which may repeat, or where this mask is true."""
        at = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        columns = {role: column[at] for role, column in self.columns.items()}
        return replace(self, columns=columns, places=[self.places[i] for i in at.tolist()])


def missing(values: pl.Series) -> pl.Series:
    """Return which values of a column of text say that there is none."""
    return values.str.strip_chars().is_in(NULLS)


class Table(NamedTuple):
    """The names of a table's columns, which of them are read and as what, and the rows.

    ``parts`` is the reader of a table stored as Parquet, which can also be queried.
    """

    header: Sequence[str]
    layout: Layout
    batches: Iterator[Batch]
    parts: Child | None = None


def kind_of(source: Path) -> str:
    """Return ``parquet``, ``json`` or ``csv``, according to the first bytes of a file."""
    start, packed = _start_of(source)
    if start.startswith(PARQUET):
        if packed:
            raise FileFormatError(f"{source} is Parquet compressed by gzip; unpack it first")
        return "parquet"
    if b"\0" in start and not packed and _ends_as_parquet(source):
        raise FileFormatError(f"{source} is damaged: Parquet without its beginning; write it again")
    for magic, words in FOREIGN.items():
        if start.startswith(magic):
            raise FileFormatError(f"{source} is {words}")
    if b"\0" in start[:64] and len(start[:64].replace(b"\0", b"")) * 3 < len(start[:64]) * 2:
        raise FileFormatError(
            f"{source} has NUL bytes between its letters: UTF-16 text, most likely; "
            "save it as UTF-8"
        )
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"["):
        raise FileFormatError(
            f"{source}, line 1: a JSON list; write JSON lines, one object per line with the names "
            "of its values (jq -c '.[]' makes them of a list of objects)"
        )
    return "json" if text.startswith(b"{") else "csv"


def is_blank(source: Path) -> bool:
    """Return whether a file, plain or compressed by gzip, is empty or has only blank lines."""
    start, _ = _start_of(source)
    return len(start) < START and not start.strip()


def _start_of(source: Path) -> tuple[bytes, bool]:
    """Return the first bytes of a file, decompressed, and whether it is compressed by gzip."""
    with source.open("rb") as stream:
        raw = stream.read(START)
    packed = raw.startswith(GZIP)
    try:
        return zlib.decompressobj(wbits=31).decompress(raw, START) if packed else raw, packed
    except zlib.error as cause:
        raise FileFormatError(f"{source} is damaged: {cause}; compress it again") from None


def _ends_as_parquet(source: Path) -> bool:
    with source.open("rb") as stream:
        stream.seek(max(0, source.stat().st_size - len(PARQUET)))
        return stream.read() == PARQUET


def text_blocks(source: Path, report: Report, notes: list[str]) -> Iterator[Block]:
    """Yield a text file, plain or compressed by gzip, as blocks of whole lines.

    Parameters
    ----------
    source : path
        The file.
    report : function
        Called after each block.
    notes : list of str
        Notes on what was unusual are added here.
    """
    line, rest, cut = 1, b"", False
    for chunk in _chunks(source, report):
        if chunk is None:
            cut = True
            break
        data = rest + chunk
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if len(rest) > LONGEST:
            raise FileFormatError(f"{source}, line {line}: no line end in {len(rest):,} bytes")
        if end:
            whole = _checked(data[:end], line, source)
            yield Block(whole, line, True)
            line += whole.count(b"\n")
    if cut:
        notes.append(
            f"the compressed file is cut off; it was read up to line {line - 1}, "
            "and what comes after is missing"
        )
    elif rest:
        yield from _tail(rest, line, source, notes)


def _chunks(source: Path, report: Report) -> Iterator[bytes | None]:
    """Yield a file's bytes, decompressed; None at the end if it is compressed and cut off."""
    total = source.stat().st_size
    with source.open("rb") as stream:
        packed = stream.read(2) == GZIP
        stream.seek(0)
        if packed:
            yield from _unpacked(stream, source, report)
            return
        while chunk := stream.read(BLOCK):
            yield chunk
            report(stream.tell(), max(total, stream.tell()))


def _unpacked(stream: IO[bytes], source: Path, report: Report) -> Iterator[bytes | None]:
    total = source.stat().st_size
    unpacker = zlib.decompressobj(wbits=31)
    try:
        while packed := stream.read(BLOCK // 4):
            while packed:
                if unpacker.eof:  # another member follows, or tape padding
                    if not packed.strip(b"\0"):
                        break
                    unpacker = zlib.decompressobj(wbits=31)
                yield unpacker.decompress(packed, BLOCK)
                packed = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            report(stream.tell(), max(total, stream.tell()))
        yield unpacker.flush()
    except zlib.error as cause:
        raise FileFormatError(
            f"{source} is damaged near byte {stream.tell():,}: {cause}; compress it again"
        ) from None
    if not unpacker.eof:
        yield None


def _checked(data: bytes, line: int, source: Path) -> bytes:
    if line == 1:
        data = data.removeprefix(b"\xef\xbb\xbf")
    hole = data.find(b"\0")
    if hole >= 0:
        at = line + data.count(b"\n", 0, hole)
        raise FileFormatError(
            f"{source}, line {at}: a NUL byte; the file is damaged or not text: remove the line"
        )
    if not data.isascii():
        decoded(data, source, line)
    return data


def _tail(rest: bytes, line: int, source: Path, notes: list[str]) -> Iterator[Block]:
    """Yield the line at the end of a file that has no line end."""
    if b"\r" in rest.rstrip(b"\r"):
        raise FileFormatError(
            f"{source}, line {line}: carriage returns for line ends; replace them (tr '\\r' '\\n')"
        )
    if line > 1 and _is_cut(rest):
        notes.append(cut_off(line))
        return
    yield Block(_checked(rest, line, source), line, False)


def _is_cut(data: bytes) -> bool:
    """Return whether UTF-8 data ends within a character."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(data)
    except UnicodeDecodeError:
        return False
    return bool(decoder.getstate()[0])


def cut_off(line: int) -> str:
    """Return the note on a last line that was dropped."""
    return f"line {line}, the last, is cut off: dropped"
