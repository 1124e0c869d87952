"""P8: what one aggregation in Flower costs with FedAVOT around FedAvg, beside FedAvg alone.

25 million parameters in 25 arrays, ten replies. FedAVOT looks every reply over (names, shapes,
finite values, norm of the update), weighs the cohort and hands it to the same FedAvg, so the
requirement is on what that adds.
"""

import json
import logging
import subprocess
import sys
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from flwr.supercore.task_identity import TaskIdentity

from benchmarks import memory
from benchmarks.measure import Contender, Say, race
from benchmarks.outcome import Outcome, Row
from fedavot import Alignment, Status
from fedavot.flower import FedAVOT, Weighting

N_REPLIES = 10
N_ARRAYS = 25
SHAPE = (1000, 1000)
ROUNDING = 1e-6
"""Single precision, relative to parameters of order one."""


class Register(Grid):
    """Nodes with registered names, to whom nothing is ever sent."""

    def get_nodes(self) -> list[NodeInfo]:
        """Return the nodes."""
        return [NodeInfo(node_id=100 + i, name=f"client-{i}") for i in range(N_REPLIES)]

    def get_node_ids(self) -> list[int]:
        """Return their ids."""
        return [node.node_id for node in self.get_nodes()]

    def set_run(self, run: Any) -> None:
        """Do nothing."""

    @property
    def run(self) -> Any:
        """Return nothing."""

    def _refuse(self, *given: Any, **named: Any) -> Any:
        """Refuse to send or receive: the benchmark aggregates replies that are already there."""
        raise AssertionError("aggregation sent a message")

    create_message = push_messages = pull_messages = send_and_receive = _refuse


class Round:
    """A model, the replies to it, and strategies to aggregate them."""

    def __init__(self) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        logging.getLogger("flwr").setLevel(logging.ERROR)
        rng = np.random.default_rng(0)
        start = [rng.standard_normal(SHAPE, dtype=np.float32) for _ in range(N_ARRAYS)]
        self.model = _record(start)
        steps = rng.standard_normal(N_REPLIES, dtype=np.float32) / 100
        self.replies = [_record([array + step for array in start]) for step in steps]
        self.counts = np.arange(1, N_REPLIES + 1) * 10
        self.mean = start[0] + np.float32(self.counts @ steps / self.counts.sum())

    def ready(self, strategy: Strategy) -> tuple[Strategy, list[Message]]:
        """Return a strategy that has asked everybody, and the answers."""
        asked = strategy.configure_train(1, self.model, ConfigRecord(), Register())
        by_node = {message.metadata.dst_node_id: message for message in asked}
        answers = []
        for place, (node, arrays) in enumerate(zip(sorted(by_node), self.replies, strict=True)):
            metrics = MetricRecord({"num-examples": int(self.counts[place]), "loss": 0.5})
            content = RecordDict({"arrays": ArrayRecord(dict(arrays)), "metrics": metrics})
            answers.append(Message(content, reply_to=by_node[node]))
        return strategy, answers


def aggregation(repeat: int, say: Say) -> Outcome:
    """P8: 25 million parameters, ten replies."""
    say("P8: making ten replies of 100 MB")
    outcome = Outcome("P8: Flower, one aggregation of 10 replies, 25,000,000 parameters")
    outcome.checked = "largest error"
    data = Round()
    runners = [
        Contender("FedAVOT(FedAvg)", _aggregate, "ours", lambda: data.ready(_fedavot())),
        Contender("FedAvg", _aggregate, "peer", lambda: data.ready(_fedavg())),
    ]
    for runner in runners:
        runner.round_s, runner.budget_s = 6.0, 40.0
    race("P8", runners, repeat, say)
    ours, plain = runners
    for runner in runners:
        error = float(np.abs(runner.answer[0]["w0"].numpy() - data.mean).max())
        right = error <= ROUNDING
        outcome.checks[f"{runner.name}: the average is right"] = right
        ratio = runner.seconds / ours.seconds
        outcome.rows.append(Row(runner.name, runner.role, runner.seconds, ratio, error, right, ""))
    outcome.at_most("times FedAvg's time", ours.seconds / plain.seconds, 1.1)
    say("P8: measuring memory")
    peaks = {name: _peak_of(name) for name in ("fedavot", "fedavg")}
    ratio = peaks["fedavot"]["peak"] / peaks["fedavg"]["peak"]
    outcome.at_most("times FedAvg's peak memory, the replies included", ratio, 1.1)
    beyond = {name: (peak["peak"] - peak["before"]) / 1e6 for name, peak in peaks.items()}
    outcome.observations.append(
        f"beyond the replies: FedAVOT {beyond['fedavot']:.0f} MB, FedAvg {beyond['fedavg']:.0f} MB"
    )
    return outcome


def _fedavg() -> FedAvg:
    return FedAvg(min_available_nodes=1)


def _fedavot() -> FedAVOT:
    """Return FedAVOT with weights as uneven as the counts that FedAvg goes by."""
    shares = np.arange(1, N_REPLIES + 1) / (N_REPLIES * (N_REPLIES + 1) / 2)
    alignment = Alignment(
        importance=shares,
        potentials=np.log(shares),
        levels=np.zeros(N_REPLIES, dtype=np.int64),
        attained=shares,
        residual=0.0,
        iterations=0,
        status=Status.EXACT,
    )
    names = [f"client-{i}" for i in range(N_REPLIES)]
    return FedAVOT(_fedavg(), weighting=Weighting(alignment=alignment, clients=names))


def _aggregate(ready: tuple[Strategy, list[Message]]) -> Any:
    strategy, answers = ready
    return strategy.aggregate_train(1, answers)


def _record(arrays: list[Any]) -> ArrayRecord:
    return ArrayRecord({f"w{i}": Array(array) for i, array in enumerate(arrays)})


def _peak_of(name: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.aggregation", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(name: str) -> None:
    """Aggregate once, and print the bytes resident before and at the peak."""
    data = Round()  # whose model stays, as it does in a run
    ready = data.ready({"fedavg": _fedavg, "fedavot": _fedavot}[name]())
    before = memory.resident()
    memory.forget_peak()
    _aggregate(ready)
    print(json.dumps({"before": before, "peak": memory.peak()}))


if __name__ == "__main__":
    main(sys.argv[1])
