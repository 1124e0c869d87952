"""What the clients of a log should count: by name, uniformly, or by shares of groups.

The clients of an audit are those of the log and those with importance whom it never names: a client
that never took part is a finding, not an omission. Whom the log names and the importance does not
is a question only the caller can answer, and is refused until `unlisted` answers it.
"""

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import fsum, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import SUM_SLACK, Floats, Integers, as_amount
from fedavot._files import PathLike
from fedavot.audit.federation import Federation
from fedavot.audit.json_lines import plain
from fedavot.audit.names import counted, ordered
from fedavot.audit.pairs import columns_of, named, read_pairs, refuse_packed
from fedavot.audit.participation import Participation
from fedavot.audit.roster import with_clients
from fedavot.errors import FileFormatError, ImportanceError, OptionError
from fedavot.importance import by_group, from_mapping, read_mapping

NOTHING = 1e-10
"""A share of the importance that no log could tell from none, and that solvers stumble over."""
NO_GROUP = "(no group)"
"""What clients without a group are listed under."""


def federation_of(
    log: Participation,
    *,
    importance: PathLike | Mapping[str, float] = "uniform",
    groups: PathLike | Mapping[str, str] | None = None,
    targets: PathLike | Mapping[str, float] | None = None,
    unlisted: float | None = None,
) -> Federation:
    """Say what each client of a log should count.

    Parameters
    ----------
    log : Participation
        Who took part.
    importance : "uniform", path or mapping from client to number
        Uniform over the clients of the log and of ``groups``; or a file with the columns client and
        importance (or examples), or JSON, as `fedavot.importance.read_mapping` reads; or the same
        as a mapping. On any scale. A column ``group`` of the file is taken where no groups are
        given.
    groups : path or mapping from client to group, optional
        A CSV file with the columns client and group, or the same as a mapping.
    targets : path or mapping from group to number, optional
        What each group should count, in place of an importance: a CSV file with the columns group
        and share, or the same as a mapping. The shares sum to one, and each is split equally among
        the group's clients.
    unlisted : float, optional
        What a client of the log counts that the importance does not name, on the importance's
        scale. With targets only 0, for clients without a group and for groups without a share. By
        default such clients are refused.

    Returns
    -------
    Federation
        The log over all clients, with a note on those added, and their importance.
    """
    rest = None if unlisted is None else as_amount(unlisted, what="unlisted")
    _refuse_contradictions(importance, groups, targets, rest)
    wanted = _wanted(log, importance, groups, targets, rest)
    amounts, notes = _with_unlisted(wanted, log.clients, rest)
    known = set(log.clients)
    added = sorted(name for name, amount in amounts.items() if amount > 0 and name not in known)
    idle = {*wanted.group_of} - known - {*added}
    if added:
        log = with_clients(log, added)
        words = _clients(
            len(added), "has importance and never appears", "have importance and never appear"
        )
        notes.append(f"{words} in the log: {named(added)}")
    if idle:
        words = _clients(len(idle), "has a group, but", "have a group, but")
        notes.append(f"{words} no importance and no row in the log: left out")
    shares, more = _told_apart(
        from_mapping({name: amounts[name] for name in log.clients}, log.clients)
    )
    notes += more
    log = replace(log, notes=(*log.notes, *notes)) if notes else log
    return Federation(log, shares, *_numbered(wanted, log.clients))


def _told_apart(shares: Floats) -> tuple[Floats, list[str]]:
    """Return shares in which none is too small to be told from nothing, and a note on them."""
    small = (shares > 0) & (shares < NOTHING)
    if not small.any():
        return shares, []
    kept = np.where(small, 0.0, shares)
    words = _clients(int(small.sum()), "has", "have")
    note = f"{words} less than {NOTHING:g} of the importance: taken to count 0"
    return np.asarray(kept / kept.sum()), [note]


class _Wanted(NamedTuple):
    """Importance by client on any scale, groups by client and in order, and where it is from."""

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


def _refuse_contradictions(
    importance: object, groups: object, targets: object, unlisted: float | None
) -> None:
    for what, given in {"importance": importance, "groups": groups, "targets": targets}.items():
        omitted = given is None and what != "importance"
        if not omitted and not isinstance(given, str | os.PathLike | Mapping):
            raise OptionError(
                f"{what} is a {type(given).__name__}; it must be a file's path or a mapping by name"
            )
    uniform = _is_uniform(importance)
    if targets is not None and not uniform:
        raise OptionError(
            "importance and targets both say what clients should count; give one of them "
            "(--importance, or --targets with --groups)"
        )
    if targets is not None and groups is None:
        raise OptionError(
            "targets are shares of groups: say as well which client is in which group (--groups)"
        )
    if targets is not None and unlisted:
        raise OptionError(
            f"unlisted is {unlisted:g}, but with targets a client without a group can only count "
            "0: say 0, or give it a group"
        )
    if targets is None and uniform and unlisted is not None:
        raise OptionError(
            "unlisted is of clients that an importance or targets leave out, and a uniform "
            "importance leaves out nobody: omit it"
        )


def _called(given: object, otherwise: str) -> str:
    """Return what to call an input in messages: a file by its path."""
    return f"the mapping {otherwise}" if isinstance(given, Mapping) else str(given)


def _amounts(importance: PathLike | Mapping[str, float]) -> tuple[dict[str, float], dict[str, str]]:
    """Return importance by client, and the groups that a file of it has beside."""
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
            f"{total:.10g}, not 1; divide each by the sum if that is meant"
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
            f"{asked} has no share for {counted(len(extra), 'group')}, {named(extra)}; it has "
            f"{named(shares)}: add what is missing, with 0 if it should not count"
        )
    every: dict[Hashable, float] = {label: shares.get(label, 0.0) for label in (*shares, *extra)}
    values = by_group(list(group_of.values()), every)
    return dict(zip(group_of, values.tolist(), strict=True))


def _with_unlisted(
    wanted: _Wanted, clients: Sequence[str], unlisted: float | None
) -> tuple[dict[str, float], list[str]]:
    """Return the importance of clients left out as well, and a note on them; or refuse them."""
    amounts = wanted.amounts
    missing = [name for name in clients if name not in amounts]
    if not missing:
        return amounts, []
    words = f"{_clients(len(missing), 'is', 'are')} in the log and not in {wanted.source}"
    if unlisted is None:
        hint = _hint(missing, amounts, some=len(missing) < len(clients))
        raise ImportanceError(
            f"{words}: {named(missing)}{hint}; add what is missing, or say unlisted=0 "
            "(--unlisted 0) if it should not count"
        )
    note = f"{words}, and so taken to count {unlisted:g}: {named(missing)}"
    return {**amounts, **dict.fromkeys(missing, unlisted)}, [note]


def _hint(missing: Sequence[str], listed: Iterable[str], *, some: bool) -> str:
    """Point out a name that is there but for capitals or spaces; else, if none is, what is."""
    spelling = {name.strip().casefold(): name for name in listed}
    for name in missing:
        other = spelling.get(name.strip().casefold())
        if other is not None:
            return f" (it has {other!r} for {name!r}: spell them alike)"
    return "" if some else f" (it names nobody of the log; it has {named(spelling.values())})"


def _spelt(mapping: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the same with names spelt as those of a log are."""
    for name in mapping:
        if not isinstance(name, str) or not name.strip():
            raise OptionError(f"{what} names {name!r}; a name must be text, and not empty")
    spelt = {plain(name): value for name, value in mapping.items()}
    if len(spelt) < len(mapping):
        raise OptionError(f"{what} has names that are the same once written as UTF-8; rename one")
    return spelt


def _numbered(wanted: _Wanted, clients: Sequence[str]) -> tuple[tuple[str, ...], Integers | None]:
    """Return the groups that have clients, and the number of each client's."""
    if not wanted.group_of:
        return (), None
    of_client = [wanted.group_of.get(name, NO_GROUP) for name in clients]
    present = set(of_client)
    groups = tuple(label for label in dict.fromkeys([*wanted.labels, NO_GROUP]) if label in present)
    number_of = {label: number for number, label in enumerate(groups)}
    return groups, np.array([number_of[label] for label in of_client], dtype=np.int64)


def _clients(count: int, one: str, several: str) -> str:
    return f"1 client {one}" if count == 1 else f"{count:,} clients {several}"
