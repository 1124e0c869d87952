"""Kill SuperNodes, the ServerApp and the SuperLink at random while clients keep their memories.

python tests/flower/kill_at_random.py --rounds 20 --kills 10 --seed 0

Three SuperNodes with TLS and keys train with memory on the clients. Each kill waits until the run
has got on, and takes its victim with all that it started; what was killed starts again at once, and
a run whose server was killed is submitted again with resume. At the end the final model must be the
one of memory on the server with the replies of the log, in one process and without any failure.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "app")]

from deployment import SUPERLINK, Deployment, write_key  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from grid import LocalGrid, Node, arrays_of, record_of, rounds_in  # noqa: E402
from hospitals.client import app  # noqa: E402
from hospitals.model import IMPORTANCE, initial  # noqa: E402

from fedavot.flower import Admission, FedAVOT  # noqa: E402

SITES = {"hospital-a": 1, "hospital-b": 2, "hospital-c": 3}
ROUNDING = 1e-5
"""Room for float32 sums over the rounds in another order; models are of order one."""
TIMEOUT = 40.0
"""Seconds after which a round ends without the reply of a node that was killed."""


def main():
    """Run the federation, kill, and compare."""
    options = _options()
    rng = random.Random(options.seed)
    with (
        tempfile.TemporaryDirectory(prefix="kill-at-random-") as folder,
        Deployment(Path(folder), HERE / "app") as deployment,
    ):
        path = deployment.folder / "run"
        kills = _train(deployment, path, rng, options)
        found = dict(np.load(path / "final.npz"))
        log = rounds_in(path)
    wanted = replayed(log, memory="server", folder=Path(tempfile.mkdtemp()))
    off = max(float(np.abs(found[name] - wanted[name]).max()) for name in found)
    replies = sum(len(entry["replied"]) for entry in log)
    print(f"{kills}; {replies} of {3 * len(log)} replies used; largest difference {off:.2g}")
    if off > ROUNDING:
        raise SystemExit("the final model is not that of memory on the server")


def _train(deployment, path, rng, options):
    keys = {name: write_key(deployment.folder / name) for name in SITES}
    deployment.start_superlink()
    for name in SITES:
        deployment.register(keys[name], name=name)
        start(deployment, name, keys)
    run = {
        **{"folder": str(path), "rounds": options.rounds, "resume": True, "memory": "clients"},
        **{"pause": 0.5, "timeout": TIMEOUT},
    }
    deployment.submit(**run)
    kills = {"SuperNode": 0, "ServerApp": 0, "SuperLink": 0}
    for _ in range(options.kills):
        if not _gets_on(deployment, path, rng.randint(1, 6)):
            break
        victim = rng.choice([*SITES, "ServerApp", "SuperLink"])
        print(f"round {_logged(path)}: kill {victim}", flush=True)
        if victim in SITES:
            deployment.kill(victim)
            start(deployment, victim, keys)
            kills["SuperNode"] += 1
            continue
        if victim == "SuperLink":
            deployment.kill(SUPERLINK)
            deployment.start_superlink()
        else:
            for pid in deployment.processes(SUPERLINK):
                if "flwr-serverapp" in _command(pid):
                    os.kill(pid, signal.SIGKILL)
        kills[victim] += 1
        deployment.submit(**run)
    deployment.wait_until((path / "final.npz").exists, what="the run saves its result")
    return kills


def start(deployment, name, keys):
    """Start a SuperNode, with its files in a folder of its own."""
    held = deployment.folder / f"held-{name}"
    config = f'site={SITES[name]} fedavot-folder="{held}"'
    deployment.start_node(name, keys[name], config=config)


def _gets_on(deployment, path, lines):
    """Wait until clients have trained some times more, or the run has ended: then return False."""
    done = path / "final.npz"

    def trained():
        return sum(deployment.log(name).count("training") for name in SITES)

    before = trained()
    deployment.wait_until(
        # A SuperNode that was started again has a new log.
        lambda: done.exists() or not before - 1 < trained() < before + lines,
        what="clients train",
    )
    return not done.exists()


def _logged(path):
    return len(rounds_in(path)) if (path / "participation.jsonl").exists() else 0


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def replayed(log, *, memory, folder):
    """Return the final parameters of an uninterrupted run with the replies of a log."""
    nodes = {site: Node(app, {"site": site}, name) for name, site in SITES.items()}

    def fate(node, message):
        entry = log[message.content["config"]["server-round"] - 1]
        return "reply" if nodes[node].name in entry["replied"] else "silent"

    def set_scene(number):
        for node in nodes.values():
            node.online = number < len(log) and node.name in log[number]["available"]

    set_scene(0)
    strategy = FedAVOT(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
        importance=IMPORTANCE,
        memory=memory,
        admission=Admission(identity="registered"),
        folder=folder,
        on_round=lambda done: set_scene(done.round),
    )
    start = record_of(initial())
    grid = LocalGrid(nodes, fate)
    return arrays_of(strategy.start(grid, start, num_rounds=len(log)).arrays)


def _options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
