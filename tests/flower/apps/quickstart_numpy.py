"""Like Flower's quickstart-numpy: lists of arrays, a metric that is a list, nothing configured."""

from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

client_app = ClientApp()
server_app = ServerApp()


@client_app.train()
def train(msg, context):
    client, number = context.node_config["partition-id"], msg.content["config"]["server-round"]
    rng = np.random.default_rng([client, number])
    model = [array + rng.random(array.shape) for array in msg.content["arrays"].to_numpy_ndarrays()]
    metrics = {"random_metric": rng.random(), "num-examples": 1 + client}
    content = RecordDict({"arrays": ArrayRecord(model), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@client_app.evaluate()
def evaluate(msg, context):
    rng = np.random.default_rng(context.node_config["partition-id"])
    metrics = {"random_metric": rng.random(3).tolist(), "num-examples": 1}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)


@server_app.main()
def main(grid, context):
    arrays = ArrayRecord([np.zeros((4, 3)), np.ones(3)])
    strategy = FedAvg()
    result = strategy.start(
        grid=grid, initial_arrays=arrays, num_rounds=context.run_config["num-server-rounds"]
    )
    out = Path(context.run_config["out"])
    np.savez(out / "final_model.npz", *result.arrays.to_numpy_ndarrays())
