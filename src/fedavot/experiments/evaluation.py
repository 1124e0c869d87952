"""What a run's last models are worth: accuracy, test examples, and losses by group of clients.

The accuracy is the importance-weighted share of examples that a model classifies rightly: the
objective with another loss. Test examples are a task with other data, and a group is an
importance that only its clients have.
"""

import dataclasses
from typing import Any

import numpy as np

from fedavot._checks import Floats
from fedavot.experiments.study import Instance, Setting
from fedavot.training import Problem, Task, objective


def evaluated(setting: Setting, instance: Instance, params: Any) -> dict[str, dict[str, Floats]]:
    """Return metrics of models with a leading axis of seeds, by group; "" is all clients."""
    shares = {"": instance.problem.shares, **setting.groups}
    found: dict[str, dict[str, Floats]] = {group: {} for group in shares}
    for task, loss, accuracy in (
        (instance.problem.task, "final_loss", "accuracy"),
        (instance.test, "test_loss", "test_accuracy"),
    ):
        if task is None:
            continue
        common = task.n_clients == 1 != instance.problem.task.n_clients
        for group, own in ({"": np.ones(1)} if common else shares).items():
            found[group][loss] = _objective(task, own, params)
            if task.accuracy is not None:
                judged = dataclasses.replace(task, loss=task.accuracy)
                found[group][accuracy] = _objective(judged, own, params)
    del found[""]["final_loss"]  # which the run has recorded
    return found


def _objective(task: Task, shares: Floats, params: Any) -> Floats:
    return objective(Problem(task, shares, lambda rng, rounds: []), params)
