"""A folder whose files are the parts of one log: Parquet, CSV or JSON lines, all of one kind."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from fedavot.audit.reading.columns import listed
from fedavot.audit.reading.files.blocks import Batch, Report, Table, is_blank, kind_of
from fedavot.audit.reading.files.parquet_child import parts_in
from fedavot.audit.reading.labels import counted
from fedavot.errors import FileFormatError

CALLED = {"parquet": "Parquet", "json": "JSON lines", "csv": "CSV"}

Opener = Callable[[Path, Report, list[str]], Table]
"""Opens the table in a file; the list gets notes on it."""


FLOWER_LOG = "participation.jsonl"
"""The log in the folder of the Flower strategy."""


class _Part(NamedTuple):
    path: Path
    table: Table
    notes: list[str]

    @property
    def names(self) -> dict[str, str]:
        return {role: self.table.header[at] for role, at in self.table.layout.places.items()}


class Files(NamedTuple):
    """The files of a log: their kind, and their paths in order."""

    kind: str
    paths: list[Path]


def files_of(source: Path, notes: list[str]) -> Files:
    """Return a file, or the files of a folder, which must all be of one kind.

    Blank files of text are skipped, with a note.
    """
    if not source.is_dir():
        return Files(kind_of(source), [source])
    if (source / FLOWER_LOG).is_file() and len(parts_in(str(source))) > 1:
        raise FileFormatError(
            f"{source} is the folder of a Flower run, not of a log; give {source / FLOWER_LOG}"
        )
    first: dict[str, Path] = {}
    paths, blank = list[Path](), list[Path]()
    for path in map(Path, parts_in(str(source))):
        _refuse_unless_file(path)
        if is_blank(path):
            blank.append(path)
        else:
            first.setdefault(kind_of(path), path)
            paths.append(path)
    if not paths:
        raise FileFormatError(f"{source} has no file with rows; give a folder with those of a log")
    kind = next(iter(first))
    if kind == "parquet" and blank:
        raise FileFormatError(f"{blank[0]} is empty, not Parquet; write it again, or remove it")
    if len(first) > 1:
        several = " and ".join(f"{CALLED[kind]} ({path.name})" for kind, path in first.items())
        raise FileFormatError(
            f"{source} has {several}; a folder that is read as one log has files of one kind: move "
            "the others elsewhere"
        )
    if blank:
        notes.append(f"{counted(len(blank), 'empty file')} in the folder: skipped")
    return Files(kind, paths)


def _refuse_unless_file(path: Path) -> None:
    """Refuse folders, and pipes, which would be waited for."""
    if path.is_dir() and "=" in path.name:
        table = path.parent.resolve()
        polars = (
            f", and as Polars does with pl.scan_parquet({f'{table}/**/*.parquet'!r}, "
            f"hive_partitioning=True).sink_parquet({f'{table}.parquet'!r})"
        )
        raise FileFormatError(
            f"{path} is a partition: a folder with a column of the log in its name; write the log "
            "without partitions, as Spark does without partitionBy"
            f"{polars if any(path.rglob('*.parquet')) else ''}"
        )
    if not path.is_file():
        found = "a folder" if path.is_dir() else "not a file on disk"
        raise FileFormatError(
            f"{path} is {found}; a folder that is read as one log has only the files of the log: "
            f"move {path.name!r} elsewhere"
        )


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
