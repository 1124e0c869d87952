"""What a run's last models are worth: accuracy, held-out examples, and losses by group of clients.

The accuracy is one less the importance-weighted share of examples that a model classifies wrongly:
the objective with another loss. Held-out examples are a task with other data, and a group is an
importance that only its clients have.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedavot._checks import Floats
from fedavot.experiments.study import Instance, Setting
from fedavot.training import Problem, Task, objective
from fedavot.training.tasks._classification import CrossEntropy
from fedavot.training.tasks.linear import mean_hinge


@dataclass(frozen=True)
class ErrorRate:
    """Share of examples whose label has not the highest score; equal ones share programs."""

    scores: Callable[[Any, Any], Any]

    def __call__(self, params: Any, batch: Any) -> Any:
        """Return the share over a batch of features and labels."""
        import jax.numpy as jnp

        features, labels = batch
        wrong = jnp.argmax(self.scores(params, features), axis=1) != labels
        return jnp.mean(wrong.astype(features.dtype))


def wrong_side(params: Any, batch: Any) -> Any:
    """Return the share of examples on the wrong side of a linear model, or on its boundary."""
    import jax.numpy as jnp

    features, labels = batch
    return jnp.mean((labels * (features @ params) <= 0).astype(features.dtype))


def evaluated(setting: Setting, instance: Instance, params: Any) -> dict[str, dict[str, Floats]]:
    """Return metrics of models with a leading axis of seeds, by group; "" is all clients."""
    shares = {"": instance.problem.shares, **setting.groups}
    found: dict[str, dict[str, Floats]] = {group: {} for group in shares}
    for task, loss, accuracy in (
        (instance.problem.task, "final_loss", "accuracy"),
        (instance.held_out, "test_loss", "test_accuracy"),
    ):
        if task is None:
            continue
        error = _error_of(task)
        common = task.n_clients == 1 != instance.problem.task.n_clients
        for group, own in ({"": np.ones(1)} if common else shares).items():
            found[group][loss] = _objective(task, own, params)
            if error is not None:
                found[group][accuracy] = 1.0 - _objective(error, own, params)
    del found[""]["final_loss"]  # which the run has recorded
    return found


def _error_of(task: Task) -> Task | None:
    """Return the task with the share of wrong answers as its loss, None if it has no classes."""
    if isinstance(task.loss, CrossEntropy):
        return dataclasses.replace(task, loss=ErrorRate(task.loss.scores))
    return dataclasses.replace(task, loss=wrong_side) if task.loss is mean_hinge else None


def _objective(task: Task, shares: Floats, params: Any) -> Floats:
    return objective(Problem(task, shares, lambda rng, rounds: []), params)
