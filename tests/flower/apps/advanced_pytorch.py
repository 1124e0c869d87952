"""Like Flower's advanced-pytorch: a strategy with a loop, a tracker and a run folder of its own.

The strategy halves the learning rate on the way by changing the configuration it was given, saves
the best model and all metrics, and clients keep their classification head from round to round.
"""

import json
import threading
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg, Result
from networks import Net, batches, test, train_net

client_app = ClientApp()
server_app = ServerApp()
HEAD = "classification-head"


class Tracker:
    """Stands for an experiment tracker: it holds a lock, which cannot be copied or saved."""

    def __init__(self, path):
        self.path = path
        self.lock = threading.Lock()

    def log(self, metrics, *, step):
        with self.lock, self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": step} | metrics, sort_keys=True) + "\n")


class CustomFedAvg(FedAvg):
    """FedAvg with its own loop, which tracks, saves and evaluates every round."""

    def set_run_folder(self, path):
        self.save_path = path
        self.tracker = Tracker(path / "tracked.jsonl")

    def configure_train(self, server_round, arrays, config, grid):
        if server_round == 2:
            config["lr"] = config["lr"] * 0.5
        return super().configure_train(server_round, arrays, config, grid)

    def start(
        self,
        grid,
        initial_arrays,
        num_rounds=3,
        timeout=3600,
        train_config=None,
        evaluate_config=None,
        evaluate_fn=None,
    ):
        self.best_accuracy = 0.0
        train_config = ConfigRecord() if train_config is None else train_config
        evaluate_config = ConfigRecord() if evaluate_config is None else evaluate_config
        result, arrays = Result(), initial_arrays
        for number in range(1, num_rounds + 1):
            messages = self.configure_train(number, arrays, train_config, grid)
            replies = grid.send_and_receive(messages=messages, timeout=timeout)
            aggregated, metrics = self.aggregate_train(number, replies)
            if aggregated is not None:
                arrays = result.arrays = aggregated
            if metrics is not None:
                result.train_metrics_clientapp[number] = metrics
                self.tracker.log(dict(metrics), step=number)
            messages = self.configure_evaluate(number, arrays, evaluate_config, grid)
            replies = grid.send_and_receive(messages=messages, timeout=timeout)
            metrics = self.aggregate_evaluate(number, replies)
            if metrics is not None:
                result.evaluate_metrics_clientapp[number] = metrics
                self.tracker.log(dict(metrics), step=number)
            found = evaluate_fn(number, arrays)
            result.evaluate_metrics_serverapp[number] = found
            self._keep_if_best(number, found["accuracy"], arrays)
            self.tracker.log(dict(found), step=number)
        return result

    def _keep_if_best(self, number, accuracy, arrays):
        if accuracy > self.best_accuracy:
            self.best_accuracy = accuracy
            torch.save(arrays.to_torch_state_dict(), self.save_path / f"best_{number}.pt")


@client_app.train()
def train(msg, context):
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    restore_head(context.state, model)
    loader = batches(context.node_config, "train", context.run_config["batch-size"])
    lr = msg.content["config"]["lr"]
    loss = train_net(model, loader, epochs=context.run_config["local-epochs"], lr=lr)
    context.state[HEAD] = ArrayRecord(model.fc2.state_dict())
    metrics = {"train_loss": loss, "lr": lr, "num-examples": len(loader.dataset)}
    record = ArrayRecord(model.state_dict())
    content = RecordDict({"arrays": record, "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@client_app.evaluate()
def evaluate(msg, context):
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    restore_head(context.state, model)
    loader = batches(context.node_config, "test", context.run_config["batch-size"])
    loss, accuracy = test(model, loader)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)


def restore_head(state, model):
    if HEAD in state:
        model.fc2.load_state_dict(state[HEAD].to_torch_state_dict())


@server_app.main()
def main(grid, context):
    torch.manual_seed(0)
    strategy = CustomFedAvg(fraction_evaluate=context.run_config["fraction-evaluate"])
    out = Path(context.run_config["out"])
    strategy.set_run_folder(out)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        train_config=ConfigRecord({"lr": context.run_config["learning-rate"]}),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=lambda number, arrays: global_evaluate(arrays),
    )
    torch.save(result.arrays.to_torch_state_dict(), out / "final_model.pt")


def global_evaluate(arrays):
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test(model, batches({"partition-id": 0, "num-partitions": 1}, "test", 64))
    return MetricRecord({"accuracy": accuracy, "loss": loss})
