"""How long importing the library takes, beside what it cannot do without."""

import subprocess
import sys
import time

from benchmarks.measure import Say
from benchmarks.outcome import Outcome, Row

_ATTEMPTS = 12
_UNWANTED = ("matplotlib", "polars", "flwr", "sklearn", "jax")


def import_time(repeat: int, say: Say) -> Outcome:
    """P0: fresh interpreters, in turns, the best of several; a bare interpreter is subtracted."""
    say("P0: importing in fresh interpreters")
    statements = {
        "bare interpreter": "pass",
        "numpy and scipy.sparse": "import numpy, scipy.sparse",
        "fedavot": "import fedavot",
    }
    best = dict.fromkeys(statements, float("inf"))
    for _ in range(max(repeat, _ATTEMPTS)):
        for name, statement in statements.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True)
            best[name] = min(best[name], time.perf_counter() - start)
    bare, needed, ours = best.values()
    outcome = Outcome("P0: importing the library")
    outcome.rows = [
        Row("import fedavot", "ours", ours - bare, 1.0, None, None, ""),
        Row(
            "import numpy, scipy.sparse",
            "peer",
            needed - bare,
            (needed - bare) / (ours - bare),
            None,
            None,
            "",
        ),
    ]
    outcome.at_most("times as long as numpy and scipy.sparse", (ours - bare) / (needed - bare), 1.5)
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, fedavot; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    outcome.checks[f"none of {', '.join(_UNWANTED)} is loaded"] = not set(_UNWANTED) & set(loaded)
    return outcome
