"""Checks on values that enter the library, written so that NaN fails them.

Each returns the value as an array the inner code can trust, or raises one error that names the
offending entry. Nothing else in the library validates.
"""

import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot.errors import (
    ImportanceError,
    InputError,
    MissingPackageError,
    OptionError,
    TooLargeError,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SUM_SLACK = 1e-8
"""Rounding error allowed in the sum of a distribution."""

LARGEST_SIZE = 2**63 - 1
"""The largest count or size: NumPy's arrays have no more entries."""

LARGEST_POTENTIAL = 1e300
"""The largest potential: sums and differences of a few such numbers are still finite."""

LARGEST_SEED = 2**128 - 1
"""The largest seed: NumPy recommends seeds of 128 random bits, and more add nothing."""


def as_array(values: Any, *, otherwise: str, error: type[InputError]) -> NDArray[Any]:
    """Return the values as an array, or raise an error with the text ``otherwise``."""
    try:
        return np.asarray(values)
    except ValueError as cause:
        raise error(f"{otherwise}: {cause}") from None


def as_floats(
    values: ArrayLike, *, what: str, error: type[InputError], item: str = "entry", **labels: Any
) -> Floats:
    """Return the values as a one-dimensional float array, or raise an error that says why not.

    Entries are called ``item`` and their index, or by their name if ``clients`` has names.
    """
    if isinstance(values, Mapping):
        raise error(f"{what} must be a sequence of numbers in order, found a mapping")
    try:
        array = np.asarray(values)
        if array.dtype.kind in "SUcO":  # NumPy would read "0.5" as a number, and None as NaN
            for at, one in enumerate(np.asarray(values, dtype=object).ravel()):
                if isinstance(one, str | bytes | complex | np.complexfloating | None):
                    raise TypeError(f"{item} {_label(at, **labels)} is {shown(one)}")
        array = array.astype(np.float64, copy=False)
    except (OverflowError, TypeError, ValueError) as cause:
        raise error(f"{what} must be a sequence of numbers: {cause}") from None
    if array.ndim != 1:
        raise error(f"{what} must have one dimension, found shape {array.shape}")
    return array


def as_non_negative(
    values: ArrayLike, *, what: str, item: str, error: type[InputError], **labels: Any
) -> Floats:
    """Return finite values of at least 0, as a one-dimensional array."""
    array = as_floats(values, what=what, error=error, item=item, **labels)
    for at in np.flatnonzero(~((array >= 0) & np.isfinite(array)))[:1]:
        where = f"{what} of {item} {_label(at, **labels)}"
        raise error(f"{where} is {array[at]}; it must be finite and at least 0")
    return array


def as_distribution(
    values: ArrayLike, *, what: str, item: str, error: type[InputError], **labels: Any
) -> Floats:
    """Return non-negative values that sum to one, divided by their sum to remove rounding."""
    array = as_non_negative(values, what=what, item=item, error=error, **labels)
    # Numbers above one cannot be shares of one; naming them also keeps the sum from overflowing.
    for at in np.flatnonzero(array > 1.0 + SUM_SLACK)[:1]:
        raise error(
            f"{what} of {item} {_label(at, **labels)} is {array[at]}, more than 1; to use shares "
            "of the total, divide all by their sum"
        )
    total = float(array.sum())
    if total == 0.0:
        counted = f"is 0 for all of {array.size}" if array.size else "has no"
        raise error(f"{what} {counted} entries; at least one must be above 0")
    if not abs(total - 1.0) <= SUM_SLACK:
        raise error(f"{what} sums to {total!r}, not 1; to use shares, divide it by its sum")
    return array / total


def _label(place: int, clients: Sequence[str] | None = None) -> str:
    return str(place) if clients is None or place >= len(clients) else repr(clients[place])


def as_importance(
    values: ArrayLike, n_clients: int, clients: Sequence[str] | None = None
) -> Floats:
    """Return an importance vector, shape (n_clients,)."""
    array = as_distribution(
        values, what="importance", item="client", error=ImportanceError, clients=clients
    )
    if array.size != n_clients:
        raise ImportanceError(
            f"importance has {array.size} entries, but there are {n_clients} clients; give one for "
            "each, and let a law know of clients that never take part: Cohorts(..., n_clients=...)"
        )
    return array


def as_size(value: Any, *, what: str, low: int, high: int = LARGEST_SIZE) -> int:
    """Return an integer from ``low`` to ``high``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise OptionError(f"{what} must be an integer, found {shown(value)}") from None
    if not low <= number <= high:
        upper = "" if number < low and high >= LARGEST_SIZE else f" and at most {high}"
        raise OptionError(f"{what} is {shown(number)}; it must be at least {low}{upper}")
    return number


def as_generator(rng: Any) -> np.random.Generator:
    """Return a random generator, or refuse anything else, such as a seed."""
    if not isinstance(rng, np.random.Generator):
        raise OptionError(
            f"rng is {shown(rng)}; it must be a numpy.random.Generator, "
            "such as numpy.random.default_rng(seed)"
        )
    return rng


def as_seed(value: Any, *, what: str = "seed", high: int = LARGEST_SEED) -> int:
    """Return a seed for NumPy's generators: a non-negative integer of at most 128 bits."""
    return as_size(value, what=what, low=0, high=high)


def as_amount(value: Any, *, what: str, positive: bool = False) -> float:
    """Return a finite float that is at least 0, or above 0 if ``positive``."""
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        raise OptionError(f"{what} must be a number, found {shown(value)}") from None
    if not (0.0 <= number < np.inf) or (positive and number == 0.0):
        least = "above" if positive else "at least"
        raise OptionError(f"{what} is {number}; it must be finite and {least} 0")
    return number


def one_of(value: Any, accepted: Sequence[str], *, what: str) -> str:
    """Return a word from a closed list."""
    if not isinstance(value, str) or value not in accepted:
        raise OptionError(
            f"{what} is {shown(value)}; it must be one of {', '.join(map(repr, accepted))}"
        )
    return str(value)


def enumerated(
    words: Iterable[str], most: int = 5, *, number: Callable[[int], str] = "{:,}".format
) -> str:
    """List words for a sentence: the first few, and how many more, written by ``number``.

    >>> enumerated(["a", "b", "c"], 3), enumerated(["a", "b", "c"], 2), enumerated([])
    ('a, b and c', 'a, b and 1 more', 'none')
    """
    every = list(words)
    if len(every) > most:
        return f"{', '.join(every[:most])} and {number(len(every) - most)} more"
    *first, last = every or ["none"]
    return f"{', '.join(first)} and {last}" if first else last


def quoted(name: Any) -> str:
    """Return a name in quotes, cut if it is long."""
    text = repr(name)
    return text if len(text) <= 62 else f"{text[:60]}…{text[0]}"


def shown(value: Any) -> str:
    """Return a value as text for a message, in one line and cut where it is long."""
    try:
        text = repr(value).replace("\n", " ")
    except ValueError:  # Python writes no integers of more than 4,300 digits
        text = f"{type(value).__name__} of thousands of digits"
    return text if len(text) <= 200 else f"{text[:200]}..."


def odd_one(indices: NDArray[Any]) -> str:
    """Return the first entry of an array that is no client index, for a message."""
    return shown(next((one for one in indices.ravel().tolist() if type(one) is not int), indices))


def refuse_if_too_large(n_bytes: float, *, what: str, remedy: str) -> None:
    """Raise an error if an allocation would not fit in the memory available."""
    available = _available_bytes()
    if n_bytes > available:
        raise TooLargeError(
            f"{what} would take about {n_bytes / 1e9:,.1f} GB, "
            f"and {available / 1e9:,.1f} GB is available; {remedy}"
        )


def _available_bytes() -> float:
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES")) * float(os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return 8e9


def require(extra: str, *packages: str, by: str) -> None:
    """Raise unless the packages that an extra of fedavot brings are installed.

    Parameters
    ----------
    extra : str
        Name of the extra, as in ``pip install 'fedavot[extra]'``.
    *packages : str
        Import names.
    by : str
        What needs them, for the message.
    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise MissingPackageError(
            f"{by} needs {enumerated(missing)}; pip install 'fedavot[{extra}]', or, in a clone of "
            f"the repository, pip install '.[{extra}]'"
        )
