"""Numbers and names in sentences: rounded, counted, and safe to print on a terminal.

`numerals` formats shares and whole numbers.
"""

from collections.abc import Callable
from functools import partial
from math import isfinite, isnan
from unicodedata import bidirectional

import numpy as np

from fedavot._checks import enumerated
from fedavot.audit.findings import Estimate, Findings
from fedavot.audit.report.numerals import NARROW, NOTHING, number, share
from fedavot.audit.report.numerals import count as whole

LONGEST = 48
"""Characters of a name that are shown; the files have all of them."""
JOINERS = "\u200c\u200d"
"""Invisible characters that names in some scripts, and emoji, are written with."""
OWED = (
    "What a client is owed is its importance, counted only in rounds in which its state is known; "
    "in the other rounds it is owed nothing, and the other clients share its importance."
)
"""What owed means."""
ISOLATE, ISOLATED = "\u2068", "\u2069"
"""Characters that keep the writing direction of a name from affecting the text around it."""


def amount(value: float) -> str:
    """Return a ratio with two decimals, or with one significant digit if it is small.

    >>> amount(0.283), amount(0.0031), amount(1e-9), amount(3.574), amount(49.7)
    ('0.28', '0.003', '0', '3.57', '49.7')
    """
    if not isfinite(value):
        return "unknown" if isnan(value) else "∞"
    if abs(value) < 0.01:
        return number(round(value, 4 if abs(value) < 0.001 else 3))
    return f"{value:.2f}" if abs(value) < 9.995 else size(value)


def size(value: float) -> str:
    r"""Return a number of clients or rounds that need not be whole.

    >>> size(2.36), size(1234.5)
    ('2.4', '1\u202f234')
    """
    return f"{value:.1f}" if abs(value) < 99.95 else number(value)


def interval(found: Estimate, told: Callable[[float], str] = share) -> str:
    r"""Return the interval of an estimate.

    >>> interval(Estimate(0.28, 0.25, 0.31))
    '95\u202f% interval 25\u202f% to 31\u202f%'
    """
    return f"95{NARROW}% interval {ends(found, told)}"


def ends(found: Estimate, told: Callable[[float], str] = share) -> str:
    r"""Return the two ends of an interval, or its lower end if it has no upper one.

    >>> ends(Estimate(0.28, 0.25, 0.31)), ends(Estimate(4.0, 1.5, float("inf")), amount)
    ('25\u202f% to 31\u202f%', '1.50 upwards')
    """
    high = f"to {told(found.high)}" if isfinite(found.high) else "upwards"
    return f"{told(found.low)} {high}"


def owes_otherwise(findings: Findings) -> bool:
    """Return whether clients are owed something else than their importance."""
    shares = findings.by_client
    return bool(np.abs(shares.owed - shares.importance).max(initial=0.0) > NOTHING)


def stretch(place: str, rounds: int) -> str:
    """Return the words for the first or the last rounds of a log.

    >>> stretch("first", 200), stretch("last", 1)
    ('the first 200 rounds', 'the last round')
    """
    return f"the {place} round" if rounds == 1 else f"the {place} {count(rounds, 'round')}"


def count(amount_of: int, what: str = "") -> str:
    """Return a whole number with its noun in the singular or the plural.

    >>> count(1, "round"), count(12, "round"), count(3)
    ('1 round', '12 rounds', '3')
    """
    words = f"{whole(amount_of)} {what}" if what else whole(amount_of)
    return f"{words}s" if what and amount_of != 1 else words


listed = partial(enumerated, number=whole)
"""`enumerated` with numbers as everywhere in a report."""


def shown(name: str, longest: int = LONGEST) -> str:
    r"""Return a name without control characters, cut if it is long.

    >>> shown("phone-1"), shown("\x1b[2Jphone"), shown("aaaaaaaa", 4)
    ('phone-1', '\\x1b[2Jphone', 'aaa…')
    """
    safe = "".join(
        letter
        if letter.isprintable() or letter in JOINERS
        else letter.encode("unicode_escape", "surrogatepass").decode()
        for letter in name[: longest + 1]
    )
    return safe if len(safe) <= longest else f"{safe[: longest - 1]}…"


def told_name(name: str) -> str:
    r"""Return a name for a sentence that runs from left to right, even if the name does not.

    >>> told_name("phone-1"), told_name("\u05d0") == "\u2068\u05d0\u2069"
    ('phone-1', True)
    """
    safe = shown(name)
    turns = any(bidirectional(letter) in ("R", "AL", "AN") for letter in safe)
    return f"{ISOLATE}{safe}{ISOLATED}" if turns else safe
