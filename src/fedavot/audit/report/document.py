"""Findings as files for machines: findings.json and clients.csv.

findings.json mirrors `Findings`: its keys are the attributes' names, nested as they are. Arrays
with one entry per client are in clients.csv instead, whose columns are also named after attributes,
and the alignment is in alignment.json. Clients are given by name. JSON has neither infinity nor
NaN, so both are null: for ``hall_ratio``, null means that a set with importance never took part;
any other null means that the log does not give the figure.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from fedavot import __version__
from fedavot._checks import Floats
from fedavot._files import PathLike, read_document, write_document, write_whole
from fedavot._reading import csv_line
from fedavot.audit.findings import Findings
from fedavot.audit.recommending import Replay
from fedavot.errors import FileFormatError

FORMAT = "fedavot-findings"
VERSION = 4
ELSEWHERE = {"alignment", "by_client", "group_of", "implied_first_half", "implied_last_half"}
"""Attributes that findings.json leaves to alignment.json and clients.csv."""
COLUMNS = (
    *("client", "group", "importance", "owed", "implied", "attained", "inclusion"),
    *("implied_first_half", "implied_last_half", "level"),
)
"""The columns of clients.csv."""


def findings_document(findings: Findings) -> dict[str, Any]:
    """Return findings as JSON can hold them.

    Parameters
    ----------
    findings : Findings
        What an audit found.

    Returns
    -------
    dict from str
        Numbers, text, lists and objects; null for what is infinite or unknown.
    """
    content: dict[str, Any] = _content(findings, findings.clients)
    return {
        "format": FORMAT,
        "version": VERSION,
        "fedavot": __version__,
        "importance_digest": _digest(findings),
        **content,
    }


def write_findings(findings: Findings, path: PathLike) -> None:
    """Write findings as JSON, whole or not at all."""
    content = findings_document(findings)
    del content["format"], content["version"]
    write_document(path, format=FORMAT, version=VERSION, content=content)


def read_findings(path: PathLike) -> dict[str, Any]:
    """Read a file that `write_findings` of this version wrote.

    Parameters
    ----------
    path : path
        The findings.json of an audit.

    Returns
    -------
    dict from str
        As `findings_document` returns it; its checksum has been verified.
    """
    document = read_document(path, format=FORMAT, version=VERSION)
    if document["version"] != VERSION:
        raise FileFormatError(
            f"{path} has version {document['version']} of the findings, and this fedavot compares "
            f"with version {VERSION}; audit the earlier log again with this fedavot, and compare "
            "with that"
        )
    return document


def write_clients(findings: Findings, path: PathLike) -> None:
    """Write one row per client as CSV, whole or not at all.

    Unknown figures are empty fields. `federation_of` reads the table as an importance with groups.
    A name that a spreadsheet would run as a formula gets a leading apostrophe, which this library
    removes when it reads the file.
    """
    shares, halves, of_client = findings.by_client, findings.behaviour, findings.group_of
    groups = [""] * len(findings.clients)
    if of_client is not None:
        groups = [findings.groups[group] for group in of_client]
    numbers = (
        *(shares.importance, shares.owed, shares.implied, shares.attained, shares.inclusion),
        *(halves.implied_first_half, halves.implied_last_half),
    )
    columns = [_cells(values) for values in numbers]
    levels = findings.alignment.levels.tolist()
    rows = zip(findings.clients, groups, *columns, levels, strict=True)
    text = "".join(map(csv_line, [COLUMNS, *rows]))
    write_whole(path, lambda stream: stream.write(text.encode()))


def _content(value: Any, clients: Sequence[str]) -> Any:
    """Return a finding in a form that JSON can hold: attributes and clients by their names."""
    if isinstance(value, Replay):  # whose integers are rounds, not clients
        value = replace(value, recorded=value.recorded.astype(np.float64))
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.name not in ELSEWHERE]
        return {name: _content(getattr(value, name), clients) for name in names}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _content(part, clients) for name, part in value._asdict().items()}
    if isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.integer):
        return [clients[client] for client in value]  # other integers per client are left out above
    if isinstance(value, np.ndarray | list | tuple):
        return [_content(part, clients) for part in value]
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    # JSON can hold only Python's own types, not NumPy's scalars.
    return value.item() if isinstance(value, np.generic) else value


def _digest(findings: Findings) -> str:
    """Return a digest that changes if the clients or their importance change."""
    wanted = np.round(findings.by_client.importance, 12).tolist()
    pairs = json.dumps(list(zip(findings.clients, wanted, strict=True)))
    return hashlib.sha256(pairs.encode()).hexdigest()[:16]


def _cells(values: Floats) -> list[str]:
    return [repr(value) if isfinite(value) else "" for value in values.tolist()]
