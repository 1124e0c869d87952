"""A user's own files: examples, importance, and a log of who took part.

Each is read whole and checked line by line or array by array, so that an error names the place.
Clients are 0..n_clients−1 here; a log with names is for ``fedavot audit``.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, as_double, shown
from fedavot._files import ARCHIVE_FAILURES
from fedavot.errors import FileFormatError, ImportanceError, LawError, TaskError

_BETWEEN = re.compile(r"[,;\s]+")


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled examples, not yet dealt out.

    Attributes
    ----------
    features : array of shape (n_examples, n_features)
        What a model sees.
    targets : array of shape (n_examples,)
        What it is to say.
    groups : array of shape (n_examples,), or None
        Whose each example is.
    """

    features: NDArray[Any]
    targets: NDArray[Any]
    groups: NDArray[Any] | None = None


def read_examples(path: Path) -> Examples:
    """Read an .npz with ``features``, ``targets`` and perhaps ``clients``.

    Parameters
    ----------
    path : Path
        As `numpy.savez` writes it, without pickled objects.
    """
    try:
        with path.open("rb") as stream:
            held = np.load(stream, allow_pickle=False)
            arrays = {name: held[name] for name in getattr(held, "files", ())}
    except ARCHIVE_FAILURES as cause:
        raise FileFormatError(
            f"{path} is not an .npz of plain arrays ({cause}); write it with numpy.savez"
        ) from None
    missing = [name for name in ("features", "targets") if name not in arrays]
    if missing:
        raise TaskError(
            f"{path} has no array {missing[0]!r}, only {', '.join(map(repr, arrays)) or 'none'}; "
            "it needs features, targets and, for groups, clients"
        )
    found = Examples(arrays["features"], arrays["targets"], arrays.get("clients"))
    _refuse_crooked(path, found)
    return found


def _refuse_crooked(path: Path, found: Examples) -> None:
    shapes = {"features": found.features.shape, "targets": found.targets.shape}
    if found.groups is not None:
        shapes["clients"] = found.groups.shape
    flat = all(len(shape) == 1 for name, shape in shapes.items() if name != "features")
    alike = len({shape[:1] for shape in shapes.values()}) == 1
    if len(found.features.shape) != 2 or not flat or not alike or not found.features.size:
        listed = ", ".join(f"{name} of shape {shape}" for name, shape in shapes.items())
        raise TaskError(
            f"{path} has {listed}; features must be (n_examples, n_features), the others "
            "(n_examples,), with at least one example"
        )


def read_importance(path: Path, n_clients: int) -> Floats:
    """Read one non-negative number a client, not yet divided by their sum.

    Parameters
    ----------
    path : Path
        Text with one number a line, in client order, or a client and its number, in any order; a
        heading and lines from ``#`` are skipped. With the ending .json, a list of numbers or an
        object from client to number.
    n_clients : int
        How many clients there must be.
    """
    pairs = _json_pairs(path) if path.suffix == ".json" else _text_pairs(path)
    values = np.full(n_clients, np.nan)
    for where, client, value in pairs:
        if not 0 <= client < n_clients:
            raise ImportanceError(
                f"{path}, {where} names client {client}, but clients run from 0 to {n_clients - 1}"
            )
        if not np.isnan(values[client]):
            raise ImportanceError(f"{path}, {where} names client {client} a second time")
        if not 0 <= value < np.inf:
            raise ImportanceError(
                f"{path}, {where} gives client {client} {value}; it must be finite and at least 0"
            )
        values[client] = value
    left = np.flatnonzero(np.isnan(values))
    if left.size:
        raise ImportanceError(
            f"{path} gives {n_clients - left.size} of {n_clients} clients a number; client "
            f"{left[0]} has none"
        )
    return values


def read_rounds(path: Path, n_clients: int) -> list[list[int]]:
    """Read a log of rounds, those in which nobody took part left out.

    Parameters
    ----------
    path : Path
        One round a line: clients' numbers between spaces or commas, or a JSON list of them. Empty
        lines and lines from ``#`` are skipped.
    n_clients : int
        How many clients there are.
    """
    rounds = []
    for number, text in _lines(path):
        where = f"{path}, line {number}"
        # Any, because what a line holds is only known once it is checked below.
        members: Any = _json(where, text) if text[0] == "[" else _integers(_BETWEEN.split(text))
        if not all(type(client) is int for client in members):
            raise LawError(
                f"{where} is {text[:40]!r}; a log has one round a line, its clients' numbers "
                "between spaces or commas, or as a JSON list"
            )
        unknown = [client for client in members if not 0 <= client < n_clients]
        if unknown:
            raise LawError(
                f"{where} names client {shown(unknown[0])}, but clients run from 0 to "
                f"{n_clients - 1}"
            )
        if len(set(members)) < len(members):
            raise LawError(f"{where} names a client twice: {text[:40]!r}")
        if members:
            rounds.append(members)
    if not rounds:
        raise LawError(f"{path} has no round in which anybody took part")
    return rounds


def _integers(words: list[str]) -> list[int | None]:
    """Return the words as integers, None for what is not one."""
    return [
        int(word) if re.fullmatch(r"[+-]?[0-9]{1,18}", word) else None for word in words if word
    ]


def _text_pairs(path: Path) -> Iterator[tuple[str, int, float]]:
    """Yield where it stands, a client and its number."""
    rows = [(number, text, _BETWEEN.split(text.strip(",;"))) for number, text in _lines(path)]
    if rows and _float(rows[0][2][-1]) is None:
        del rows[0]  # the heading
    for place, (number, text, words) in enumerate(rows):
        client = place if len(words) == 1 else _integers(words[:1])[0]
        value = _float(words[-1])
        if client is None or value is None or len(words) > 2:
            raise ImportanceError(
                f"{path}, line {number} is {text[:40]!r}; it must be a number, or a client's "
                "number and a number"
            )
        yield f"line {number}", client, value


def _json_pairs(path: Path) -> Iterator[tuple[str, int, float]]:
    held = _json(str(path), "\n".join(text for _, text in _lines(path)))
    if not isinstance(held, list | dict):
        raise ImportanceError(
            f"{path} must hold a list of numbers, or an object from client to one"
        )
    clients = range(len(held)) if isinstance(held, list) else _integers(list(held))
    for client, value in zip(
        clients, held if isinstance(held, list) else held.values(), strict=True
    ):
        if client is None or type(value) not in (int, float):
            raise ImportanceError(
                f"{path} gives client {client} {shown(value)}; clients are numbers from 0, and "
                "each has a number"
            )
        yield f"entry {client}", client, as_double(value)


def _float(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _json(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as cause:
        why = "a number of thousands of digits" if "digits" in str(cause) else cause
        raise FileFormatError(f"{where} is not valid JSON: {why}") from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and text of every line that says something."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"{path} cannot be read as text: {cause}") from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line.strip()
