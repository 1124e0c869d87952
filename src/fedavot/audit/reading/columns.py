"""The meaning of a log's columns, recognised by their names or given by the caller."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedavot._checks import enumerated, quoted, shown
from fedavot.errors import FileFormatError, Option, OptionError

NAMES = {
    "round": ("round", "round_id", "round_number", "server_round", "iteration"),
    "client": (
        *("client", "client_id", "client_name", "cid", "device", "device_id", "node", "node_id"),
        *("participant", "participant_id", "user", "user_id", "phone"),
    ),
    "status": ("status", "outcome", "result"),
    "time": ("time", "timestamp", "datetime", "time_s", "timestamp_s", "date"),
    "start": ("start", "start_s", "start_time", "begin", "from"),
    "end": ("end", "end_s", "end_time", "stop", "until", "to"),
    "state": ("state",),
    "known_from": ("known_from", "obs_start_s", "obs_start", "first_event_s", "first_event"),
    "known_until": ("known_until", "obs_end_s", "obs_end", "last_event_s", "last_event"),
}
"""Names by which a column is recognised, in order of preference and in any case."""

KINDS = {
    "rows": (("round", "client"), ("status", "time")),
    "intervals": (("client", "start", "end"), ("state",)),
    "coverage": (("client", "known_until"), ("known_from",)),
}
"""The columns that each kind of table must have, and those that it may have."""


class Layout(NamedTuple):
    """The kind of a table, and the position of each of its columns."""

    kind: str
    places: dict[str, int]


def check_named(columns: Mapping[str, str] | None) -> dict[str, str]:
    """Return the caller's names of columns, or refuse one for a column that no log has."""
    named = dict(columns or {})
    unknown = sorted(set(named) - set(NAMES))
    if unknown:
        raise OptionError(
            Option("columns"),
            f" has {unknown[0]!r}; it may have {', '.join(NAMES)}, as in ",
            Option("columns", {"client": "device_id"}),
        )
    for role, name in named.items():
        if not isinstance(name, str):
            raise OptionError(f"the column for the {role} is {shown(name)}; give its name as text")
    return named


def find_layout(
    header: Sequence[str], named: Mapping[str, str], kinds: Sequence[str], source: Path
) -> Layout:
    """Return the first of the kinds of which the header has all columns.

    Parameters
    ----------
    header : sequence of str
        The columns' names in the file.
    named : mapping of str
        The caller's names of columns, by meaning; an empty name leaves a column out.
    kinds : sequence of str
        Keys of ``KINDS``, the preferred first.
    source : path
        The file, for messages.
    """
    places = {}
    for role in dict.fromkeys(role for kind in kinds for part in KINDS[kind] for role in part):
        place = _find(role, header, named, source)
        if place is not None:
            places[role] = place
    for kind in kinds:
        needed, optional = KINDS[kind]
        if all(role in places for role in needed):
            found = [role for role in (*needed, *optional) if role in places]
            layout = Layout(kind, {role: places[role] for role in found})
            _refuse_shared(layout, header, source)
            return layout
    wanted = ", or ".join(" and ".join(KINDS[kind][0]) for kind in kinds)
    missing = next(role for role in KINDS[kinds[0]][0] if role not in places)
    taken = set(places.values())
    example = next((name for at, name in enumerate(header) if name.strip() and at not in taken), "")
    remedy: tuple[object, ...] = ("add them",)
    if example:
        remedy = ("name them, as in ", Option("columns", {missing: example}))
    raise FileFormatError(
        f"{source}, line 1: the columns are {_listed(header)}; {called(kinds)} needs {wanted}: ",
        *remedy,
        ", or add a header line if there is none",
    )


def unread(header: Sequence[str], layout: Layout) -> list[str]:
    """Return a note on the columns that are not read, if there are any."""
    rest = [name for place, name in enumerate(header) if place not in layout.places.values()]
    if not rest:
        return []
    return [f"not read: column{'s' if len(rest) > 1 else ''} {_listed(rest)}"]


def called(kinds: Sequence[str]) -> str:
    """Return what a table of these kinds is called in messages."""
    return "a coverage table" if "coverage" in kinds else "a log"


def _refuse_shared(layout: Layout, header: Sequence[str], source: Path) -> None:
    """Refuse a column with two meanings."""
    role_of: dict[int, str] = {}
    for role, place in layout.places.items():
        other = role_of.setdefault(place, role)
        if other != role:
            raise FileFormatError(
                f"{source}, line 1: column {header[place]!r} is both the {other} and the {role}; "
                "name another for one of them"
            )


def _find(role: str, header: Sequence[str], named: Mapping[str, str], source: Path) -> int | None:
    if role in named:
        if not named[role]:
            return None
        for same in (
            lambda name: name == named[role],
            lambda name: _plain(name) == _plain(named[role]),
        ):
            places = [place for place, name in enumerate(header) if same(name)]
            if places:
                return _only(places, named[role], source)
        raise FileFormatError(
            f"{source}, line 1: no column {named[role]!r} for the {role}; the columns are "
            f"{_listed(header)}"
        )
    for known in NAMES[role]:
        places = [place for place, name in enumerate(header) if _plain(name) == known]
        if places:
            return _only(places, known, source)
    return None


def _only(places: list[int], name: str, source: Path) -> int:
    if len(places) > 1:
        raise FileFormatError(
            f"{source}, line 1: {len(places)} columns are called {name!r}; rename all but one"
        )
    return places[0]


def _plain(name: str) -> str:
    return name.strip().lower()


def _listed(header: Sequence[str]) -> str:
    return enumerated(map(quoted, header), 12)
