"""Start frameworks in the peers' interpreter, and talk to them.

Flower and pfl ask for versions of packages that the library's own environment cannot hold, so they
live in one of their own, ``.venv/peers``; the variable FEDAVOT_PEERS names another interpreter.
Each framework gets a process, started once and kept for all its turns. What cannot be imported or
fails is reported and left out; nothing else suffers.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks.federated import Model

_ROOT = Path(__file__).resolve().parents[2]
_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


def interpreter() -> str:
    """Return the interpreter that has the frameworks; this one if there is no other."""
    chosen = os.environ.get("FEDAVOT_PEERS")
    if chosen and shutil.which(chosen) is None:
        sys.exit(f"FEDAVOT_PEERS is {chosen!r}, which is not a program; name a Python interpreter")
    own = _ROOT / ".venv" / "peers" / "bin" / "python"
    return chosen or (str(own) if own.exists() else sys.executable)


class Framework:
    """One framework's process.

    Parameters
    ----------
    module, function : str
        Of `benchmarks.frameworks`: what prepares the training.
    problem : path
        As `FederatedProblem.save` wrote it.

    Attributes
    ----------
    version : str
        Of the framework, once it is ready.
    trouble : str
        Why it cannot be run, or could not go on; empty if all is well.
    """

    def __init__(self, module: str, function: str, problem: Path) -> None:
        self.version = self.trouble = ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._process = subprocess.Popen(
            [interpreter(), "-m", "benchmarks.frameworks.worker", module, function, str(problem)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=_ROOT,
            env=os.environ | _QUIET,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def ready(self) -> bool:
        """Wait until it has warmed up; return whether it can be run."""
        answer = self._answer()
        self.version = answer.get("ready", "")
        if "missing" in answer:
            self.trouble = f"not installed ({answer['missing']})"
        return not self.trouble

    def run(self) -> None:
        """Play all rounds; should that fail, there is `trouble`."""
        self._ask("run")

    def model(self) -> Model | None:
        """Return the model of the last run; None if there was trouble."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.npz"
            self._ask(f"save {path}")
            if self.trouble:
                return None
            with np.load(path) as file:
                return tuple(file[name] for name in file.files)

    def _ask(self, command: str) -> None:
        # A process that has ended says so by having no answer.
        with contextlib.suppress(BrokenPipeError):
            print(command, file=self._process.stdin, flush=True)
        self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        self.trouble = f"failed ({lines[-1] if lines else f'exit status {status}'})"
        return {}
