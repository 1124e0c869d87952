"""Like Flower's quickstart-pytorch: state dictionaries, a learning rate in the configuration."""

from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from networks import Net, batches, test, train_net

client_app = ClientApp()
server_app = ServerApp()


@client_app.train()
def train(msg, context):
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    loader = batches(context.node_config, "train", context.run_config["batch-size"])
    epochs = context.run_config["local-epochs"]
    loss = train_net(model, loader, epochs=epochs, lr=msg.content["config"]["lr"])
    metrics = {"train_loss": loss, "num-examples": len(loader.dataset)}
    record = ArrayRecord(model.state_dict())
    content = RecordDict({"arrays": record, "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@client_app.evaluate()
def evaluate(msg, context):
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    loader = batches(context.node_config, "test", context.run_config["batch-size"])
    loss, accuracy = test(model, loader)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)


@server_app.main()
def main(grid, context):
    torch.manual_seed(0)
    strategy = FedAvg(fraction_evaluate=context.run_config["fraction-evaluate"])
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        train_config=ConfigRecord({"lr": context.run_config["learning-rate"]}),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=lambda number, arrays: global_evaluate(arrays),
    )
    out = Path(context.run_config["out"])
    torch.save(result.arrays.to_torch_state_dict(), out / "final_model.pt")


def global_evaluate(arrays):
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test(model, batches({"partition-id": 0, "num-partitions": 1}, "test", 64))
    return MetricRecord({"accuracy": accuracy, "loss": loss})
