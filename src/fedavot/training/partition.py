"""Split labelled examples among clients.

Every function returns one array of positions per client, and no example occurs twice. `iid` splits
evenly at random, `two_digits` gives each client a few classes, `dirichlet` a random mix of all
classes, and `by_group` follows a grouping in the data, such as the writer of each example.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import Floats, Integers, as_amount, as_array, as_generator, as_size
from fedavot.errors import OptionError, TaskError


def iid(n_examples: int, n_clients: int, *, rng: np.random.Generator) -> list[Integers]:
    """Split evenly at random: sizes differ by at most one.

    Parameters
    ----------
    n_examples : int
        Number of examples.
    n_clients : int
        Number of clients, at most the number of examples.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    list of int64 arrays
        Positions of each client's examples; every example is assigned.
    """
    clients = as_size(n_clients, what="n_clients", low=1)
    examples = as_size(n_examples, what="n_examples", low=clients)
    return np.array_split(as_generator(rng).permutation(examples), clients)


def by_group(groups: ArrayLike) -> list[Integers]:
    """Make each distinct group, such as a writer, one client.

    Parameters
    ----------
    groups : array_like of shape (n_examples,)
        The group of each example: numbers or strings.

    Returns
    -------
    list of int64 arrays
        Positions of each group's examples, ascending; groups in the order of
        ``numpy.unique(groups)``, which names the clients.
    """
    values = _flat(groups, "groups")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise TaskError(f"the group of example {np.isnan(values).argmax()} is nan; name it")
    try:
        return _split_by(values)
    except TypeError as cause:
        raise TaskError(f"groups cannot be put in order: {cause}; give all as strings") from None


def two_digits(
    labels: ArrayLike,
    n_clients: int,
    *,
    examples_per_client: int,
    rng: np.random.Generator,
    classes_per_client: int = 2,
) -> list[Integers]:
    """Give each client an equal number of examples of a few classes, and of no others.

    Each class goes to the same number of clients, as far as its number of examples allows; which
    client gets which classes is random.

    Parameters
    ----------
    labels : integer array_like of shape (n_examples,)
        The class of each example.
    n_clients : int
        Number of clients.
    examples_per_client : int
        Number of examples of each client; a multiple of ``classes_per_client``.
    rng : numpy.random.Generator
        Source of randomness.
    classes_per_client : int
        Number of classes that each client holds.

    Returns
    -------
    list of int64 arrays, each of shape (examples_per_client,)
        Positions of each client's examples, class by class.
    """
    pools = _pools(labels, rng)
    clients = as_size(n_clients, what="n_clients", low=1)
    each = as_size(classes_per_client, what="classes_per_client", low=1)
    total = as_size(examples_per_client, what="examples_per_client", low=1)
    if len(pools) < each:
        raise TaskError(f"the labels have {len(pools)} classes, and each client is to hold {each}")
    if total % each:
        raise OptionError(
            f"examples_per_client is {total}; it must be a multiple of classes_per_client = {each}"
        )
    share = total // each
    rooms = np.array([min(pool.size // share, clients) for pool in pools])
    if rooms.sum() < clients * each:
        raise TaskError(
            f"{clients} clients of {each} classes with {share} examples each need "
            f"{clients * each} such portions, and the labels have {rooms.sum()}; "
            "lower n_clients or examples_per_client"
        )
    # In each turn, every class with capacity left gets one client: as equal as capacities allow.
    turns = np.argwhere(np.arange(rooms.max())[:, None] < rooms)[: clients * each, 1]
    need = np.bincount(turns, minlength=rooms.size)
    left = [iter(np.split(pool, range(share, pool.size, share))) for pool in pools]
    split = []
    for remaining in range(clients, 0, -1):
        # A class that all remaining clients must hold is taken, the others are drawn in proportion
        # to the number of clients they still need: no class ever needs more clients than are left.
        kinds = np.flatnonzero(need == remaining)
        if kinds.size < each:
            chances = np.where(need < remaining, need, 0)
            p = chances / chances.sum()
            others = rng.choice(need.size, each - kinds.size, replace=False, p=p)
            kinds = np.concatenate([kinds, others])
        need[kinds] -= 1
        split.append(np.concatenate([next(left[kind]) for kind in kinds]))
    return split


def dirichlet(
    labels: ArrayLike,
    n_clients: int,
    *,
    concentration: float,
    examples_per_client: int | None,
    rng: np.random.Generator,
) -> list[Integers]:
    """Give each client a random mix of the classes.

    With ``examples_per_client``, clients are served in random order: a mix is drawn from the
    symmetric Dirichlet distribution over classes, then the client's examples by that mix; if a
    class runs out, the rest is drawn from the others in proportion to the mix. Without it, each
    class is divided among the clients by proportions from the Dirichlet distribution over clients.
    All examples are then assigned, and a client left with none takes one from the largest client.

    Parameters
    ----------
    labels, n_clients, rng
        As in `two_digits`.
    concentration : float
        Above 0: small for clients with mostly one class each, large for similar clients.
    examples_per_client : int or None
        Number of examples of each client, or None for clients of different sizes.

    Returns
    -------
    list of int64 arrays
        Positions of each client's examples, at least one.
    """
    pools = _pools(labels, rng)
    clients = as_size(n_clients, what="n_clients", low=1)
    alpha = as_amount(concentration, what="concentration", positive=True)
    size = 1
    if examples_per_client is not None:
        size = as_size(examples_per_client, what="examples_per_client", low=1)
    left = np.array([pool.size for pool in pools])
    if left.sum() < clients * size:
        raise TaskError(
            f"{clients} clients of {size} examples need {clients * size}, and there are "
            f"{left.sum()}; lower n_clients or examples_per_client"
        )
    if examples_per_client is None:
        cuts = []
        for pool in pools:
            ends = np.cumsum(rng.dirichlet(np.full(clients, alpha)))[:-1] * pool.size
            cuts.append(np.split(pool, np.minimum(np.round(ends), pool.size).astype(np.int64)))
        split = [np.concatenate(part) for part in zip(*cuts, strict=True)]
        for client in range(clients):
            if not split[client].size:
                largest = max(range(clients), key=lambda other: split[other].size)
                split[client], split[largest] = split[largest][-1:], split[largest][:-1]
        return split
    split = [np.zeros(0, dtype=np.int64)] * clients
    # In random order, so that which client gets the leftovers does not depend on its index.
    for client in rng.permutation(clients):
        counts = _draw_counts(rng.dirichlet(np.full(left.size, alpha)), size, left, rng)
        split[client] = np.concatenate(
            [pool[end - count : end] for pool, end, count in zip(pools, left, counts, strict=True)]
        )
        left -= counts
    return split


def _draw_counts(mix: Floats, size: int, left: Integers, rng: np.random.Generator) -> Integers:
    """Draw the number of each class by the mix: ``size`` in total, at most ``left`` of each."""
    counts = np.zeros_like(left)
    while missing := size - int(counts.sum()):
        open_mix = np.where(counts < left, mix, 0.0)
        if not open_mix.sum() > 0:
            open_mix = (left - counts).astype(np.float64)
        more = rng.multinomial(missing, open_mix / open_mix.sum())
        counts = np.minimum(counts + more, left)
    return counts


def _pools(labels: ArrayLike, rng: np.random.Generator) -> list[Integers]:
    """Return each class's positions in random order."""
    values = _flat(labels, "labels")
    if not np.issubdtype(values.dtype, np.integer):
        raise TaskError(f"labels must be integers, found {values.dtype}")
    return [as_generator(rng).permutation(pool) for pool in _split_by(values)]


def _flat(sequence: ArrayLike, what: str) -> NDArray[Any]:
    values = as_array(sequence, otherwise=f"{what} must be a flat sequence", error=TaskError)
    if values.ndim != 1 or not values.size:
        raise TaskError(f"{what} must be a non-empty flat sequence, found shape {values.shape}")
    return values


def _split_by(values: NDArray[Any]) -> list[Integers]:
    """Return the positions of each distinct value, ascending; values in ascending order."""
    number = np.unique(values, return_inverse=True)[1]
    order = np.argsort(number, kind="stable")
    return np.split(order, np.cumsum(np.bincount(number))[:-1])
