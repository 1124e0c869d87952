"""The task that a configuration describes: data drawn from a seed, or examples split among clients.

Examples are MNIST's digits or a user's arrays. The configuration's ``[partition]`` says how they
are split; where a file gives the client of each example, that is followed.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Integers, refuse_if_too_large
from fedavot._files import ARCHIVE_FAILURES
from fedavot.errors import ConfigError, FileFormatError, TaskError
from fedavot.experiments.config import Config, at
from fedavot.training import Task
from fedavot.training.mnist import load, standardised
from fedavot.training.partition import by_group, dirichlet, iid, two_digits
from fedavot.training.tasks._examples import Pair
from fedavot.training.tasks.cnn import cnn_task
from fedavot.training.tasks.linear import (
    heterogeneous_classification,
    heterogeneous_regression,
    iid_regression,
    linear_task,
    mean_deviation,
    mean_hinge,
    mean_square,
)
from fedavot.training.tasks.softmax import softmax_task

N_CLIENTS = 100
"""Number of clients where neither the configuration nor a log gives it."""
_DRAWN: dict[str, Any] = {
    "heterogeneous-regression": heterogeneous_regression,
    "absolute-deviations": functools.partial(heterogeneous_regression, loss=mean_deviation),
    "hinge": heterogeneous_classification,
}
_LOSSES = {"squares": mean_square, "absolute": mean_deviation, "hinge": mean_hinge}
_DIGITS: dict[str, Any] = {"mnist-softmax": softmax_task, "mnist-cnn": cnn_task}
_BYTES_PER_NUMBER = 24
"""A feature in double precision, and two temporary copies of it."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled examples, not yet split among clients.

    Attributes
    ----------
    features : array of shape (n_examples, n_features)
        Inputs of the model.
    targets : array of shape (n_examples,)
        What the model should predict.
    groups : array of shape (n_examples,), or None
        The client of each example.
    """

    features: NDArray[Any]
    targets: NDArray[Any]
    groups: NDArray[Any] | None = None


def task_of(config: Config, n_logged: int = 0) -> Task:
    """Return the task: drawn from a seed, or examples split among clients.

    Parameters
    ----------
    config : Config
        From `read_config`.
    n_logged : int
        Number of clients that a log names, used where the task does not give its own; 0 without.
    """
    options = config.task
    kind = options["kind"]
    if kind == "regression":
        return iid_regression()
    if kind in _DRAWN:
        with at("task"):
            return _drawn(
                kind, {**options, "n_clients": options["n_clients"] or n_logged or N_CLIENTS}
            )
    if kind == "arrays":
        with at("task.file"):
            examples = read_examples(config.file("task.file", options["file"]))
        data, clients = _split(config, examples, n_logged)
        with at("task.file"):
            return _linear_task(config, data, clients, examples.targets)
    with at("task.data_dir"):
        folder = options["data_dir"]
        digits = load(None if folder is None else config.path.parent / folder)
    images = standardised(digits.images) if options["standardise"] else digits.images
    data, _ = _split(config, Examples(images, digits.labels), n_logged or N_CLIENTS)
    task: Task = _DIGITS[kind](kind, data)
    return task


def read_examples(path: Path) -> Examples:
    """Read an .npz with ``features``, ``targets`` and perhaps ``clients``.

    Parameters
    ----------
    path : Path
        As `numpy.savez` writes it, without pickled objects.
    """
    try:
        with path.open("rb") as stream:
            held = np.load(stream, allow_pickle=False)
            arrays = {name: held[name] for name in getattr(held, "files", ())}
    except ARCHIVE_FAILURES as cause:
        raise FileFormatError(
            f"{path} is not an .npz of plain arrays ({cause}); write it with numpy.savez"
        ) from None
    missing = [name for name in ("features", "targets") if name not in arrays]
    if missing:
        raise TaskError(
            f"{path} has no array {missing[0]!r}, only {', '.join(map(repr, arrays)) or 'none'}; "
            "it needs features, targets and, for groups, clients"
        )
    shapes = {
        name: arrays[name].shape for name in ("features", "targets", "clients") if name in arrays
    }
    dimensions = [len(shape) for shape in shapes.values()]
    alike = len({shape[:1] for shape in shapes.values()}) == 1
    if dimensions != [2, 1, 1][: len(shapes)] or not alike or not arrays["features"].size:
        listed = ", ".join(f"{name} of shape {shape}" for name, shape in shapes.items())
        raise TaskError(
            f"{path} has {listed}; features must be (n_examples, n_features), the others "
            "(n_examples,), with at least one example"
        )
    return Examples(arrays["features"], arrays["targets"], arrays.get("clients"))


def _drawn(kind: str, options: Any) -> Task:
    """Return a task drawn from a seed."""
    own = {name: value for name, value in options.items() if name != "kind"}
    own["n_examples"] = own.pop("examples")
    numbers = own["n_clients"] * own["n_examples"] * own["n_features"]
    refuse_if_too_large(
        _BYTES_PER_NUMBER * numbers,
        what=f"data of {numbers:,} numbers",
        remedy="lower n_clients, examples or n_features",
    )
    task: Task = _DRAWN[kind](**own)
    return task


def _linear_task(
    config: Config, data: list[Pair], clients: list[str] | None, targets: NDArray[Any]
) -> Task:
    """Return the user's task; the largest label gives the number of classes."""
    loss = config.task["loss"]
    if loss != "softmax":
        return linear_task(config.name, data, loss=_LOSSES[loss], clients=clients)
    largest = int(targets.max()) if np.issubdtype(targets.dtype, np.integer) else 0
    if largest >= targets.size:
        raise ConfigError(
            f"task.file has the label {largest} among {targets.size} examples; number the classes "
            "from 0"
        )
    return softmax_task(config.name, data, max(largest + 1, 2), clients=clients)


def _split(
    config: Config, examples: Examples, otherwise: int
) -> tuple[list[Pair], list[str] | None]:
    """Return every client's features and targets, and the clients' names if the file has them."""
    clients: list[str] | None = None
    kind = config.partition["kind"]
    if kind == "by-group" or (kind is None and examples.groups is not None):
        parts, clients = _groups(config, examples)
    else:
        parts = _parts(config, examples, otherwise)
    return [(examples.features[part], examples.targets[part]) for part in parts], clients


def _groups(config: Config, examples: Examples) -> tuple[list[Integers], list[str]]:
    """Return one part for each client named in the file, and their names."""
    if examples.groups is None:
        raise ConfigError(
            "partition.kind is 'by-group', and the examples have no array 'clients'; it must be "
            "one of 'iid', 'two-digits', 'dirichlet'"
        )
    for name in ("n_clients", "examples"):
        if config.task[name] is not None:
            raise ConfigError(
                f"task.{name} is not used where the array 'clients' of task.file gives each "
                "example's client; leave it out, or give another partition.kind"
            )
    with at("task.file"):
        return by_group(examples.groups), [str(name) for name in np.unique(examples.groups)]


def _parts(config: Config, examples: Examples, otherwise: int) -> list[Integers]:
    """Return the parts of a random partition."""
    n_clients, size = config.task["n_clients"] or otherwise, config.task["examples"]
    total = examples.targets.size
    if not n_clients:
        raise ConfigError(
            "task.n_clients is missing: number of clients to split the examples among; it must be "
            f"an integer from 1 to {total:,}"
        )
    if n_clients * (size or 1) > total:
        raise ConfigError(
            f"task.n_clients is {n_clients}, and {size or 1} examples each are more than the "
            f"{total:,} there are; lower n_clients or examples"
        )
    kind = config.partition["kind"]
    if kind == "two-digits" and size is None:
        raise ConfigError(f"task.examples is missing, and partition.kind = {kind!r} needs it")
    rng = np.random.default_rng(config.task["seed"])
    own = {name: value for name, value in config.partition.items() if name != "kind"}
    with at(f"partition.kind = {kind!r}"):
        if kind in ("two-digits", "dirichlet"):
            deal: Any = two_digits if kind == "two-digits" else dirichlet
            parts: list[Integers] = deal(
                examples.targets, n_clients, examples_per_client=size, rng=rng, **own
            )
            return parts
        return [part[:size] for part in iid(total, n_clients, rng=rng)]
