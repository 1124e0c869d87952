"""The importance of a log's clients: by name, uniform, or by shares of groups.

An audit covers the clients of the log and all clients with importance: that a client with
importance never took part is a finding. Clients in the log that have no importance are refused
unless ``unlisted`` says what they should count, since only the caller can know.
"""

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from math import fsum, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import SUM_SLACK, Floats, Integers, as_amount
from fedavot._files import PathLike
from fedavot.audit.federation import Federation
from fedavot.audit.participation import Participation
from fedavot.audit.reading.json_lines import plain
from fedavot.audit.reading.names import counted, ordered
from fedavot.audit.reading.pairs import columns_of, named, other_spelling, read_pairs, refuse_packed
from fedavot.audit.reading.roster import with_clients
from fedavot.errors import FileFormatError, ImportanceError, Option, OptionError
from fedavot.importance import by_group, from_mapping, read_mapping

NOTHING = 1e-10
"""Shares of the importance below this are taken as 0: no log is long enough for them."""
NO_GROUP = "(no group)"
"""Label of the clients without a group."""


def federation_of(
    log: Participation,
    *,
    importance: PathLike | Mapping[str, float] = "uniform",
    groups: PathLike | Mapping[str, str] | None = None,
    targets: PathLike | Mapping[str, float] | None = None,
    unlisted: float | None = None,
) -> Federation:
    """Combine a log with the importance of its clients.

    Parameters
    ----------
    log : Participation
        Who took part.
    importance : "uniform", path or mapping from client to number
        Uniform over the clients of the log and of ``groups``; or a file with the columns client and
        importance (or examples), or JSON, as `fedavot.importance.read_mapping` reads it; or a
        mapping. On any scale. A column ``group`` of the file is used if no groups are given.
    groups : path or mapping from client to group, optional
        A CSV file with the columns client and group, or a mapping.
    targets : path or mapping from group to number, optional
        The share of each group, instead of an importance: a CSV file with the columns group and
        share, or a mapping. The shares sum to one, and each is split equally among the group's
        clients.
    unlisted : float, optional
        The importance of clients in the log that have none, on the scale of the others. With
        targets only 0 is possible, for clients without a group and groups without a share. By
        default such clients are refused.

    Returns
    -------
    Federation
        The log over all clients, with a note on those that were added, and their importance.
    """
    rest = None if unlisted is None else as_amount(unlisted, what="unlisted")
    refuse_contradictions(importance, groups, targets, rest)
    wanted = _wanted(log, importance, groups, targets, rest)
    amounts, notes = _with_unlisted(wanted, log.clients, rest)
    known = set(log.clients)
    added = sorted(name for name, amount in amounts.items() if amount > 0 and name not in known)
    idle = {*wanted.group_of} - known - {*added}
    if added:
        log = with_clients(log, added)
        words = _clients(len(added), "has importance but is", "have importance but are")
        notes.append(f"{words} not in the log: {named(added)}")
    if idle:
        words = _clients(len(idle), "has a group, but", "have a group, but")
        notes.append(f"{words} neither importance nor a row in the log: left out")
    shares, more = _told_apart(
        from_mapping({name: amounts[name] for name in log.clients}, log.clients)
    )
    notes += more
    log = replace(log, notes=(*log.notes, *notes)) if notes else log
    return Federation(log, shares, *_numbered(wanted, log.clients))


def _told_apart(shares: Floats) -> tuple[Floats, list[str]]:
    """Set shares that are too small to 0, and return a note on them."""
    small = (shares > 0) & (shares < NOTHING)
    if not small.any():
        return shares, []
    kept = np.where(small, 0.0, shares)
    words = _clients(int(small.sum()), "has", "have")
    note = f"{words} less than {NOTHING:g} of the importance: taken as 0"
    return np.asarray(kept / kept.sum()), [note]


class _Wanted(NamedTuple):
    """Importance by client on any scale, groups by client and in order, and their source."""

    amounts: dict[str, float]
    group_of: dict[str, str]
    labels: Sequence[str]
    source: str


def _wanted(
    log: Participation, importance: Any, groups: Any, targets: Any, unlisted: float | None
) -> _Wanted:
    group_of = {} if groups is None else _groups(groups)
    if targets is not None:
        shares = _targets(targets)
        amounts = _split(shares, group_of, unlisted, _called(targets, "targets"))
        every = [*shares, *group_of.values()]
        return _Wanted(amounts, group_of, every, _called(groups, "groups"))
    if _is_uniform(importance):
        amounts, source = dict.fromkeys([*log.clients, *group_of], 1.0), "the log"
    else:
        amounts, own = _amounts(importance)
        group_of = own if groups is None else group_of
        source = _called(importance, "importance")
    labels = ordered(list(dict.fromkeys(group_of.values())))[0]
    return _Wanted(amounts, group_of, labels, source)


def _is_uniform(importance: object) -> bool:
    return isinstance(importance, str) and importance == "uniform"


def refuse_contradictions(
    importance: object, groups: object, targets: object, unlisted: float | None
) -> None:
    """Refuse options of `federation_of` that contradict each other."""
    for what, given in {"importance": importance, "groups": groups, "targets": targets}.items():
        omitted = given is None and what != "importance"
        if not omitted and not isinstance(given, str | os.PathLike | Mapping):
            raise OptionError(
                f"{what} is a {type(given).__name__}; it must be the path of a file, or a mapping"
            )
    uniform = _is_uniform(importance)
    if targets is not None and not uniform:
        raise OptionError(
            Option("importance"),
            " and ",
            Option("targets"),
            " both set the clients' importance; give only one of them",
        )
    if targets is not None and groups is None:
        raise OptionError(
            Option("targets"), " are shares of groups; give the clients' ", Option("groups"), " too"
        )
    if targets is not None and unlisted:
        raise OptionError(
            Option("unlisted"),
            f" is {unlisted:g}, but with targets a client without a group can only count 0; give "
            "it a group, or use ",
            Option("unlisted", 0),
        )
    if targets is None and uniform and unlisted is not None:
        raise OptionError(
            Option("unlisted"),
            " only applies to clients without importance, and a uniform importance leaves out "
            "nobody; leave it out",
        )


def _called(given: object, otherwise: str) -> str:
    """Return an input's name for messages: a file's path, or the parameter."""
    return f"the mapping {otherwise}" if isinstance(given, Mapping) else str(given)


def _amounts(importance: PathLike | Mapping[str, float]) -> tuple[dict[str, float], dict[str, str]]:
    """Return importance by client, and groups if the file has them."""
    if isinstance(importance, Mapping):
        given = _spelt(importance, "importance")
        return {name: _amount(given[name], f"importance of client {name!r}") for name in given}, {}
    source = Path(importance)
    table = source.suffix.lower() != ".json"
    if table:
        refuse_packed(source)
    amounts = _spelt(read_mapping(source), str(source))
    if not table or "group" not in columns_of(source):
        return amounts, {}
    pairs = read_pairs(source, "client", "group")
    return amounts, {pair.key: pair.value for pair in pairs if pair.value.strip()}


def _groups(groups: PathLike | Mapping[str, str]) -> dict[str, str]:
    """Return the group of each client that has one."""
    if isinstance(groups, Mapping):
        for client, group in groups.items():
            if not isinstance(group, str) or not group.strip():
                raise OptionError(f"group of client {client!r} is {group!r}; it must be a name")
        return {client: plain(group) for client, group in _spelt(groups, "groups").items()}
    pairs = read_pairs(groups, "client", "group")
    for pair in pairs:
        if not pair.value.strip():
            raise FileFormatError(
                f"{groups}, line {pair.line}: no group; fill it in, or remove the line"
            )
    return {pair.key: pair.value for pair in pairs}


def _targets(targets: PathLike | Mapping[str, float]) -> dict[str, float]:
    """Return the share of each group."""
    if isinstance(targets, Mapping):
        given = _spelt(targets, "targets")
        shares = {label: _amount(given[label], f"share of group {label!r}") for label in given}
    else:
        shares = {
            pair.key: _amount(
                pair.value, f"{targets}, line {pair.line}: share of group {pair.key!r}"
            )
            for pair in read_pairs(targets, "group", "share")
        }
    total = fsum(shares.values())
    if not abs(total - 1.0) <= SUM_SLACK:
        raise ImportanceError(
            f"{_called(targets, 'targets')}: the shares of {counted(len(shares), 'group')} sum to "
            f"{total:.10g}, not 1; divide each by their sum if that is intended"
        )
    return shares


def _amount(value: Any, what: str) -> float:
    try:
        number = np.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = np.nan
    if not (number >= 0 and isfinite(number)):
        raise ImportanceError(f"{what} is {value!r}; it must be a finite number, at least 0")
    return number


def _split(
    shares: Mapping[str, float], group_of: Mapping[str, str], unlisted: float | None, asked: str
) -> dict[str, float]:
    """Return the importance of every client with a group."""
    extra = dict.fromkeys(label for label in group_of.values() if label not in shares)
    if extra and unlisted is None:
        raise ImportanceError(
            f"{asked} has no share for {counted(len(extra), 'group')}: {named(extra)}; it has "
            f"{named(shares)}. Add the missing shares, 0 if a group should not count"
        )
    every: dict[Hashable, float] = {label: shares.get(label, 0.0) for label in (*shares, *extra)}
    values = by_group(list(group_of.values()), every)
    return dict(zip(group_of, values.tolist(), strict=True))


def _with_unlisted(
    wanted: _Wanted, clients: Sequence[str], unlisted: float | None
) -> tuple[dict[str, float], list[str]]:
    """Add the importance of clients without any, with a note; or refuse them."""
    amounts = wanted.amounts
    missing = [name for name in clients if name not in amounts]
    if not missing:
        return amounts, []
    words = f"{_clients(len(missing), 'is', 'are')} not in {wanted.source}"
    if unlisted is None:
        hint = other_spelling(missing, amounts, clients)
        raise ImportanceError(
            f"{words}: {named(missing)}{hint}; add what is missing, or use ",
            Option("unlisted", 0),
            f" if {'it' if len(missing) == 1 else 'they'} should not count",
        )
    note = f"{words}: {named(missing)}; given an importance of {unlisted:g}"
    return {**amounts, **dict.fromkeys(missing, unlisted)}, [note]


def _spelt(mapping: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the mapping with names spelt as in a log."""
    for name in mapping:
        if not isinstance(name, str) or not name.strip():
            raise OptionError(f"{what} has the name {name!r}; a name must be text and not empty")
    spelt = {plain(name): value for name, value in mapping.items()}
    if len(spelt) < len(mapping):
        raise OptionError(f"{what} has two names that are the same in UTF-8; rename one")
    return spelt


def _numbered(wanted: _Wanted, clients: Sequence[str]) -> tuple[tuple[str, ...], Integers | None]:
    """Return the groups that have clients, and the position of each client's group."""
    if not wanted.group_of:
        return (), None
    of_client = [wanted.group_of.get(name, NO_GROUP) for name in clients]
    present = set(of_client)
    groups = tuple(label for label in dict.fromkeys([*wanted.labels, NO_GROUP]) if label in present)
    number_of = {label: number for number, label in enumerate(groups)}
    return groups, np.array([number_of[label] for label in of_client], dtype=np.int64)


def _clients(count: int, one: str, several: str) -> str:
    return f"1 client {one}" if count == 1 else f"{count:,} clients {several}"
