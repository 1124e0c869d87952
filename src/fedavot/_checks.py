"""Checks on values that enter the library, written so that NaN fails them.

Each returns the value as an array the inner code can trust, or raises one error that names the
offending entry. Nothing else in the library validates.
"""

import operator
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot.errors import ImportanceError, InputError, OptionError, TooLargeError

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


def as_array(
    values: Any, *, otherwise: str, error: type[InputError], item: str = "entry"
) -> NDArray[Any]:
    """Return the values as an array, or raise an error with the text ``otherwise``."""
    _refuse_masked(values, what=otherwise, item=item, error=error)
    try:
        return np.asarray(values)
    except ValueError as cause:
        raise error(f"{otherwise}: {cause}") from None


def as_floats(
    values: ArrayLike,
    *,
    what: str,
    error: type[InputError],
    item: str = "entry",
    clients: Sequence[str] | None = None,
) -> Floats:
    """Return the values as a one-dimensional float array, or raise an error that says why not."""
    _refuse_masked(values, what=what, item=item, error=error)
    if isinstance(values, np.ndarray) and values.dtype.kind == "c":
        raise error(f"{what} must be a sequence of real numbers, found {values.dtype}")
    if isinstance(values, Mapping):
        raise error(f"{what} must be a sequence of numbers in order, found a mapping")
    no_number = _first_text_or_none(values)
    if no_number is not None:
        found = f"{item} {_label(no_number[0], clients)} is {shown(no_number[1])}"
        raise error(f"{what} must be a sequence of numbers: {found}")
    try:
        array = np.asarray(values, dtype=np.float64)
    except OverflowError:
        place, number = _first_overflow(values)
        raise error(
            f"{what}: {item} {_label(place, clients)} is {shown(number)}, which is beyond double "
            "precision; give smaller numbers"
        ) from None
    except (TypeError, ValueError) as cause:
        raise error(f"{what} must be a sequence of numbers: {cause}") from None
    if array.ndim != 1:
        raise error(f"{what} must have one dimension, found shape {array.shape}")
    return array


def as_non_negative(
    values: ArrayLike,
    *,
    what: str,
    item: str,
    error: type[InputError],
    clients: Sequence[str] | None = None,
) -> Floats:
    """Return finite values of at least 0, as a one-dimensional array."""
    array = as_floats(values, what=what, error=error, item=item, clients=clients)
    bad = np.flatnonzero(~((array >= 0) & np.isfinite(array)))
    if bad.size:
        raise error(
            f"{what} of {item} {_label(bad[0], clients)} is {array[bad[0]]}; it must be finite and "
            "at least 0"
        )
    return array


def as_distribution(
    values: ArrayLike,
    *,
    what: str,
    item: str,
    error: type[InputError],
    clients: Sequence[str] | None = None,
) -> Floats:
    """Return non-negative values that sum to one, divided by their sum to remove rounding."""
    array = as_non_negative(values, what=what, item=item, error=error, clients=clients)
    # Numbers above one cannot be shares of one; naming them also keeps the sum from overflowing.
    over = np.flatnonzero(array > 1.0 + SUM_SLACK)
    if over.size:
        raise error(
            f"{what} of {item} {_label(over[0], clients)} is {array[over[0]]}, more than 1; "
            "to use shares of the total, divide all by their sum"
        )
    total = float(array.sum())
    if total == 0.0:
        found = f"is 0 for all of {array.size}" if array.size else "has no"
        raise error(f"{what} {found} entries; at least one must be above 0")
    if not abs(total - 1.0) <= SUM_SLACK:
        raise error(f"{what} sums to {total!r}, not 1; to use shares, divide it by its sum")
    return array / total


def _label(place: int, clients: Sequence[str] | None) -> str:
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
    _refuse_masked(value, what=what, item="entry", error=OptionError)
    try:
        number = as_double(value)
    except (TypeError, ValueError):
        raise OptionError(f"{what} must be a number, found {shown(value)}") from None
    if not (0.0 <= number < np.inf) or (positive and number == 0.0):
        found = shown(value) if isinstance(value, int) and np.isinf(number) else str(number)
        raise OptionError(
            f"{what} is {found}; it must be finite and {'above' if positive else 'at least'} 0"
        )
    return number


def as_double(value: Any) -> float:
    """Return a number in double precision; integers beyond its range become infinite."""
    try:
        return float(value)
    except OverflowError:
        return float(np.copysign(np.inf, 1 if value > 0 else -1))


def one_of(value: Any, accepted: Sequence[str], *, what: str) -> str:
    """Return a word from a closed list."""
    if not isinstance(value, str) or value not in accepted:
        names = ", ".join(repr(word) for word in accepted)
        raise OptionError(f"{what} is {shown(value)}; it must be one of {names}")
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
    """Return a value as text for a message, cut where it is long.

    Python refuses to print integers of more than 4,300 digits, so these are described.
    """
    if isinstance(value, int) and value.bit_length() > 256:
        sign = "a negative" if value < 0 else "an"
        return f"{sign} integer of about {int((value.bit_length() - 1) * 0.30103) + 1:,} digits"
    try:
        text = repr(value).replace("\n", " ")  # arrays have line ends
    except ValueError:
        return f"a {type(value).__name__} with an integer of thousands of digits"
    return text if len(text) <= 200 else f"{text[:200]}..."


def odd_one(indices: NDArray[Any]) -> str:
    """Return the first entry of an array that is no client index, for a message."""
    for entry in indices.ravel().tolist():
        if not isinstance(entry, int) or isinstance(entry, bool) or abs(entry) > LARGEST_SIZE:
            return shown(entry)
    return shown(indices)


def _refuse_masked(values: Any, *, what: str, item: str, error: type[InputError]) -> None:
    """Refuse masked entries, of which NumPy would use the numbers under the mask."""
    masked = sys.modules.get("numpy.ma")  # there are no masked arrays before it is loaded
    if masked is None:
        return
    if isinstance(values, list | tuple):
        kinds = set(map(type, values))
        if kinds != {int} and any(issubclass(kind, masked.MaskedArray) for kind in kinds):
            for place, value in enumerate(values):
                _refuse_masked(value, what=f"{what}, {item} {place}", item="entry", error=error)
    elif masked.is_masked(values):
        first = np.argwhere(masked.getmaskarray(values))[0]
        where = f"{item} {first[0]} has" if first.size else "it has"
        raise error(f"{what}: {where} masked entries; fill them in, or leave them out")


def _first_text_or_none(values: Any) -> tuple[int, Any] | None:
    """Return the first text or None in a sequence: NumPy reads "0.5" as a number, None as NaN."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "O":
        values = values.ravel().tolist()
    if not isinstance(values, list | tuple):
        return None
    if not any(issubclass(kind, str | NoneType) for kind in set(map(type, values))):
        return None
    return next((at, one) for at, one in enumerate(values) if one is None or isinstance(one, str))


def _first_overflow(values: Any) -> tuple[int, Any]:
    """Return the position of the first number beyond double precision, and the number."""
    entries = np.asarray(values, dtype=object).ravel().tolist()
    for place, entry in enumerate(entries):
        try:
            float(entry)
        except OverflowError:
            return place, entry
    return 0, entries


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
