"""The ServerApp: FedAvg, or FedAvg with FedAVOT's weights, without or with memory.

Runs with the same seed differ only in the rule: the network, the clients, their participation and
the local training are the same. After every round the server tests the network by client group.
"""

import json
import time
from pathlib import Path
from typing import Any

import torch
from fedavot.flower import FedAVOT
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy

from flower_mnist.clients import N_CLIENTS
from flower_mnist.data import digits_of, examples
from flower_mnist.task import net_of, new_net, test

RULES = ("fedavg", "fedavot", "fedavot-steady")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for the configured number of rounds, and write the test results."""
    torch.set_num_threads(1)
    config = context.run_config
    folder = Path(str(config["folder"])) if config["folder"] else None
    data = {"folder": str(config["data-folder"]), "size": int(config["examples-per-client"])}
    held = [digits_of(client, **data) for client in range(N_CLIENTS)]
    kept = examples(data["folder"]).test

    def tested(_: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord(test(net_of(arrays.to_torch_state_dict()), kept, held))

    begun = time.monotonic()
    result = strategy(config, folder).start(
        grid=grid,
        initial_arrays=ArrayRecord(new_net(int(config["seed"])).state_dict()),
        num_rounds=int(config["num-server-rounds"]),
        evaluate_fn=tested,
    )
    if folder is not None:
        rounds = [
            {"round": number} | dict(metrics)
            for number, metrics in sorted(result.evaluate_metrics_serverapp.items())
        ]
        content = {
            "config": dict(config),
            "seconds": round(time.monotonic() - begun, 1),
            "rounds": rounds,
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "results.json").write_text(json.dumps(content, indent=1) + "\n")


def strategy(config: dict[str, Any], folder: Path | None) -> Strategy:
    """Return the strategy for the configured rule.

    Parameters
    ----------
    config : dict
        The run configuration.
    folder : Path or None
        Folder for FedAVOT's log, checkpoint and memory.
    """
    rule, averaging = config["rule"], FedAvg(fraction_evaluate=0.0)
    if rule not in RULES:
        raise ValueError(f"rule is {rule!r}; it must be one of {', '.join(RULES)}")
    if rule == "fedavg":
        return averaging
    return FedAVOT(
        averaging,
        importance="uniform",
        memory=rule == "fedavot-steady",
        folder=folder,
        resume=bool(config["resume"]),
    )
