"""Rounds a second on whatever JAX runs on: ``python -m benchmarks.accelerator``.

Softmax regression and the small CNN on random images, cohorts of 2, 10 and 100 of 100 clients,
clients of a round side by side and in turn. It backs one choice of the engine (side by side on an
accelerator, in turn on a CPU), and is no part of ``make bench``.
"""

import time
from unittest import mock

import jax
import numpy as np

from fedavot import rules
from fedavot.training import Problem, Task, Training, constant, train
from fedavot.training.tasks.classifiers import cnn_task, softmax_task

N_CLIENTS, N_EXAMPLES = 100, 30
ROUNDS = 100


def tasks() -> list[Task]:
    """Return the two tasks."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(N_CLIENTS, N_EXAMPLES, 784)).astype(np.float32)
    labels = rng.integers(0, 10, (N_CLIENTS, N_EXAMPLES))
    clients = list(zip(images, labels, strict=True))
    return [softmax_task("softmax", clients), cnn_task("cnn", clients)]


def rate(task: Task, size: int, backend: str) -> tuple[float, float]:
    """Return rounds a second, and the last loss."""
    cohorts = [np.arange(at, at + size) % N_CLIENTS for at in range(ROUNDS)]
    problem = Problem(task, np.full(N_CLIENTS, 1 / N_CLIENTS), lambda rng, rounds: cohorts)
    training = Training(ROUNDS, constant(0.05), local_steps=3, record_every=ROUNDS)
    with mock.patch.object(jax, "default_backend", return_value=backend):
        train(problem, rules.fedavg(), training)
        begin = time.perf_counter()
        run = train(problem, rules.fedavg(), training)
        seconds = time.perf_counter() - begin
    return ROUNDS / seconds, float(run.final_loss[0])


def main() -> None:
    """Print one line a task, size and way."""
    print(jax.devices()[0].device_kind)
    for task in tasks():
        for size in (2, 10, 100):
            for name, backend in (("side by side", "gpu"), ("in turn", "cpu")):
                found, loss = rate(task, size, backend)
                print(f"{task.name:8} {size:4} {name:13} {found:9.1f} rounds/s  loss {loss:.6f}")


if __name__ == "__main__":
    main()
