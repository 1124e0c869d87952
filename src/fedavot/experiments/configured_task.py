"""The task that a configuration describes: data drawn from a seed, or examples split among clients.

Examples are MNIST's digits or a user's arrays. The configuration's ``[partition]`` says how they
are split; where a file gives the client of each example, that is followed.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import Integers, as_seed, as_size, refuse_if_too_large
from fedavot._clients import Clients
from fedavot.errors import ConfigError, TaskError
from fedavot.experiments.config import Config, Table, at
from fedavot.training import Task
from fedavot.training.examples import Examples, Pair, read_examples
from fedavot.training.mnist import load, standardised
from fedavot.training.partition import by_group, dirichlet, iid, two_digits
from fedavot.training.tasks.classifiers import (
    cnn_task,
    heterogeneous_softmax,
    mlp_task,
    softmax_task,
)
from fedavot.training.tasks.linear import (
    heterogeneous_classification,
    heterogeneous_regression,
    iid_regression,
    linear_task,
    mean_deviation,
    mean_hinge,
    mean_square,
)

N_CLIENTS = 100
"""Number of clients where neither the configuration nor a log gives it."""
_DRAWN: dict[str, Any] = {
    "heterogeneous-regression": heterogeneous_regression,
    "absolute-deviations": functools.partial(heterogeneous_regression, loss=mean_deviation),
    "hinge": heterogeneous_classification,
    "heterogeneous-softmax": heterogeneous_softmax,
}
_LOSSES = {"squares": mean_square, "absolute": mean_deviation, "hinge": mean_hinge}
_CLASSIFIERS: dict[str, Any] = {"softmax": softmax_task, "mlp": mlp_task}
_DIGITS = {f"mnist-{name}": make for name, make in (_CLASSIFIERS | {"cnn": cnn_task}).items()}
_BYTES_PER_NUMBER = {"heterogeneous-softmax": 8}
"""A feature in single precision, and a copy of it on the device."""
_DOUBLE = 24
"""A feature in double precision, and two temporary copies of it."""


class Tasks(NamedTuple):
    """A task, and the same with examples that nobody trains on, for a test."""

    task: Task
    test: Task | None = None


Make = Callable[[list[Pair], "list[str] | None"], Task]
"""Makes a task of the clients' features and targets, and of their names if they have any."""


def tasks_of(config: Config, n_logged: int = 0) -> Tasks:
    """Return the task, drawn from a seed or from examples split among clients, and its test.

    Where the task does not give a number of clients, it is that of a log, unless that is 0.
    """
    options = config.task
    kind = options["kind"]
    with at("task"):
        as_seed(options.get("seed", 0))
    if kind == "regression":
        return Tasks(iid_regression())
    if kind in _DRAWN:
        with at("task"):
            return Tasks(_drawn(options, n_logged or N_CLIENTS))
    if kind == "arrays":
        return _arrays(config, n_logged)
    with at("task.data_dir"):
        folder = options["data_dir"]
        digits = load(None if folder is None else config.path.parent / folder)
    images = standardised(digits.images) if options["standardise"] else digits.images
    examples = Examples(images, digits.labels)
    return _split(
        config, examples, n_logged or N_CLIENTS, lambda data, _: _DIGITS[kind](kind, data)
    )


def _drawn(options: Table, otherwise: int) -> Task:
    """Return a task drawn from a seed."""
    own = {name: value for name, value in options.items() if name not in ("kind", "examples")}
    own["n_clients"] = otherwise if own["n_clients"] is None else own["n_clients"]
    own["n_examples"] = options["examples"]
    sizes = ("n_clients", "n_features", "n_examples")
    numbers = math.prod(as_size(own[name], what=name, low=1) for name in sizes)
    refuse_if_too_large(
        _BYTES_PER_NUMBER.get(options["kind"], _DOUBLE) * numbers,
        what=f"data of {numbers:,} numbers",
        remedy="lower n_clients, examples or n_features",
    )
    task: Task = _DRAWN[options["kind"]](**own)
    return task


def _arrays(config: Config, n_logged: int) -> Tasks:
    """Return the user's task; the largest label gives the number of classes."""
    loss, tested = config.task["loss"], config.task["test_file"]
    with at("task.file"):
        examples = read_examples(config.file("task.file", config.task["file"]))
    with at("task.test_file"):
        test = None if tested is None else read_examples(config.file("task.test_file", tested))
    found = [one.targets for one in (examples, test) if one is not None]
    whole = all(np.issubdtype(one.dtype, np.integer) for one in found)
    largest = max(int(one.max()) for one in found) if whole and loss in _CLASSIFIERS else 0
    if largest >= examples.targets.size:
        raise ConfigError(
            f"task.file has the label {largest} among {examples.targets.size} examples; number the "
            "classes from 0"
        )

    def make(data: list[Pair], clients: list[str] | None) -> Task:
        if loss in _CLASSIFIERS:
            task: Task = _CLASSIFIERS[loss](config.name, data, max(largest + 1, 2), clients=clients)
            return task
        return linear_task(config.name, data, loss=_LOSSES[loss], clients=clients)

    tasks = _split(config, examples, n_logged, make)
    if test is None:
        return tasks
    if config.task["test_share"] is not None:
        raise ConfigError("task.test_share and task.test_file both give test examples; keep one")
    if test.features.shape[1] != examples.features.shape[1]:
        raise ConfigError(
            f"task.test_file has {test.features.shape[1]} features, and task.file has "
            f"{examples.features.shape[1]}; give the same"
        )
    with at("task.test_file"):
        return tasks._replace(test=_tested(test, tasks.task, make))


def _tested(test: Examples, task: Task, make: Make) -> Task:
    """Return the test examples of each client, or of all as one if the file does not say whose."""
    if test.clients is None:
        return make([(test.features, test.targets)], None)
    names = [str(name) for name in np.unique(test.clients)]
    known = Clients(task.n_clients, task.clients)
    places = known.indices(names, what="the array 'clients'")
    if len(names) < task.n_clients:
        lacking = np.setdiff1d(np.arange(task.n_clients), places)
        raise TaskError(
            f"client {known.label(lacking[0])} has no test example; give it one, or leave out the "
            "array 'clients' to test all clients on the same examples"
        )
    parts = by_group(test.clients)
    return make(test.of([parts[place] for place in np.argsort(places)]), list(task.clients or ()))


def _split(config: Config, examples: Examples, otherwise: int, make: Make) -> Tasks:
    """Return the task of examples split among clients, and of the share of each part for a test."""
    clients: list[str] | None = None
    kind, fraction = config.partition["kind"], config.task["test_share"]
    if kind == "by-group" or (kind is None and examples.clients is not None):
        parts, clients = _groups(config, examples)
    else:
        parts = _parts(config, examples, otherwise)
    where = "task.file" if config.task["kind"] == "arrays" else "task"
    if fraction is None:
        with at(where):
            return Tasks(make(examples.of(parts), clients))
    client, fewest = min(enumerate(map(len, parts)), key=lambda pair: pair[1])
    if not 0 < fraction < 1 or fewest < 2:
        raise ConfigError(
            f"task.test_share is {fraction}, and client {clients[client] if clients else client} "
            f"has {fewest} examples; it must be between 0 and 1, and leave every client an example "
            "to train on"
        )
    rng = np.random.default_rng([config.task["seed"], 1])
    sizes = [min(max(round(fraction * len(part)), 1), len(part) - 1) for part in parts]
    cut = [np.split(rng.permutation(part), [size]) for part, size in zip(parts, sizes, strict=True)]
    tested, trained = ([np.sort(pair[side]) for pair in cut] for side in (0, 1))
    with at(where):
        return Tasks(make(examples.of(trained), clients), make(examples.of(tested), clients))


def _groups(config: Config, examples: Examples) -> tuple[list[Integers], list[str]]:
    """Return one part for each client named in the file, and their names."""
    if examples.clients is None:
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
        return by_group(examples.clients), [str(name) for name in np.unique(examples.clients)]


def _parts(config: Config, examples: Examples, otherwise: int) -> list[Integers]:
    """Return the parts of a random partition."""
    n_clients, size = config.task["n_clients"], config.task["examples"]
    total = examples.targets.size
    if n_clients is None and not otherwise:
        raise ConfigError(
            "task.n_clients is missing: number of clients to split the examples among; it must be "
            f"an integer from 1 to {total:,}"
        )
    with at("task"):
        given = otherwise if n_clients is None else n_clients
        n_clients = as_size(given, what="n_clients", low=1)
        each = 1 if size is None else as_size(size, what="examples", low=1)
        rng = np.random.default_rng(config.task["seed"])
    if n_clients * each > total:
        raise ConfigError(
            f"task.n_clients is {n_clients}, and {each} examples each are more than the "
            f"{total:,} there are; lower n_clients or examples"
        )
    kind = config.partition["kind"]
    if kind == "two-digits" and size is None:
        raise ConfigError(f"task.examples is missing, and partition.kind = {kind!r} needs it")
    own = {name: value for name, value in config.partition.items() if name != "kind"}
    with at(f"partition.kind = {kind!r}"):
        if kind in ("two-digits", "dirichlet"):
            deal: Any = two_digits if kind == "two-digits" else dirichlet
            parts: list[Integers] = deal(
                examples.targets, n_clients, examples_per_client=size, rng=rng, **own
            )
            return parts
        return [part[:size] for part in iid(total, n_clients, rng=rng)]
