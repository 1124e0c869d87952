"""Try a wheel where nothing else is installed: each command and example with just its extra.

    python .ci/installed.py dist/fedavot-0.1.0-py3-none-any.whl [--python PYTHON] [--quick]

Every set of extras gets an empty environment. Pages and the programs of the gallery begin without
extras; where one says that it needs an extra, it is run again with that. `--quick` leaves out the
Flower app, which brings PyTorch and Ray.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAGE = HERE / "page.py"
LACKS_EXTRA = 3
COMMANDS = {
    "cli": [["fedavot", "--help"], ["fedavot", "--version"], ["fedavot", "simulate", "--example"]],
    "audit": [
        ["fedavot", "sample-log", "sample"],
        ["fedavot", "audit", "sample/log.csv", "--importance", "sample/importance.csv"],
    ],
    "experiments": [
        ["fedavot", "reproduce", "alignment"],
        ["fedavot", "reproduce", "regression", "--quick"],
    ],
}
"""What the documentation says that each extra is enough for."""
SMALL = "rule='fedavot' num-server-rounds=2 local-epochs=1 folder='{folder}'"
APP = ["flwr[simulation]", "torch"]


class Environments:
    """Empty environments, one for each set of extras, made when they are asked for."""

    def __init__(self, folder, wheel, python):
        self.folder, self.wheel, self.python = folder, wheel, python

    def run(self, extras, *command, cwd, more=()):
        """Run a command of an environment, or a program of Python; return what came of it."""
        place = self._made(extras, more)
        path = os.pathsep.join([str(place / "bin"), os.environ["PATH"]])
        variables = os.environ | {"PATH": path, "PYTHONWARNINGS": "ignore", "COLUMNS": "100"}
        variables.pop("PYTHONPATH", None)
        cwd.mkdir(parents=True, exist_ok=True)
        program = command if command[0] in ("fedavot", "flwr") else (place / "bin/python", *command)
        return subprocess.run(
            program, cwd=cwd, env=variables, capture_output=True, text=True, check=False
        )

    def _made(self, extras, more):
        name = "-".join(sorted(extras)) or "none"
        place = self.folder / f"env-{name}{'-more' * bool(more)}"
        if not place.exists():
            subprocess.run([self.python, "-m", "venv", place], check=True)
            wheel = f"{self.wheel}[{','.join(sorted(extras))}]" if extras else str(self.wheel)
            pip = [place / "bin/python", "-m", "pip", "install", "--quiet"]
            pins = ["--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
            subprocess.run([*pip, *pins, wheel, *more], check=True)
        return place


def shown(what, extras, done):
    """Print that something worked, or end with what it said."""
    needed = "+".join(sorted(extras)) or "no extra"
    if done.returncode:
        sys.exit(f"{what} failed with {needed}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    print(f"works with {needed}: {what}", flush=True)


def try_program(environments, name, arguments, work):
    """Run a page or a program, with the extras that it asks for one after the other."""
    extras = set()
    while True:
        # Blocks write files: those of a page that came to an end too early are not there again.
        done = environments.run(extras, *arguments, cwd=work / f"{name}-{len(extras)}")
        if done.returncode != LACKS_EXTRA:
            return shown(name, extras, done)
        wanted = done.stdout.split()[-1]
        if wanted in extras:
            sys.exit(f"{name} asks for the extra {wanted!r}, which is installed")
        extras.add(wanted)


def main():
    """Try everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedavot-installed-") as folder:
        work = Path(folder) / "work"
        environments = Environments(Path(folder), options.wheel.resolve(), options.python)
        bare = environments.run((), "-m", "fedavot", "--help", cwd=work)
        said = bare.stderr.splitlines()
        if bare.returncode != 2 or len(said) != 1 or "fedavot[cli]" not in said[0]:
            sys.exit(f"the command without its packages is not one line:\n{bare.stderr}")
        for extra, commands in COMMANDS.items():
            for command in commands:
                done = environments.run((extra,), *command, cwd=work / extra)
                shown(" ".join(command), (extra,), done)
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            try_program(environments, page.stem, (PAGE, page), work)
        if not options.quick:
            try_app(environments, work)


def try_app(environments, work):
    """Take the first step of the Flower app: a run in simulation, of two rounds."""
    extras = ("experiments", "flower")
    app = work / "flower-mnist"
    shutil.copytree(ROOT / "examples" / "flower-mnist", app)
    os.environ |= {
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_HOME": str(work / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
    }
    federation = "num-supernodes=30 client-resources-num-cpus=1"
    run = SMALL.format(folder=work / "results")
    arguments = ("run", ".", "--stream", "--federation-config", federation, "--run-config", run)
    done = environments.run(extras, "flwr", *arguments, cwd=app, more=APP)
    stop_superlinks(work / "flwr")
    if not (work / "results" / "results.json").exists():
        done.returncode = 1
    shown("the Flower app's first run", extras, done)


def stop_superlinks(home):
    """End the SuperLink that ``flwr run`` leaves behind in a Flower home (Linux)."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            mine = f"FLWR_HOME={home}".encode() in (process / "environ").read_bytes().split(b"\0")
            if mine and b"superlink" in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGTERM)


if __name__ == "__main__":
    main()
