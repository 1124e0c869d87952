"""JSON lines, one object per line, read as a table or as plain objects.

Nested values are columns with a dot in their name: ``{"result": {"status": "ok"}}`` has the
column ``result.status``. If one object holds all clients of a round, each gets a row of its own:

    {"round": 1, "clients": ["a", "b"]}
    {"round": 1, "clients": ["a", "b"], "status": ["ok", "failed"]}
    {"round": 1, "clients": [{"id": "a", "status": "ok"}, {"id": "b", "status": "failed"}]}
    {"round": 1, "clients": {"a": "ok", "b": "failed"}}
    {"round": 1, "clients": {"a": {"status": "ok"}, "b": {"status": "failed"}}}
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from fedavot._reading import parse_json
from fedavot.audit.reading.columns import LIKELY, Layout, Sought, listed
from fedavot.audit.reading.columns import plain as plain_name
from fedavot.audit.reading.files.blocks import Batch, Block, Report, Table, cut_off, text_blocks
from fedavot.errors import FileFormatError, Option

SAMPLE = 1000
"""Number of objects that determine the columns of a file: lines may have different keys."""
MOST_COLUMNS = 1000
VALUE = "status"
"""Name of the column for the values of an object keyed by client."""

Keys = tuple[str, ...]
"""Where a column's values are within an object."""


class Objects(NamedTuple):
    """Some objects of a file, and their line numbers."""

    found: list[dict[str, Any]]
    lines: Sequence[int]


def objects(source: Path, report: Report, notes: list[str]) -> Iterator[Objects]:
    """Yield the objects of a file, a block of lines at a time."""
    for block in text_blocks(source, report, notes):
        texts = block.data.removesuffix(b"\n").split(b"\n")
        try:
            found = parse_json(b"[%s]" % b",".join(texts), nan=True)
            whole = len(found) == len(texts) and all(type(item) is dict for item in found)
        except (ValueError, RecursionError):
            whole = False
        if whole:
            yield Objects(found, range(block.line, block.line + len(texts)))
        else:
            yield from _line_by_line(texts, block, source, notes)


def _line_by_line(
    texts: list[bytes], block: Block, source: Path, notes: list[str]
) -> Iterator[Objects]:
    """Yield the objects of a block with blank or bad lines; a bad line is refused by number."""
    objects, lines = [], []
    for line, text in enumerate(texts, block.line):
        if not text.strip():
            continue
        try:
            found = parse_json(text, nan=True)
        except (ValueError, RecursionError) as cause:
            if not block.ended and line > 1:
                notes.append(cut_off(line))
                break
            remedy = "correct or remove the line"
            if text.strip() == b"{":
                remedy = "write one object per line (jq -c . does so)"
            raise FileFormatError(
                f"{source}, line {line}: not a JSON object ({cause}); {remedy}"
            ) from None
        if not isinstance(found, dict):
            raise FileFormatError(
                f"{source}, line {line}: {_called(found)}, not a JSON object; write one object "
                "per line"
            )
        objects.append(found)
        lines.append(line)
    if lines:
        yield Objects(objects, lines)


def first_of(stream: Iterator[Objects], source: Path) -> Objects:
    """Return the first objects of a file, or raise if it has no complete object."""
    first = next(stream, None)
    if first is None:
        raise FileFormatError(f"{source} has no complete line; a log needs rows")
    return first


def open_json(source: Path, sought: Sought, report: Report, notes: list[str]) -> Table:
    """Find the columns in the first objects, and read the rows on demand."""
    stream = objects(source, report, notes)
    first = first_of(stream, source)
    leaves: dict[Keys, Any] = {}
    for item in islice(first.found, SAMPLE):
        _add_leaves(item, (), sought, leaves)
        if len(leaves) > MOST_COLUMNS:
            break
    inner = {path[:depth] for path in leaves for depth in range(1, len(path))}
    paths = [path for path, value in leaves.items() if value or path not in inner][:MOST_COLUMNS]
    header = [".".join(path) for path in paths]
    layout = sought.layout(header, source)
    _refuse_other_lists(
        {name: leaves[path] for name, path in zip(header, paths, strict=True)},
        layout,
        sought,
        source,
    )
    rows = _Rows(source, {role: paths[at] for role, at in layout.places.items()}, sought)
    batches = (rows.batch(found) for found in chain([first], stream))
    return Table(header, layout, (batch for batch in batches if batch.places))


def _add_leaves(value: Any, path: Keys, sought: Sought, leaves: dict[Keys, Any]) -> None:
    """Add the columns that an object has, by their keys, each with a value."""
    items = value if isinstance(value, list) else [value]
    if isinstance(value, dict) and value and path and sought.holds_clients(".".join(path)):
        leaves.setdefault(path, value)
        items = list(value.values())
        if not all(isinstance(item, dict) for item in items):
            leaves.setdefault((*path, VALUE), None)
            return
    if not items or not all(isinstance(item, dict) and item for item in items):
        if path and leaves.get(path) is None:
            leaves[path] = value
        return
    for item in items:
        for key, inner in item.items():
            _add_leaves(inner, (*path, key), sought, leaves)


def _refuse_other_lists(
    leaves: dict[str, Any], layout: Layout, sought: Sought, source: Path
) -> None:
    """Refuse to guess which of several lists has the clients that took part."""
    at = layout.places.get("client", -1)
    names = list(leaves)
    if at < 0 or sought.named.get("client") or not isinstance(leaves[names[at]], list):
        return
    read = {names[place] for place in layout.places.values()} - {names[at]}
    lists = [
        name
        for name, value in leaves.items()
        if isinstance(value, list)
        and all(isinstance(item, str) for item in value)
        and name not in read
    ]
    if len(lists) > 1:
        likely = next((name for name in lists if plain_name(name) in LIKELY), names[at])
        raise FileFormatError(
            f"{source}: {listed(lists)} are all lists of names; say which has the clients that "
            "took part, as in ",
            Option("columns", {"client": likely}),
        )


class _Rows:
    """Turns objects into rows: one per object, or one for each client of a round."""

    def __init__(self, source: Path, paths: dict[str, Keys], sought: Sought) -> None:
        self._source = source
        self._paths = paths
        self._client = paths.get("client", ())
        self._by_client = sought.holds_clients(".".join(self._client))

    def batch(self, found: Objects) -> Batch:
        """Return the rows of some objects."""
        lines = found.lines
        if all(len(path) == 1 for path in self._paths.values()):
            values = {
                role: [item.get(path[0]) for item in found.found]
                for role, path in self._paths.items()
            }
            if not {list, dict}.intersection(map(type, values.get("client", ()))):
                return self._batch(values, lines)
        rows, lines, whole = [], [], False
        for item, line in zip(*found, strict=True):
            several = self._rows(item, line)
            whole |= several is not None
            for row in several or [{role: _at(item, path) for role, path in self._paths.items()}]:
                rows.append(row)
                lines.append(line)
        values = {role: [row[role] for row in rows] for role in self._paths}
        return self._batch(values, lines, whole)

    def _rows(self, item: dict[str, Any], line: int) -> list[dict[str, Any]] | None:
        """Return one row per client if an object has its clients in a list or object, else None.

        An empty list or object is a row without a client: the round had none.
        """
        inner: Any = item
        depth = 0
        while depth < len(self._client) and isinstance(inner, dict):
            inner, depth = inner.get(self._client[depth]), depth + 1
        prefix, last = self._client[:depth], depth == len(self._client)
        if not isinstance(inner, list) and not (last and self._by_client and type(inner) is dict):
            return None
        outer = {role: _at(item, path) for role, path in self._paths.items()}
        within = {
            role: path[depth:] for role, path in self._paths.items() if path[:depth] == prefix
        }
        rows = []
        for place, one in enumerate(inner):
            row = {
                role: self._part(cell, place, len(inner), f"line {line}: {self._name(role)!r}")
                for role, cell in outer.items()
                if role != "client"
            }
            if isinstance(inner, dict):
                held = inner[one] if isinstance(inner[one], dict) else {VALUE: inner[one]}
            else:
                held = one if isinstance(one, dict) else {}
            row |= {role: _at(held, path) for role, path in within.items()}
            if last:
                row["client"] = one
            rows.append(row)
        return rows or [{**outer, "client": None}]

    def _part(self, cell: Any, place: int, count: int, where: str) -> Any:
        """Return the part of a cell that belongs to one client: its element, if it is a list."""
        if isinstance(cell, list) and len(cell) != count:
            raise FileFormatError(
                f"{self._source}, {where} has {len(cell)} entries, and there are {count} clients; "
                "give one for each"
            )
        return cell[place] if isinstance(cell, list) else cell

    def _batch(
        self, values: dict[str, list[Any]], lines: Sequence[int], whole: bool = False
    ) -> Batch:
        columns = {role: self._column(cells, role, lines) for role, cells in values.items()}
        return Batch(self._source, columns, lines, whole=whole)

    def _column(self, values: list[Any], role: str, lines: Sequence[int]) -> pl.Series:
        kinds = set(map(type, values))
        if kinds == {int}:
            values = list(map(str, values))
        elif kinds != {str} or not all(map(str.isascii, values)):
            rows = zip(values, lines, strict=True)
            values = [
                as_text(value, self._name(role), f"{self._source}, line {line}")
                for value, line in rows
            ]
        return pl.Series(values, dtype=pl.String)

    def _name(self, role: str) -> str:
        return ".".join(self._paths[role])


def _at(item: Any, path: Sequence[str]) -> Any:
    for key in path:
        if not isinstance(item, dict):
            return None
        item = item.get(key)
    return item


def as_text(value: object, name: str, place: str) -> str:
    """Return a plain JSON value as text, or raise with the place of a value that is not plain."""
    if isinstance(value, str):
        return plain(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not isfinite(value):
        return ""
    if isinstance(value, int | float):
        return str(value)
    raise FileFormatError(f"{place}: {name!r} is {_called(value)}; it must be text or a number")


def plain(text: str) -> str:
    """Return text that UTF-8 can encode: a lone surrogate, which JSON allows, is escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _called(value: object) -> str:
    """Return what JSON calls a value."""
    words = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return "null" if value is None else words.get(type(value), "a number")
