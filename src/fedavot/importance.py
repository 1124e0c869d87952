"""Importance: how much each client counts in the objective F = Σ p_i f_i.

Every function returns a distribution over the clients, shape (n_clients,), that the rest of the
library accepts as it is. Where clients have names, :func:`from_mapping` is the place they are
turned into positions, and :func:`read_mapping` reads them from a file. Whether an importance can
be attained is the certificate's question.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from fedavot._cells import unguarded
from fedavot._checks import (
    Floats,
    Integers,
    as_amount,
    as_distribution,
    as_double,
    as_floats,
    as_size,
    refuse_if_too_large,
    shown,
)
from fedavot._files import PathLike
from fedavot.errors import FileFormatError, ImportanceError


def uniform(n_clients: int) -> Floats:
    """Weigh every client alike.

    Parameters
    ----------
    n_clients : int
        Number of clients, at least 1.

    Returns
    -------
    ndarray of shape (n_clients,)
        ``1 / n_clients`` for each client.
    """
    size = as_size(n_clients, what="n_clients", low=1)
    refuse_if_too_large(
        8.0 * size, what=f"an importance of {size:,} clients", remedy="lower n_clients"
    )
    return np.full(size, 1.0 / size)


def by_examples(counts: ArrayLike) -> Floats:
    """Weigh every client by the number of its examples.

    Parameters
    ----------
    counts : array_like of shape (n_clients,)
        Non-negative numbers, not all zero.

    Returns
    -------
    ndarray of shape (n_clients,)
        The counts divided by their sum.
    """
    return _normalised(_non_negative(counts, what="example count"), what="example counts")


def by_group(
    groups: Sequence[Hashable],
    targets: Mapping[Hashable, float],
    *,
    within: ArrayLike | None = None,
) -> Floats:
    """Give each group of clients a stated share and split it among its members.

    Parameters
    ----------
    groups : sequence of labels, of length n_clients
        The group of each client.
    targets : mapping from label to float
        The share of each group; the shares sum to one.
    within : array_like of shape (n_clients,), optional
        Non-negative numbers, such as example counts, in proportion to which a group's share is
        split. By default it is split equally.

    Returns
    -------
    ndarray of shape (n_clients,)
        The importance of each client.
    """
    _refuse_unless_mapping(targets, what="targets")
    shares = as_distribution(
        list(targets.values()), what="target share", item="group", error=ImportanceError
    )
    group_of = _group_numbers(groups, list(targets))
    _refuse_empty_groups(targets, np.bincount(group_of, minlength=shares.size))
    sizes = np.ones(group_of.size) if within is None else _non_negative(within, what="within")
    if sizes.size != group_of.size:
        raise ImportanceError(
            f"within has {sizes.size} entries, but groups has {group_of.size} clients"
        )
    largest = np.zeros(shares.size)
    np.maximum.at(largest, group_of, sizes)
    _refuse_weightless_groups(targets, largest)
    # Relative to its group's largest, no size makes the group's sum overflow or vanish.
    relative = sizes / np.where(largest > 0, largest, 1.0)[group_of]
    totals = np.bincount(group_of, weights=relative, minlength=shares.size)
    return np.asarray(shares[group_of] * relative / np.where(totals > 0, totals, 1.0)[group_of])


def tempered(importance: ArrayLike, *, exponent: float) -> Floats:
    """Flatten or sharpen an importance: p_i to the power ``exponent``, normalised.

    Parameters
    ----------
    importance : array_like of shape (n_clients,)
        A distribution over the clients.
    exponent : float
        At least 0. 1 leaves the importance as it is, less flattens it, more sharpens it, and 0
        makes it uniform over the clients that have any: zero importance stays zero.

    Returns
    -------
    ndarray of shape (n_clients,)
        The tempered importance.
    """
    shares = as_distribution(importance, what="importance", item="client", error=ImportanceError)
    power = as_amount(exponent, what="exponent")
    # Powers are taken relative to the largest share, which then cannot underflow.
    raised = np.where(shares > 0, (shares / shares.max()) ** power, 0.0)
    return np.asarray(raised / raised.sum())


def from_mapping(mapping: Mapping[str, float], clients: Sequence[str]) -> Floats:
    """Put importance given by client name into client order.

    Parameters
    ----------
    mapping : mapping from name to float
        Non-negative numbers, not all zero; they are divided by their sum, so counts will do.
    clients : sequence of str, of length n_clients
        The clients' names in order; exactly the keys of ``mapping``.

    Returns
    -------
    ndarray of shape (n_clients,)
        The importance of each client.
    """
    _refuse_unless_mapping(mapping, what="mapping")
    try:
        repeated = [name for name, count in Counter(list(clients)).items() if count > 1]
    except TypeError as cause:
        raise ImportanceError(f"clients must hold one hashable name per client: {cause}") from None
    if repeated:
        raise ImportanceError(f"clients lists {_listed(repeated)} more than once")
    missing = [name for name in clients if name not in mapping]
    if missing:
        raise ImportanceError(f"the mapping has no importance for {_listed(missing)}")
    unknown = mapping.keys() - set(clients)
    if unknown:
        raise ImportanceError(
            f"the mapping gives importance to {_listed(sorted(unknown))}, not among the clients"
        )
    values = _non_negative([mapping[name] for name in clients], what="importance", names=clients)
    return _normalised(values, what="the mapping's numbers")


def read_mapping(path: PathLike) -> dict[str, float]:
    """Read importance by client name from a file.

    Parameters
    ----------
    path : path
        A CSV file with the columns ``client`` and ``importance`` (or ``examples``), others being
        ignored; or, with the suffix .json, one object from client name to number. In CSV an
        apostrophe before a name that a spreadsheet would take for a formula is taken off.

    Returns
    -------
    dict from str to float
        Non-negative numbers on the file's own scale, not all zero.
    """
    source = Path(path)
    try:
        text = source.read_bytes().decode("utf-8-sig")  # names keep the line ends they have
    except UnicodeDecodeError as cause:
        line = cause.object.count(b"\n", 0, cause.start) + 1
        raise FileFormatError(
            f"{source}, line {line}: byte 0x{cause.object[cause.start]:02x} is not UTF-8 text; "
            "save it as UTF-8"
        ) from None
    read = _json_pairs if source.suffix.lower() == ".json" else _csv_pairs
    mapping: dict[str, float] = {}
    for client, value, place in read(text, source):
        if not client:
            raise FileFormatError(f"{source}, {place}: a client has no name")
        amount = _amount(value, f"{source}, {place}: importance of client {client!r}")
        if client in mapping:
            raise FileFormatError(
                f"{source}, {place}: client {client!r} is listed a second time; keep one"
            )
        mapping[client] = amount
    if not mapping:
        raise FileFormatError(f"{source} names no clients; add one at least")
    if not any(mapping.values()):
        raise ImportanceError(
            f"{source} gives importance above 0 to no client; one at least must count"
        )
    return mapping


def _json_pairs(text: str, source: Path) -> list[tuple[str, object, str]]:
    def pairs(items: list[tuple[str, object]]) -> list[tuple[str, object]]:
        return items  # a dict would drop a client's first mention without a word

    try:
        content = json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as cause:
        why = "a number of thousands of digits" if "digits" in str(cause) else cause
        raise FileFormatError(
            f"{source} is not a complete JSON document: {why}; write it again"
        ) from None
    if not text.lstrip().startswith("{"):
        raise FileFormatError(f"{source} must hold one object from client name to number")
    return [(client, value, f"key {client!r}") for client, value in content]


def _csv_pairs(text: str, source: Path) -> list[tuple[str, object, str]]:
    # Not splitlines, which also ends lines at characters that a name may have.
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [column.strip().lower() for column in next((row for row in rows if row), [])]
        if not header:
            raise FileFormatError(f"{source} is empty; it needs a header line and rows")
        value = next((name for name in ("importance", "examples") if name in header), None)
        if "client" not in header or value is None:
            raise FileFormatError(
                f"{source}, line {rows.line_num}: the columns are {_listed(header)}; it must have "
                "client, and importance or examples, separated by a comma"
            )
        client, amount = header.index("client"), header.index(value)
        found: list[tuple[str, object, str]] = []
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise FileFormatError(
                    f"{source}, line {rows.line_num}: {len(row)} fields where the header has "
                    f"{len(header)}; put quotes around a field that has a comma in it"
                )
            found.append((unguarded(row[client]), row[amount], f"line {rows.line_num}"))
    except csv.Error as cause:
        raise FileFormatError(
            f"{source}, line {rows.line_num}: {cause}; mend the line's quotes"
        ) from None
    return found


def _amount(value: object, what: str) -> float:
    try:
        number = as_double(value) if isinstance(value, str | int | float) else np.nan
    except ValueError:
        number = np.nan
    if isinstance(value, bool) or not 0 <= number < np.inf:
        raise ImportanceError(f"{what} is {shown(value)}; it must be a finite number, at least 0")
    return number


def _refuse_unless_mapping(value: object, *, what: str) -> None:
    if not isinstance(value, Mapping):
        raise ImportanceError(f"{what} must be a mapping to numbers, found {shown(value)}")


def _non_negative(values: ArrayLike, *, what: str, names: Sequence[str] | None = None) -> Floats:
    array = as_floats(values, what=what, error=ImportanceError, item="client")
    bad = np.flatnonzero(~((array >= 0) & np.isfinite(array)))
    if bad.size:
        client = bad[0] if names is None else repr(names[bad[0]])
        raise ImportanceError(
            f"{what} of client {client} is {array[bad[0]]}; it must be finite and at least 0"
        )
    return array


def _normalised(values: Floats, *, what: str) -> Floats:
    largest = values.max(initial=0.0)
    if not largest > 0:
        raise ImportanceError(
            f"{what} are all zero over {values.size} clients; one at least must be above 0"
        )
    # The sum itself may overflow where every entry is finite.
    relative = values / largest
    return np.asarray(relative / relative.sum(), dtype=np.float64)


def _group_numbers(groups: Sequence[Hashable], labels: Sequence[Hashable]) -> Integers:
    number_of = {label: number for number, label in enumerate(labels)}
    try:
        numbers = [number_of.get(group, -1) for group in groups]
    except TypeError as cause:
        raise ImportanceError(f"groups must hold one hashable label a client: {cause}") from None
    if -1 in numbers:
        client = numbers.index(-1)
        raise ImportanceError(
            f"client {client} is in group {shown(groups[client])}, which has no target share; "
            "add it to targets, with 0 if it should not count"
        )
    return np.array(numbers, dtype=np.int64)


def _refuse_empty_groups(targets: Mapping[Hashable, float], counts: Integers) -> None:
    for (label, share), count in zip(targets.items(), counts, strict=True):
        if share > 0 and count == 0:
            raise ImportanceError(
                f"group {label!r} has target share {share} and no clients to carry it; "
                "drop it and share its target among the others"
            )


def _refuse_weightless_groups(targets: Mapping[Hashable, float], largest: Floats) -> None:
    for (label, share), most in zip(targets.items(), largest, strict=True):
        if share > 0 and most == 0:
            raise ImportanceError(
                f"group {label!r} has target share {share}, but within is 0 for all its clients"
            )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
