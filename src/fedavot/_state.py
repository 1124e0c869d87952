"""Checks of what is saved of an alignment or an online aligner.

It has counts, amounts, arrays with one entry per client, and perhaps names. They must be JSON
numbers, and must agree with one another up to rounding. Whatever is wrong raises a
`FileFormatError` that names the source.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, as_amount, as_floats, as_size, shown
from fedavot._clients import as_names
from fedavot.errors import FileFormatError, InputError, OptionError

MOST_ROUNDS = 2**53
"""Largest number of rounds: beyond it a float cannot count by ones."""


@contextlib.contextmanager
def reading_state(source: str) -> Iterator[None]:
    """Turn errors about a state into a `FileFormatError` that names its source."""
    try:
        yield
    except KeyError as cause:
        raise FileFormatError(f"{source} has no {cause}; it was not written by save") from None
    except (InputError, OverflowError) as cause:
        raise FileFormatError(f"{source} was not written by save: {cause}") from None


def as_state(
    content: Mapping[str, Any],
    *,
    counts: Sequence[str],
    amounts: Sequence[str],
    arrays: Sequence[str],
) -> dict[str, Any]:
    """Return the numbers of a saved state by name; text in place of numbers is refused."""
    if not isinstance(content, Mapping):
        raise OptionError(f"it must be a mapping from names to numbers, found {shown(content)}")
    state: dict[str, Any] = {}
    for name in (*counts, *amounts):
        if not _is_number(content[name]):
            raise OptionError(f"{name} must be a number, found {content[name]!r}")
    for name in counts:
        state[name] = as_size(content[name], what=name, low=0, high=MOST_ROUNDS)
    for name in amounts:
        state[name] = as_amount(content[name], what=name)
    for name in arrays:
        values = content[name]
        if not _are_numbers(values):
            raise OptionError(f"{name} must be a sequence of numbers")
        state[name] = as_finite(values, len(content[arrays[0]]), what=name)
    return state


def saved_names(content: Mapping[str, Any], n_clients: int) -> tuple[str, ...] | None:
    """Return the clients' names, if any were saved."""
    names = content.get("clients")
    if not isinstance(names, list | None):
        raise OptionError(f"clients must be a list of names, found {shown(names)}")
    return None if names is None else as_names(names, n_clients)


def _are_numbers(values: Any) -> bool:
    if isinstance(values, np.ndarray):
        return values.dtype == np.float64 and values.ndim == 1
    return isinstance(values, list) and all(map(_is_number, values))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_finite(values: ArrayLike, n_clients: int, *, what: str) -> Floats:
    """Return one finite number per client."""
    array = as_floats(values, what=what, error=OptionError)
    if array.size != n_clients:
        raise OptionError(f"{what} has {array.size} entries, but there are {n_clients} clients")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise OptionError(f"{what} of client {bad[0]} is {array[bad[0]]}; it must be finite")
    return array.copy()
