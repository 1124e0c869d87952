"""The ClientApp: train on the two digits of one client.

The node configuration has the index of the client under ``partition-id``. Flower sets it in
simulation, and ``--node-config`` sets it on a SuperNode.
"""

import numpy as np
import torch
from fedavot.flower import introduce
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flower_mnist.absence import sometimes_absent
from flower_mnist.data import part_of
from flower_mnist.task import net_of
from flower_mnist.task import train as train_net

app = introduce(ClientApp(mods=[sometimes_absent]))


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the network in the message, and send it back."""
    torch.set_num_threads(1)
    config, client = context.run_config, int(context.node_config["partition-id"])
    round_number = int(message.content["config"]["server-round"])
    part = part_of(
        client, folder=str(config["data-folder"]), size=int(config["examples-per-client"])
    )
    net = net_of(message.content["arrays"].to_torch_state_dict())
    loss = train_net(
        net,
        part,
        # The 1 makes this generator differ from the one that draws which clients take part.
        np.random.default_rng([int(config["seed"]), round_number, client, 1]),
        epochs=int(config["local-epochs"]),
        step=float(config["learning-rate"]),
        batch=int(config["batch-size"]),
    )
    metrics = MetricRecord({"num-examples": len(part.digits), "train-loss": loss})
    reply = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(reply, reply_to=message)
