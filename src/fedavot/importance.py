"""Importance: how much each client counts in the objective F = Σ p_i f_i.

Every function returns a distribution over the clients, shape (n_clients,), that the rest of the
library accepts as it is. If clients have names, `from_mapping` puts importance by name into
the order of the clients, and `read_mapping` reads it from a file. Whether an importance is
attainable is decided by `fedavot.certify`.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import (
    Floats,
    as_amount,
    as_distribution,
    as_non_negative,
    as_size,
    enumerated,
    quoted,
    shown,
)
from fedavot._clients import in_client_order
from fedavot._files import PathLike
from fedavot._reading import csv_table, json_in, read_text, unguarded
from fedavot.errors import FileFormatError, ImportanceError

COLUMNS = ("client", "importance", "examples")
"""Columns of a file of importance; examples counts where there is no importance."""

_distribution = partial(as_distribution, error=ImportanceError)
_per_client = partial(as_non_negative, item="client", error=ImportanceError)


def uniform(n_clients: int) -> Floats:
    """Give every client the same importance, ``1 / n_clients``, shape (n_clients,).

    Parameters
    ----------
    n_clients : int
        Number of clients, at least 1.
    """
    size = as_size(n_clients, what="n_clients", low=1)
    return np.full(size, 1.0 / size)


def by_examples(counts: ArrayLike) -> Floats:
    """Give every client an importance proportional to its number of examples.

    Parameters
    ----------
    counts : array_like of shape (n_clients,)
        Non-negative numbers, not all zero; they are divided by their sum.
    """
    return _normalised(_per_client(counts, what="example count"), what="example counts")


def by_group(
    groups: Sequence[Hashable],
    targets: Mapping[Hashable, float],
    *,
    within: ArrayLike | None = None,
) -> Floats:
    """Give each group of clients a share of the importance, and split it among its members.

    Parameters
    ----------
    groups : sequence of labels, of length n_clients
        The group of each client.
    targets : mapping from label to float
        The share of each group; the shares sum to one.
    within : array_like of shape (n_clients,), optional
        Non-negative numbers, such as example counts, by which the share of a group is split in
        proportion. By default it is split equally.
    """
    _refuse_unless_mapping(targets, what="targets")
    labels: list[Any] = list(targets)
    places = {label: place for place, label in enumerate(labels)}
    try:
        group_of = np.array([places.get(group, -1) for group in groups], dtype=np.int64)
    except TypeError as cause:
        raise ImportanceError(f"groups must hold one hashable label per client: {cause}") from None
    for client in np.flatnonzero(group_of < 0)[:1]:
        raise ImportanceError(
            f"client {client} is in group {shown(groups[client])}, which has no target share; "
            "add it to targets, with 0 if it should not count"
        )
    shares = _distribution(
        list(targets.values()), what="target share", item="group", clients=labels
    )
    sizes = np.ones(group_of.size) if within is None else _per_client(within, what="within")
    if sizes.size != group_of.size:
        raise ImportanceError(
            f"within has {sizes.size} entries, but groups has {group_of.size} clients"
        )
    largest = np.zeros(shares.size)
    np.maximum.at(largest, group_of, sizes)
    for place in np.flatnonzero((shares > 0) & (largest == 0))[:1]:
        has = "only clients for which within is 0" if place in group_of else "no clients"
        raise ImportanceError(
            f"group {labels[place]!r} has target share {targets[labels[place]]} and {has}; drop it "
            "and share its target among the others"
        )
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
        At least 0. An exponent of 1 leaves the importance as it is, a smaller one flattens it, a
        larger one sharpens it, and 0 makes it uniform over the clients that have any.
    """
    shares = _distribution(importance, what="importance", item="client")
    power = as_amount(exponent, what="exponent")
    # Powers are taken relative to the largest share, which then cannot underflow.
    raised = np.where(shares > 0, (shares / shares.max()) ** power, 0.0)
    return np.asarray(raised / raised.sum())


def from_mapping(mapping: Mapping[str, float], clients: Sequence[str]) -> Floats:
    """Return importance given by client name in the order of the clients.

    Parameters
    ----------
    mapping : mapping from name to float
        Non-negative numbers, not all zero; they are divided by their sum, so counts will do.
    clients : sequence of str, of length n_clients
        The clients' names in order; exactly the keys of ``mapping``.
    """
    _refuse_unless_mapping(mapping, what="mapping")
    ordered = in_client_order(mapping, clients)
    values = _per_client(ordered, what="importance", clients=clients)
    return _normalised(values, what="the mapping's numbers")


def read_mapping(path: PathLike) -> dict[str, float]:
    """Read importance by client name from a file.

    Parameters
    ----------
    path : path
        A CSV file with the columns ``client`` and ``importance`` (or ``examples``), others being
        ignored, with any separator that `fedavot.audit.read_log` knows; or, with the suffix .json,
        one object from client name to number. Numbers are plain, with a decimal point
        (`fedavot.audit` reads other ways too). In CSV an apostrophe before a name that a
        spreadsheet would take for a formula is taken off.

    Returns
    -------
    dict from str to float
        Non-negative numbers on the file's own scale, not all zero.
    """
    source = Path(path)
    mapping: dict[str, float] = {}
    for client, value, place in _rows_of(source):
        if not client:
            raise FileFormatError(f"{source}, {place}: a client has no name")
        if client in mapping:
            raise FileFormatError(f"{source}, {place}: client {client!r} a second time; keep one")
        try:
            mapping[client] = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            mapping[client] = math.nan
        if not 0 <= mapping[client] < math.inf:
            raise ImportanceError(
                f"{source}, {place}: importance of client {client!r} is {shown(value)}; it must be "
                "a finite number, at least 0, such as 1234.5"
            )
    if not mapping:
        raise FileFormatError(f"{source} has no clients; add at least one")
    if not any(mapping.values()):
        raise ImportanceError(
            f"{source} gives no client an importance above 0; at least one client needs it"
        )
    return mapping


def _rows_of(source: Path) -> list[tuple[str, Any, str]]:
    """Return each client's name, value and place in the file."""
    text = read_text(source)
    if source.suffix.lower() == ".json":
        content = json_in(text, source)
        if not isinstance(content, dict):
            raise FileFormatError(f"{source} must hold one object from client name to number")
        return [(client, value, f"key {client!r}") for client, value in content.items()]
    (header, first), *rows = csv_table(text, source, COLUMNS)
    client, *values = [name for name in COLUMNS if name in header] or [""]
    if client != "client" or not values or header.count(client) + header.count(values[0]) > 2:
        raise FileFormatError(
            f"{source}, line {first}: the columns are {enumerated(map(quoted, header))}; it must "
            "have client, and importance or examples, once each: rename the columns"
        )
    name, value = header.index(client), header.index(values[0])
    return [(unguarded(row[name]), row[value], f"line {line}") for row, line in rows]


def _refuse_unless_mapping(value: object, *, what: str) -> None:
    if not isinstance(value, Mapping):
        raise ImportanceError(f"{what} must be a mapping to numbers, found {shown(value)}")


def _normalised(values: Floats, *, what: str) -> Floats:
    largest = values.max(initial=0.0)
    if not largest > 0:
        raise ImportanceError(
            f"{what} are all zero over {values.size} clients; at least one must be above 0"
        )
    # The sum itself may overflow where every entry is finite.
    relative = values / largest
    return np.asarray(relative / relative.sum(), dtype=np.float64)
