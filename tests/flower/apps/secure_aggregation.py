"""Like Flower's flower-secure-aggregation: SecAgg+ with its older interfaces, a workflow, a mod."""

from pathlib import Path

import numpy as np
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import ServerApp


class FlowerClient(NumPyClient):
    def __init__(self, target):
        self.target = target

    def fit(self, parameters, config):
        return [array + 0.5 * (self.target - array) for array in parameters], 10, {}

    def evaluate(self, parameters, config):
        loss = float(np.square(parameters[0] - self.target).mean())
        return loss, 10, {"accuracy": 1 / (1 + loss)}


def client_fn(context):
    return FlowerClient(0.1 * context.node_config["partition-id"]).to_client()


def weighted_average(metrics):
    total = sum(examples for examples, _ in metrics)
    return {"accuracy": sum(examples * m["accuracy"] for examples, m in metrics) / total}


client_app = ClientApp(client_fn, mods=[secaggplus_mod])
server_app = ServerApp()


@server_app.main()
def main(grid, context):
    workflow = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2)
    out, models = Path(context.run_config["out"]), []
    strategy = FedAvg(
        min_fit_clients=3,
        min_available_clients=3,
        evaluate_metrics_aggregation_fn=weighted_average,
        evaluate_fn=lambda number, arrays, config: models.append(arrays),
        initial_parameters=ndarrays_to_parameters([np.zeros((3, 2)), np.ones(4)]),
    )
    rounds = ServerConfig(num_rounds=context.run_config["num-server-rounds"])
    legacy = LegacyContext(context, rounds, strategy)
    DefaultWorkflow(fit_workflow=workflow)(grid, legacy)
    np.savez(out / "final_model.npz", *models[-1])
