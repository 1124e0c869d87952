"""A user's own files: examples, importance, and a log of participation.

Each is checked line by line or array by array, so that an error names the place.
Clients are given by name if the task has names, otherwise by index from 0.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats, as_double, shown
from fedavot._clients import Clients
from fedavot._files import ARCHIVE_FAILURES
from fedavot._reading import json_in, read_text
from fedavot.errors import FileFormatError, ImportanceError, LawError, TaskError

_BETWEEN = re.compile(r"[,;\s]+")


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled examples, not yet split among clients.

    Attributes
    ----------
    features : array of shape (n_examples, n_features)
        Inputs of the model.
    targets : array of shape (n_examples,)
        What the model should predict.
    groups : array of shape (n_examples,), or None
        The client of each example.
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


def read_importance(path: Path, clients: Clients) -> Floats:
    """Read one non-negative number per client, not yet divided by their sum.

    Parameters
    ----------
    path : Path
        Text with one number per line, in client order, or a client and its number, in any order; a
        heading and lines that start with ``#`` are skipped. A .json file holds a list of numbers,
        or an object from client to number.
    clients : Clients
        The clients expected.
    """
    read = _json_pairs if path.suffix == ".json" else _text_pairs
    values = np.full(clients.count, np.nan)
    for where, client, value in read(path, clients):
        if not 0 <= client < clients.count:
            raise ImportanceError(
                f"{path}, {where} has client {client}, but clients run from 0 to "
                f"{clients.count - 1}"
            )
        label = clients.label(client)
        if not np.isnan(values[client]):
            raise ImportanceError(f"{path}, {where} has client {label} a second time")
        if not 0 <= value < np.inf:
            raise ImportanceError(
                f"{path}, {where} gives client {label} {value}; it must be finite and at least 0"
            )
        values[client] = value
    left = np.flatnonzero(np.isnan(values))
    if left.size:
        raise ImportanceError(
            f"{path} gives {clients.count - left.size} of {clients.count} clients a number; client "
            f"{clients.label(left[0])} has none"
        )
    return values


def read_rounds(path: Path, clients: Clients) -> list[list[int]]:
    """Read a log of rounds, without those in which nobody took part.

    Parameters
    ----------
    path : Path
        One round per line: clients between spaces or commas, or a JSON list of them. Empty lines
        and lines that start with ``#`` are skipped.
    clients : Clients
        The clients there are.
    """
    rounds = []
    for number, text in _lines(path):
        where = f"{path}, line {number}"
        # Any, because the content of a line is checked only below.
        words: Any = (
            json_in(text, path, number) if text[0] == "[" else filter(None, _BETWEEN.split(text))
        )
        found = [word if type(word) is int else _index(where, word, clients) for word in words]
        members = [client for client in found if client is not None]
        if len(members) < len(found):
            raise LawError(
                f"{where} is {text[:40]!r}; a log has one round per line, its clients "
                "between spaces or commas, or as a JSON list"
            )
        unknown = [client for client in members if not 0 <= client < clients.count]
        if unknown:
            raise LawError(
                f"{where} has client {shown(unknown[0])}, but clients run from 0 to "
                f"{clients.count - 1}"
            )
        if len(set(members)) < len(members):
            raise LawError(f"{where} has a client twice: {text[:40]!r}")
        if members:
            rounds.append(members)
    if not rounds:
        raise LawError(f"{path} has no round in which anybody took part")
    return rounds


def _index(where: str, word: Any, clients: Clients) -> int | None:
    """Return the index of a client given by name or, if clients have no names, as a number."""
    if not isinstance(word, str):
        return None
    if clients.names is not None:
        return int(clients.indices([word], what=where)[0])
    return int(word) if re.fullmatch(r"[+-]?[0-9]{1,18}", word) else None


def _text_pairs(path: Path, clients: Clients) -> Iterator[tuple[str, int, float]]:
    """Yield the place, a client and its number."""
    rows = [(number, text, _BETWEEN.split(text.strip(",;"))) for number, text in _lines(path)]
    if rows and _float(rows[0][2][-1]) is None:
        del rows[0]  # the heading
    for place, (number, text, words) in enumerate(rows):
        where = f"{path}, line {number}"
        client = place if len(words) == 1 else _index(where, words[0], clients)
        value = _float(words[-1])
        if client is None or value is None or len(words) > 2:
            raise ImportanceError(
                f"{where} is {text[:40]!r}; it must be a number, or a client and a number"
            )
        yield f"line {number}", client, value


def _json_pairs(path: Path, clients: Clients) -> Iterator[tuple[str, int, float]]:
    held = json_in("\n".join(text for _, text in _lines(path)), path)
    if not isinstance(held, list | dict):
        raise ImportanceError(
            f"{path} must hold a list of numbers, or an object from client to one"
        )
    for key, value in enumerate(held) if isinstance(held, list) else held.items():
        client = key if isinstance(key, int) else _index(str(path), key, clients)
        if client is None or type(value) not in (int, float):
            raise ImportanceError(
                f"{path} gives client {key} {shown(value)}; it must give each client a number"
            )
        yield f"entry {client}", client, as_double(value)


def _float(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and text of every line that is not empty or a comment."""
    try:
        text = read_text(path)
    except OSError as cause:
        raise FileFormatError(f"{path} cannot be read as text: {cause}") from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line.strip()
