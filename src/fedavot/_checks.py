"""Checks on values that enter the library, written so that NaN fails them.

Each returns the value as an array the inner code can trust, or raises one error that names the
offending entry. Nothing else in the library validates.
"""

import operator
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot.errors import CohortError, ImportanceError, InputError, OptionError, TooLargeError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SUM_SLACK = 1e-8
"""How far a distribution's sum may be from one and still be rounding."""

LARGEST_SEED = 2**128 - 1
"""The largest seed: NumPy recommends seeds of 128 random bits, and more add nothing."""


def as_array(values: Any, *, otherwise: str, error: type[InputError]) -> NDArray[Any]:
    """Return an array of whatever the values are, or raise ``otherwise`` if they do not line up."""
    try:
        return np.asarray(values)
    except ValueError as cause:
        raise error(f"{otherwise}: {cause}") from None


def as_floats(values: ArrayLike, *, what: str, error: type[InputError]) -> Floats:
    """Return a one-dimensional float array, or say why the values are not one."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as cause:
        raise error(f"{what} must be a sequence of numbers: {cause}") from None
    if array.ndim != 1:
        raise error(f"{what} must have one dimension, found shape {array.shape}")
    return array


def as_distribution(values: ArrayLike, *, what: str, item: str, error: type[InputError]) -> Floats:
    """Return non-negative values summing to one, rounding in the sum divided out."""
    array = as_floats(values, what=what, error=error)
    bad = np.flatnonzero(~((array >= 0) & np.isfinite(array)))
    if bad.size:
        raise error(
            f"{what} of {item} {bad[0]} is {array[bad[0]]}; it must be finite and at least 0"
        )
    # Numbers above one cannot be shares of one; naming them also keeps the sum from overflowing.
    over = np.flatnonzero(array > 1.0 + SUM_SLACK)
    if over.size:
        raise error(
            f"{what} of {item} {over[0]} is {array[over[0]]}, more than 1; "
            "divide all by their sum if that is meant"
        )
    total = float(array.sum())
    if not abs(total - 1.0) <= SUM_SLACK:
        raise error(f"{what} sums to {total!r}, not 1; divide it by its sum if that is meant")
    return array / total


def as_importance(values: ArrayLike, n_clients: int) -> Floats:
    """Return an importance vector, shape (n_clients,)."""
    array = as_distribution(values, what="importance", item="client", error=ImportanceError)
    if array.size != n_clients:
        raise ImportanceError(
            f"importance has {array.size} entries, but there are {n_clients} clients"
        )
    return array


def as_cohort(cohort: ArrayLike, n_clients: int) -> Integers:
    """Return a cohort's members in the order given, as distinct known clients."""
    members = as_array(
        cohort, otherwise="a cohort must be a flat sequence of client indices", error=CohortError
    )
    if members.ndim != 1:
        raise CohortError(
            f"a cohort must be a flat sequence of client indices, found shape {members.shape}"
        )
    if not members.size:
        raise CohortError("the cohort is empty; a round in which nobody reported has no weights")
    if not np.issubdtype(members.dtype, np.integer):
        raise CohortError(
            f"a cohort must hold integer client indices, found {members.dtype}: {members[:5]}"
        )
    unknown = members[(members < 0) | (members >= n_clients)]
    if unknown.size:
        raise CohortError(
            f"the cohort names client {unknown[0]}, but clients run from 0 to {n_clients - 1}"
        )
    members = members.astype(np.int64)
    ordered = np.sort(members)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if repeated.size:
        raise CohortError(f"the cohort names client {repeated[0]} more than once")
    return members


def as_size(value: Any, *, what: str, low: int, high: int | None = None) -> int:
    """Return an integer within ``low..high``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise OptionError(f"{what} must be an integer, found {value!r}") from None
    if number < low or (high is not None and number > high):
        upper = "" if high is None else f" and at most {high}"
        raise OptionError(f"{what} is {number}; it must be at least {low}{upper}")
    return number


def as_seed(value: Any, *, what: str = "seed") -> int:
    """Return a seed for NumPy's generators: an integer of at most 128 bits, at least 0."""
    return as_size(value, what=what, low=0, high=LARGEST_SEED)


def as_amount(value: Any, *, what: str, positive: bool = False) -> float:
    """Return a finite float that is at least, or above, zero."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise OptionError(f"{what} must be a number, found {value!r}") from None
    if not (0.0 <= number < np.inf) or (positive and number == 0.0):
        raise OptionError(
            f"{what} is {number}; it must be finite and {'above' if positive else 'at least'} 0"
        )
    return number


def one_of(value: Any, accepted: Sequence[str], *, what: str) -> str:
    """Return a word from a closed list."""
    if value not in accepted:
        names = ", ".join(repr(word) for word in accepted)
        raise OptionError(f"{what} is {value!r}; it must be one of {names}")
    return str(value)


def refuse_if_too_large(n_bytes: float, *, what: str, remedy: str) -> None:
    """Raise with the estimate when an allocation would not fit in the memory now available."""
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
