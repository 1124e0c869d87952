"""Numbers as people read them: shares in per cent, amounts to three digits, days by name."""

import math
from datetime import UTC, datetime

import numpy as np
from numpy.typing import ArrayLike

NARROW = "\u202f"
"""A narrow space that does not break, between a number and its unit, and between thousands."""
NOTHING = 1e-8
"""A share that is nothing but rounding."""
ABSENT = "–"
"""In the place of a number that is not known."""


def share(value: float, digits: int | None = None) -> str:
    r"""Return a share in per cent; by default to about two digits.

    >>> share(0.312), share(0.0312), share(0.000312), share(0.0)
    ('31\u202f%', '3.1\u202f%', '0.031\u202f%', '0\u202f%')
    """
    if not math.isfinite(value):
        return ABSENT if math.isnan(value) else "∞"
    if digits is None:
        digits = digits_of([value]) if abs(value) > NOTHING else 0
    text = f"{100 * value:.{digits}f}".replace("-", "−")
    if value > NOTHING and not text.strip("0."):
        text = f"<{10.0**-digits:.{digits}f}"
    return f"{text.removeprefix('−') if not text.strip('−0.') else text}{NARROW}%"


def digits_of(values: ArrayLike) -> int:
    """Return how many digits after the point tell these shares apart, in per cent.

    >>> digits_of([0.3, 0.7]), digits_of([0.031, 0.012]), digits_of([0.00002])
    (0, 1, 4)
    """
    sizes = np.abs(np.asarray(values, dtype=float))
    sizes = sizes[np.isfinite(sizes) & (sizes > NOTHING)]
    if not sizes.size or float(np.median(sizes)) >= 0.0995:
        return 0
    return int(np.clip(-math.floor(math.log10(100 * float(np.median(sizes)))) + 1, 1, 4))


def number(value: float) -> str:
    r"""Return a number to three digits, thousands apart.

    >>> number(3.14159), number(28.31), number(12345.0), number(float("inf"))
    ('3.14', '28.3', '12\u202f345', '∞')
    """
    if math.isnan(value):
        return ABSENT
    if math.isinf(value):
        return "∞"
    if abs(value) >= 99.95:
        return count(round(value))
    return f"{value:.3g}".replace("-", "−")


def count(value: int) -> str:
    r"""Return a whole number with its thousands apart.

    >>> count(999), count(1234567)
    ('999', '1\u202f234\u202f567')
    """
    return f"{value:,}".replace(",", NARROW)


def day(seconds: float) -> str:
    """Return the day, in UTC, of a time in seconds since 1970.

    >>> day(0)
    '1 Jan 1970'
    """
    date = datetime.fromtimestamp(seconds, UTC)
    return f"{date.day} {date:%b %Y}"
