"""Times in logs: seconds as numbers, or ISO 8601 dates and times. A log keeps to one of them.

Dates become seconds since 1970 in UTC. Those without an offset are taken to be in UTC; a log must
not have both, since nobody could say how they relate.
"""

from datetime import UTC, datetime

import numpy as np
import polars as pl

from fedavot._checks import Floats
from fedavot.audit.reading.tables import Batch
from fedavot.errors import FileFormatError

NUMBER, LOCAL, ZONED = "a number of seconds", "a date without an offset", "a date with an offset"
UNITS = (
    (1e17, "nanoseconds", 1e9),
    (1e14, "microseconds", 1e6),
    (1e11, "milliseconds", 1e3),
)
"""From what size on numbers are taken to be of a unit: seconds since 1970 get to the last in the
year 5138, milliseconds did in 1973."""


class Clock:
    """Read the times of one log, and remember how they are written."""

    def __init__(self) -> None:
        self._written: str | None = None
        self._largest = 0.0
        self._unit, self._scale = "seconds", 0.0

    def read(self, batch: Batch, role: str) -> Floats:
        """Return a column's times in seconds, shape (n_rows,), or name the line of a bad one."""
        values = batch.columns[role]
        if not values.len():
            return np.empty(0)
        if self._written in (None, NUMBER):
            numbers = values.cast(pl.Float64, strict=False).to_numpy()
            if np.isfinite(numbers).all():
                return self._seconds(np.asarray(numbers, dtype=np.float64))
        distinct = values.unique(maintain_order=True)
        seconds = []
        for text in distinct.to_list():
            written, moment = _moment(text)
            self._written = self._written or written
            if written is None or written != self._written:
                raise self._refusal(batch, role, text, written)
            seconds.append(moment)
        found = values.replace_strict(distinct, pl.Series(seconds), return_dtype=pl.Float64)
        return np.asarray(found.to_numpy(), dtype=np.float64)

    def _seconds(self, numbers: Floats) -> Floats:
        """Return numbers in seconds; what they count is told by the size of most, once."""
        self._written = NUMBER
        sizes = np.abs(numbers)
        self._largest = max(self._largest, float(sizes.max()))
        if not self._scale:
            usual = float(np.median(sizes))
            found = ((unit, scale) for least, unit, scale in UNITS if usual > least)
            self._unit, self._scale = next(found, ("seconds", 1.0))
        return numbers if self._scale == 1.0 else numbers / self._scale

    def notes(self) -> list[str]:
        """Return what should be said about how times were read."""
        if self._written == LOCAL:
            return ["the times have no offset: taken to be in UTC"]
        if self._written == NUMBER and self._scale > 1.0:
            return [f"times go up to {self._largest:.6g}: taken to be {self._unit}"]
        if self._written == NUMBER and self._largest > UNITS[-1][0]:
            return [f"times go up to {self._largest:.6g}: read as seconds, as most are smaller"]
        return []

    def _refusal(self, batch: Batch, role: str, text: str, written: str | None) -> FileFormatError:
        row = int((batch.columns[role] == text).arg_max() or 0)
        where = batch.place(row)
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


def _moment(text: str) -> tuple[str | None, float]:
    """Return how one time is written, None if in no way known, and its seconds."""
    stripped = text.strip()
    try:
        number = float("nan" if "_" in stripped else stripped)
    except ValueError:
        pass
    else:
        return (NUMBER, number) if np.isfinite(number) else (None, np.nan)
    try:
        moment = datetime.fromisoformat(stripped)
        zoned = moment.tzinfo is not None
        seconds = (moment if zoned else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None, np.nan
    return (ZONED if zoned else LOCAL), seconds


def as_moments(labels: list[str]) -> Floats | None:
    """Return the seconds of labels that are all dates written in one way, else None."""
    found = [_moment(label) for label in labels]
    written = {kind for kind, _ in found}
    if written in ({LOCAL}, {ZONED}):
        return np.array([seconds for _, seconds in found])
    return None
