"""Findings as files for machines: findings.json, alignment.json and clients.csv.

findings.json mirrors `Findings`: its keys are the attributes' names, nested as they are. Arrays
with one entry per client are in clients.csv instead, whose columns are also named after attributes,
and the alignment is in alignment.json. Clients are given by name. JSON has neither infinity nor
NaN, so both are null: an infinite ``hall_ratio`` means that a set with importance never took part,
any other null that the log does not give the figure.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

import numpy as np

from fedavot import __version__
from fedavot._cells import line
from fedavot._checks import Floats
from fedavot._files import PathLike, read_document, write_document, write_whole
from fedavot.audit.findings import Findings
from fedavot.audit.report.old_document import from_version_2
from fedavot.errors import FileFormatError

FORMAT = "fedavot-findings"
VERSION = 3
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
    """Read a file that `write_findings` wrote, of this version or an earlier one.

    Parameters
    ----------
    path : path
        The findings.json of an audit.

    Returns
    -------
    dict from str
        As `findings_document` returns it; keys unknown to this version are kept.
    """
    document = read_document(path, format=FORMAT, version=VERSION)
    if document["version"] < VERSION:
        try:
            document = from_version_2(document)
        except (KeyError, TypeError, ValueError) as cause:
            raise FileFormatError(
                f"{path}: not the findings of an audit ({cause!r}); use a findings.json as an "
                "audit wrote it"
            ) from None
    for key, (fits, words) in _CHECKS.items():
        value: Any = document
        for name in key.split("."):
            if not isinstance(value, dict) or name not in value:
                raise FileFormatError(
                    f"{path} has no {key}; use a findings.json as an audit wrote it"
                )
            value = value[name]
        if not fits(value):
            shown = repr(value)
            raise FileFormatError(
                f"{path}: {key} is {shown if len(shown) <= 60 else f'{shown[:59]}…'}, but must be "
                f"{words}; use a findings.json as an audit wrote it"
            )
    return document


def write_alignment(findings: Findings, path: PathLike) -> None:
    """Write the weights to use, with the clients' names, whole or not at all.

    `fedavot.Alignment.load` and `fedavot.flower.Weighting.load` read them.
    """
    findings.alignment.save(path)


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
    text = "".join(map(line, [COLUMNS, *rows]))
    write_whole(path, lambda stream: stream.write(text.encode()))


def _content(value: Any, clients: Sequence[str]) -> Any:
    """Return a finding as JSON can hold it: attributes by name, clients by theirs."""
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
    # NumPy's scalars are none of Python's types, which alone JSON can hold.
    return value.item() if isinstance(value, np.generic) else value


def _digest(findings: Findings) -> str:
    """Return a digest that differs if the clients or their importance do."""
    wanted = np.round(findings.by_client.importance, 12).tolist()
    pairs = json.dumps(list(zip(findings.clients, wanted, strict=True)))
    return hashlib.sha256(pairs.encode()).hexdigest()[:16]


def _cells(values: Floats) -> list[str]:
    return [repr(value) if isfinite(value) else "" for value in values.tolist()]


def _is_number(value: object) -> bool:
    # Not isfinite alone, which fails on the longest integers that JSON may have.
    return type(value) in (int, float) and -1e300 < value < 1e300  # type: ignore[operator]


def _is_number_or_null(value: object) -> bool:
    return value is None or _is_number(value)


def _is_estimate(value: object) -> bool:
    return (
        isinstance(value, dict)
        and {"value", "low", "high"} <= value.keys()
        and all(_is_number_or_null(value[key]) for key in ("value", "low", "high"))
    )


def _is_figure(value: object) -> bool:
    return _is_estimate(value) and _is_number(value["value"])  # type: ignore[index]


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_shares(value: object) -> bool:
    return value is None or (
        isinstance(value, dict)
        and all(
            isinstance(value.get(key), list) and all(map(_is_number, value[key]))
            for key in ("importance", "implied")
        )
    )


def _is_standings(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict)
        and isinstance(one.get("rule"), str)
        and all(_is_number_or_null(one.get(key, "")) for key in ("gap", "effective_cohort_size"))
        for one in value
    )


_TEXT = (lambda value: isinstance(value, str), "text")
_COUNT = (lambda value: type(value) is int and value >= 0, "a whole number, at least 0")
_NUMBER = (_is_number, "a number")
_FIGURE = (_is_figure, "an object with the numbers value, low and high")
_ESTIMATE = (_is_estimate, "an object with value, low and high, each a number or null")
_FLAG = (lambda value: isinstance(value, bool), "true or false")
_NAMES = (_is_names, "a list of names")
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("source", "advice.action", "advice.reason", "advice.rule"), _TEXT),
    **dict.fromkeys(("importance_digest", "fit.law"), _TEXT),
    **dict.fromkeys(("rounds", "empty_rounds", "entries"), _COUNT),
    **dict.fromkeys(("tolerance", "unknown_share", "advice.softness"), _NUMBER),
    **dict.fromkeys(("gap", "reach.deficiency"), _FIGURE),
    "reach.hall_ratio": _ESTIMATE,
    **dict.fromkeys(("reach.feasible", "reach.sure", "advice.online"), _FLAG),
    **dict.fromkeys(("clients", "groups", "reach.deficient.clients", "reach.never_seen"), _NAMES),
    "by_group": (_is_shares, "null, or an object with the lists importance and implied"),
    "price.standings": (_is_standings, "a list with rule, gap and effective_cohort_size each"),
}
"""What `compare` reads: how each value is checked, and what it must be."""
