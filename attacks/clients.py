"""Flower clients in one process, which the attacks on replies and folders train."""

import sys
from pathlib import Path

import numpy as np

# The grid that runs ClientApps in the process of the server belongs to the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "flower"))

from grid import LocalGrid, Node, app_of, arrays_of, everybody, federation, record_of

__all__ = [
    "MODEL",
    "N_CLIENTS",
    "LocalGrid",
    "Node",
    "app_of",
    "arrays_of",
    "everybody",
    "federation",
    "record_of",
    "update",
]

N_CLIENTS = 4
MODEL = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array([1, 2], np.int64)}


def update(arrays, config, node):
    """Train: go a step of the client's own."""
    step = np.float32(0.1 * (1 + int(node["partition-id"])))
    return {"w": arrays["w"] + step, "n": arrays["n"]}, {"num-examples": 3, "train_loss": 0.5}
