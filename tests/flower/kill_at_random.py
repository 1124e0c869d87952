"""Kill SuperNodes, the ServerApp and the SuperLink at random while the server remembers.

python tests/flower/kill_at_random.py --rounds 20 --kills 10 --seed 0 [--minutes 60]

Three SuperNodes with TLS and keys train with memory. Each kill waits until the run has got on, and
takes its victim with all that it started; what was killed starts again at once, and a run whose
server was killed is submitted again with resume. At the end the final model must be the one of the
replies of the log, in one process and without any failure, to the bit. For so many minutes, another
federation follows with the next seed.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "app")]

from deployment import SUPERLINK, Deployment, write_key  # noqa: E402
from test_deployment import SITES, replayed, rounds, start  # noqa: E402


def main():
    """Run federations for so many minutes, at least one."""
    options = _options()
    end, seed = time.monotonic() + 60 * options.minutes, options.seed
    _federation(options, seed)
    while time.monotonic() < end:
        seed += 1
        _federation(options, seed)


def _federation(options, seed):
    """Run a federation, kill, and compare."""
    rng = random.Random(seed)
    with (
        tempfile.TemporaryDirectory(prefix="kill-at-random-") as folder,
        Deployment(Path(folder), HERE / "app") as deployment,
    ):
        path = deployment.folder / "run"
        kills = _train(deployment, path, rng, options)
        found = dict(np.load(path / "final.npz"))
        log = rounds(path)
    wanted = replayed(log, memory=True, folder=Path(tempfile.mkdtemp()))
    off = max(float(np.abs(found[name] - wanted[name]).max()) for name in found)
    replies = sum(len(entry["replied"]) for entry in log)
    used = f"{replies} of {3 * len(log)} replies used"
    print(f"seed {seed}: {kills}; {used}; largest difference {off:.2g}", flush=True)
    if off > 0:
        raise SystemExit("the final model is not that of the run without failures")


def _train(deployment, path, rng, options):
    keys = {name: write_key(deployment.folder / name) for name in SITES}
    deployment.start_superlink()
    for name in SITES:
        deployment.register(keys[name], name=name)
        start(deployment, name, keys)
    run = {
        **{"folder": str(path), "rounds": options.rounds, "resume": True, "memory": True},
        **{"pause": 0.5},
    }
    deployment.submit(**run)
    kills = {"SuperNode": 0, "ServerApp": 0, "SuperLink": 0}
    for _ in range(options.kills):
        if not _gets_on(deployment, path, rng.randint(1, 6)):
            break
        victim = rng.choice([*SITES, "ServerApp", "SuperLink"])
        print(f"round {len(rounds(path))}: kill {victim}", flush=True)
        if victim in SITES:
            _restart(deployment, victim, keys, path)
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


def _restart(deployment, name, keys, path):
    """Kill a SuperNode, and start it again when a round has ended without it."""
    before = len(rounds(path))
    deployment.kill(name)
    # Flower takes it for alive for a minute. If it came back meanwhile, its reply would be waited
    # for, and its message is lost.
    deployment.wait_until(lambda: len(rounds(path)) > before, what="a round ends")
    start(deployment, name, keys)


def _gets_on(deployment, path, lines):
    """Wait until clients have trained some times more, or the run has ended: then return False."""
    done = path / "final.npz"

    def trained():
        logs = deployment.folder.glob("hospital-*.log")
        return sum(path.read_text(errors="replace").count(": training") for path in logs)

    before = trained()
    deployment.wait_until(
        lambda: done.exists() or trained() >= before + lines, what="clients train"
    )
    return not done.exists()


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
