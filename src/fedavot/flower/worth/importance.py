"""The importance given by a caller, as a keyword, a mapping or a file; checked here."""

from collections.abc import Mapping
from os import PathLike as PathLikeType
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedavot._checks import as_amount, shown
from fedavot._files import PathLike
from fedavot.errors import ImportanceError, OptionError
from fedavot.flower.options import Weighting
from fedavot.flower.who.asking import too_long
from fedavot.importance import read_mapping

Importance = Literal["uniform", "examples"] | Mapping[str, float] | PathLike

KINDS = ("uniform", "examples")

MOST_EXAMPLES = 1e12
"""Largest number of examples that a client may report."""


def listed_by(importance: Importance, weighting: Weighting) -> tuple[str, dict[str, float]]:
    """Return the kind of importance, and the importance of clients known from the start."""
    if weighting.alignment is not None:
        if not isinstance(importance, str) or importance not in KINDS:
            raise OptionError(
                "an alignment has its own importance; leave out either importance or the alignment"
            )
        assert weighting.clients is not None
        shares = weighting.alignment.importance.tolist()
        return "listed", dict(zip(weighting.clients, shares, strict=True))
    if isinstance(importance, Mapping):
        return "listed", _checked(importance)
    if isinstance(importance, str) and importance in KINDS:
        return importance, {}
    if not isinstance(importance, str | PathLikeType) or not Path(importance).suffix:
        raise ImportanceError(
            f"importance is {importance!r}; it must be 'uniform', 'examples', a mapping from "
            "client name to number, or a .csv or .json file"
        )
    path = Path(importance)
    if not path.exists():
        start = f"; a relative path begins at {Path.cwd()}, where this process was started"
        raise FileNotFoundError(
            f"there is no importance file {path.resolve()}{'' if path.is_absolute() else start}"
        )
    return "listed", _relative(read_mapping(path))


def is_count(value: Any) -> bool:
    """Return whether a metric can be a number of examples."""
    return isinstance(value, int | float) and 0 < value <= MOST_EXAMPLES


def _checked(mapping: Mapping[str, float]) -> dict[str, float]:
    amounts = {}
    if not mapping:
        raise ImportanceError("importance is empty; give a number for every client")
    for name, value in mapping.items():
        if not isinstance(name, str) or not name:
            write = f"; write {str(name)!r}" if isinstance(name, int | np.integer) else ""
            raise ImportanceError(f"client names must be non-empty text, found {name!r}{write}")
        if wrong := too_long(name):
            raise ImportanceError(wrong)
        if isinstance(value, str | bytes):
            raise ImportanceError(
                f"importance of client {name!r} must be a number, found {shown(value)}"
            )
        try:
            amounts[name] = as_amount(value, what=f"importance of client {name!r}")
        except OptionError as cause:
            raise ImportanceError(str(cause)) from None
    if not any(amounts.values()):
        raise ImportanceError(
            f"importance is 0 for all {len(amounts)} clients; at least one must be above 0"
        )
    return _relative(amounts)


def _relative(amounts: dict[str, float]) -> dict[str, float]:
    """Return amounts whose sum is finite: unchanged, or divided by the largest."""
    largest = max(amounts.values())
    if np.isfinite(largest * len(amounts)):
        return amounts
    return {name: amount / largest for name, amount in amounts.items()}
