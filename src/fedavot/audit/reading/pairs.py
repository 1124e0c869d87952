"""Two columns of a small CSV file, such as clients and their groups: every row with its line.

A participation log is a record, and is read as far as it goes; these tables are what somebody
wrote, so that whatever is odd in them is refused, with its line and what to do.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from fedavot._cells import unguarded
from fedavot._checks import enumerated, quoted
from fedavot._files import PathLike
from fedavot._reading import column, csv_table
from fedavot.audit.reading.blocks import GZIP, kind_of, silent, text_blocks
from fedavot.errors import FileFormatError

ALIKE = 0.85
"""Similarity from which on two names may be two spellings of one."""
TRIED = 5
"""Missing names that are compared with the others: comparing all of them could take minutes."""


class Pair(NamedTuple):
    """One row: what it is of, what it says, and the line it is on."""

    key: str
    value: str
    line: int


def read_pairs(path: PathLike, key: str, value: str) -> list[Pair]:
    """Read two columns of a CSV file.

    Parameters
    ----------
    path : path
        UTF-8, with or without a byte order mark, plain or compressed by gzip.
    key, value : str
        Names of the columns; capitals do not matter, and other columns are ignored. No key
        comes twice, and none is empty. An apostrophe before what a spreadsheet would take for a
        formula is taken off.
    """
    source = Path(path)
    table = csv_table(_text(source), source)
    first, second = (_place(table.header, name, (key, value), source) for name in (key, value))
    found = [Pair(unguarded(row[first]), unguarded(row[second]), line) for row, line in table.rows]
    if not found:
        raise FileFormatError(f"{source} has a header and no rows; add a line for each {key}")
    seen: dict[str, int] = {}
    for pair in found:
        where = f"{source}, line {pair.line}"
        if not pair.key.strip():
            raise FileFormatError(f"{where}: no {key}; fill it in, or remove the line")
        if pair.key in seen:
            raise FileFormatError(
                f"{where}: {key} {pair.key!r} a second time, after line {seen[pair.key]}; keep one"
            )
        seen[pair.key] = pair.line
    return found


def columns_of(path: PathLike) -> tuple[str, ...]:
    """Return the names of a CSV file's columns, in small letters."""
    source = Path(path)
    return tuple(csv_table(_text(source), source).header)


def refuse_packed(path: PathLike) -> None:
    """Refuse what is not plain text, by its first bytes: for readers of plain text."""
    source = Path(path)
    if kind_of(source) == "parquet":
        raise FileFormatError(f"{source} is Parquet; write the table as CSV")
    with source.open("rb") as stream:
        if stream.read(len(GZIP)) == GZIP:
            raise FileFormatError(f"{source} is compressed by gzip; unpack it first")


def named(names: Iterable[str]) -> str:
    """List names for a message, in quotes."""
    return enumerated(map(quoted, names))


def other_spelling(missing: Sequence[str], listed: Iterable[str], clients: Sequence[str]) -> str:
    """Point out a name in a file that may be a missing client's; if all names differ, list them.

    Parameters
    ----------
    missing : sequence of str
        Clients of the log that the file does not have.
    listed : iterable of str
        The names in the file.
    clients : sequence of str
        All clients of the log.
    """
    known = set(clients)
    spelling = {name.strip().casefold(): name for name in listed if name not in known}
    folded = {name.strip().casefold(): name for name in missing}
    same = [(name, name) for name in folded if name in spelling]
    alike = same or [
        (name, other)
        for name in list(folded)[:TRIED]
        for other in get_close_matches(name, spelling, n=1, cutoff=ALIKE)
    ]
    for name, other in alike[:1]:
        return f" (it has {spelling[other]!r}: if that is {folded[name]!r}, use the same spelling)"
    some = len(missing) < len(clients)
    return "" if some or not spelling else f" (it has {named(spelling.values())} instead)"


def _place(header: list[str], name: str, wanted: tuple[str, str], source: Path) -> int:
    """Return the position of a column that must be there."""
    place = column(header, name, source)
    if place is None:
        raise FileFormatError(
            f"{source}, line 1: the columns are {named(header)}, without {name}; it must have "
            f"{wanted[0]} and {wanted[1]}, separated by a comma: rename the columns"
        )
    return place


def _text(source: Path) -> str:
    kind, notes = kind_of(source), list[str]()
    if kind != "csv":
        shown = {"json": "JSON", "parquet": "Parquet"}[kind]
        raise FileFormatError(f"{source} is {shown}; write the table as CSV")
    text = b"".join(block.data for block in text_blocks(source, silent, notes)).decode()
    if notes:
        raise FileFormatError(f"{source}: {notes[0]}; write the file again")
    return text
