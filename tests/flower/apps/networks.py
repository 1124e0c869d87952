"""A network with a classification head for the apps in PyTorch, its training and its test."""

import torch
from partitions import digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """Two layers; batch normalisation gives the model an integer array."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 24)
        self.norm = nn.BatchNorm1d(24)
        self.fc2 = nn.Linear(24, 10)

    def forward(self, images):
        return self.fc2(torch.relu(self.norm(self.fc1(images))))


def batches(node_config, split, size):
    images, labels = digits(node_config)[split]
    data = TensorDataset(torch.tensor(images, dtype=torch.float32), torch.tensor(labels))
    return DataLoader(data, batch_size=size)


def train_net(model, loader, *, epochs, lr):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    model.train()
    total = 0.0
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


def test(model, loader):
    model.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in loader:
            scores = model(images)
            loss += nn.functional.cross_entropy(scores, labels).item()
            right += int((scores.argmax(1) == labels).sum())
    return loss / len(loader), right / len(loader.dataset)
