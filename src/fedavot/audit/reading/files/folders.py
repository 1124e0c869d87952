"""A folder whose files are the parts of one log: Parquet, CSV or JSON lines, all of one kind."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from fedavot.audit.reading.columns import listed
from fedavot.audit.reading.files.blocks import Batch, Report, Table, kind_of
from fedavot.audit.reading.files.parquet_child import parts_in
from fedavot.audit.reading.labels import counted
from fedavot.errors import FileFormatError

CALLED = {"parquet": "Parquet", "json": "JSON lines", "csv": "CSV"}

Opener = Callable[[Path, Report, list[str]], Table]
"""Opens the table in a file; the list gets notes on it."""


class _Part(NamedTuple):
    path: Path
    table: Table
    notes: list[str]

    @property
    def names(self) -> dict[str, str]:
        return {role: self.table.header[at] for role, at in self.table.layout.places.items()}


def parts_of(source: Path, kind: str, notes: list[str]) -> list[Path]:
    """Return the files of a log, or refuse a folder that contains other files.

    Empty files of text are skipped, with a note.
    """
    if not source.is_dir():
        return [source]
    found = [Path(path) for path in parts_in(str(source))]
    for part in found:
        if part.is_dir() and "=" in part.name:
            polars = (
                f" and Polars with pl.scan_parquet({str(source)!r}, hive_partitioning=True)"
                f".sink_parquet({f'{source}.parquet'!r})"
            )
            raise FileFormatError(
                f"{part} is a partition: a folder with a column of the log in its name; write the "
                "log without partitions, as Spark does without partitionBy"
                f"{polars if any(part.rglob('*.parquet')) else ''}"
            )
        if not part.is_file():  # a pipe would be waited for
            wrong = "a folder" if part.is_dir() else "not a file on disk"
        elif part.stat().st_size:
            wrong = "" if kind_of(part) == kind else f"not {CALLED[kind]}"
        else:
            wrong = "not Parquet" if kind == "parquet" else ""
        if wrong:
            raise FileFormatError(
                f"{part} is {wrong}; a folder that is read as one log has files of one kind and "
                "nothing else: move it elsewhere"
            )
    parts = [part for part in found if part.stat().st_size]
    if not parts:
        raise FileFormatError(f"{source} is an empty folder; give one that has the files of a log")
    if len(parts) < len(found):
        notes.append(f"{counted(len(found) - len(parts), 'empty file')} in the folder: skipped")
    return parts


def joined(parts: list[Path], opened: Opener, report: Report, notes: list[str]) -> Table:
    """Open the parts of a log one after the other, as one table."""
    stream = _opened(parts, opened, report)
    first = next(stream)

    def batches() -> Iterator[Batch]:
        for part in chain([first], stream):
            if part.names != first.names:
                raise FileFormatError(
                    f"{part.path} has {listed(part.table.header)}, and {first.path} has "
                    f"{listed(first.table.header)}; write all parts with the same columns"
                )
            yield from part.table.batches
            where = f"{part.path.name}: " if len(parts) > 1 else ""
            notes.extend(f"{where}{note}" for note in part.notes)

    return Table(first.table.header, first.table.layout, batches())


def _opened(parts: list[Path], opened: Opener, report: Report) -> Iterator[_Part]:
    before, total = 0, sum(part.stat().st_size for part in parts)
    for part in parts:
        notes: list[str] = []

        def add(done: int, _: int, before: int = before) -> None:
            report(before + done, max(total, before + done))

        yield _Part(part, opened(part, add, notes), notes)
        before += part.stat().st_size
