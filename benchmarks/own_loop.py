"""P8, own loop: what a round of `fa.Aggregator` costs beside the weighted mean of the same arrays.

25 million parameters in ten arrays, ten of 100 clients a round, memories of all clients in memory.
The mean is taken as users write it: in NumPy, a sum of scaled arrays; in PyTorch, additions in
place. A mean reads each model once. The rule also reads a memory and writes another one for each
member, and reads and writes three sums: 38 times the model instead of 11. What these bytes take
alone, on as many threads, is measured too: no code for such a rule is faster. Peak memory is that
of a process of its own with the memories on disk.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import fedavot as fa
from benchmarks import memory
from benchmarks.measure import Contender, Say, race
from benchmarks.outcome import Outcome, Row
from fedavot.rules._server import MOST_THREADS

N_CLIENTS, N_MEMBERS = 100, 10
SHAPE, N_ARRAYS = (2500, 1000), 10
MODEL = 4 * N_ARRAYS * SHAPE[0] * SHAPE[1]
"""Bytes of a model."""
ROUNDING = 1e-5
"""Single precision, relative to parameters of order one."""


class Cohort:
    """A model and those of ten clients, which are the same in every round."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.model = _drawn(rng)
        self.trained = [_drawn(rng) for _ in range(N_MEMBERS)]
        turns = np.arange(N_CLIENTS).reshape(-1, N_MEMBERS).tolist()
        self._cohorts = itertools.cycle(turns)

    def round(self) -> dict[int, dict[str, Any]]:
        """Return the trained models of the next cohort."""
        return dict(zip(next(self._cohorts), self.trained, strict=True))


def own_loop(repeat: int, say: Say) -> Outcome:
    """P8, own loop: 25 million parameters, ten of 100 clients."""
    import torch

    outcome = Outcome("P8, own loop: a round of 10 of 100 clients, 25,000,000 parameters")
    outcome.checked = "largest error"
    data = Cohort()
    aggregator = fa.Aggregator(dict.fromkeys(range(N_CLIENTS), 1.0))
    say("P8, own loop: every client takes part once, so that all memories are there")
    for _ in range(N_CLIENTS // N_MEMBERS):
        aggregator.aggregate(data.model, data.round())
    tensors = [{key: torch.from_numpy(each[key]) for key in each} for each in data.trained]

    def sum_up(_: Any) -> Any:
        return {
            key: sum(np.float32(0.1) * each[key] for each in data.trained) for key in data.model
        }

    def add_up(_: Any) -> Any:
        means = {key: torch.zeros_like(leaf) for key, leaf in tensors[0].items()}
        for each, (key, mean) in itertools.product(tensors, means.items()):
            mean.add_(each[key], alpha=0.1)
        return {key: mean.numpy() for key, mean in means.items()}

    threads = ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS))
    room = {key: np.empty_like(leaf) for key, leaf in data.model.items()}

    def move_bytes(_: Any) -> None:
        # Before an array is used again, all others were: the cache has nothing of it left.
        members = itertools.product(data.trained, room)
        list(threads.map(lambda it: np.add(it[0][it[1]], data.model[it[1]], room[it[1]]), members))
        sums = itertools.product(data.trained[:4], room)
        list(threads.map(lambda it: np.copyto(room[it[1]], it[0][it[1]]), sums))

    def ours(trained: Any) -> Any:
        return aggregator.aggregate(data.model, trained)

    runners = [
        Contender("Aggregator", ours, "ours", data.round),
        Contender("weighted mean, NumPy", sum_up),
        Contender("weighted mean, PyTorch", add_up),
        Contender("bytes of the rule alone", move_bytes, "reference"),
    ]
    for runner in runners:
        runner.round_s, runner.budget_s = 3.0, 30.0
    race("P8, own loop", runners, repeat, say)
    # Every client's update is the same in every round, so the step is the plain mean for any trust.
    expected = sum_up(None)
    for runner in runners:
        answer, error, right = runner.answer, None, None
        if answer is not None:
            error = max(float(np.abs(answer[key] - expected[key]).max()) for key in expected)
            right = error <= ROUNDING
            outcome.checks[f"{runner.name}: the average is right"] = right
        ratio = runner.seconds / runners[0].seconds
        outcome.rows.append(Row(runner.name, runner.role, runner.seconds, ratio, error, right, ""))
    for runner in runners[1:3]:
        outcome.at_most(f"times the {runner.name}", runners[0].seconds / runner.seconds, 3.0)
    say("P8, own loop: measuring memory, rows on disk")
    command = [sys.executable, "-m", "benchmarks.own_loop"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    beyond = (figures["peak"] - figures["code"]) / MODEL - N_MEMBERS
    outcome.at_most("models at the peak beside the cohort's, rows on disk", beyond, 4.0)
    return outcome


def _drawn(rng: np.random.Generator) -> dict[str, Any]:
    return {f"w{i}": rng.standard_normal(SHAPE, dtype=np.float32) for i in range(N_ARRAYS)}


def main() -> None:
    """Aggregate with rows on disk, and print the bytes resident at the start and at the peak."""
    fa.Aggregator({"a": 1}).aggregate(np.zeros(1), {"a": np.ones(1)})
    code = memory.resident()
    data = Cohort()
    with tempfile.TemporaryDirectory() as folder:
        aggregator = fa.Aggregator(dict.fromkeys(range(N_CLIENTS), 1.0), memory=f"{folder}/rows")
        memory.forget_peak()
        for _ in range(12):
            data.model = aggregator.aggregate(data.model, data.round())
        print(json.dumps({"code": code, "peak": memory.peak()}))


if __name__ == "__main__":
    main()
