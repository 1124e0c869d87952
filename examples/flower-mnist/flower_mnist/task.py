"""A small convolutional network, trained on a client and tested on the server.

It has two convolutions and a linear layer, 9,098 parameters in float32. There is no batch
normalisation, because the statistics of a client with two digits are not those of all digits.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from flower_mnist.clients import GROUPS, members
from flower_mnist.data import Labelled

N_DIGITS = 10


class Net(nn.Sequential):
    """Two convolutions of 8 and 16 channels, each followed by pooling, and a linear layer."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * 7 * 7, N_DIGITS),
        )


def new_net(seed: int) -> Net:
    """Return the initial network for a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Net()


def net_of(state: Mapping[str, torch.Tensor]) -> Net:
    """Return the network with these parameters."""
    net = Net()
    net.load_state_dict(state)
    return net


def train(
    net: Net, part: Labelled, rng: np.random.Generator, *, epochs: int, step: float, batch: int
) -> float:
    """Train in place by stochastic gradient descent; return the mean training loss.

    Parameters
    ----------
    net : Net
        Network to train.
    part : Labelled
        Images of a client.
    rng : numpy.random.Generator
        Generator that shuffles the images.
    epochs, step, batch : int, float, int
        Number of passes over the images, step size, and number of images per step.
    """
    optimizer = torch.optim.SGD(net.parameters(), lr=step)
    losses = []
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(part.digits)))
        for chosen in order.split(batch):
            optimizer.zero_grad()
            loss = cross_entropy(net(part.images[chosen]), part.digits[chosen])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return float(np.mean(losses))


def test(net: Net, examples: Labelled, held: Sequence[Sequence[int]]) -> dict[str, float]:
    """Return loss and accuracy of all clients and of each group.

    The loss of a client is the mean over the digits that it holds; the loss of a group, and of all
    clients, is the mean over the clients, because all have equal importance.

    Parameters
    ----------
    net : Net
        Network to test.
    examples : Labelled
        Test images.
    held : sequence of sequences of int
        Digits of each client.
    """
    with torch.inference_mode():
        scores = net(examples.images)
        losses = cross_entropy(scores, examples.digits, reduction="none").double()
        right = (scores.argmax(dim=1) == examples.digits).double()
    metrics = {}
    for name, values in (("loss", losses), ("accuracy", right)):
        by_digit = [values[examples.digits == digit].mean().item() for digit in range(N_DIGITS)]
        by_client = np.array([np.mean([by_digit[digit] for digit in digits]) for digits in held])
        metrics[name] = float(by_client.mean())
        for group in GROUPS:
            metrics[f"{name}-{group.name}"] = float(by_client[members(group)].mean())
    return metrics
