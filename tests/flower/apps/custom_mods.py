"""Like Flower's custom-mods: mods that read the round from every message, whatever its kind."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg


def get_event_mod(name):
    """Return a mod that writes the metrics of every reply to a file of the client."""

    def event_mod(msg, context, call_next):
        server_round = msg.content["config"]["server-round"]
        begun = time.monotonic()
        reply = call_next(msg, context)
        if not reply.has_content() or reply.metadata.message_type not in KINDS:
            return reply
        metrics = dict(reply.content["metrics"]) | {"seconds": time.monotonic() - begun}
        folder = Path(context.run_config["out"])
        with (folder / f"{name}-{context.node_config['partition-id']}.jsonl").open("a") as stream:
            stream.write(json.dumps({"round": server_round} | metrics) + "\n")
        return reply

    return event_mod


KINDS = (MessageType.TRAIN, MessageType.EVALUATE)
client_app = ClientApp(mods=[get_event_mod("events")])
server_app = ServerApp()


@client_app.train()
def train(msg, context):
    arrays, target = msg.content["arrays"], float(context.node_config["partition-id"])
    lr = msg.content["config"]["lr"]
    moved = ArrayRecord([array + lr * (target - array) for array in arrays.to_numpy_ndarrays()])
    metrics = MetricRecord({"train_loss": target, "num-examples": 10 + int(target)})
    return Message(content=RecordDict({"arrays": moved, "metrics": metrics}), reply_to=msg)


@client_app.evaluate()
def evaluate(msg, context):
    model, target = msg.content["arrays"].to_numpy_ndarrays()[0], context.node_config
    loss = float(np.square(model - target["partition-id"]).mean())
    metrics = MetricRecord({"eval_loss": loss, "num-examples": 10})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)


@server_app.main()
def main(grid, context):
    strategy = FedAvg(fraction_evaluate=context.run_config["fraction-evaluate"])
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros(5, dtype=np.float32)]),
        train_config=ConfigRecord({"lr": context.run_config["learning-rate"]}),
        num_rounds=context.run_config["num-server-rounds"],
    )
    out = Path(context.run_config["out"])
    np.savez(out / "final_model.npz", *result.arrays.to_numpy_ndarrays())
