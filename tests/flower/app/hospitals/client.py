"""A hospital: it pauses, so that it can be caught at work, and trains."""

import time

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedavot.flower import introduce
from hospitals.model import updated

app = introduce(ClientApp())


@app.train()
def train(message, context):
    """Return the hospital's update."""
    server_round = message.content["config"]["server-round"]
    print(f"run {context.run_id}, round {server_round}: training", flush=True)
    time.sleep(context.run_config.get("pause", 0.0))
    model = {name: array.numpy() for name, array in message.content["arrays"].items()}
    trained = updated(model, site=context.node_config["site"], server_round=server_round)
    arrays = ArrayRecord({name: Array(value) for name, value in trained.items()})
    metrics = MetricRecord({"num-examples": 1})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
