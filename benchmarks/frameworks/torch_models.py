"""The two models as PyTorch modules, with the methods that pfl asks for."""

import numpy as np
import torch

from benchmarks.federated import FederatedProblem, Model


def module_of(problem: FederatedProblem) -> "Regression | Softmax":
    """Return a new module with the problem's first model."""
    return (Softmax if problem.n_classes else Regression)(problem.start())


class _Module(torch.nn.Module):
    def __init__(self, start: Model) -> None:
        super().__init__()
        arrays = map(np.array, start)
        self.leaves = torch.nn.ParameterList(map(torch.from_numpy, arrays))

    def model(self) -> Model:
        """Return the parameters as arrays."""
        return tuple(leaf.detach().numpy() for leaf in self.parameters())

    def metrics(self, features, targets):
        """Report nothing."""
        return {}


class Regression(_Module):
    """xᵀθ, mean square."""

    def loss(self, features, targets):
        """Return the loss over a batch."""
        return torch.nn.functional.mse_loss(features @ self.leaves[0], targets)


class Softmax(_Module):
    """Wx + b, mean cross entropy."""

    def loss(self, features, targets):
        """Return the loss over a batch."""
        scores = torch.nn.functional.linear(features, *self.leaves)
        return torch.nn.functional.cross_entropy(scores, targets)
