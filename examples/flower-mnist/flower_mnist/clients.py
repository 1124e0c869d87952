"""The thirty clients: their digits, and how often they take part.

There are two groups. Clients 0 to 20 hold digits 0 to 6 and take part in a round with probability
.6 to .9; clients 21 to 29 hold digits 7 to 9, which no other client has, and take part with
probability .1. All clients have equal importance, and so have all digits: each is held by six
clients. The plain average of the clients that take part gives the rare clients 5 % of the weight
instead of 30 %.

Whether a client takes part in a round depends only on (seed, round, client): for one seed, all
rules see the same clients, in simulation and in deployment.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Group:
    """Clients that hold the same digits and take part about equally often.

    Attributes
    ----------
    name : str
        Name of the group in results.
    size : int
        Number of clients.
    digits : tuple of int
        Digits of the group; each client holds two of them.
    least, most : float
        Probabilities that its first and its last client take part in a round; those of the clients
        between are evenly spaced.
    """

    name: str
    size: int
    digits: tuple[int, ...]
    least: float
    most: float


GROUPS = (
    Group("frequent", 21, (0, 1, 2, 3, 4, 5, 6), least=0.6, most=0.9),
    Group("rare", 9, (7, 8, 9), least=0.1, most=0.1),
)
"""The groups, in the order of their clients' indices."""

N_CLIENTS = sum(group.size for group in GROUPS)


def probabilities() -> NDArray[np.float64]:
    """Return the probability that each client takes part in a round, shape (n_clients,)."""
    return np.concatenate([np.linspace(group.least, group.most, group.size) for group in GROUPS])


def members(group: Group) -> range:
    """Return the indices of the clients of a group."""
    first = sum(other.size for other in GROUPS[: GROUPS.index(group)])
    return range(first, first + group.size)


def is_there(client: int, *, round_number: int, seed: int) -> bool:
    """Return whether a client takes part in a round.

    Parameters
    ----------
    client : int
        Index of the client, from 0.
    round_number : int
        Number of the round, from 1.
    seed : int
        Seed of the run.
    """
    draw = np.random.default_rng([seed, round_number, client]).random()
    return bool(draw < probabilities()[client])
