"""Algorithm 2 as a plain loop: every client trains every round, then the cohort is aggregated.

Models are flat NumPy vectors, and gradients of the mean square loss are written out. A rule is a
`Literal` with an aggregate; `formulas` and `formulas_memory` have them all.
"""

from typing import NamedTuple

import numpy as np


class Setting(NamedTuple):
    """What is trained, and how."""

    features: np.ndarray
    """Shape (n_clients, n_examples, n_parameters)."""
    targets: np.ndarray
    """Shape (n_clients, n_examples)."""
    start: np.ndarray
    steps: np.ndarray
    """Step size of every round."""
    batches: np.ndarray
    """Positions of the examples, shape (n_rounds, n_clients, local_steps, batch_size)."""
    radius: float
    """Of the ball models are projected on."""


class Round(NamedTuple):
    """What one round's aggregation may look at: everything, of everybody."""

    cohort: list
    started: np.ndarray
    """Where each client started, shape (n_clients, n_parameters)."""
    ended: np.ndarray
    """Where its local steps led, likewise."""
    losses: np.ndarray
    """f_i where it started, shape (n_clients,)."""
    step: float
    local_steps: int

    @property
    def updates(self):
        return self.ended - self.started


class Trace(NamedTuple):
    """The model after every round, and how often a projection moved an aggregate."""

    models: np.ndarray
    projected: int


def play(rule, setting, cohorts):
    """Play all rounds of one seed."""
    model, models, projected = setting.start, [], 0
    for number, cohort in enumerate(cohorts):
        turn = train_everybody(rule, setting, number, model, [int(i) for i in cohort])
        aggregate = rule.aggregate(model, turn)
        model = project(aggregate, setting.radius)
        projected += not np.array_equal(model, aggregate)
        rule.broadcast(model, turn.cohort)
        models.append(model)
    return Trace(np.array(models), projected)


def train_everybody(rule, setting, number, model, cohort):
    n_clients = setting.features.shape[0]
    started = np.array([rule.start(model, i) for i in range(n_clients)])
    ended = []
    for i in range(n_clients):
        theta = started[i]
        for batch in setting.batches[number, i]:
            slope = gradient(setting.features[i, batch], setting.targets[i, batch], theta)
            slope = slope + rule.correction(i) + rule.proximal * (theta - started[i])
            theta = project(theta - setting.steps[number] * slope, setting.radius)
        ended.append(theta)
    losses = np.array(
        [loss(setting.features[i], setting.targets[i], started[i]) for i in range(n_clients)]
    )
    local_steps = setting.batches.shape[2]
    return Round(cohort, started, np.array(ended), losses, setting.steps[number], local_steps)


def loss(features, targets, theta):
    return np.mean((features @ theta - targets) ** 2)


def gradient(features, targets, theta):
    return 2.0 / len(targets) * features.T @ (features @ theta - targets)


def project(theta, radius):
    norm = np.sqrt(np.sum(theta**2))
    return theta * (radius / norm) if norm > radius else theta


class Literal:
    """A rule whose clients train plainly from the global model.

    It adds move(model, turn); rounds in which nobody reports change nothing.
    """

    proximal = 0.0

    def start(self, model, client):
        return model

    def correction(self, client):
        return 0.0

    def aggregate(self, model, turn):
        return self.move(model, turn) if turn.cohort else model

    def move(self, model, turn):
        raise NotImplementedError

    def broadcast(self, model, cohort):
        pass
