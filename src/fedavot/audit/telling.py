"""Numbers and names in sentences: rounded, counted, and harmless on a terminal.

How shares and whole numbers are written is `numerals`' affair.
"""

from collections.abc import Callable, Sequence
from math import isfinite, isnan
from unicodedata import bidirectional

from fedavot.audit.findings import Estimate
from fedavot.audit.numerals import NARROW, number
from fedavot.audit.numerals import count as whole

LONGEST = 48
"""Letters of a name that are shown; the files have all of them."""
JOINERS = "\u200c\u200d"
"""Characters that are not printed and still belong to how names and emoji are written."""
ISOLATE, ISOLATED = "\u2068", "\u2069"
"""Characters between which a direction of writing is of no effect on what is around."""


def amount(value: float) -> str:
    """Return a gap or a ratio to two decimals, or to one digit where that would be none.

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


def interval(found: Estimate, told: Callable[[float], str] = amount) -> str:
    r"""Return the interval of an estimate.

    >>> interval(Estimate(0.28, 0.25, 0.31))
    '95\u202f% interval 0.25 to 0.31'
    """
    return f"95{NARROW}% interval {ends(found, told)}"


def ends(found: Estimate, told: Callable[[float], str] = amount) -> str:
    """Return where an interval begins and where it ends, if it does.

    >>> ends(Estimate(0.28, 0.25, 0.31)), ends(Estimate(4.0, 1.5, float("inf")))
    ('0.25 to 0.31', '1.50 upwards')
    """
    high = f"to {told(found.high)}" if isfinite(found.high) else "upwards"
    return f"{told(found.low)} {high}"


def stretch(place: str, rounds: int) -> str:
    """Return so many rounds at one end of a log.

    >>> stretch("first", 200), stretch("last", 1)
    ('the first 200 rounds', 'the last round')
    """
    return f"the {place} round" if rounds == 1 else f"the {place} {count(rounds, 'round')}"


def count(amount_of: int, what: str = "") -> str:
    """Return a whole number, with what it is of in the singular or the plural.

    >>> count(1, "round"), count(12, "round"), count(3)
    ('1 round', '12 rounds', '3')
    """
    words = f"{whole(amount_of)} {what}" if what else whole(amount_of)
    return f"{words}s" if what and amount_of != 1 else words


def listed(words: Sequence[str], most: int) -> str:
    """Return words in a row, those past ``most`` counted.

    >>> listed(["a", "b", "c"], 3), listed(["a", "b", "c"], 2)
    ('a, b and c', 'a, b and 1 more')
    """
    if len(words) > most:
        return f"{', '.join(words[:most])} and {whole(len(words) - most)} more"
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def shown(name: str, longest: int = LONGEST) -> str:
    r"""Return a name with nothing in it that a terminal would obey, cut if it is long.

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
    r"""Return a name for a sentence, which goes on from left to right whatever the name does.

    >>> told_name("phone-1"), told_name("\u05d0") == "\u2068\u05d0\u2069"
    ('phone-1', True)
    """
    safe = shown(name)
    turns = any(bidirectional(letter) in ("R", "AL", "AN") for letter in safe)
    return f"{ISOLATE}{safe}{ISOLATED}" if turns else safe
