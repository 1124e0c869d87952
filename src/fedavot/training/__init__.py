"""Federated training: tasks, local steps, and rounds under any aggregation rule.

One compiled program plays all rounds and seeds of a run. JAX is imported where it is used.
"""

from fedavot.training.engine import objective, train
from fedavot.training.options import Training
from fedavot.training.projection import Ball, Box, Projection
from fedavot.training.run import Ending, Run
from fedavot.training.steps import constant, cosine, decaying, inverse_root
from fedavot.training.task import Problem, Task, from_clients

__all__ = [
    "Ball",
    "Box",
    "Ending",
    "Problem",
    "Projection",
    "Run",
    "Task",
    "Training",
    "constant",
    "cosine",
    "decaying",
    "from_clients",
    "inverse_root",
    "objective",
    "train",
]
