"""Federated training: tasks, local steps, and rounds under any aggregation rule.

One compiled program runs all rounds and seeds of a run. The modules that train need JAX, and are
imported when `train` or `objective` is first used; describing a problem does not need JAX.
"""

from typing import TYPE_CHECKING, Any

from fedavot._checks import require

require("training", "jax", by="fedavot.training")

from fedavot.training.options import (
    Ball,
    Box,
    Projection,
    Training,
    constant,
    cosine,
    decaying,
    inverse_root,
)
from fedavot.training.run import Ending, Run
from fedavot.training.task import Problem, Task, from_clients

if TYPE_CHECKING:
    from fedavot.training.engine import objective, train

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


def __getattr__(name: str) -> Any:
    if name in ("objective", "train"):
        from fedavot.training import engine

        return getattr(engine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
