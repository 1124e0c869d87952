"""Importance by client, groups of clients, and shares of groups, from files or mappings."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedavot._checks import SUM_SLACK
from fedavot._files import PathLike
from fedavot._reading import json_in, read_text
from fedavot.audit.reading.columns import KINDS, NAMES, plain
from fedavot.audit.reading.files.blocks import NULLS, kind_of
from fedavot.audit.reading.files.json_lines import as_text
from fedavot.audit.reading.files.json_lines import plain as spelt
from fedavot.audit.reading.files.tables import rows_by_name
from fedavot.audit.reading.labels import counted
from fedavot.audit.reading.numerals import amounts
from fedavot.errors import FileFormatError, ImportanceError, OptionError

Columns = Mapping[str, str]
"""Names of columns by their meaning, as callers give them."""
TOTALS = ("total", "totals", "grand_total", "sum", "all", "overall")
"""Names of rows with the sum of the others, which people and spreadsheets add to a table."""
ROUNDED = 0.01
"""Relative difference between such a sum and that of the others, if these are rounded."""


class _Row(NamedTuple):
    """What a table says about one client or group: its values by meaning, and its location."""

    values: Mapping[str, Any]
    place: str


def importance_in(
    given: PathLike | Mapping[str, float], columns: Columns, clients: Collection[str]
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the importance of each client, and its group where a file has a column of groups.

    ``clients`` are those of the log.
    """
    rows = _rows(given, "importance", columns)
    wanted = _amounts(rows, "importance", "client")
    _refuse_total(wanted, rows, clients)
    if not isinstance(given, Mapping) and not any(wanted.values()):
        raise ImportanceError(
            f"{given} gives no client an importance above 0; at least one client needs it"
        )
    groups = {name: row.values.get("group", "") for name, row in rows.items()}
    return wanted, {name: group for name, group in groups.items() if group.strip() not in NULLS}


def groups_in(given: PathLike | Mapping[str, str], columns: Columns) -> dict[str, str]:
    """Return the group of each client that has one."""
    groups = {}
    for name, row in _rows(given, "groups", columns).items():
        group = row.values["group"]
        if isinstance(given, Mapping) and not (isinstance(group, str) and group.strip()):
            raise OptionError(f"group of client {name!r} is {group!r}; it must be a name")
        if group.strip() in NULLS:
            raise FileFormatError(f"{row.place}no group; fill it in, or remove the line")
        groups[name] = spelt(group)
    return groups


def targets_in(given: PathLike | Mapping[str, float], columns: Columns) -> dict[str, float]:
    """Return the share of each group."""
    rows = _rows(given, "targets", columns)
    shares = _amounts(rows, "share", "group")
    total = sum(shares.values())
    if not abs(total - 1.0) <= SUM_SLACK:
        _refuse_total(shares, rows, ())
        raise ImportanceError(
            f"{called(given, 'targets')}: the shares of {counted(len(shares), 'group')} sum to "
            f"{total:.10g}, not 1; divide each by their sum if that is intended"
        )
    return shares


def called(given: object, otherwise: str) -> str:
    """Return an input's name for messages: a file's path, or the parameter."""
    return f"the mapping {otherwise}" if isinstance(given, Mapping) else str(given)


def _rows(given: Any, kind: str, columns: Columns) -> dict[str, _Row]:
    """Return the rows of a mapping or a file, keyed by the name of the client or group."""
    key, value = KINDS[kind][0]
    if isinstance(given, Mapping):
        rows: dict[str, _Row] = {}
        for name, held in given.items():
            if not isinstance(name, str) or not name.strip():
                raise OptionError(f"{kind} has the name {name!r}; a name must be text, not empty")
            if spelt(name) in rows:
                raise OptionError(f"{kind} has two names that are the same in UTF-8; rename one")
            rows[spelt(name)] = _Row({value: held}, "")
        return rows
    source = Path(given)
    if not source.is_dir() and kind_of(source) == "json":
        mapping = _mapping_in(source, kind)
        if mapping is not None:
            return mapping
    table = rows_by_name(source, kind, columns)
    cells = {role: column.to_list() for role, column in table.columns.items()}
    return {
        name: _Row({role: held[at] for role, held in cells.items()}, f"{table.place(at)}: ")
        for at, name in enumerate(cells[key])
    }


def _amounts(rows: Mapping[str, _Row], role: str, key: str) -> dict[str, float]:
    named = list(rows.items())
    found = amounts(
        [row.values[role] for row in rows.values()],
        lambda at: f"{named[at][1].place}{role} of {key} {named[at][0]!r}",
    )
    return dict(zip(rows, found, strict=True))


def _refuse_total(
    found: Mapping[str, float], rows: Mapping[str, _Row], clients: Collection[str]
) -> None:
    """Refuse a row with the sum of the others, unless it is called like a client of the log."""
    totals = [name for name in found if plain(name) in TOTALS and name not in clients]
    rest = sum(found.values()) - sum(found[name] for name in totals)
    for name in totals:
        if found[name] > 0 and abs(found[name] - rest) <= ROUNDED * found[name]:
            raise ImportanceError(
                f"{rows[name].place}{name!r} has {found[name]:.10g}, and the others sum to "
                f"{rest:.10g}: this is their total; remove it"
            )


def _mapping_in(source: Path, kind: str) -> dict[str, _Row] | None:
    """Return the rows of a JSON object from name to value, or None if the file is a table."""
    text = read_text(source)
    try:
        content = json_in(text, source)
    except FileFormatError:
        if source.suffix.lower() == ".json":
            raise
        return None
    needed = KINDS[kind][0]
    if all(any(plain(name) in NAMES[role] for name in content) for role in needed):
        return None
    return {
        spelt(name): _Row(
            {needed[1]: held if isinstance(held, bool) else as_text(held, name, str(source))},
            f"{source}, key {name!r}: ",
        )
        for name, held in content.items()
    }
