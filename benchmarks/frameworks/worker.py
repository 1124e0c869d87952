"""Train by one framework, in a process of its own that `process` started.

``python -m benchmarks.frameworks.worker MODULE FUNCTION problem.npz`` prepares, plays all rounds
once to warm up, and says ``{"ready": its version}``, or ``{"missing": why}`` if the framework is
not installed. Then each line of its input is a command, answered by a line of JSON: ``run`` plays
all rounds, and ``save PATH`` writes the model of the last run. BLAS has one thread in every other
run and all cores in the rest, as in `measure.race`.
"""

import importlib
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.federated import FederatedProblem


def main(module: str, function: str, path: str) -> None:
    """Prepare, then obey."""
    # What frameworks print must not mix with the answers: it goes where errors go.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**content: Any) -> None:
        print(json.dumps(content), file=answers, flush=True)

    try:
        loaded = importlib.import_module(f"benchmarks.frameworks.{module}")
    except ImportError as error:
        answer(missing=str(error))
        return
    solve = getattr(loaded, function)(FederatedProblem.load(Path(path)))
    model = solve()
    answer(ready=version(loaded.DISTRIBUTION))
    runs = 0
    for line in sys.stdin:
        command, _, target = line.strip().partition(" ")
        if command == "run":
            with threadpool_limits(limits=1 if runs % 2 == 0 else None, user_api="blas"):
                model = solve()
            runs += 1
        else:
            np.savez(target, *model)
        answer(done=command)


if __name__ == "__main__":
    main(*sys.argv[1:])
