"""P10: what a round in Flower costs with FedAVOT if a hundred thousand clients are known.

Every round 1,000 of 100,000 nodes are asked, and another hundredth of the nodes is away, so that
who is available differs from round to round. The grid answers from memory: its list of nodes is
parsed from the bytes that a SuperLink sends, and replies are made without training, so that the
time is the server's own. FedAVOT writes a log and a checkpoint after every round; FedAvg neither.
"""

import json
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import GetNodesResponse
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from flwr.supercore.task_identity import TaskIdentity

from benchmarks import memory
from benchmarks.measure import Say
from benchmarks.outcome import Outcome, Row
from fedavot.flower import FedAVOT

N_CLIENTS = 100_000
N_ASKED = 1000
N_PARAMETERS = 10_000
AWAY = 100
"""One node in so many is away, another set in every round: rounds take minutes."""

ROUNDS = 8
WARM = 3
"""Rounds that are not counted: in the first ones FedAVOT learns the names of the nodes."""

LONG = 200
"""Rounds of the run that is resumed; ten clients are asked in each."""


class Crowd(Grid):
    """Nodes with registered names that reply at once."""

    def __init__(self) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        logging.getLogger("flwr").setLevel(logging.ERROR)
        ids = np.random.default_rng(0).permutation(10 * N_CLIENTS)[:N_CLIENTS] + 1
        nodes = [NodeInfo(node_id=int(it), name=f"client-{i:06d}") for i, it in enumerate(ids)]
        groups = [nodes[:start] + nodes[start + len(nodes) // AWAY :] for start in (0, 40_000)]
        self._listed = [GetNodesResponse(nodes=group).SerializeToString() for group in groups]
        self._round = 0
        self._trained = ArrayRecord({"w": Array(np.full(N_PARAMETERS, 0.5, np.float32))})

    def get_nodes(self) -> Any:
        """Return the nodes that are there in this round."""
        return GetNodesResponse.FromString(self._listed[self._round % len(self._listed)]).nodes

    def get_node_ids(self) -> list[int]:
        """Return their ids."""
        return [node.node_id for node in self.get_nodes()]

    def set_run(self, run: Any) -> None:
        """Do nothing."""

    @property
    def run(self) -> Any:
        """Return nothing."""

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        """Return the replies; the next round has other nodes."""
        replies = []
        for place, message in enumerate(messages):
            metrics = MetricRecord({"num-examples": 10 + place % 90, "loss": 0.5})
            content = RecordDict({"arrays": ArrayRecord(dict(self._trained)), "metrics": metrics})
            replies.append(Message(content, reply_to=message))
        self._round += bool(replies)
        return replies

    def _refuse(self, *given: Any, **named: Any) -> Any:
        """Refuse other ways to send messages."""
        raise AssertionError("only send_and_receive is expected")

    create_message = push_messages = pull_messages = _refuse


def scale(repeat: int, say: Say) -> Outcome:
    """P10: rounds of a federation with 100,000 clients, and resuming it."""
    outcome = Outcome(f"P10: Flower, {N_ASKED:,} of {N_CLIENTS:,} clients asked per round")
    outcome.checked = "largest error"
    grid, spent = Crowd(), {"FedAVOT(FedAvg), with a folder": np.inf, "FedAvg": np.inf}
    with tempfile.TemporaryDirectory() as name:
        for turn in range(repeat):
            say(f"P10: turn {turn + 1} of {repeat}, {ROUNDS} rounds each")
            folder = Path(name) / str(turn)
            strategies = (FedAVOT(_inner(N_ASKED), importance="uniform", folder=folder), _inner())
            for label, strategy in zip(spent, strategies, strict=True):
                seconds, right = _seconds(strategy, grid)
                spent[label] = min(spent[label], seconds)
                outcome.checks[f"{label}: the average is right"] = right
        lines = (folder / "participation.jsonl").read_bytes().splitlines()
        ours, plain = spent.values()
        for role, (label, seconds) in zip(("ours", "peer"), spent.items(), strict=True):
            outcome.rows.append(Row(label, role, seconds, seconds / ours, 0.0, True, ""))
        outcome.at_most("times FedAvg's CPU time, the folder included", ours / plain, 1.3)
        # The first lines have the names, once.
        each = len(lines[-1]) / N_ASKED
        outcome.at_most("bytes of the log per client that took part", each, 60)
        say(f"P10: a run of {LONG} rounds, to be resumed")
        _resuming(outcome, Path(name) / "long")
    return outcome


def _inner(n_asked: int = N_ASKED) -> FedAvg:
    fraction = n_asked / (N_CLIENTS - N_CLIENTS // AWAY)
    return FedAvg(fraction_train=fraction, fraction_evaluate=0.0, min_available_nodes=1)


def _seconds(strategy: Strategy, grid: Grid) -> tuple[float, bool]:
    """Return the least CPU time of a round, and whether the model is right."""
    times: list[float] = []
    start = ArrayRecord({"w": Array(np.zeros(N_PARAMETERS, np.float32))})
    result = strategy.start(
        grid, start, ROUNDS, evaluate_fn=lambda number, arrays: times.append(time.process_time())
    )
    found = result.arrays["w"].numpy()
    return float(np.diff(times)[WARM:].min()), bool(np.allclose(found, 0.5, atol=1e-5))


def _resuming(outcome: Outcome, folder: Path) -> None:
    _start(folder, LONG, resume=False)
    size = (folder / "checkpoint.npz").stat().st_size
    log = (folder / "participation.jsonl").stat().st_size
    found = {kind: _measured(kind, folder) for kind in ("new", "resumed")}
    more = found["resumed"]["peak"] - found["new"]["peak"]
    outcome.at_most("times the checkpoint's bytes, memory to resume", more / size, 5.0)
    seconds = found["resumed"]["seconds"] - found["new"]["seconds"]
    outcome.at_most("seconds of CPU more to resume than to begin", seconds, 2.0)
    outcome.observations.append(
        f"after {LONG} rounds of ten clients: checkpoint {size / 1e6:.1f} MB, log {log / 1e6:.1f} "
        f"MB ({log / LONG / 1e3:.1f} kB per round); peak memory of a new run "
        f"{found['new']['peak'] / 1e6:.0f} MB, of the resumed one "
        f"{found['resumed']['peak'] / 1e6:.0f} MB"
    )


def _start(folder: Path, n_rounds: int, *, resume: bool) -> None:
    strategy = FedAVOT(_inner(10), importance="uniform", folder=folder, resume=resume)
    start = ArrayRecord({"w": Array(np.zeros(N_PARAMETERS, np.float32))})
    strategy.start(Crowd(), start, n_rounds)


def _measured(kind: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.scale", kind, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(kind: str, folder: Path) -> None:
    """Begin a run or resume one, for one round; print the peak memory and the seconds."""
    memory.forget_peak()
    began = time.process_time()
    if kind == "new":
        _start(folder.with_name("new"), 1, resume=False)
    else:
        _start(folder, LONG + 1, resume=True)
    print(json.dumps({"peak": memory.peak(), "seconds": time.process_time() - began}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
