"""P9: `fedavot audit` on logs of ten million rows, as a process of its own.

Two logs of 100,000 clients whose rates are lognormal: 10,000 rounds of about 1,000 in three time
zones, every half hour, and 1,000,000 rounds of up to ten without times. The gap of the plain
average, half of Σ_i |mean_t 1{i ∈ A_t} / |A_t| − p_i|, is computed again from what was drawn.
Beside it, as a yardstick of reading alone: Polars counting the rows of each client.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks import memory
from benchmarks.evaluate import Floats
from benchmarks.measure import Contender, Say, race
from benchmarks.outcome import Outcome, Row
from fedavot.cli import main as fedavot

N_CLIENTS = 100_000
N_LARGE, LARGE = 10_000, 1_000
N_SMALL, SMALL = 1_000_000, 10
SECONDS = 90.0
GIGABYTES = 1.0
ROUNDING = 1e-9
"""Sums of ten million double-precision terms of at most one come nearer."""
_BATCHES = 20
_NAMES = pl.Series("client", [f"c{i:06d}" for i in range(N_CLIENTS)])

Batch = tuple[np.ndarray, np.ndarray]
"""Rounds from 0 on, and who took part in them: a row an entry."""


@dataclass(eq=False)
class Log:
    """A log on disk, and what was drawn for it.

    Attributes
    ----------
    path : Path
    n_rounds, n_rows : int
    counts, implied : arrays, shape (n_clients,)
        In how many rounds a client took part, and its mean weight under the plain average.
    """

    path: Path
    n_rounds: int
    counts: np.ndarray
    implied: Floats

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return int(self.counts.sum())

    def expected(self, importance: Floats | None) -> tuple[int, float]:
        """Return how many clients an audit has to find, and the plain average's gap.

        Without importance, every client in the log counts the same.
        """
        if importance is None:
            importance = (self.counts > 0).astype(float)
        owed = importance / importance.sum()
        return int(np.count_nonzero(owed)), float(np.abs(self.implied - owed).sum()) / 2


@dataclass(frozen=True)
class Audited:
    """What an audit said, whether it wrote its page, and the bytes it took at its peak."""

    findings: dict[str, Any]
    page: bool
    peak: float


def audits(repeat: int, say: Say) -> Outcome:
    """P9: three audits of ten million rows."""
    outcome = Outcome("P9: audit of a log of 10,000,000 rows, 100,000 clients")
    outcome.checked = "gap off by"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        say("P9: drawing 10,000 rounds of about 1,000")
        large = _write(folder / "large.csv", N_LARGE, _large_rounds(rng), timed=True)
        say("P9: drawing 1,000,000 rounds of up to ten")
        small = _write(folder / "small.csv", N_SMALL, _small_rounds(rng), timed=False)
        skewed = rng.lognormal(sigma=1.5, size=N_CLIENTS)
        file = folder / "importance.csv"
        pl.DataFrame({"client": _NAMES, "importance": skewed}).write_csv(file)
        ours = [
            _auditor("rounds of 1,000, uniform", large),
            _auditor("rounds of 1,000, skewed", large, file),
            _auditor("rounds of ten, uniform", small),
        ]
        peers = [_counter("rounds of 1,000", large), _counter("rounds of ten", small)]
        race("P9", [*ours, *peers], repeat, say)
    for log, importance, audit in zip(
        (large, large, small), (None, skewed, None), ours, strict=True
    ):
        _judge(outcome, log, importance, audit)
    for log, audit, peer in zip((large, small), ours[::2], peers, strict=True):
        ratio = peer.seconds / audit.seconds
        note = f"{log.n_rows:,} rows; of this log's audit"
        outcome.rows.append(Row(peer.name, peer.role, peer.seconds, ratio, None, None, note))
        right = np.array_equal(peer.answer, log.counts)
        outcome.checks[f"{peer.name}: the log has the rows that were drawn"] = right
    return outcome


def _judge(outcome: Outcome, log: Log, importance: Floats | None, audit: Contender) -> None:
    """Check an audit's answers, add its row and what is required of it."""
    told: Audited = audit.answer
    n_clients, gap = log.expected(importance)
    error = abs(told.findings["gap"]["value"] - gap)
    counted = told.findings["rounds"], len(told.findings["clients"])
    outcome.checks |= {
        f"{audit.name}: the gap is right": error <= ROUNDING,
        f"{audit.name}: rounds and clients are right": counted == (log.n_rounds, n_clients),
        f"{audit.name}: there is a page": told.page,
    }
    note = f"{told.peak / 1e6:.0f} MB; gap {gap:.3f}, {told.findings['recommendation']['action']}"
    first = next((row.seconds for row in outcome.rows), audit.seconds)
    row = Row(
        audit.name, "ours", audit.seconds, audit.seconds / first, error, error <= ROUNDING, note
    )
    outcome.rows.append(row)
    outcome.at_most(f"s for the {audit.name}", audit.seconds, SECONDS)
    outcome.at_most(f"GB at the peak of the {audit.name}", told.peak / 1e9, GIGABYTES)


def _auditor(name: str, log: Log, importance: Path | None = None) -> Contender:
    """Return an audit that runs once, interpreter and imports on the clock."""
    out = log.path.with_name(f"{log.path.stem}-{'uniform' if importance is None else 'skewed'}")
    options = [] if importance is None else ["--importance", str(importance)]
    command = [sys.executable, "-m", "benchmarks.audit", "audit", str(log.path)]
    command += ["--out", str(out), *options]

    def solve(_: None) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the audit of {name} failed: {done.stderr.strip()}")
        return done.stdout

    def read(printed: str) -> Audited:
        findings = json.loads((out / "findings.json").read_text(encoding="utf-8"))
        page = (out / "report.html").is_file()
        return Audited(findings, page, json.loads(printed.splitlines()[-1])["peak"])

    return Contender(f"audit, {name}", solve, "ours", read=read, budget_s=0.0)


def _counter(name: str, log: Log) -> Contender:
    """Return Polars counting the rows of each client."""

    def solve(_: None) -> pl.DataFrame:
        return pl.scan_csv(log.path).group_by("client").len().collect()

    def read(found: pl.DataFrame) -> np.ndarray:
        counts = np.zeros(N_CLIENTS, dtype=np.int64)
        counts[found["client"].str.slice(1).cast(pl.Int64).to_numpy()] = found["len"].to_numpy()
        return counts

    return Contender(f"Polars counts, {name}", solve, read=read)


def _large_rounds(rng: np.random.Generator) -> Iterator[Batch]:
    """Draw rounds of about a thousand: each client on its own, likelier in its night."""
    rates = rng.lognormal(size=N_CLIENTS)
    zones = 8 * rng.integers(3, size=N_CLIENTS)
    by_hour = []
    for hour in range(24):
        night = np.abs((hour - zones) % 24 - 12) > 6
        weights = rates * np.where(night, 1.7, 0.3)
        by_hour.append(np.minimum(LARGE * weights / weights.sum(), 1.0).astype(np.float32))
    for rounds in np.array_split(np.arange(N_LARGE), _BATCHES):
        present = [
            np.flatnonzero(rng.random(N_CLIENTS, dtype=np.float32) < by_hour[t // 2 % 24])
            for t in rounds
        ]
        yield np.repeat(rounds, [some.size for some in present]), np.concatenate(present)


def _small_rounds(rng: np.random.Generator) -> Iterator[Batch]:
    """Draw rounds of up to ten: ten draws by rate, whoever comes twice once."""
    cumulative = np.cumsum(rng.lognormal(size=N_CLIENTS))
    for rounds in np.array_split(np.arange(N_SMALL), _BATCHES):
        at = rng.random((rounds.size, SMALL)) * cumulative[-1]
        drawn = np.searchsorted(cumulative, at, side="right")
        yield np.divmod(np.unique(rounds[:, np.newaxis] * N_CLIENTS + drawn), N_CLIENTS)


def _write(path: Path, n_rounds: int, batches: Iterator[Batch], *, timed: bool) -> Log:
    """Write a log as it is drawn, and count."""
    counts, implied = np.zeros(N_CLIENTS, dtype=np.int64), np.zeros(N_CLIENTS)
    begin = datetime(2024, 1, 8, tzinfo=UTC)
    with path.open("wb") as file:
        for rounds, clients in batches:
            columns = {"round": rounds + 1, "client": _NAMES.gather(clients)}
            if timed:
                moments = [begin + timedelta(minutes=30) * t for t in range(rounds[-1] + 1)]
                words = pl.Series([f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in moments])
                columns["time"] = words.gather(rounds)
            pl.DataFrame(columns).write_csv(file, include_header=file.tell() == 0)
            weights = 1.0 / np.bincount(rounds)[rounds]
            counts += np.bincount(clients, minlength=N_CLIENTS)
            implied += np.bincount(clients, weights, N_CLIENTS)
    return Log(path, n_rounds, counts, implied / n_rounds)


def main(arguments: list[str]) -> None:
    """Run the command line, and print the bytes resident at its peak."""
    fedavot.main(arguments, prog_name="fedavot", standalone_mode=False)
    print(json.dumps({"peak": memory.peak()}))


if __name__ == "__main__":
    main(sys.argv[1:])
