"""A participation log and the importance of its clients: the input of an audit.

An audit covers the clients of the log and all clients with importance: that a client with
importance never took part is a finding. Clients in the log that have no importance are refused
unless ``unlisted`` says what they should count, since only the caller can know. Files and mappings
with importance, groups and shares of groups are read by `reading.wanted`.
"""

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import Floats, Integers, as_amount, enumerated, quoted
from fedavot._files import PathLike
from fedavot.audit.participation import Participation, ordered
from fedavot.audit.reading.columns import check_columns
from fedavot.audit.reading.labels import counted
from fedavot.audit.reading.wanted import called, groups_in, importance_in, targets_in
from fedavot.errors import ImportanceError, Option, OptionError
from fedavot.importance import by_group, from_mapping

NOTHING = 1e-10
"""Shares of the importance below this are taken as 0: no log is long enough for them."""
NO_GROUP = "(no group)"
"""Label of the clients without a group."""
ALIKE = 0.85
"""Similarity at or above which two names may be two spellings of the same name."""
TRIED = 5
"""Number of missing names compared with the others: comparing all of them could take minutes."""


@dataclass(frozen=True, eq=False)
class Federation:
    """Which clients took part, and the importance of each client.

    Attributes
    ----------
    participation : Participation
        The log, over all clients; clients with importance that are not in it are added.
    importance : float array, shape (n_clients,)
        The importance of each client; it sums to one.
    groups : tuple of str
        The groups' names; empty without groups.
    group_of : int array, shape (n_clients,), or None
        The group of each client, as a position in ``groups``.
    """

    participation: Participation
    importance: Floats
    groups: tuple[str, ...] = ()
    group_of: Integers | None = None

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return self.importance.size


def federation_of(
    log: Participation,
    *,
    importance: PathLike | Mapping[str, float] = "uniform",
    groups: PathLike | Mapping[str, str] | None = None,
    targets: PathLike | Mapping[str, float] | None = None,
    unlisted: float | None = None,
    columns: Mapping[str, str] | None = None,
) -> Federation:
    """Combine a log with the importance of its clients.

    Parameters
    ----------
    log : Participation
        Which clients took part in each round.
    importance : "uniform", path or mapping from client to number
        Uniform over the clients of the log and of ``groups``; or a file with the columns client and
        importance (or examples), in any format that a log may have, or a JSON object; or a mapping.
        Any scale will do. A column ``group`` of the file is used if no groups are given.
    groups : path or mapping from client to group, optional
        A file with the columns client and group, or a mapping.
    targets : path or mapping from group to number, optional
        The share of each group, instead of an importance: a file with the columns group and share,
        or a mapping. The shares sum to one, and each is split equally among the group's clients.
    unlisted : float, optional
        The importance of clients in the log that have none, on the scale of the others. With
        targets only 0 is possible, for clients without a group and groups without a share. By
        default such clients are refused.
    columns : mapping of str, optional
        Names of columns that are not recognised, by their meaning, such as
        ``{"importance": "n_train"}``. ``importance.client`` applies only to the importance file,
        and likewise ``groups.client``, ``groups.group``, ``targets.group``.

    Returns
    -------
    Federation
        The log over all clients, with a note on those that were added, and their importance.
    """
    rest = None if unlisted is None else as_amount(unlisted, what="unlisted")
    refuse_contradictions(importance, groups, targets, rest)
    wanted = _wanted(log, (importance, groups, targets), rest, check_columns(columns))
    amounts, notes = _with_unlisted(wanted, log.clients, rest)
    recorded = "weights" if log.applied is not None else "numbers of examples"
    if targets is None and importance == "uniform" and not (log.applied is log.examples is None):
        notes.append(
            "no importance was given, so every client counts the same; the log has the clients' "
            f"{recorded}, and if a client should count by its examples, give these as importance"
        )
    known = set(log.clients)
    added = sorted(name for name, amount in amounts.items() if amount > 0 and name not in known)
    idle = {*wanted.group_of} - known - {*added}
    if added:
        log = log.with_clients(added)
        words = _clients(len(added), "has importance but is", "have importance but are")
        notes.append(f"{words} not in the log: {_named(added)}")
    if idle:
        words = _clients(len(idle), "has a group, but", "have a group, but")
        notes.append(f"{words} neither importance nor a row in the log: left out")
    shares = from_mapping({name: amounts[name] for name in log.clients}, log.clients)
    small = (shares > 0) & (shares < NOTHING)
    if small.any():
        shares = np.where(small, 0.0, shares) / shares[~small].sum()
        words = _clients(int(small.sum()), "has", "have")
        notes.append(f"{words} less than {NOTHING:g} of the importance: taken as 0")
    log = replace(log, notes=(*log.notes, *notes)) if notes else log
    return Federation(log, shares, *_numbered(wanted, log.clients))


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
    uniform = importance == "uniform"
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


class _Wanted(NamedTuple):
    """Importance by client on any scale, groups by client and in order, and their source."""

    amounts: dict[str, float]
    group_of: dict[str, str]
    labels: Sequence[str]
    source: str


def _wanted(
    log: Participation,
    given: tuple[Any, Any, Any],
    unlisted: float | None,
    columns: Mapping[str, str],
) -> _Wanted:
    importance, groups, targets = given
    group_of = {} if groups is None else groups_in(groups, columns)
    if targets is not None:
        shares = targets_in(targets, columns)
        amounts = _split(shares, group_of, unlisted, called(targets, "targets"))
        every = [*shares, *group_of.values()]
        return _Wanted(amounts, group_of, every, called(groups, "groups"))
    if importance == "uniform":
        amounts, source = dict.fromkeys([*log.clients, *group_of], 1.0), "the log"
    else:
        amounts, own = importance_in(importance, columns, log.clients)
        group_of = own if groups is None else group_of
        source = called(importance, "importance")
    labels = ordered(list(dict.fromkeys(group_of.values())))[0]
    return _Wanted(amounts, group_of, labels, source)


def _split(
    shares: Mapping[str, float], group_of: Mapping[str, str], unlisted: float | None, asked: str
) -> dict[str, float]:
    """Return the importance of every client with a group."""
    extra = dict.fromkeys(label for label in group_of.values() if label not in shares)
    if extra and unlisted is None:
        raise ImportanceError(
            f"{asked} has no share for {counted(len(extra), 'group')}: {_named(extra)}; it has "
            f"{_named(shares)}. Add the missing shares, 0 if a group should not count"
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
        hint = _other_spelling(missing, amounts, clients)
        raise ImportanceError(
            f"{words}: {_named(missing)}{hint}; add what is missing, or use ",
            Option("unlisted", 0),
            f" if {'it' if len(missing) == 1 else 'they'} should not count",
        )
    note = f"{words}: {_named(missing)}; given an importance of {unlisted:g}"
    return {**amounts, **dict.fromkeys(missing, unlisted)}, [note]


def _other_spelling(missing: Sequence[str], listed: Iterable[str], clients: Sequence[str]) -> str:
    """Point out a listed name that may be a missing client's; if all names differ, list them."""
    names = dict.fromkeys(listed)
    apart = next((name for name in missing if name.strip() != name and name.strip() in names), "")
    if apart:
        return f" ({apart!r} is {apart.strip()!r} but for spaces: remove them)"
    known = set(clients)
    spelling = {name.strip().casefold(): name for name in names if name not in known}
    # Of several names that differ only in spaces, the shortest is kept.
    folded = {name.strip().casefold(): name for name in sorted(missing, key=len, reverse=True)}
    same = [(name, name) for name in folded if name in spelling]
    alike = same or [
        (name, other)
        for name in list(folded)[:TRIED]
        for other in get_close_matches(name, spelling, n=1, cutoff=ALIKE)
    ]
    for name, other in alike[:1]:
        return f" (it has {spelling[other]!r}: if that is {folded[name]!r}, use the same spelling)"
    some = len(missing) < len(clients)
    return "" if some or not spelling else f" (it has {_named(spelling.values())} instead)"


def _numbered(wanted: _Wanted, clients: Sequence[str]) -> tuple[tuple[str, ...], Integers | None]:
    """Return the groups that have clients, and the position of each client's group."""
    if not wanted.group_of:
        return (), None
    of_client = [wanted.group_of.get(name, NO_GROUP) for name in clients]
    present = set(of_client)
    groups = tuple(label for label in dict.fromkeys([*wanted.labels, NO_GROUP]) if label in present)
    number_of = {label: number for number, label in enumerate(groups)}
    return groups, np.array([number_of[label] for label in of_client], dtype=np.int64)


def _named(names: Iterable[str]) -> str:
    return enumerated(map(quoted, names))


def _clients(count: int, one: str, several: str) -> str:
    return f"1 client {one}" if count == 1 else f"{count:,} clients {several}"
