"""Tasks: what the clients hold, and what a model is to do with it.

A task is client data with two pure functions: ``init(key)`` makes a model, any pytree of arrays,
and ``loss(params, batch)`` is its mean loss over a batch, a pytree of arrays whose leading axis
counts examples. A problem adds who matters (importance) and who turns up (availability).
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import Floats, Integers, as_array, as_importance
from fedavot.errors import TaskError

Params = Any
Batch = Any
Availability = Callable[[np.random.Generator, int], Sequence[Integers]]
"""A function of (rng, rounds) that gives one cohort a round, such as a law's ``sample``."""


@dataclass(frozen=True, eq=False)
class Task:
    """Client data, a model and its loss.

    Parameters
    ----------
    name : str
        For tables and messages.
    data : pytree of arrays, each of shape (n_clients, n_examples, ...)
        What the clients hold. Training runs in the precision of its widest float array, float32
        or float64.
    loss : function of (params, batch)
        Mean loss over a batch whose leaves have shape (n_batch, ...); differentiable by JAX
        (a subgradient where it is not smooth).
    init : function of a JAX key
        The model before training.
    counts : int array of shape (n_clients,), optional
        How many examples each client holds, where not all hold n_examples; what lies behind is
        padding, of no influence. `from_clients` sets it. A client's loss is then the mean over its
        own examples, taken one by one, so the loss must be a plain mean over its batch.
    """

    name: str
    data: Batch
    loss: Callable[[Params, Batch], Any]
    init: Callable[[Any], Params]
    counts: Integers | None = None

    def __post_init__(self) -> None:
        where = f"the data of task {self.name!r}"
        shapes = [
            as_array(leaf, otherwise=where, error=TaskError, item="client").shape
            for leaf in leaves(self.data)
        ]
        if not shapes:
            raise TaskError(f"task {self.name!r} has no data; give at least one array")
        short = [shape for shape in shapes if len(shape) < 2 or 0 in shape[:2]]
        if short or len({shape[:2] for shape in shapes}) > 1:
            raise TaskError(
                f"task {self.name!r} has arrays of shapes {shapes}; each must begin with the same "
                "(n_clients, n_examples), both at least 1; from_clients takes one entry a client"
            )
        if self.counts is not None:
            where = f"the counts of task {self.name!r}"
            counts = as_array(self.counts, otherwise=where, error=TaskError, item="client")
            if (
                counts.shape != shapes[0][:1]
                or not np.issubdtype(counts.dtype, np.integer)
                or not ((counts >= 1) & (counts <= shapes[0][1])).all()
            ):
                raise TaskError(
                    f"counts of task {self.name!r} must be {shapes[0][0]} integers from 1 to "
                    f"{shapes[0][1]}, found {counts}"
                )
            object.__setattr__(self, "counts", counts.astype(np.int64))
            object.__setattr__(self, "data", _with_own_padding(self.data, counts))
        single = self.dtype == np.float32
        for leaf in map(np.asarray, leaves(self.data)):
            _refuse_not_numbers(self.name, leaf)
            _refuse_not_finite(self.name, leaf)
            if single:
                _refuse_long_integers(self.name, leaf)

    @property
    def n_clients(self) -> int:
        """How many clients there are."""
        return int(np.shape(leaves(self.data)[0])[0])

    @property
    def n_examples(self) -> int:
        """How many examples a client holds, at most."""
        return int(np.shape(leaves(self.data)[0])[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision training runs in."""
        kinds = [np.asarray(leaf).dtype for leaf in leaves(self.data)]
        double = any(np.issubdtype(kind, np.floating) and kind.itemsize >= 8 for kind in kinds)
        return np.dtype(np.float64 if double else np.float32)


def from_clients(
    name: str,
    clients: Sequence[Batch],
    *,
    loss: Callable[[Params, Batch], Any],
    init: Callable[[Any], Params],
) -> Task:
    """Return a task from one entry of data a client; sizes may differ.

    Parameters
    ----------
    name : str
        For tables and messages.
    clients : sequence of pytrees of arrays
        Client i's examples, each leaf of shape (n_i, ...).
    loss, init : functions
        As in `Task`.
    """
    if not len(clients):
        raise TaskError(f"task {name!r} has no clients")
    rows = [
        [
            as_array(leaf, otherwise=f"client {number} of task {name!r}", error=TaskError)
            for leaf in leaves(client)
        ]
        for number, client in enumerate(clients)
    ]
    counts = np.array([_count(name, number, row) for number, row in enumerate(rows)])
    _refuse_other_structures(name, clients)
    for number, row in enumerate(rows):
        if [leaf.shape[1:] for leaf in row] != [leaf.shape[1:] for leaf in rows[0]]:
            raise TaskError(
                f"client {number} of task {name!r} has examples of shapes "
                f"{[leaf.shape[1:] for leaf in row]}, client 0 of "
                f"{[leaf.shape[1:] for leaf in rows[0]]}; all must be alike"
            )
    columns = [_stack(list(column), int(counts.max())) for column in zip(*rows, strict=True)]
    uneven = counts.astype(np.int64) if np.ptp(counts) else None
    return Task(name, _rebuild(clients[0], columns), loss, init, uneven)


@dataclass(frozen=True, eq=False)
class Problem:
    """A task, the importance its objective gives each client, and who takes part.

    Parameters
    ----------
    task : Task
        Data, model and loss.
    importance : array-like of shape (n_clients,)
        The objective is F(θ) = Σ p_i f_i(θ), with f_i the mean loss over client i's examples.
    availability : function of (rng, rounds)
        One cohort a round, as arrays of client numbers; empty where nobody reports. A law's
        ``sample`` is such a function.
    """

    task: Task
    importance: ArrayLike
    availability: Availability

    @functools.cached_property
    def shares(self) -> Floats:
        """The importance as a checked array, shape (n_clients,)."""
        return as_importance(self.importance, self.task.n_clients)

    def __post_init__(self) -> None:
        _ = self.shares
        if not callable(self.availability):
            raise TaskError(
                f"the availability of task {self.task.name!r} is {self.availability!r}; give a "
                "function of (rng, rounds), such as a law's sample"
            )


def leaves(tree: Batch) -> list[Any]:
    """Return the arrays of a pytree."""
    import jax

    return list(jax.tree.leaves(tree))


def _rebuild(like: Batch, columns: list[NDArray[Any]]) -> Batch:
    import jax

    return jax.tree.unflatten(jax.tree.structure(like), columns)


def _refuse_other_structures(name: str, clients: Sequence[Batch]) -> None:
    import jax

    structures = [jax.tree.structure(client) for client in clients]
    for number, structure in enumerate(structures):
        if structure != structures[0]:
            raise TaskError(
                f"client {number} of task {name!r} has data of structure {structure}, client 0 of "
                f"{structures[0]}; all must be alike"
            )


def _count(name: str, number: int, row: list[NDArray[Any]]) -> int:
    sizes = {leaf.shape[0] if leaf.ndim else 0 for leaf in row}
    if len(sizes) != 1 or 0 in sizes:
        raise TaskError(
            f"client {number} of task {name!r} has arrays of lengths {sorted(sizes)}; "
            "all its arrays must hold the same examples, at least one"
        )
    return sizes.pop()


def _stack(column: list[NDArray[Any]], length: int) -> NDArray[Any]:
    """Stack one client a row, padded to the common length."""
    dtype = np.result_type(*{leaf.dtype for leaf in column})
    stacked = np.zeros((len(column), length, *column[0].shape[1:]), dtype)
    for row, leaf in zip(stacked, column, strict=True):
        row[: len(leaf)] = leaf
    return stacked


def _with_own_padding(data: Batch, counts: Integers) -> Batch:
    """Return the data padded with each client's last example.

    A loss may be infinite at other padding, and its gradient NaN even times 0.
    """
    import jax

    def padded(leaf: Any) -> NDArray[Any]:
        array = np.asarray(leaf)
        places = np.minimum(np.arange(array.shape[1]), counts[:, None] - 1)
        return array[np.arange(len(array))[:, None], places]

    return jax.tree.map(padded, data)


def _refuse_not_numbers(name: str, leaf: NDArray[Any]) -> None:
    if leaf.dtype.kind in "OSUmM" or (leaf.dtype.kind == "f" and leaf.dtype.itemsize > 8):
        raise TaskError(
            f"the data of task {name!r} has an array of type {leaf.dtype}; give numbers of at most "
            "64 bits, such as the labels' positions"
        )


def _refuse_long_integers(name: str, leaf: NDArray[Any]) -> None:
    """Refuse what JAX would cut to its lower 32 bits without a word."""
    if not np.issubdtype(leaf.dtype, np.integer) or leaf.dtype.itemsize < 8:
        return
    bad = np.flatnonzero(((leaf < -(2**31)) | (leaf >= 2**31)).reshape(len(leaf), -1).any(axis=1))
    if bad.size:
        raise TaskError(
            f"the data of client {bad[0]} in task {name!r} has integers of more than 32 bits, "
            "which single precision does not hold; give smaller ones, or float64 data"
        )


def _refuse_not_finite(name: str, leaf: NDArray[Any]) -> None:
    if not np.issubdtype(leaf.dtype, np.floating):
        return
    bad = np.flatnonzero(~np.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1))
    if bad.size:
        raise TaskError(
            f"the data of client {bad[0]} in task {name!r} has entries that are not finite; "
            "remove or impute them"
        )
