"""The participation log: one JSON object per round, one per line; an audit reads this file.

    available ⊇ asked = replied ∪ failed ∪ late ∪ excluded     (disjoint)

Weights are those of the clients that replied, and sum to one. A line is appended and flushed to
disk before the round ends. When a run resumes, a line that a crash truncated and the lines of
rounds after the checkpoint are removed.

If more than a hundred clients are available, a line has their number and the SHA-256 of their names
(each ended by a line break, in order) instead of the names, plus the names that are in no earlier
line of the run. It leaves out which clients were asked and which replied, since these follow from
the rest: the weights name the clients that replied, and the clients asked are these and those that
failed, were late or were excluded. So a line is a few kB long, and grows only with the number of
participants.
"""

import hashlib
import json
import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from fedavot._checks import enumerated
from fedavot._reading import parse_json
from fedavot.errors import CheckpointError, OptionError

FORMAT = "fedavot-participation"
VERSION = 2

LISTED = 100
"""Largest number of clients that a line lists as available, or of nodes as refused."""


def _now() -> str:
    return datetime.now(UTC).isoformat()


@dataclass(frozen=True, kw_only=True)
class Round:
    """Participation, weights and metrics of one round, by client name.

    Attributes
    ----------
    round : int
        Number of the round, from 1.
    available : list of str
        Clients that could have been asked.
    asked : list of str
        Clients that were sent the model.
    replied : list of str
        Clients whose updates were used.
    failed : dict of str
        Clients that replied with an error or whose node was found dead, with the reason.
    late : list of str
        Clients that had not replied when the round timed out, or was closed by enough updates.
    excluded : dict of str
        Clients whose updates were not used, with the reason: not finite, wrong shapes, or a norm
        out of proportion.
    refused : dict of str
        Nodes that could not be asked, with the reason: no name, a name in use, or no importance.
    weights : dict of float
        Weights of the clients that replied, summing to one; empty if no client did.
    applied : bool
        Whether the wrapped strategy averaged by weights; if not, `weights` are those that it was
        given, or equal weights if it took the plain mean.
    memory : bool
        Whether updates of absent clients are remembered; a line has this only if they are.
    gap : float
        Total variation distance between the importance and the mean weights so far, as a fraction.
    known, unknown : int
        With importance "examples": number of clients whose example counts are known, over which the
        gap is computed, and of clients that were available but have not sent a usable update yet. A
        line has them only if there are any of the latter.
    effective_cohort_size : float
        1/Σ w²: number of equally weighted clients whose average has the same variance; 0 if no
        client replied.
    events : list of str
        Changes before the round, such as in the importance or the clients at a resume; a line has
        this only if there were any.
    metrics : dict
        Training metrics aggregated by the wrapped strategy.
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
    applied: bool = True
    memory: bool = False
    gap: float = 0.0
    known: int = 0
    unknown: int = 0
    effective_cohort_size: float = 0.0
    events: list[str] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    time: str = field(default_factory=_now)

    def summary(self) -> str:
        """Return one line for the server's log: who replied and failed, the gap, the weights."""
        parts = [f"{len(self.replied)} of {len(self.asked)} clients replied"]
        if self.excluded:
            usable = f"{len(self.replied)} of {len(self.asked)} clients sent a usable update"
            parts = [usable, f"{len(self.excluded)} excluded"]
        if self.failed:
            failed = (f"{name!r} ({reason})" for name, reason in self.failed.items())
            parts.append(f"failed: {enumerated(failed, 1)}")
        parts += [f"{len(self.late)} late"] * bool(self.late)
        parts += [f"{len(self.refused)} refused"] * bool(self.refused)
        line = f"round {self.round}: {', '.join(parts)}"
        if not self.weights:
            return line
        among = f" among the {self.known} clients whose examples are known ({self.unknown} unknown)"
        figures = [
            f"gap {self.gap:.2%}{among if self.unknown else ''}",
            f"effective cohort size {self.effective_cohort_size:.3g}",
            f"largest weight {max(self.weights.values()):.3g}",
        ]
        figures += ["weights not applied"] * (not self.applied)
        return f"{line}; {', '.join(figures)}"

    def line(self, named: set[str] | None = None) -> str:
        """Return the round as one line of the log, without the line break.

        Parameters
        ----------
        named : set of str, optional
            Names that earlier lines have; those of this line are added to it.
        """
        content: dict[str, Any] = {"format": FORMAT, "version": VERSION, **vars(self)}
        for name in ("memory", "events"):
            if not content[name]:
                del content[name]
        if not self.unknown:
            del content["known"], content["unknown"]
        if len(self.available) > LISTED:
            del content["asked"], content["replied"]
            known = set() if named is None else named
            fresh = not known.issuperset(self.available)
            new = [name for name in self.available if name not in known] if fresh else []
            known.update(new)
            content["available"] = {
                "count": len(self.available),
                "sha256": digest(self.available),
                "new": new,
            }
        if len(self.refused) > LISTED:
            content["refused"] = {"count": len(self.refused)}
        for name in ("weights", "gap", "metrics"):
            content[name] = _finite(content[name])
        return json.dumps(content, allow_nan=False, ensure_ascii=False)


def digest(names: Sequence[str]) -> str:
    """Return the SHA-256 of names, each ended by a line break."""
    text = "\n".join([*names, ""])
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()


OnRound = Callable[[Round], None]


def as_callbacks(on_round: OnRound | Sequence[OnRound] | None) -> list[OnRound]:
    """Return the functions to call after each round."""
    several = isinstance(on_round, Sequence) and not isinstance(on_round, str)
    given: Any = on_round if several else [on_round]
    listed = [] if on_round is None else given
    for callback in listed:
        if not callable(callback):
            raise OptionError(f"on_round is {callback!r}; it must be a function of a Round")
    return list(listed)


class ParticipationLog:
    """Append rounds to a file.

    Parameters
    ----------
    path : path
        The file. It is opened for appending at once, so that a log that cannot be written raises
        an OSError before any training.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._named: set[str] = set()
        with path.open("ab"):
            pass

    def append(self, record: Round) -> None:
        """Write a round's line and flush it to disk."""
        line = record.line(self._named)
        with self.path.open("ab") as stream:
            stream.write(f"{line}\n".encode(errors="backslashreplace"))
            stream.flush()
            os.fsync(stream.fileno())

    def cut(self, last: int) -> None:
        """Remove the lines after round ``last``, and a line that a crash truncated.

        Rounds are in order, so only the lines to be removed and the one before them are read.
        """
        found = end = 0
        with self.path.open("r+b") as stream:
            for line, place in _lines_from_the_end(stream) if last else ():
                found, end = _round_of(line) or 0, place
                if 0 < found <= last:
                    break
            if found != last:
                raise CheckpointError(
                    f"{self.path} has {min(found, last)} of the {last} rounds of the checkpoint in "
                    "the same folder; restore the missing lines, or start in another folder"
                )
            stream.truncate(end)
            os.fsync(stream.fileno())


def _lines_from_the_end(stream: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield the lines of a file, the last one first, and where each ends."""
    end = os.fstat(stream.fileno()).st_size
    if not end:
        return  # an empty file cannot be mapped
    with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        while end:
            start = content.rfind(b"\n", 0, end - 1) + 1
            yield content[start:end], end
            end = start


def _round_of(line: bytes) -> int | None:
    """Return the round number of a line; None if the line is truncated or not of this log."""
    if not line.endswith(b"\n"):
        return None
    try:
        found = parse_json(line)
        number = found["round"] if found["format"] == FORMAT else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return number if type(number) is int else None


def _finite(value: Any) -> Any:
    """Return the value with None in place of infinities and NaN, which JSON does not have."""
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
