"""Federated training in plain NumPy: the loop anybody would write, in single precision.

Local training is a function of its own: Flower's clients and pfl's NumPy model use it too, so
that all of them train equally fast and differ in what is around it.
"""

from collections.abc import Callable

import numpy as np

from benchmarks.federated import FederatedProblem, Model

Local = Callable[[int, Model], Model]


def train(problem: FederatedProblem) -> Model:
    """Play every round; return the last model."""
    local = local_training(problem)
    weights = problem.weights.astype(np.float32)
    model = problem.start()
    for members, shares in zip(problem.members, weights, strict=True):
        total = [np.zeros_like(leaf) for leaf in model]
        for client, weight in zip(members, shares, strict=True):
            trained = local(client, model)
            total = [a + weight * b for a, b in zip(total, trained, strict=True)]
        model = tuple(total)
    return model


def local_training(problem: FederatedProblem) -> Local:
    """Return a function of (client, model): the model after its local steps."""
    return _softmax(problem) if problem.n_classes else _regression(problem)


def _regression(problem: FederatedProblem) -> Local:
    features, targets = problem.features, problem.targets
    rate = np.float32(2.0 * problem.step / features.shape[1])

    def local(client: int, model: Model) -> Model:
        rows, wanted, (theta,) = features[client], targets[client], model
        for _ in range(problem.local_steps):
            theta = theta - rate * ((rows @ theta - wanted) @ rows)
        return (theta,)

    return local


def _softmax(problem: FederatedProblem) -> Local:
    features, targets = problem.features, problem.one_hot
    rate = np.float32(problem.step / features.shape[1])

    def local(client: int, model: Model) -> Model:
        rows, wanted, (matrix, bias) = features[client], targets[client], model
        for _ in range(problem.local_steps):
            scores = rows @ matrix.T + bias
            errors = np.exp(scores - scores.max(axis=1, keepdims=True))
            errors /= errors.sum(axis=1, keepdims=True)
            errors -= wanted
            errors *= rate
            matrix = matrix - errors.T @ rows
            bias = bias - errors.sum(axis=0)
        return matrix, bias

    return local
