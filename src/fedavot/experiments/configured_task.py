"""The task of a configured study: data drawn from a seed, or examples split among clients.

Examples are MNIST's digits or a user's arrays. The configuration's ``[partition]`` says how they
are split; where a file gives the client of each example, that is followed.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Integers, refuse_if_too_large
from fedavot.experiments.config import Config
from fedavot.experiments.inputs import Examples, read_examples
from fedavot.training import Task
from fedavot.training.mnist import load, standardised
from fedavot.training.partition import by_group, dirichlet, iid, two_digits
from fedavot.training.tasks._examples import Pair
from fedavot.training.tasks.cnn import cnn_task
from fedavot.training.tasks.linear import heterogeneous_regression, iid_regression, regression_task
from fedavot.training.tasks.nonsmooth import absolute_deviations, hinge, hinge_task, lad_task
from fedavot.training.tasks.softmax import softmax_task

_DRAWN: dict[str, Any] = {
    "heterogeneous-regression": heterogeneous_regression,
    "absolute-deviations": absolute_deviations,
    "hinge": hinge,
}
_LINEAR: dict[str, Any] = {"squares": regression_task, "absolute": lad_task, "hinge": hinge_task}
_DIGITS: dict[str, Any] = {"mnist-softmax": softmax_task, "mnist-cnn": cnn_task}
_BYTES_PER_NUMBER = 24
"""A feature in double precision, and two temporary copies of it."""


def task_of(config: Config) -> Task:
    """Return the task: drawn from a seed, or examples split among clients."""
    options = config.task
    kind = options["kind"]
    if kind == "regression":
        return iid_regression()
    if kind in _DRAWN:
        with config.at("task"):
            return _drawn(config)
    if kind == "arrays":
        with config.at("task.file"):
            examples = read_examples(config.file("task"))
        data, clients = _split(config, examples)
        with config.at("task.file"):
            return _linear_task(config, data, clients, examples.targets)
    with config.at("task.data_dir"):
        folder = options["data_dir"]
        digits = load(None if folder is None else config.path.parent / folder)
    images = standardised(digits.images) if options["standardise"] else digits.images
    task: Task = _DIGITS[kind](kind, _split(config, Examples(images, digits.labels))[0])
    return task


def _drawn(config: Config) -> Task:
    """Return a task drawn from a seed."""
    options = {name: value for name, value in config.task.items() if name != "kind"}
    numbers = options["n_clients"] * options["examples"] * options["n_features"]
    refuse_if_too_large(
        _BYTES_PER_NUMBER * numbers,
        what=f"data of {numbers:,} numbers",
        remedy="lower n_clients, examples or n_features",
    )
    task: Task = _DRAWN[config.task["kind"]](n_examples=options.pop("examples"), **options)
    return task


def _linear_task(
    config: Config, data: list[Pair], clients: list[str] | None, targets: NDArray[Any]
) -> Task:
    """Return the user's task; the largest label gives the number of classes."""
    loss = config.task["loss"]
    if loss != "softmax":
        task: Task = _LINEAR[loss](config.name, data, clients=clients)
        return task
    largest = int(targets.max()) if np.issubdtype(targets.dtype, np.integer) else 0
    if largest >= targets.size:
        raise config.error(
            "task.file",
            f"has the label {largest} among {targets.size} examples; number the classes from 0",
        )
    return softmax_task(config.name, data, max(largest + 1, 2), clients=clients)


def _split(config: Config, examples: Examples) -> tuple[list[Pair], list[str] | None]:
    """Return every client's features and targets, and the clients' names if the file has them."""
    clients: list[str] | None = None
    if config.partition["kind"] == "by-group" or (
        config.partition["kind"] is None and examples.groups is not None
    ):
        parts, clients = _groups(config, examples)
    else:
        parts = _parts(config, examples)
    return [(examples.features[part], examples.targets[part]) for part in parts], clients


def _groups(config: Config, examples: Examples) -> tuple[list[Integers], list[str]]:
    """Return one part for each client named in the file, and their names."""
    if examples.groups is None:
        raise config.error(
            "partition.kind",
            "is 'by-group', and task.file has no array 'clients'; it must be one of 'iid', "
            "'two-digits', 'dirichlet'",
        )
    for name in ("n_clients", "examples"):
        if config.task[name] is not None:
            raise config.error(
                f"task.{name}",
                "is not used where the array 'clients' of task.file gives each example's client; "
                "leave it out, or give another partition.kind",
            )
    with config.at("task.file"):
        return by_group(examples.groups), [str(name) for name in np.unique(examples.groups)]


def _parts(config: Config, examples: Examples) -> list[Integers]:
    """Return the parts of a random partition."""
    n_clients, size = config.task["n_clients"], config.task["examples"]
    total = examples.targets.size
    if n_clients is None:
        raise config.error(
            "task.n_clients",
            "is missing: number of clients to split the examples among; it must be an integer from "
            f"1 to {total:,}",
        )
    if n_clients * (size or 1) > total:
        raise config.error(
            "task.n_clients",
            f"is {n_clients}, and {size or 1} examples each are more than the {total:,} there "
            "are; lower n_clients or examples",
        )
    rng = np.random.default_rng(config.task["seed"])
    kind = config.partition["kind"]
    with config.at(f"partition.kind = {kind!r}"):
        if kind == "two-digits":
            each = config.partition["classes_per_client"]
            return two_digits(
                examples.targets,
                n_clients,
                examples_per_client=size,
                rng=rng,
                classes_per_client=each,
            )
        if kind == "dirichlet":
            mix = config.partition["concentration"]
            return dirichlet(
                examples.targets, n_clients, concentration=mix, examples_per_client=size, rng=rng
            )
        return [part[:size] for part in iid(total, n_clients, rng=rng)]
