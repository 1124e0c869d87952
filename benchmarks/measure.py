"""Time contenders side by side, and measure the memory of one of them.

Rounds are interleaved, so that a busy machine is busy for everybody, and a contender's time is
its best. Odd rounds give BLAS one thread and even ones all cores: which of the two is faster
depends on the contender and on what else the machine does, and each gets its better one.
"""

import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

Say = Callable[[str], None]
Role = Literal["ours", "peer", "reference"]
_ROUND_RUNS = 20
"""A round runs a contender up to so often within ``round_s``: the best of few is luck."""


@dataclass(eq=False)
class Contender:
    """Somebody to time.

    Attributes
    ----------
    name : str
        As shown in the table.
    solve : callable
        What is timed; it gets what ``prepare`` returned.
    role : {"ours", "peer", "reference"}
        References are shown and checked, but no requirement is measured against them.
    prepare : callable
        Makes a run's input, outside the clock and anew for each run.
    read : callable
        Turns what ``solve`` returned into an answer that can be checked, outside the clock; None
        if it gives none.
    warm_up : callable
        Run once before anything is timed: imports and compilation.
    budget_s : float
        No further run once this much time was spent on it.
    round_s : float
        No further run in a round once it took this long.
    """

    name: str
    solve: Callable[[Any], Any]
    role: Role = "peer"
    prepare: Callable[[], Any] = lambda: None
    read: Callable[[Any], Any] = lambda found: found
    warm_up: Callable[[], Any] = lambda: None
    budget_s: float = 15.0
    round_s: float = 1.0
    seconds: float = field(default=np.inf, init=False)
    answer: Any = field(default=None, init=False)
    _spent: float = field(default=0.0, init=False)

    def run(self) -> None:
        """Time one round, and keep the best time and the answer that came with it."""
        before = self._spent
        gc.collect()
        for _ in range(_ROUND_RUNS):
            if self._spent > self.budget_s or self._spent > before + self.round_s:
                return
            prepared = self.prepare()
            start = time.perf_counter()
            found = self.solve(prepared)
            taken = time.perf_counter() - start
            self._spent += taken
            if taken < self.seconds:
                self.seconds, self.answer = taken, self.read(found)


def race(title: str, contenders: Sequence[Contender], repeat: int, say: Say) -> None:
    """Warm everybody up, then time them in turns."""
    say(f"{title}: warming up")
    for contender in contenders:
        contender.warm_up()
    for number in range(repeat):
        threads = 1 if number % 2 == 0 else None
        say(f"{title}: round {number + 1} of {repeat}, BLAS on {threads or 'all'} core(s)")
        with threadpool_limits(limits=threads, user_api="blas"):
            for contender in contenders:
                contender.run()


def seconds_of(contender: Contender) -> float:
    """Time one run outside any race."""
    prepared = contender.prepare()
    start = time.perf_counter()
    contender.solve(prepared)
    return time.perf_counter() - start


def peak_memory(kind: str, arrays: Mapping[str, Any]) -> dict[str, float]:
    """Align once in a new process; return its peak memory in bytes, by the names of `memory`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        np.savez(path, **arrays)
        command = [sys.executable, "-m", "benchmarks.memory", kind, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {kind} failed: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])
