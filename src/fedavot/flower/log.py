"""The participation log: one JSON object a line for every round, the file an audit reads.

    available ⊇ asked = replied ∪ failed ∪ late ∪ excluded     (disjoint)

Weights are of those who replied, and sum to one. A line is appended whole and flushed to disk
before the round is over; a line cut off by a crash, and lines of rounds that no checkpoint covers,
are dropped when a run resumes.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedavot._files import parse_json, write_whole
from fedavot.errors import CheckpointError

FORMAT = "fedavot-participation"
VERSION = 1


def _now() -> str:
    return datetime.now(UTC).isoformat()


@dataclass(frozen=True, kw_only=True)
class Round:
    """What happened in one round, by client name.

    Attributes
    ----------
    round : int
        From 1.
    available : list of str
        Who could have been asked.
    asked : list of str
        Who was sent the model.
    replied : list of str
        Whose updates were used.
    failed : dict of str
        Who answered with an error, or was found dead, and why.
    late : list of str
        Who had not answered when the time was up.
    excluded : dict of str
        Whose update was not used, and why: not finite, wrong shapes, out of proportion.
    refused : dict of str
        Nodes that could not be asked, and why: no name, a name in use, no importance.
    weights : dict of float
        The weights used, summing to one; empty where nobody replied.
    gap : float
        Total variation distance between what clients are owed and were given so far.
    effective_cohort_size : float
        1/Σ w²: how many equally weighted clients would average as well; 0 for an empty round.
    metrics : dict
        The wrapped strategy's aggregated training metrics.
    time : str
        When the round was aggregated, ISO 8601 in UTC.
    """

    round: int
    available: list[str]
    asked: list[str]
    replied: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)
    excluded: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    gap: float = 0.0
    effective_cohort_size: float = 0.0
    metrics: dict[str, Any] = field(default_factory=dict)
    time: str = field(default_factory=_now)

    def in_words(self) -> str:
        """Return who replied and who did not, for people who watch."""
        parts = [f"{len(self.replied)} of {len(self.asked)} asked replied"]
        if self.failed:
            first, reason = next(iter(self.failed.items()))
            others = f" and {len(self.failed) - 1} more" if len(self.failed) > 1 else ""
            parts.append(f"failed: {first!r} ({reason}){others}")
        parts += [f"{len(self.late)} late"] * bool(self.late)
        parts += [f"{len(self.refused)} refused"] * bool(self.refused)
        return f"round {self.round}: {', '.join(parts)}; gap {self.gap:.3g}"

    def line(self) -> str:
        """Return the round as one line of the log, without its end."""
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps(_finite(content), allow_nan=False, ensure_ascii=False)


class ParticipationLog:
    """Append rounds to a file.

    Parameters
    ----------
    path : path
        The file. It is opened for appending at once: a log that cannot be written stops a run
        before it trains, with the OSError that says why.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("ab"):
            pass

    def append(self, record: Round) -> None:
        """Write a round's line and flush it to disk."""
        with self.path.open("ab") as stream:
            stream.write(f"{record.line()}\n".encode(errors="backslashreplace"))
            stream.flush()
            os.fsync(stream.fileno())

    def cut(self, last: int) -> None:
        """Drop lines past round ``last`` and whatever a crash left of a line."""
        kept: list[bytes] = []
        for line in self.path.read_bytes().splitlines(keepends=True)[:last]:
            if _round_of(line) != len(kept) + 1:
                break
            kept.append(line)
        if len(kept) < last:
            raise CheckpointError(
                f"{self.path} has {len(kept)} of the {last} rounds that the checkpoint beside it "
                "covers; put the missing lines back, or start in another folder"
            )
        write_whole(self.path, lambda stream: stream.writelines(kept))


def _round_of(line: bytes) -> int | None:
    """Return the round a line tells of, None if it was cut off."""
    if not line.endswith(b"\n"):
        return None
    try:
        number = parse_json(line)["round"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return number if type(number) is int else None


def _finite(value: Any) -> Any:
    """Return the value with infinities and NaN, which JSON does not have, as None."""
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
