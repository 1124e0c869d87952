"""Numbers, names and terms in a form for people.

A number has the same form in a sentence, a table and a picture. Names come from logs: they are
shown without control characters, and cannot change the direction of the text around them.
"""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from unicodedata import bidirectional

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import enumerated
from fedavot.audit.recommending import Estimate, Need
from fedavot.audit.statistics import rules

NARROW = "\u202f"
"""A narrow no-break space, between a number and its unit, and between thousands."""
NOTHING = 1e-8
"""A share below this is only rounding error."""
ABSENT = "–"
"""Shown in place of a number that is not known."""
MOST_TIMES = 10.0
"""Largest ratio of two losses that is written out; the loss of a diverging rule is no useful
number."""
LONGEST = 48
"""Largest number of characters of a name that are shown; the files have the whole name."""
NAMELESS = "(no name)"
"""Shown in place of a name that consists only of spaces."""
JOINERS = "\u200c\u200d"
"""Invisible characters that are part of names in some scripts, and of emoji."""
ISOLATE, ISOLATED = "\u2068", "\u2069"
"""Characters that keep the writing direction of a name from affecting the text around it."""


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


def times(value: float) -> str:
    r"""Return one loss relative to another in per cent, if it is not many times as large.

    >>> times(1.123), times(0.0123), times(40.0), times(float("nan"))
    ('112\u202f%', '1.2\u202f%', 'over 1000\u202f%', 'over 1000\u202f%')
    """
    return share(value) if value <= MOST_TIMES else f"over {share(MOST_TIMES, 0)}"


def digits_of(values: ArrayLike) -> int:
    """Return how many decimals distinguish these shares, in per cent.

    >>> digits_of([0.3, 0.7]), digits_of([0.031, 0.012]), digits_of([0.00002])
    (0, 1, 4)
    """
    sizes = np.abs(np.asarray(values, dtype=float))
    sizes = sizes[np.isfinite(sizes) & (sizes > NOTHING)]
    if not sizes.size or float(np.median(sizes)) >= 0.0995:
        return 0
    return int(np.clip(-math.floor(math.log10(100 * float(np.median(sizes)))) + 1, 1, 4))


def number(value: float) -> str:
    r"""Return a number to three digits, with thousands separated.

    >>> number(3.14159), number(28.31), number(12345.0), number(float("inf"))
    ('3.14', '28.3', '12\u202f345', '∞')
    """
    if math.isnan(value):
        return ABSENT
    if math.isinf(value):
        return "∞"
    if abs(value) >= 99.95:
        return _whole(round(value))
    return f"{value:.3g}".replace("-", "−")


def day(seconds: float) -> str:
    """Return the day, in UTC, of a time in seconds since 1970.

    >>> day(0)
    '1 Jan 1970'
    """
    date = datetime.fromtimestamp(seconds, UTC)
    return f"{date.day} {date:%b %Y}"


def amount(value: float) -> str:
    """Return a ratio with two decimals, or with one significant digit if it is small.

    >>> amount(0.283), amount(0.0031), amount(1e-9), amount(3.574), amount(49.7)
    ('0.28', '0.003', '0', '3.57', '49.7')
    """
    if not math.isfinite(value):
        return "unknown" if math.isnan(value) else "∞"
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
    r"""Return the interval of an estimate; only its lower end if it has no upper one.

    >>> interval(Estimate(0.28, 0.25, 0.31))
    '95\u202f% interval 25\u202f% to 31\u202f%'
    >>> interval(Estimate(4.0, 1.5, float("inf")), amount)
    '95\u202f% interval 1.50 upwards'
    """
    high = f"to {told(found.high)}" if math.isfinite(found.high) else "upwards"
    return f"95{NARROW}% interval {told(found.low)} {high}"


def stretch(place: str, rounds: int) -> str:
    """Return the words for the first or the last rounds of a log.

    >>> stretch("first", 200), stretch("last", 1)
    ('the first 200 rounds', 'the last round')
    """
    return f"the {place} round" if rounds == 1 else f"the {place} {count(rounds, 'round')}"


def count(amount_of: int, what: str = "") -> str:
    r"""Return a whole number with its noun in the singular or the plural.

    >>> count(1, "round"), count(12, "round"), count(1234567)
    ('1 round', '12 rounds', '1\u202f234\u202f567')
    """
    words = f"{_whole(amount_of)} {what}" if what else _whole(amount_of)
    return f"{words}s" if what and amount_of != 1 else words


def _whole(value: int) -> str:
    return f"{value:,}".replace(",", NARROW)


listed = partial(enumerated, number=_whole)
"""`enumerated` with numbers in the form of the report."""


def shown(name: str, longest: int = LONGEST) -> str:
    r"""Return a name without control characters, truncated if it is long.

    >>> shown("phone-1"), shown("\x1b[2Jphone"), shown("aaaaaaaa", 4), shown("  ")
    ('phone-1', '\\x1b[2Jphone', 'aaa…', '(no name)')
    """
    if not name.strip():
        return NAMELESS
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


MEANT = {
    rules.FEDAVG: "the plain average",
    rules.BY_EXAMPLES: "the average by number of examples",
    rules.AS_APPLIED: "the weights in the log",
    rules.IMPORTANCE_AVERAGE: "the average by importance",
    rules.FEDAVGM: "the average by importance with momentum on the server",
    rules.HORVITZ_THOMPSON: "weights by inverse probability",
    rules.SELF_NORMALISED_IPW: "weights by inverse probability that sum to one",
    rules.FEDAVOT: "weights fitted to the log",
    rules.SOFT: "soft weights fitted to the log",
    rules.ONLINE: "weights learned during training",
    rules.SOFT_ONLINE: "soft weights learned during training",
    rules.SELECT: "selection by weights learned during training",
    rules.STEADY: "the steady rule",
    rules.FULL: "full participation",
}
"""The rules within a sentence."""
EXPLAINED = {
    rules.FEDAVG: "FedAvg with equal weights: in each round, all participants count the same.",
    rules.BY_EXAMPLES: "FedAvg as it is usually run: participants count by their numbers of "
    "examples.",
    rules.AS_APPLIED: "The weights that were used, according to the log.",
    rules.IMPORTANCE_AVERAGE: "Participants count in proportion to their importance.",
    rules.FEDAVGM: "The average by importance, with momentum of 0.9 on the server.",
    rules.HORVITZ_THOMPSON: "Each client's importance divided by how often it takes part (inverse "
    "probability weighting, IPW). The weights of a round need not sum to one.",
    rules.SELF_NORMALISED_IPW: "Inverse probability weighting, scaled to sum to one in each round.",
    rules.FEDAVOT: "Weights that depend on who else takes part, so that over all rounds each "
    "client gets its importance as far as that is possible; found by optimal transport.",
    rules.SOFT: "FedAVOT, but closer to equal weights, which average out more noise.",
    rules.ONLINE: "FedAVOT with weights that are learned during training, without a log.",
    rules.SOFT_ONLINE: "FedAVOT, soft, with weights that are learned during training.",
    rules.SELECT: "The server asks as many of the available clients as took part, chosen by "
    "weights learned during training.",
    rules.STEADY: "FedAVOT, online and soft, with memory: the last updates of absent clients stand "
    "in for them, as far as last updates have predicted new ones.",
    rules.FULL: "All clients in every round: no rule can have that; it is a yardstick.",
}
"""What each rule does."""
NEEDS: dict[Need, str] = {
    "memory": "storage for one model per client on the server",
    "select": "a server that chooses which of the available clients it asks",
}
LAWS = {
    "explicit": "cohorts like those in the log",
    "independent": "clients that are available independently of each other",
    "mixture": "clients that are available independently, given the time of day",
}
"""What each law assumes about availability, within a sentence."""
OWED = (
    "What a client is owed is its importance, counted only in rounds in which its state is known; "
    "in the other rounds it is owed nothing, and the other clients share its importance."
)
GAP = (
    "The share of the weight that goes to the wrong clients: the total variation distance between "
    "the clients' mean weights and their importance, or what they are owed where that differs."
)
EFFECTIVE = (
    "The number of equally weighted clients that would average out as much noise, in each round."
)
FITTED = "If availability is as assumed, at the rates of the first part of the log."
HELD_OUT = "In the last part of the log, with weights fitted to the first part."
CLOSEST = "With the weights that come as close to the importance as any can over these rounds."
LOSS = (
    "Excess loss, the loss above the smallest possible one, in the last part of the log, relative "
    "to that of what is in use now; behind it, the smallest and the largest over all variants."
)
CLEARLY = (
    "Better than what is in use now, and than the plain average, by at least 3 % in every variant, "
    "and by more than the seeds of a variant differ, which the ranges do not show."
)
