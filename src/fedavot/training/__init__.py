"""Federated training: tasks, local steps, and rounds under any aggregation rule.

One compiled program plays all rounds and seeds of a run. JAX is imported where it is used.
"""

from fedavot._extras import require

require("training", "jax", by="fedavot.training")

from fedavot.training.engine import objective, train  # noqa: E402
from fedavot.training.options import Training  # noqa: E402
from fedavot.training.projection import Ball, Box, Projection  # noqa: E402
from fedavot.training.run import Ending, Run  # noqa: E402
from fedavot.training.steps import constant, cosine, decaying, inverse_root  # noqa: E402
from fedavot.training.task import Problem, Task, from_clients  # noqa: E402

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
