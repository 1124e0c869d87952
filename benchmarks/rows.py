"""`fedavot audit` on a log larger than memory: ``python -m benchmarks.rows --rows 1000000000``.

A folder of Parquet parts is drawn, ten million rows a part: rounds of up to 100 among 100,000
clients whose rates are lognormal, whoever is drawn twice in a round once. It is audited by the
command in a process of its own, and removed. Rounds, clients and the gap of the plain average, half
of Σ_i |mean_t 1{i ∈ A_t} / |A_t| − p_i|, are checked against what was drawn. Memory is the sum of
the resident bytes of all processes of the audit, looked up every 50 ms, so that pages which they
share count more than once. The exit status is 1 if it exceeds 4 GB or a check fails. It is no part
of ``make bench``.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.evaluate import Floats

N_CLIENTS = 100_000
SIZE = 100
PART = 10_000_000
LEVELS = 1 << 20
"""Steps in which rates are drawn: a client is drawn by its places in a table of so many."""
GIGABYTES = 4.0
ROUNDING = 1e-9
"""Sums of a billion double-precision terms of at most one come nearer."""
LOOK = 0.05


@dataclass(eq=False)
class Truth:
    """What was drawn: rows, rounds, and of each client the rounds and the summed weights."""

    n_rows: int
    n_rounds: int
    counts: np.ndarray
    weights: Floats

    @property
    def n_clients(self) -> int:
        """How many clients took part in any round."""
        return int(np.count_nonzero(self.counts))

    @property
    def gap(self) -> float:
        """The plain average's gap if every client of the log counts the same."""
        owed = (self.counts > 0) / self.n_clients
        return float(np.abs(self.weights / self.n_rounds - owed).sum()) / 2


def parts(n_rows: int, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Draw parts: the sizes of their rounds, and the clients of one round after the other."""
    rates = rng.lognormal(size=N_CLIENTS)
    places = np.maximum(1, np.round(LEVELS * rates / rates.sum())).astype(np.int64)
    table = np.repeat(np.arange(N_CLIENTS, dtype=np.int32), places)
    done = 0
    while done < n_rows:
        n_rounds = -(-min(PART, n_rows - done) // SIZE)
        drawn = table[rng.integers(table.size, size=(n_rounds, SIZE), dtype=np.uint32)]
        drawn.sort(axis=1)
        first = np.ones(drawn.shape, dtype=bool)
        np.not_equal(drawn[:, 1:], drawn[:, :-1], out=first[:, 1:])
        yield first.sum(axis=1), drawn[first]
        done += n_rounds * SIZE


def write(folder: Path, n_rows: int) -> Truth:
    """Write a log as it is drawn, and count."""
    truth = Truth(0, 0, np.zeros(N_CLIENTS, dtype=np.int64), np.zeros(N_CLIENTS))
    for number, (sizes, clients) in enumerate(parts(n_rows, np.random.default_rng(0))):
        rounds = np.repeat(np.arange(truth.n_rounds, truth.n_rounds + sizes.size), sizes)
        frame = pl.DataFrame({"round": rounds, "client": clients})
        frame.write_parquet(folder / f"part-{number:04d}.parquet", compression="lz4")
        truth.n_rows += clients.size
        truth.n_rounds += sizes.size
        truth.counts += np.bincount(clients, minlength=N_CLIENTS)
        truth.weights += np.bincount(clients, np.repeat(1.0 / sizes, sizes), N_CLIENTS)
    return truth


def watched(command: list[str]) -> tuple[float, float]:
    """Run a command; return its seconds and the most bytes that its processes had together."""
    begin, most = time.perf_counter(), 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            most = max(most, sum(map(resident, family(process.pid))))
            time.sleep(LOOK)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}")
    return time.perf_counter() - begin, most


def family(pid: int) -> list[int]:
    """Return a process and those that it started, by number."""
    found = [pid]
    for one in found:
        for thread in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += map(int, thread.read_text(encoding="ascii").split())
            except OSError:
                continue
    return found


def resident(pid: int) -> float:
    """Return the resident bytes of a process, 0 if it has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0.0
    return float(pages) * os.sysconf("SC_PAGE_SIZE")


def judged(truth: Truth, findings: dict[str, Any], most: float) -> dict[str, bool]:
    """Return what is required, and whether it holds."""
    return {
        f"at most {GIGABYTES:g} GB": most <= 1e9 * GIGABYTES,
        "rounds": findings["rounds"] == truth.n_rounds,
        "rows": findings["entries"] == truth.n_rows,
        "clients": len(findings["clients"]) == truth.n_clients,
        "gap": abs(findings["gap"]["value"] - truth.gap) <= ROUNDING,
    }


def main(arguments: list[str]) -> int:
    """Draw, audit and check; return the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.rows", description=__doc__)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=20_000_000)
    parser.add_argument("--folder", help="where the log is written for the time being")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        log, out = Path(name, "log"), Path(name, "out")
        log.mkdir()
        begin = time.perf_counter()
        truth = write(log, options.rows)
        drawing = time.perf_counter() - begin
        n_bytes = sum(part.stat().st_size for part in log.iterdir())
        print(
            f"{truth.n_rows:,} rows, {truth.n_rounds:,} rounds, {n_bytes / 1e9:.2f} GB of Parquet, "
            f"drawn in {drawing:.0f} s",
            flush=True,
        )
        command = [sys.executable, "-m", "fedavot", "audit", str(log), "--out", str(out)]
        seconds, most = watched(command)
        findings = json.loads((out / "findings.json").read_text(encoding="utf-8"))
    value, action = findings["gap"]["value"], findings["recommendation"]["action"]
    print(f"audited in {seconds:.0f} s, {most / 1e9:.2f} GB at the peak of all processes")
    print(f"gap {value:.6f}, off by {abs(value - truth.gap):.1e}; {action}")
    checks = judged(truth, findings, most)
    for check, right in checks.items():
        print(f"{'PASS' if right else 'FAIL'}  {check}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
