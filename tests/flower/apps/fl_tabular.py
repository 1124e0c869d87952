"""Like Flower's fl-tabular: numbers of batches as numbers of examples, no training metric."""

from pathlib import Path

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from partitions import incomes
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

client_app = ClientApp()
server_app = ServerApp()


def classifier():
    return nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())


def loaded(context):
    people, rich = map(torch.tensor, incomes(context.node_config))
    return DataLoader(TensorDataset(people, rich[:, None]), batch_size=32)


@client_app.train()
def train(msg, context):
    loader, net = loaded(context), classifier()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for people, rich in loader:
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy(net(people), rich).backward()
        optimizer.step()
    record, metrics = ArrayRecord(net.state_dict()), MetricRecord({"num-examples": len(loader)})
    return Message(content=RecordDict({"arrays": record, "metrics": metrics}), reply_to=msg)


@client_app.evaluate()
def evaluate(msg, context):
    loader, net = loaded(context), classifier()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    people, rich = loader.dataset.tensors
    with torch.no_grad():
        found = net(people)
    metrics = {
        "loss": nn.functional.binary_cross_entropy(found, rich).item(),
        "accuracy": ((found > 0.5) == rich).float().mean().item(),
        "num-examples": len(loader),
    }
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)


@server_app.main()
def main(grid, context):
    torch.manual_seed(0)
    strategy = FedAvg()
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(classifier().state_dict()),
        num_rounds=context.run_config["num-server-rounds"],
    )
    out = Path(context.run_config["out"])
    torch.save(result.arrays.to_torch_state_dict(), out / "final_model.pt")
