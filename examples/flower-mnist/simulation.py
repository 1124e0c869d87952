"""Flower's simulation runtime from a script, with a SuperLink that ends with the script.

``flwr run`` leaves a SuperLink running for the next run. Here it is a child process on a free port
of this machine with its own Flower home, so that no process is left and the user's configuration
does not change. ``flwr run --stream`` exits with 0 even if the run failed, so the status of the run
is queried.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

APP = Path(__file__).parent
NODES = 30
"""Number of nodes: one per client."""
CONNECTION = "comparison"
"""Name of the SuperLink in the Flower home."""
STOP_SECONDS = 30.0


@dataclass(frozen=True)
class Simulation:
    """A SuperLink that runs the app.

    Attributes
    ----------
    environment : dict
        Environment variables for Flower's commands.
    superlink : Popen
        The process of the SuperLink.
    """

    environment: dict[str, str]
    superlink: subprocess.Popen[bytes]

    def run(
        self, config: Mapping[str, Any], log: Path, *, app: Path = APP, nodes: int = NODES
    ) -> None:
        """Run an app, and raise if it does not complete.

        Parameters
        ----------
        config : mapping
            Values of the run configuration.
        log : Path
            File for the output of the run.
        app : Path
            Folder of the app.
        nodes : int
            Number of simulated nodes, with a core for each.
        """
        settings = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        federation = f"num-supernodes={nodes} client-resources-num-cpus=1"
        command = ["run", str(app), CONNECTION, "--stream"]
        command += ["--federation-config", federation, "--run-config", settings]
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(self._flwr(*command))
        started = re.search(r"started run (\d+)", log.read_text())
        if started is None:
            raise RuntimeError(f"the run did not start; see {log}")
        status = self._status(started[1])
        if status != "finished:completed":
            raise RuntimeError(f"the run ended as {status}; see {log}")

    def _status(self, run: str) -> str:
        """Wait for the end of a run, and return its status."""
        while True:
            listed = self._flwr("list", CONNECTION, "--run-id", run, "--format", "json")
            # Flower's client times out after 30 seconds if the machine is busy; then ask again.
            said = json.loads(listed[listed.index("{") :]) if "{" in listed else {}
            for found in said.get("runs", []):
                if str(found["status"]).startswith("finished"):
                    return str(found["status"])
            if self.superlink.poll() is not None:
                raise RuntimeError(f"the SuperLink ended with {self.superlink.returncode}")
            time.sleep(1.0)

    def _flwr(self, *arguments: str) -> str:
        """Run a Flower command, and return its output."""
        done = subprocess.run(
            [_program("flwr"), *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout


@contextmanager
def simulation() -> Iterator[Simulation]:
    """Start a SuperLink, and stop it at the end."""
    # Flower's processes may still write to the Flower home while they end.
    with tempfile.TemporaryDirectory(prefix="flower-mnist-", ignore_cleanup_errors=True) as home:
        port = _free_port()
        address = f"127.0.0.1:{port}"
        Path(home, "config.toml").write_text(
            f'[superlink.{CONNECTION}]\naddress = "{address}"\ninsecure = true\n'
        )
        programs = str(Path(sys.executable).parent)
        environment = os.environ | {
            "FLWR_HOME": home,
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": os.pathsep.join([programs, os.environ.get("PATH", os.defpath)]),
        }
        command = [_program("flower-superlink"), "--insecure", "--simulation"]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        command += ["--disable-runtime-dependency-installation"]
        with Path(home, "superlink.log").open("w") as log:
            superlink = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            _await_health(superlink, address, Path(home, "superlink.log"))
            yield Simulation(environment, superlink)
        finally:
            superlink.terminate()
            try:
                superlink.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                superlink.kill()
                superlink.wait()


def _await_health(superlink: subprocess.Popen[bytes], address: str, log: Path) -> None:
    while superlink.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{address}/health", timeout=1.0):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"the SuperLink did not start:\n{log.read_text()[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _program(name: str) -> str:
    """Return the path of a command in the environment of this Python."""
    return str(Path(sys.executable).with_name(name))
