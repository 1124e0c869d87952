"""The participation log that the Flower strategy writes: one JSON object per round.

Clients that replied took part, with the weights that were used; clients that the server could have
asked were available. If a round occurs twice, it was run again after a restart: the later line
counts.

Lines of federations with more than a hundred available clients have only the number of these, and
the names that no line had before. Who was available is then known for no round.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import LARGEST_SIZE, Floats, as_double, shown
from fedavot._incidence import Incidence
from fedavot.audit.participation import Participation, ordered
from fedavot.audit.reading.json_lines import Objects, first_of, objects, plain
from fedavot.audit.reading.labels import Codes, unlogged
from fedavot.audit.reading.moments import as_moments
from fedavot.errors import FileFormatError

FORMAT = "fedavot-participation"
VERSION = 2
LARGEST = 1e6
"""Largest weight that is accepted."""


class _Round(NamedTuple):
    replied: NDArray[np.int32]
    available: NDArray[np.int32] | None
    weights: Floats
    time: str


def is_flower_log(source: Path) -> bool:
    """Return whether the first line of a file is one of such a log."""
    blocks = objects(source, lambda done, total: None, [])
    return first_of(blocks, source).found[0].get("format") == FORMAT


def read_flower_log(source: Path, blocks: Iterator[Objects], notes: list[str]) -> Participation:
    """Read the lines of a log that the Flower strategy wrote."""
    codes, rounds, again = Codes(), dict[int, _Round](), 0
    for found, line in (pair for block in blocks for pair in zip(*block, strict=True)):
        try:
            number = _number(found)
            again += number in rounds
            rounds[number] = _round(found, codes)
        except (KeyError, TypeError, ValueError) as cause:
            raise FileFormatError(
                f"{source}, line {line}: not a line of a {FORMAT!r} log ({_said(cause)}); correct "
                "or remove it"
            ) from None
    if not len(codes):
        raise FileFormatError(f"{source} has no clients in its {len(rounds)} rounds")
    if again:
        occur = "round occurs" if again == 1 else "rounds occur"
        notes.append(f"{again} {occur} more than once: the later line counts")
    notes += unlogged(sorted(rounds))
    return _joined([rounds[number] for number in sorted(rounds)], codes, notes)


def _number(found: dict[str, Any]) -> int:
    if found.get("format") != FORMAT:
        raise ValueError(f"format is {shown(found.get('format'))}")
    if found["version"] not in range(1, VERSION + 1):
        raise ValueError(
            f"version {shown(found['version'])}; this library reads up to {VERSION}: upgrade it"
        )
    number = found["round"]
    if type(number) is not int or abs(number) > LARGEST_SIZE:
        raise ValueError(f"round is {shown(number)}")
    return int(number)


def _round(found: dict[str, Any], codes: Codes) -> _Round:
    given, there = found["weights"], found["available"]
    counted = isinstance(there, dict)
    names = list(given) if counted else found["replied"]
    if not isinstance(given, dict) or given.keys() != set(names):
        raise ValueError("weights do not belong to the clients that replied")
    weights = [as_double(given[name]) for name in names]
    for name, weight in zip(names, weights, strict=True):
        if not 0 <= weight <= LARGEST:
            raise ValueError(
                f"the weight of {shown(name)} is {shown(given[name])}, not a number from 0 to "
                f"{LARGEST:,.0f}"
            )
    time = found.get("time", "")
    if not isinstance(time, str):
        raise ValueError(f"time is {shown(time)}")
    replied, order = np.unique(_coded(names, codes), return_index=True)
    ordered_weights = np.array(weights, dtype=np.float64)[order]
    if counted:
        _coded(there["new"], codes)
        return _Round(replied, None, ordered_weights, time)
    everyone = _coded([*there, *names], codes)
    # A client that was asked and did not reply could not have taken part.
    lost = np.setdiff1d(_coded(found.get("asked", []), codes), replied)
    return _Round(replied, np.setdiff1d(everyone, lost), ordered_weights, time)


def _coded(names: Any, codes: Codes) -> NDArray[np.int32]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("the clients are not a list of names")
    return np.array([codes.code(plain(name)) for name in names], dtype=np.int32)


def _joined(rounds: list[_Round], codes: Codes, notes: list[str]) -> Participation:
    names, place = ordered(codes.names)
    orders = [np.argsort(place[found.replied]) for found in rounds]
    cohorts = _compressed([place[found.replied] for found in rounds], len(names))
    weights = [found.weights[order] for found, order in zip(rounds, orders, strict=True)]
    times = as_moments([found.time for found in rounds])
    there = [place[found.available] for found in rounds if found.available is not None]
    known = len(there) == len(rounds)
    if not known:
        notes.append(
            f"{len(rounds) - len(there)} of {len(rounds)} rounds have only the number of clients "
            "that were available: who was available is left out"
        )
    if times is None:
        notes.append("the rounds' times are missing or not dates: left out")
    return Participation(
        clients=names,
        offsets=cohorts.offsets,
        members=cohorts.members,
        times=times,
        available=_compressed(there, len(names)) if known else None,
        applied=np.concatenate(weights),
        notes=tuple(notes),
        all_available=known,
    )


def _compressed(rows: list[NDArray[np.int32]], n_clients: int) -> Incidence:
    offsets = np.concatenate([[0], np.cumsum([row.size for row in rows])]).astype(np.int64)
    return Incidence(np.concatenate([np.sort(row) for row in rows]), offsets, n_clients)


def _said(cause: Exception) -> str:
    return f"no {cause.args[0]!r}" if isinstance(cause, KeyError) else str(cause)
