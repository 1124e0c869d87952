"""Tasks: what the clients hold, the model they train, and its loss.

A task is client data with two pure functions: ``init(key)`` makes a model, any pytree of arrays,
and ``loss(params, batch)`` is its mean loss over a batch, a pytree of arrays whose leading axis
runs over examples. A problem adds each client's importance and the availability of the clients.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import Floats, Integers, as_importance
from fedavot._clients import Clients, in_client_order
from fedavot.errors import TaskError

Params = Any
Batch = Any
Availability = Callable[[np.random.Generator, int], Sequence[Integers] | Integers]
"""A function of (rng, rounds) that gives one cohort per round, such as a law's ``sample``."""


@dataclass(frozen=True, eq=False)
class Task:
    """Client data, a model and its loss.

    Parameters
    ----------
    name : str
        Name of the task in tables and messages.
    data : pytree of arrays, each of shape (n_clients, n_examples, ...)
        The clients' examples. Training runs in the precision of the widest float array, float32 or
        float64.
    loss : function of (params, batch)
        Mean loss over a batch whose leaves have shape (n_batch, ...); differentiable by JAX
        (a subgradient where it is not smooth).
    init : function of a JAX key
        The model before training.
    counts : int array of shape (n_clients,), optional
        Number of examples of each client, if not all hold n_examples; the rest is padding and has
        no influence. `from_clients` sets it. A client's loss is then the mean over its own
        examples, taken one by one, so the loss must be a plain mean over its batch.
    clients : sequence of str, optional
        The clients' names, for messages and for an importance given by name.
    accuracy : function of (params, batch), optional
        Share of a batch that the model classifies correctly; used like the loss, but not trained.
    """

    name: str
    data: Batch
    loss: Callable[[Params, Batch], Any]
    init: Callable[[Any], Params]
    counts: Integers | None = None
    clients: Sequence[str] | None = None
    accuracy: Callable[[Params, Batch], Any] | None = None

    def __repr__(self) -> str:
        most = "" if self.counts is None else "at most "
        return (
            f"Task({self.name!r}, {self.n_clients:,} clients of {most}{self.n_examples:,} examples)"
        )

    def __post_init__(self) -> None:
        shapes = [np.shape(leaf) for leaf in leaves(self.data)]
        if not shapes:
            raise TaskError(f"task {self.name!r} has no data; give at least one array")
        short = [shape for shape in shapes if len(shape) < 2 or 0 in shape[:2]]
        if short or len({shape[:2] for shape in shapes}) > 1:
            raise TaskError(
                f"task {self.name!r} has arrays of shapes {shapes}; each must begin with the same "
                "(n_clients, n_examples), both at least 1; from_clients takes one entry per client"
            )
        object.__setattr__(self, "clients", Clients(shapes[0][0], self.clients).names)
        if self.counts is not None:
            counts = np.asarray(self.counts)
            whole = np.issubdtype(counts.dtype, np.integer) and counts.shape == shapes[0][:1]
            if not (whole and ((counts >= 1) & (counts <= self.n_examples)).all()):
                raise TaskError(
                    f"counts of task {self.name!r} must be {self.n_clients} integers from 1 to "
                    f"{self.n_examples}, found {counts}"
                )
            object.__setattr__(self, "counts", counts.astype(np.int64))
            # With other padding than a client's last example a loss may be infinite, and its
            # gradient NaN even when multiplied by 0.
            places = np.minimum(np.arange(self.n_examples), counts[:, None] - 1)
            clients = np.arange(self.n_clients)[:, None]
            padded = [np.asarray(leaf)[clients, places] for leaf in leaves(self.data)]
            object.__setattr__(self, "data", _like(self.data, padded))
        for leaf in map(np.asarray, leaves(self.data)):
            self._refuse_bad_entries(leaf)

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return int(np.shape(leaves(self.data)[0])[0])

    @property
    def n_examples(self) -> int:
        """Largest number of examples that a client holds."""
        return int(np.shape(leaves(self.data)[0])[1])

    @property
    def sizes(self) -> Integers:
        """Number of examples of each client, shape (n_clients,)."""
        return np.full(self.n_clients, self.n_examples) if self.counts is None else self.counts

    @functools.cached_property
    def dtype(self) -> np.dtype[Any]:
        """The precision in which training runs."""
        kinds = [np.asarray(leaf).dtype for leaf in leaves(self.data)]
        double = any(np.issubdtype(kind, np.floating) and kind.itemsize >= 8 for kind in kinds)
        return np.dtype(np.float64 if double else np.float32)

    def label(self, client: int) -> str:
        """Return a client's name in quotes, or its index, for a message."""
        return Clients(self.n_clients, self.clients).label(client)

    def _refuse_bad_entries(self, leaf: NDArray[Any]) -> None:
        kind, size = leaf.dtype.kind, leaf.dtype.itemsize
        bad, what = np.zeros(len(leaf), np.bool_), ""
        if kind in "OSUmM" or (kind == "f" and size > 8):
            raise TaskError(
                f"the data of task {self.name!r} has an array of type {leaf.dtype}; give numbers "
                "of at most 64 bits, such as the labels' positions"
            )
        if kind == "f":
            bad, what = ~np.isfinite(leaf), "entries that are not finite; remove or impute them"
        elif kind in "iu" and size == 8 and self.dtype == np.float32:
            # JAX would truncate them to their lower 32 bits without a warning.
            bad = (leaf < -(2**31)) | (leaf >= 2**31)
            what = "integers of more than 32 bits; give smaller ones, or float64 data"
        clients = np.flatnonzero(bad.reshape(len(leaf), -1).any(axis=1))
        if clients.size:
            label = self.label(clients[0])
            raise TaskError(f"the data of client {label} in task {self.name!r} has {what}")


def from_clients(
    name: str,
    data: Sequence[Batch],
    *,
    loss: Callable[[Params, Batch], Any],
    init: Callable[[Any], Params],
    clients: Sequence[str] | None = None,
    accuracy: Callable[[Params, Batch], Any] | None = None,
) -> Task:
    """Return a task from one entry of data per client, with any number of examples each.

    Parameters
    ----------
    name : str
        Name of the task in tables and messages.
    data : sequence of pytrees of arrays
        Client i's examples, each leaf of shape (n_i, ...).
    loss, init, accuracy : functions
        As in `Task`.
    clients : sequence of str, optional
        The clients' names.
    """
    import jax

    who = in_words(name, data, clients)
    rows = [[np.asarray(leaf) for leaf in leaves(entry)] for entry in data]
    for own, row in zip(who, rows, strict=True):
        lengths = {leaf.shape[:1] for leaf in row}
        if len(lengths) != 1 or lengths & {(), (0,)}:
            raise TaskError(
                f"{own} has arrays of shapes {[leaf.shape for leaf in row]}; all must hold the "
                "same examples along their first axis, at least one (numpy.asarray makes an array "
                "of a list)"
            )
    structures = [jax.tree.structure(entry) for entry in data]
    shapes = [[leaf.shape[1:] for leaf in row] for row in rows]
    for what, parts in (("data of structure", structures), ("examples of shapes", shapes)):
        odd = next((at for at, part in enumerate(parts) if part != parts[0]), None)
        if odd is not None:
            raise TaskError(
                f"{who[odd]} has {what} {parts[odd]}, and {who[0]} has {parts[0]}; those of all "
                "clients must be the same"
            )
    counts = np.array([len(row[0]) for row in rows])
    columns = []
    for column in zip(*rows, strict=True):
        dtype = np.result_type(*{leaf.dtype for leaf in column})
        columns.append(np.zeros((len(rows), counts.max(), *column[0].shape[1:]), dtype))
        for place, leaf in zip(columns[-1], column, strict=True):
            place[: len(leaf)] = leaf
    uneven = counts if np.ptp(counts) else None
    return Task(name, _like(data[0], columns), loss, init, uneven, clients, accuracy)


def in_words(name: str, data: Sequence[Batch], clients: Sequence[str] | None) -> list[str]:
    """Return every client of a task, at least one, in words for messages."""
    if not len(data):
        raise TaskError(f"task {name!r} has no clients")
    names = Clients(len(data), clients)
    return [f"client {names.label(number)} of task {name!r}" for number in range(names.count)]


@dataclass(frozen=True, eq=False)
class Problem:
    """A task, the importance of each client in the objective, and the clients' availability.

    Parameters
    ----------
    task : Task
        Data, model and loss.
    importance : array-like of shape (n_clients,), or mapping from name to float
        The objective is F(θ) = Σ p_i f_i(θ), with f_i the mean loss over client i's examples.
    availability : function of (rng, rounds)
        Returns one cohort per round, as arrays of client indices; empty if no client reports. A
        law's ``sample`` is such a function.
    """

    task: Task
    importance: ArrayLike | Mapping[str, float]
    availability: Availability

    @functools.cached_property
    def shares(self) -> Floats:
        """The importance as a checked array, shape (n_clients,)."""
        ordered = in_client_order(self.importance, self.task.clients)
        return as_importance(ordered, self.task.n_clients)

    def __post_init__(self) -> None:
        _ = self.shares
        if not callable(self.availability):
            raise TaskError(
                f"the availability of task {self.task.name!r} is {self.availability!r}; give a "
                "function of (rng, rounds), such as a law's sample"
            )


def _like(tree: Batch, arrays: Sequence[Any]) -> Batch:
    """Return the arrays as a pytree of this structure."""
    import jax

    return jax.tree.unflatten(jax.tree.structure(tree), arrays)


def leaves(tree: Batch) -> list[Any]:
    """Return the arrays of a pytree."""
    import jax

    return list(jax.tree.leaves(tree))
