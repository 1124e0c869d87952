"""Findings as files for machines: findings.json, alignment.json and clients.csv.

findings.json is one object. JSON has no infinity and no NaN: both are null, so that ``hall_ratio``
null is infinite (a wanted set that never took part), and any other null is a figure that the log
does not tell. Pages and pictures are left to `page` and `figures`, names of files to `outputs`.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedavot import __version__
from fedavot._cells import line
from fedavot._files import PathLike, read_document, write_document, write_whole
from fedavot.audit.findings import Behaviour, Estimate, Findings, Shares, Standing
from fedavot.errors import FileFormatError

FORMAT = "fedavot-findings"
VERSION = 2
COLUMNS = (
    *("client", "group", "importance", "owed", "takes_part", "plain_average", "attained"),
    "level",
)
"""Of clients.csv; the parts are those of `Shares`."""


def findings_document(findings: Findings) -> dict[str, Any]:
    """Return findings as what JSON can hold.

    Parameters
    ----------
    findings : Findings
        What an audit found.

    Returns
    -------
    dict from str
        Numbers, text, lists and objects; null for what is infinite or not known.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "fedavot": __version__,
        "source": findings.source,
        **_answer(findings),
        **_log(findings),
        **_reach(findings),
        "law": findings.fit.law,
        "law_states": findings.fit.states,
        "laws": [
            {"law": score.law, "fitted_gap": _number(score.fitted_gap)}
            | _estimate("held_out_gap", score.held_out)
            for score in findings.fit.scores
        ],
        "rounds_fitted": findings.fit.fitted,
        "rounds_held_out": findings.fit.held_out,
        "rules": [_standing(standing) for standing in findings.price.standings],
        "curve": [
            {
                "softness": _number(point.softness),
                "gap": _number(point.gap),
                "effective_cohort_size": _number(point.effective),
            }
            for point in findings.price.curve
        ],
        "behaviour": _behaviour(findings.behaviour, findings.groups),
        "groups": _groups(findings),
        "notes": list(findings.notes),
        "client_names": list(findings.clients),
    }


def write_findings(findings: Findings, path: PathLike) -> None:
    """Write findings as JSON, whole or not at all."""
    content = findings_document(findings)
    del content["format"], content["version"]
    write_document(path, format=FORMAT, version=VERSION, content=content)


def read_findings(path: PathLike) -> dict[str, Any]:
    """Read what `write_findings` wrote, and refuse what it cannot have written.

    Parameters
    ----------
    path : path
        The findings of an audit, this one's or an earlier one's.

    Returns
    -------
    dict from str
        As `findings_document` gives it; keys that this version does not know are kept.
    """
    document = read_document(path, format=FORMAT, version=VERSION)
    missing = [key for key in _CHECKS if key not in document]
    if missing:
        raise FileFormatError(
            f"{path} lacks {', '.join(missing)}; take a findings.json as an audit wrote it"
        )
    for key, (fits, words) in _CHECKS.items():
        if not fits(document[key]):
            shown = repr(document[key])
            raise FileFormatError(
                f"{path}: {key} is {shown if len(shown) <= 60 else f'{shown[:59]}…'}; it must be "
                f"{words}: take a findings.json as an audit wrote it"
            )
    return document


def write_alignment(findings: Findings, path: PathLike) -> None:
    """Write the weights to use, with the clients' names, whole or not at all.

    `fedavot.Alignment.load` and `fedavot.flower.Weighting.load` read them.
    """
    findings.alignment.save(path)


def write_clients(findings: Findings, path: PathLike) -> None:
    """Write every client's part as CSV, whole or not at all.

    What a client is not known to have is an empty field. `federation_of` reads the table as an
    importance with groups. Names that a spreadsheet would take for formulas have an apostrophe
    before them, which readers of ours take off.
    """
    part = findings.by_client
    of_client = findings.group_of
    groups = [""] * len(findings.clients)
    if of_client is not None:
        groups = [findings.groups[group] for group in of_client]
    parts = (part.importance, part.owed, part.inclusion, part.implied, part.attained)
    columns = [_fields(values) for values in parts]
    levels = findings.alignment.levels.tolist()
    rows = zip(findings.clients, groups, *columns, levels, strict=True)
    text = "".join(map(line, [COLUMNS, *rows]))
    write_whole(path, lambda stream: stream.write(text.encode()))


def _answer(findings: Findings) -> dict[str, Any]:
    """Return what to do, and what it comes to over the log."""
    advice = findings.advice
    standings = {standing.rule: standing for standing in findings.price.standings}
    used, plain = standings.get(advice.rule), standings.get("plain average")
    return {
        "recommendation": advice.action,
        "reason": advice.reason,
        "rule": advice.rule,
        "softness": _number(advice.softness),
        "online": bool(advice.online),
        "rounds_needed": _count(advice.rounds_needed),
        **_estimate("gap_fedavg", findings.gap),
        "gap_attained": used and _number(used.gap),
        "effective_cohort_size": used and _number(used.effective),
        "effective_cohort_size_plain": plain and _number(plain.effective),
        "tolerance": _number(findings.tolerance),
    }


def _log(findings: Findings) -> dict[str, Any]:
    return {
        "clients": len(findings.clients),
        "rounds": _count(findings.rounds),
        "empty_rounds": _count(findings.empty_rounds),
        "mean_cohort": _number(findings.mean_cohort),
        "span": _numbers(findings.span),
        "unknown_share": _number(findings.unknown),
        "importance_digest": _digest(findings),
    }


def _digest(findings: Findings) -> str:
    """Return what tells one importance from another, without the importance itself."""
    wanted = np.round(findings.by_client.importance, 12).tolist()
    pairs = json.dumps(list(zip(findings.clients, wanted, strict=True)))
    return hashlib.sha256(pairs.encode()).hexdigest()[:16]


def _reach(findings: Findings) -> dict[str, Any]:
    reach = findings.reach
    return {
        "feasible": bool(reach.feasible),
        "feasible_proven": bool(reach.proven),
        "feasible_sure": bool(reach.sure),
        **_estimate("deficiency", reach.deficiency),
        **_estimate("hall_ratio", reach.hall_ratio),
        "deficient": [findings.clients[client] for client in reach.deficient.clients],
        "deficient_importance": _number(reach.deficient.importance),
        "deficient_coverage": _number(reach.deficient.coverage),
        "worst": [findings.clients[client] for client in reach.worst.clients],
        "worst_importance": _number(reach.worst.importance),
        "worst_coverage": _number(reach.worst.coverage),
        "never_seen": [findings.clients[client] for client in reach.never],
        "larger_cohorts": _count(reach.larger_cohorts),
        "tried_cohorts": _count(reach.tried_cohorts),
        "if_all_asked": _number(reach.if_all_asked),
    }


def _standing(standing: Standing) -> dict[str, Any]:
    return {
        "rule": standing.rule,
        "gap": _number(standing.gap),
        "effective_cohort_size": _number(standing.effective),
        **_estimate("held_out_gap", standing.held_out),
        "held_out_effective_cohort_size": _number(standing.held_out_effective),
        "largest_sum_of_weights": _number(standing.most),
    }


def _behaviour(behaviour: Behaviour, groups: tuple[str, ...]) -> dict[str, Any]:
    hours = behaviour.groups_by_hour
    return {
        "counted": "available" if behaviour.of_available else "took part",
        "clock": "UTC" if behaviour.dated else "the log's",
        "by_hour": _numbers(behaviour.by_hour),
        "by_weekday": _numbers(behaviour.by_weekday),
        "groups_by_hour": None
        if hours is None
        else {group: _numbers(row) for group, row in zip(groups, hours, strict=True)},
        "rounds_a_look": _number(behaviour.look),
        "dispersion": _number(behaviour.dispersion),
        **_estimate("drift", behaviour.drift),
    }


def _groups(findings: Findings) -> list[dict[str, Any]]:
    parts, of_client = findings.by_group, findings.group_of
    if parts is None or of_client is None:
        return []
    sizes = np.bincount(of_client, minlength=len(findings.groups)).tolist()
    return [
        {"group": group, "clients": size, **_part(parts, at)}
        for at, (group, size) in enumerate(zip(findings.groups, sizes, strict=True))
    ]


def _part(parts: Shares, at: int) -> dict[str, float | None]:
    return {
        "importance": _number(parts.importance[at]),
        "owed": _number(parts.owed[at]),
        "takes_part": _number(parts.inclusion[at]),
        "plain_average": _number(parts.implied[at]),
        "attained": _number(parts.attained[at]),
    }


def _estimate(name: str, found: Estimate) -> dict[str, Any]:
    return {name: _number(found.value), f"{name}_interval": _numbers((found.low, found.high))}


def _number(value: float | None) -> float | None:
    return float(value) if value is not None and isfinite(value) else None


def _count(value: int | None) -> int | None:
    return None if value is None else int(value)


def _numbers(values: Iterable[float] | None) -> list[float | None] | None:
    return None if values is None else [_number(value) for value in values]


def _fields(values: NDArray[np.float64]) -> list[str]:
    return [repr(value) if isfinite(value) else "" for value in values.tolist()]


def _is_number(value: object) -> bool:
    # Not isfinite alone, which fails on the longest integers that JSON may have.
    return type(value) in (int, float) and -1e300 < value < 1e300  # type: ignore[operator]


def _is_interval(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number_or_null, value))


def _is_number_or_null(value: object) -> bool:
    return value is None or _is_number(value)


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_groups(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, dict)
        and isinstance(row.get("group"), str)
        and _is_number(row.get("importance"))
        and _is_number(row.get("plain_average"))
        for row in value
    )


_TEXT = (lambda value: isinstance(value, str), "text")
_COUNT = (lambda value: type(value) is int and value >= 0, "a whole number from 0")
_NUMBER = (_is_number, "a number")
_MAYBE = (_is_number_or_null, "a number or null")
_INTERVAL = (_is_interval, "a list of two numbers")
_FLAG = (lambda value: isinstance(value, bool), "true or false")
_NAMES = (_is_names, "a list of names")
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("source", "recommendation", "reason", "rule", "law"), _TEXT),
    **dict.fromkeys(("clients", "rounds", "empty_rounds"), _COUNT),
    **dict.fromkeys(
        ("gap_fedavg", "deficiency", "tolerance", "softness", "unknown_share"), _NUMBER
    ),
    **dict.fromkeys(("hall_ratio", "gap_attained", "effective_cohort_size", "mean_cohort"), _MAYBE),
    **dict.fromkeys(("gap_fedavg_interval", "deficiency_interval"), _INTERVAL),
    **dict.fromkeys(("feasible", "feasible_proven", "feasible_sure", "online"), _FLAG),
    **dict.fromkeys(("deficient", "never_seen", "client_names"), _NAMES),
    "groups": (_is_groups, "a list of groups with their importance and plain_average"),
}
"""What `compare` reads: whether a value fits, and what it must be."""
