"""Times in logs: numbers, or dates and times as people and programs write them.

Numbers are seconds, or milliseconds or finer units if their size implies it. A log uses one way of
writing times. Dates become seconds since 1970 in UTC; those without an offset are taken to be in
UTC. How to read ``03/04/2024`` follows from the other dates of the log or from the caller; it is
never guessed.
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from email.utils import parsedate_tz
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from fedavot._checks import Floats
from fedavot.audit.reading.files.blocks import Batch
from fedavot.errors import FileFormatError, Option, OptionError

NUMBER, LOCAL, ZONED = "a number of seconds", "a date without an offset", "a date with an offset"
UNITS = (
    (1e17, "nanoseconds", 1e9),
    (1e14, "microseconds", 1e6),
    (1e11, "milliseconds", 1e3),
)
"""Size from which numbers are taken to be in each unit: seconds since 1970 reach the last threshold
in the year 5138, and milliseconds reached it in 1973."""
DAY_FIRST, MONTH_FIRST = "day-first", "month-first"
COMPACT = re.compile(
    r"((?:19|20)\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])"
    r"(?:([01]\d|2[0-3])([0-5]\d)(?:([0-5]\d)(\d{3})?)?)?"
)
"""Digits that form a date. There are 8, 12, 14 or 17 of them; in this century, the time since 1970
in seconds, milliseconds, microseconds or nanoseconds has 10, 13, 16 or 19."""
_ZONE = re.compile(
    r"(?P<rest>.*?)\s*(?:(?:UTC|GMT)?(?P<sign>[+-])(?P<hours>\d\d?)(?::?(?P<minutes>\d\d))?|"
    r"(?P<utc>Z|UTC|GMT))?\s*(?:\[?(?P<region>[A-Za-z]+(?:/[A-Za-z_+-]+)+)\]?)?",
    re.IGNORECASE,
)
_PARTS = re.compile(
    r"(?P<first>\d{1,4})(?P<mark>[-/.])(?P<second>\d{1,2})(?P=mark)(?P<third>\d{1,4})\.?"
    r"(?:[T ,]\s*(?P<hour>\d{1,2})[:.](?P<minute>\d\d)(?:[:.](?P<second_of>\d\d)"
    r"(?:[.,](?P<fraction>\d+))?)?(?:\s*(?P<half>[AP])\.?M\.?)?)?",
    re.IGNORECASE,
)
_MONTH = re.compile(r"(?:^|[^A-Za-z])(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)", re.I)
_YEAR = re.compile(r"(?<!\d)\d{4}(?!\d)")


class Clock:
    """Read the times of one log, and remember how they are written.

    Parameters
    ----------
    dates : str, optional
        How dates such as 03/04/2024 are written: ``day-first`` or ``month-first``.
    """

    def __init__(self, dates: str | None = None) -> None:
        if dates not in (None, DAY_FIRST, MONTH_FIRST):
            raise OptionError(
                Option("dates"), f" is {dates!r}; it must be {DAY_FIRST} or {MONTH_FIRST}"
            )
        self._dates = dates
        self._told = dates is not None
        self._written: str | None = None
        self._largest = 0.0
        self._unit, self._scale = "seconds", 0.0

    def read(self, batch: Batch, role: str) -> Floats:
        """Return a column's times in seconds, shape (n_rows,), or name the line of a bad one."""
        values = batch.columns[role]
        if not values.len():
            return np.empty(0)
        if self._written in (None, NUMBER) and not self._is_compact(values):
            numbers = values.cast(pl.Float64, strict=False).to_numpy()
            if np.isfinite(numbers).all():
                return self._seconds(np.asarray(numbers, dtype=np.float64))
        distinct = values.unique(maintain_order=True)
        texts = distinct.to_list()
        self._dates = self._dates or _order_of(texts)
        seconds = []
        for text in texts:
            written, moment = _moment(text, self._dates)
            self._written = self._written or written
            if written is None or written != self._written:
                raise self._refusal(batch, role, text, written)
            seconds.append(moment)
        found = values.replace_strict(distinct, pl.Series(seconds), return_dtype=pl.Float64)
        return np.asarray(found.to_numpy(), dtype=np.float64)

    def _is_compact(self, values: pl.Series) -> bool:
        """Return whether digits are dates; in a log whose times are numbers, they are numbers."""
        first = COMPACT.fullmatch(values[0].strip())
        if self._written is not None or not first:
            return False
        return bool(values.str.strip_chars().str.contains(f"^(?:{COMPACT.pattern})$").all())

    def _seconds(self, numbers: Floats) -> Floats:
        """Return numbers in seconds; their unit is inferred once, from the size of most of them."""
        self._written = NUMBER
        sizes = np.abs(numbers)
        self._largest = max(self._largest, float(sizes.max()))
        if not self._scale:
            usual = float(np.median(sizes))
            found = ((unit, scale) for least, unit, scale in UNITS if usual > least)
            self._unit, self._scale = next(found, ("seconds", 1.0))
        return numbers if self._scale == 1.0 else numbers / self._scale

    def notes(self) -> list[str]:
        """Return notes on how times were read."""
        notes = []
        if self._dates and not self._told and self._written in (LOCAL, ZONED):
            notes.append(f"dates are written {self._dates.replace('-', ' ')}, as some of them show")
        if self._written == LOCAL:
            notes.append("the times have no offset: taken to be in UTC")
        if self._written == NUMBER and self._scale > 1.0:
            notes.append(f"times go up to {self._largest:.6g}: taken to be {self._unit}")
        elif self._written == NUMBER and self._largest > UNITS[-1][0]:
            notes.append(
                f"times go up to {self._largest:.6g}: read as seconds, as most are smaller"
            )
        return notes

    def _refusal(self, batch: Batch, role: str, text: str, written: str | None) -> FileFormatError:
        where = batch.place(int((batch.columns[role] == text).arg_max() or 0))
        both = [_moment(text, dates) for dates in (DAY_FIRST, MONTH_FIRST)]
        if written is None and self._dates is None and both[0][0] and both[1][0]:
            days = [datetime.fromtimestamp(at, UTC).strftime("%-d %B %Y") for _, at in both]
            return FileFormatError(
                f"{where}: {role} {text!r} is {days[0]} or {days[1]}, and no other date says "
                "which; give ",
                Option("dates", DAY_FIRST),
                " or ",
                Option("dates", MONTH_FIRST),
            )
        if written is None:
            found = f"{role} is {text!r}" if text else f"{role} is empty"
            return FileFormatError(
                f"{where}: {found}; it must be a number of seconds, or a date and time as in "
                "2024-05-01T12:00:00Z"
            )
        return FileFormatError(
            f"{where}: {role} {text!r} is {written}, and the times before it are "
            f"{self._written}; write all in one way"
        )


def as_moments(labels: list[str]) -> Floats | None:
    """Return the seconds of labels that are all dates written in one way, else None."""
    dates = _order_of(labels)
    found = [_moment(label, dates) for label in labels]
    written = {kind for kind, _ in found}
    if written in ({LOCAL}, {ZONED}):
        return np.array([seconds for _, seconds in found])
    return None


def _order_of(texts: list[str]) -> str | None:
    """Return how dates are written, if at least one of them can be read in only one way."""
    for text in texts:
        parts = _PARTS.match(text.strip())
        if parts and len(parts["first"]) < 3 and parts["mark"] != ".":
            if int(parts["first"]) > 12:
                return DAY_FIRST
            if int(parts["second"]) > 12:
                return MONTH_FIRST
    return None


def _moment(text: str, dates: str | None) -> tuple[str | None, float]:
    """Return the format of a time (None if it is not a known one), and its seconds."""
    stripped = text.strip()
    try:
        moment = _date(stripped, dates)
        if moment is None:
            number = float("nan" if "_" in stripped else stripped)
            return (NUMBER, number) if np.isfinite(number) else (None, np.nan)
        zoned = moment.tzinfo is not None
        seconds = (moment if zoned else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None, np.nan
    return (ZONED if zoned else LOCAL), seconds


def _date(text: str, dates: str | None) -> datetime | None:
    """Return a date and time, or None if it may be a number; raise ValueError if it is neither."""
    if text.isdecimal():
        if not (digits := COMPACT.fullmatch(text)):
            return None
        year, month, day, hour, minute, second, milli = (int(part or 0) for part in digits.groups())
        return datetime(year, month, day, hour, minute, second, milli * 1000)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        zone = _ZONE.fullmatch(text)
    if zone is not None and (parts := _PARTS.fullmatch(zone["rest"])):
        return _of_parts(parts, dates).replace(tzinfo=_zone(zone))
    if zone is not None and _MONTH.search(text) and _YEAR.search(text):
        return _with_month(text, zone)
    return None


def _of_parts(parts: re.Match[str], dates: str | None) -> datetime:
    first, second, third = (int(parts[name]) for name in ("first", "second", "third"))
    if len(parts["first"]) == 4:
        year, month, day = first, second, third
    elif len(parts["third"]) != 4:
        raise ValueError("no year of four digits")
    elif parts["mark"] == "." or dates == DAY_FIRST:
        day, month, year = first, second, third
    elif dates == MONTH_FIRST:
        month, day, year = first, second, third
    else:
        raise ValueError("a day and a month in either order")
    hour = int(parts["hour"] or 0)
    if parts["half"]:
        if not 1 <= hour <= 12:
            raise ValueError("no hour of half a day")
        hour = hour % 12 + (12 if parts["half"] in "Pp" else 0)
    micro = int((parts["fraction"] or "0")[:6].ljust(6, "0"))
    minute, seconds = int(parts["minute"] or 0), int(parts["second_of"] or 0)
    return datetime(year, month, day, hour, minute, seconds, micro)


def _zone(found: re.Match[str]) -> tzinfo | None:
    if found["sign"]:
        offset = timedelta(hours=int(found["hours"]), minutes=int(found["minutes"] or 0))
        return timezone(-offset if found["sign"] == "-" else offset)
    if found["utc"]:
        return UTC
    return None if found["region"] is None else _region(found["region"])


def _region(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError) as cause:  # KeyError where there is no such zone
        raise ValueError(f"no time zone {name}") from cause


def _with_month(text: str, zone: re.Match[str]) -> datetime:
    """Read a date with the name of a month, as mail and web servers and Unix write it."""
    web = re.sub(r"^(\d+)[/-]([A-Za-z]{3,9})[/-](\d{4})[: ]", r"\1 \2 \3 ", text)
    parsed = parsedate_tz(web) or parsedate_tz(f"{web} 00:00")
    if parsed is None:
        raise ValueError("no date")
    offset = parsed[9]  # 0 also where there is none
    zoned = offset or zone["sign"] or re.search(r"\b(UTC|GMT|Z)\b", text)
    return datetime(*parsed[:6], tzinfo=timezone(timedelta(seconds=offset or 0)) if zoned else None)
