"""A process that reads Parquet files and sends their content, so that only it can crash.

On some damaged files the reader does not raise but aborts, which kills its process. `parquet`
starts this file as a program, with the path of a file or of a folder of parts, and talks to it
through pipes. Each message on standard output is a letter, the length of the content in eight
bytes, and the content:

    P   the path of the part that is read next, so that an abort can be attributed to it
    H   a part's columns, their types and its number of rows, as JSON
    B   a batch of rows, as an Arrow file
    E   what the reader raised
    Z   nothing: the answer is complete

The headers of all parts come first. Then each line of JSON on standard input is a request: a list
of columns, for all rows in the order of the parts, or an object with the name of a query below
under ``what`` and its arguments. Queries run on Polars' streaming engine, which holds a few batches
at a time, and their answers are in no particular order.

This file imports nothing from the library, since that would take longer than reading the file.
"""

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

BATCH = 1 << 19


def parts_in(path: str) -> list[str]:
    """Return a file, or the files of a folder in the order of their names.

    Names that begin with a dot or an underscore are skipped: they are markers that programs leave
    beside the parts.
    """
    if not os.path.isdir(path):
        return [path]
    names = sorted(name for name in os.listdir(path) if name[0] not in "._")
    return [os.path.join(path, name) for name in names]


class Files:
    """The parts of one log, and the results of queries on them."""

    def __init__(self, paths: list[str]) -> None:
        import polars as pl

        self.pl, self.paths = pl, paths
        self.scans: list[Any] = []
        self.codes: dict[str, Any] = {}

    def headers(self) -> None:
        """Send the header of every part."""
        for path in self.paths:
            send(b"P", path.encode(errors="surrogateescape"))
            scan = self.pl.scan_parquet(path, glob=False)
            schema = scan.collect_schema()
            total = int(scan.select(self.pl.len()).collect().item())
            header = [list(schema), [str(kind) for kind in schema.values()], total]
            send(b"H", json.dumps(header).encode())
            self.scans.append(scan)

    def one_by_one(self) -> Iterator[Any]:
        """Yield the parts, announcing each."""
        for path, scan in zip(self.paths, self.scans, strict=True):
            send(b"P", path.encode(errors="surrogateescape"))
            yield scan

    def batches(self, columns: list[str]) -> Iterator[Any]:
        """Yield all rows, part by part."""
        for scan in self.one_by_one():
            yield from scan.select(columns).collect_batches(chunk_size=BATCH)

    def count(self, column: str) -> Iterator[Any]:
        """Yield one frame: the distinct values of a column, and the number of rows of each.

        `rows` encodes the values as positions in this frame.
        """
        pl, found = self.pl, None
        for scan in self.one_by_one():
            values = _hashable(pl, scan, column)
            more = scan.group_by(values.alias("value")).len().collect(engine="streaming")
            more = more.with_columns(pl.col("len").cast(pl.Int64))
            both = more if found is None else pl.concat([found, more])
            found = both.group_by("value").agg(pl.col("len").sum())
        assert found is not None
        found = found.sort("value")
        places = pl.int_range(found.height, dtype=pl.Int32, eager=True)
        self.codes[column] = pl.DataFrame({"value": found["value"], "code": places}).lazy()
        yield found

    def bounds(self, column: str) -> Iterator[Any]:
        """Yield, for each part, the extremes and missing values of a column of numbers or times."""
        pl = self.pl
        for scan in self.one_by_one():
            values = _number(pl, scan, column)
            missing = values.is_null().sum().cast(pl.Int64).alias("missing")
            extremes = values.min().alias("low"), values.max().alias("high")
            yield scan.select(*extremes, missing).collect(engine="streaming")

    def bins(self, column: str, low: int, high: int, width: int) -> Iterator[Any]:
        """Yield one frame: the number of rows in each range of ``width`` whole numbers."""
        pl = self.pl
        place = (pl.col(column).cast(pl.Int64) - low) // width
        found = self._between(column, low, high).group_by(place.alias("bin")).len()
        yield found.collect(engine="streaming").with_columns(pl.col("len").cast(pl.Int64))

    def rows(
        self, column: str, low: int, high: int, coded: list[str], time: str | None
    ) -> Iterator[Any]:
        """Yield the rows whose whole number lies within bounds, with codes for other columns."""
        pl, scan = self.pl, self._between(column, low, high)
        names = [f"code {place}" for place in range(len(coded))]
        for name, other in zip(names, coded, strict=True):
            values = scan.with_columns(_hashable(pl, scan, other).alias("value"))
            codes = self.codes[other].rename({"code": name})
            scan = values.join(
                codes, on="value", how="left", nulls_equal=True, maintain_order="none"
            ).drop("value")
        timed = [] if time is None else [_number(pl, scan, time).alias("time")]
        number = pl.col(column).cast(pl.Int64).alias("number")
        scan = scan.select(number, *names, *timed)
        yield from scan.collect_batches(chunk_size=BATCH, maintain_order=False)

    def _between(self, column: str, low: int, high: int) -> Any:
        """Return the rows whose whole number lies within bounds; other row groups are skipped."""
        pl = self.pl
        return pl.scan_parquet(self.paths, glob=False).filter(pl.col(column).is_between(low, high))


def _hashable(pl: Any, scan: Any, column: str) -> Any:
    """Return a column in a form that is the same in all parts."""
    kind, values = scan.collect_schema()[column], pl.col(column)
    text = kind in (pl.String, pl.Categorical, pl.Enum)
    return values.cast(pl.String).fill_null("") if text else values


def _number(pl: Any, scan: Any, column: str) -> Any:
    """Return a column as numbers, times in microseconds; a value that is no number is missing."""
    kind, values = scan.collect_schema()[column], pl.col(column)
    if kind.is_temporal():
        return values.cast(pl.Datetime("us")).dt.epoch("us")
    return values.fill_nan(None) if kind.is_float() else values.cast(pl.Int64)


def main(path: str) -> None:
    """Read a file or a folder: its headers first, then the data requested."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a damaged file leaves no core dump
    import polars as pl

    try:
        parts = Files(parts_in(path))
        parts.headers()
        for line in iter(sys.stdin.readline, ""):
            asked = json.loads(line)
            if isinstance(asked, list):
                frames = parts.batches(asked)
            else:
                frames = getattr(parts, asked.pop("what"))(**asked)
            for frame in frames:
                packed = io.BytesIO()
                frame.write_ipc(packed)
                send(b"B", packed.getbuffer())
            send(b"Z", b"")
    except BrokenPipeError:
        return
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, MemoryError) as cause:
        send(b"E", f"{cause}".partition("\n")[0].encode(errors="backslashreplace"))


def send(kind: bytes, content: bytes | memoryview) -> None:
    """Write one message."""
    stream = sys.stdout.buffer
    stream.write(kind + len(content).to_bytes(8, "big"))
    stream.write(content)
    stream.flush()


if __name__ == "__main__":
    main(sys.argv[1])
