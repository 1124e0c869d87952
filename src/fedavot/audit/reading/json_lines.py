"""JSON lines, one object per line, read as a table or as they are."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from fedavot._reading import parse_json
from fedavot.audit.reading.blocks import Block, Report, cut_off, text_blocks
from fedavot.audit.reading.columns import find_layout
from fedavot.audit.reading.tables import Batch, Table
from fedavot.errors import FileFormatError


class Objects(NamedTuple):
    """Some objects of a file, and the lines they stand on."""

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
    """Yield the objects of a block with blank lines or bad ones, which are refused by line."""
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
            raise FileFormatError(
                f"{source}, line {line}: not a JSON object ({cause}); {_remedy(text)}"
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


def _remedy(text: bytes) -> str:
    """Return what to do about a line that is no object."""
    if text.strip() == b"{":
        return "write one object per line (jq -c . does so)"
    return "correct or remove the line"


def _called(value: object) -> str:
    """Return what JSON calls a value."""
    words = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return "null" if value is None else words.get(type(value), "a number")


def first_of(stream: Iterator[Objects], source: Path) -> Objects:
    """Return the first objects of a file, or say that not one is whole."""
    first = next(stream, None)
    if first is None:
        raise FileFormatError(f"{source} has no complete line; a log needs rows")
    return first


def open_json(
    source: Path, named: Mapping[str, str], kinds: Sequence[str], report: Report, notes: list[str]
) -> Table:
    """Read the keys of the first object, and the rows as they are asked for."""
    stream = objects(source, report, notes)
    first = first_of(stream, source)
    header = list(first.found[0])
    layout = find_layout(header, named, kinds, source)
    names = {role: header[at] for role, at in layout.places.items()}
    return Table(layout.kind, _batches(source, names, chain([first], stream)))


def _batches(source: Path, names: Mapping[str, str], stream: Iterator[Objects]) -> Iterator[Batch]:
    for found, lines in stream:
        columns = {}
        for role, name in names.items():
            values = [item.get(name, "") for item in found]
            kinds = set(map(type, values))
            if kinds == {int}:
                values = list(map(str, values))
            elif kinds != {str} or not all(map(str.isascii, values)):
                rows = zip(values, lines, strict=True)
                values = [_text(value, name, line, source) for value, line in rows]
            columns[role] = pl.Series(values, dtype=pl.String)
        yield Batch(source, columns, lines)


def _text(value: object, name: str, line: int, source: Path) -> str:
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
    raise FileFormatError(
        f"{source}, line {line}: {name!r} is {_called(value)}; it must be text or a number"
    )


def plain(text: str) -> str:
    """Return text that UTF-8 can hold: half a pair of surrogates, as JSON may have, is spelt."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
