"""What the columns of a table mean: recognised by their names, or named by the caller.

Names are compared in lower case, with words joined by underscores: ``JOB_STATE``, ``jobState``
and ``job.state`` are all ``job_state``. A nested name, ``result.status``, is also known by its last
part.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fedavot._checks import enumerated, quoted, shown
from fedavot.errors import FileFormatError, Option, OptionError

LISTS = (
    *("clients", "client_ids", "client_names", "devices", "nodes", "participants", "users"),
    *("sites", "workers", "hospitals"),
)
"""Names of columns that hold all clients of a round: a list, or an object by client."""
LIKELY = ("replied", "completed", "succeeded", "finished", "reported", "results")
"""Names that are suggested first for a column of clients; on their own they may be flags."""
NAMES = {
    "round": (
        *("round", "round_id", "round_number", "round_num", "round_no", "round_idx"),
        *("round_index", "server_round", "current_round", "global_round", "fl_round", "rnd"),
        "iteration",
    ),
    "client": (
        *("client", "client_id", "client_name", "cid", "device", "device_id", "node", "node_id"),
        *("participant", "participant_id", "user", "user_id", "phone", "site", "site_id"),
        *("site_name", "worker", "worker_id", "hospital", "party", "silo", *LISTS),
    ),
    "status": (
        *("status", "outcome", "result", "job_state", "job_status", "task_status", "task_state"),
        *("client_status", "client_state", "reply_status", "status_code", "success", "succeeded"),
        *("http_status_code", "http_code", "response_code"),
        *("successful", "participated", "took_part", "exit_code", "exit_status", "return_code"),
        *("returncode", "error_code", "failed", "dropped", "timed_out"),
    ),
    "event": ("event", "event_type", "event_name", "message_type", "type"),
    "time": (
        *("time", "timestamp", "datetime", "time_s", "timestamp_s", "date", "ts", "created_at"),
        *("created", "logged_at", "event_time", "finished_at", "completed_at", "time_utc"),
        *("timestamp_ms", "time_ms", "ts_ms", "timestamp_ns", "unix_time", "epoch_time"),
    ),
    "weight": ("weight", "applied_weight", "aggregation_weight", "agg_weight"),
    "examples": (
        *("num_examples", "n_examples", "examples", "num_samples", "n_samples", "samples"),
        *("example_count", "sample_count", "n_train", "num_train", "train_size"),
    ),
    "start": ("start", "start_s", "start_time", "started_at", "begin", "from"),
    "end": ("end", "end_s", "end_time", "ended_at", "stop", "until", "to"),
    "state": ("state",),
    "known_from": ("known_from", "obs_start_s", "obs_start", "first_event_s", "first_event"),
    "known_until": ("known_until", "obs_end_s", "obs_end", "last_event_s", "last_event"),
    "importance": ("importance", "examples", "num_examples", "n_examples", "num_samples"),
    "group": ("group", "group_name", "group_id"),
    "share": ("share", "target", "importance"),
}
"""Names by which a column is recognised, in order of preference."""
OUTCOMES = (
    *("status", "state", "outcome", "success", "succeeded", "successful", "ok", "completed"),
    *("replied", "participated", "failed", "dropped", "aborted", "rejected"),
)
"""Last words of names that denote whether a client took part, such as ``http_status``. Such a
column is left unread only on request, because all of its rows would count as participation."""
RUNS = ("run", "run_id", "run_name", "job", "job_id", "experiment", "experiment_id", "training_id")
"""Names of columns that distinguish several runs in one log."""
HINTS = {
    "round": ("round", "iter", "epoch", "rnd"),
    "client": (
        *("client", "device", "node", "site", "party", "participant", "worker", "host", "user"),
        *("member", "silo", "phone", "machine", "peer", "mac", *LIKELY),
    ),
    "start": ("start", "begin", "from", "up"),
    "end": ("end", "stop", "until", "to", "down"),
    "importance": ("importance", "weight", "example", "sample", "train", "count", "size", "share"),
    "group": ("group", "region", "cluster", "tier", "segment", "class", "type"),
    "share": ("share", "target", "fraction", "percent", "weight", "importance"),
    "known_until": ("until", "end", "last", "to"),
}
"""Parts of names that make a column a likely suggestion, the likeliest first."""

KINDS = {
    "rows": (("round", "client"), ("status", "event", "time", "weight", "examples")),
    "intervals": (("client", "start", "end"), ("state",)),
    "observed": (("client", "known_until"), ("known_from",)),
    "importance": (("client", "importance"), ("group",)),
    "groups": (("client", "group"), ()),
    "targets": (("group", "share"), ()),
}
"""The columns that each kind of table must have, and those that it may have."""
CALLED = {
    "observed": "a coverage table",
    "importance": "a table of importance",
    "groups": "a table of groups",
    "targets": "a table of shares",
}
"""What a table is called in messages; the others are logs."""
WHERE = "where "
"""Prefix, among the meanings of a layout, for the name of a column that rows are filtered by."""
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^\w]+|_+")


class Layout(NamedTuple):
    """The kind of a table, and the position of each of its columns by what it means."""

    kind: str
    places: dict[str, int]


@dataclass(frozen=True)
class Sought:
    """What is looked for in a file.

    Attributes
    ----------
    kinds : tuple of str
        Keys of ``KINDS``, the preferred first.
    named : mapping of str
        The caller's names of columns, by meaning; an empty name leaves a column out.
    optional : frozenset of str
        Meanings whose given name may refer to another file: if it is absent, the usual names are
        looked for.
    where : mapping from str to tuple of str
        Columns by which rows are filtered, and the values to keep.
    """

    kinds: tuple[str, ...]
    named: Mapping[str, str] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def roles(self) -> tuple[str, ...]:
        """All meanings that a column may have, those of the preferred kind first."""
        every = (role for kind in self.kinds for part in KINDS[kind] for role in part)
        return tuple(dict.fromkeys(every))

    def knows(self, name: str) -> bool:
        """Return whether a column of this name is looked for."""
        given = {plain(other) for other in (*self.named.values(), *self.where)}
        word = plain(name)
        return word in given or any(word in NAMES[role] for role in self.roles)

    def holds_clients(self, name: str) -> bool:
        """Return whether an object under this name has the clients as its keys."""
        last = plain(name.rpartition(".")[2])
        return last in LISTS or (name != "" and name == self.named.get("client"))

    def layout(self, header: Sequence[str], source: Path) -> Layout:
        """Return the layout of the first kind whose required columns are all in the header."""
        found = {role: self._find(role, header, source) for role in self.roles}
        places = {role: place for role, place in found.items() if place is not None}
        for kind in self.kinds:
            needed, others = KINDS[kind]
            if all(role in places for role in needed):
                taken = {role: places[role] for role in needed}
                for role in others:
                    if role in places and (
                        role in self.named or places[role] not in taken.values()
                    ):
                        taken[role] = places[role]
                _refuse_shared(taken, header, source)
                chosen = {f"{WHERE}{name}": _named(name, header, source) for name in self.where}
                return Layout(kind, taken | chosen)
        raise self._refusal(places, header, source)

    def _find(self, role: str, header: Sequence[str], source: Path) -> int | None:
        name = self.named.get(role)
        if name is not None and not (role in self.optional and not _places(name, header)):
            return _named(name, header, source, f" for the {role}") if name else None
        full = [plain(column) for column in header]
        last = [plain(column.rpartition(".")[2]) for column in header]
        if role == "client":
            last = [_in_list(column) or word for column, word in zip(header, last, strict=True)]
        for names in (full, last):
            for known in NAMES[role]:
                places = [place for place, column in enumerate(names) if column == known]
                if places:
                    return _only(places, known, header, source, role)
        if role == "status" and not set(LISTS).intersection(last):
            places = [at for at, word in enumerate(full) if word.rpartition("_")[2] in OUTCOMES]
            if len(places) > 1:
                names = [header[place] for place in places]
                raise FileFormatError(
                    f"{source}, line 1: columns {listed(names)} may each say whether a client took "
                    "part; name one of them, as in ",
                    Option("columns", {role: names[0]}),
                    ", or none with ",
                    Option("columns", {role: ""}),
                )
            return places[0] if places else None
        return None

    def _refusal(
        self, places: Mapping[str, int], header: Sequence[str], source: Path
    ) -> FileFormatError:
        kind = self.kinds[0]
        wanted = ", or ".join(" and ".join(KINDS[kind][0]) for kind in self.kinds)
        found = f"{source}, line 1: the columns are {listed(header)}; {called(kind)} needs {wanted}"
        known = [role for role in KINDS[kind][0] if role in places]
        if known:
            only = " and ".join(f"{header[places[role]]!r} is the {role}" for role in known)
            found += f", and only {only}"
        words = {plain(name) for name in header}
        other = "importance" if kind not in CALLED and "importance" in words else "rows"
        if all(words.intersection(NAMES[role]) for role in KINDS[other][0]) and other != kind:
            return FileFormatError(f"{found}, and this is {called(other)}: give another file")
        missing = [role for role in KINDS[kind][0] if role not in places]
        used = {places[role] for role in KINDS[kind][0] if role in places}
        free = [name for at, name in enumerate(header) if name.strip() and at not in used]
        if "round" in missing and any(name.strip().isdecimal() for name in free):
            line = ",".join(KINDS[kind][0])
            return FileFormatError(f"{found}; if this line is data, add a header above it: {line}")
        if missing == ["round"] and (timed := places.get("time")) is not None:
            return FileFormatError(
                f"{found}: there are times, and no rounds; add a column round, or, only if all "
                "rows of a round have the same time, ",
                Option("columns", {"round": header[timed]}),
            )
        before = f"{kind}." if kind in CALLED else ""
        likely = {role: _likely(role, free) for role in missing}
        if len(free) == len(missing):
            likely = dict(zip(missing, free, strict=True))
        wide = missing == ["client"] and len(free) > 1 and not likely["client"]
        remedy: tuple[object, ...] = ("add them",)
        if len(free) >= len(missing):
            example = {f"{before}{role}": name or "NAME" for role, name in likely.items()}
            remedy = ("name them, as in ", Option("columns", example))
            if not all(likely.values()):
                remedy = (*remedy, " with the NAME of a column")
        return FileFormatError(
            f"{found}: ",
            # If every client has a column, any column named as "client" would cover just one.
            "if every client has a column, write one row per round and client; otherwise " * wide,
            *remedy,
            ", or add a header line if there is none",
        )


def check_columns(columns: Mapping[str, str] | None) -> dict[str, str]:
    """Return the caller's names of columns, or refuse one that no table has."""
    named = dict(columns or {})
    prefixed = {f"{kind}.{role}" for kind in CALLED for part in KINDS[kind] for role in part}
    for role, name in named.items():
        if role not in NAMES and role not in prefixed:
            raise OptionError(
                Option("columns"),
                f" has {shown(role)}; it may have {', '.join(NAMES)}, as in ",
                Option("columns", {"client": "device_id"}),
            )
        if not isinstance(name, str):
            raise OptionError(f"the column for the {role} is {shown(name)}; give its name as text")
    return named


def check_where(where: Mapping[str, Any] | None) -> dict[str, tuple[str, ...]]:
    """Return the columns that rows are filtered by, each with its accepted values."""
    found = {}
    for name, given in (where or {}).items():
        several = isinstance(given, Sequence) and not isinstance(given, str)
        values = tuple(given) if several else (given,)
        if not all(isinstance(text, str) for text in (name, *values)) or not values:
            raise OptionError(
                Option("where"),
                f" has {shown(name)}: {shown(given)}; it needs a column's name and a value, as in ",
                Option("where", {"event": "train_reply"}),
            )
        found[name] = tuple(value.strip() for value in values)
    return found


def sought_in(kind: str, columns: Mapping[str, str]) -> Sought:
    """Return what is looked for in a table that accompanies a log.

    ``importance.client`` names a column of the importance file only. ``client`` may be meant for
    the log or another table, so the usual names are accepted where there is no such column.
    """
    roles = [role for part in KINDS[kind] for role in part]
    own = {role: columns[f"{kind}.{role}"] for role in roles if f"{kind}.{role}" in columns}
    shared = {role: columns[role] for role in roles if role in columns}
    either = {"client", "group"} - own.keys()
    return Sought((kind,), {**shared, **own}, frozenset(either))


def unread(header: Sequence[str], layout: Layout) -> list[str]:
    """Return a note on the columns that are not read, if there are any."""
    rest = [name for place, name in enumerate(header) if place not in layout.places.values()]
    return [f"not read: column{'s' * (len(rest) > 1)} {listed(rest)}"] if rest else []


def plain(name: str) -> str:
    """Return a column's name in lower case, its words joined by underscores.

    >>> plain("JOB_STATE"), plain("clientId"), plain(" num-examples ")
    ('job_state', 'client_id', 'num_examples')
    """
    return _WORDS.sub("_", name.strip()).strip("_").lower()


def called(kind: str) -> str:
    """Return what a table is called in messages."""
    return CALLED.get(kind, "a log")


def listed(header: Sequence[str]) -> str:
    """List the names of columns for a message."""
    return enumerated(map(quoted, header), 12)


def _likely(role: str, names: Sequence[str]) -> str:
    """Return the column that most likely has a meaning, by its name; "" if none does."""
    by_name = (name for part in HINTS.get(role, ()) for name in names if part in plain(name))
    return next(by_name, "")


def runs_in(header: Sequence[str], layout: Layout) -> str:
    """Return the name of an unread column that may distinguish runs; "" if there is none."""
    rest = [name for place, name in enumerate(header) if place not in layout.places.values()]
    return next((name for name in rest if plain(name) in RUNS), "")


def _in_list(name: str) -> str:
    """Return "client" if a column holds the names in a list of clients: ``clients.id``."""
    *_, parent, last = ["", *name.split(".")]
    return "client" if plain(parent) in LISTS and plain(last) in ("id", "name") else ""


def _refuse_shared(places: Mapping[str, int], header: Sequence[str], source: Path) -> None:
    """Refuse a column with two meanings."""
    role_of: dict[int, str] = {}
    for role, place in places.items():
        other = role_of.setdefault(place, role)
        if other != role:
            raise FileFormatError(
                f"{source}, line 1: column {header[place]!r} is both the {other} and the {role}; "
                "name another for one of them"
            )


def _places(name: str, header: Sequence[str]) -> list[int]:
    """Return the positions of a caller's name in the header; an exact match takes precedence."""
    exact = [place for place, column in enumerate(header) if column == name]
    return exact or [place for place, column in enumerate(header) if plain(column) == plain(name)]


def _named(name: str, header: Sequence[str], source: Path, what: str = "") -> int:
    places = _places(name, header)
    if not places:
        raise FileFormatError(
            f"{source}, line 1: no column {name!r}{what}; the columns are {listed(header)}"
        )
    return _only(places, name, header, source)


def _only(places: list[int], name: str, header: Sequence[str], source: Path, role: str = "") -> int:
    if len(places) == 1:
        return places[0]
    several = f"{source}, line 1: {len(places)} columns are called {name!r}"
    names = [header[place] for place in places]
    if role and len(set(names)) == len(names):
        raise FileFormatError(
            f"{several}: {listed(names)}; name one, as in ", Option("columns", {role: names[0]})
        )
    raise FileFormatError(f"{several}; rename all but one")
