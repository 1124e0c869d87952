"""Who the thirty clients are: their digits, how often they are there, how much each counts.

Two groups. Clients 0 to 20 hold digits 0 to 6 and take part in a round with probability .6 to .9;
clients 21 to 29 hold digits 7 to 9, which nobody else has, and take part with probability .1. All
count alike, so a digit counts as much as any other: each is held by six clients. Whoever averages
those that turn up gives the rare clients 5 % of the weight instead of 30 %.

Whether a client is there in a round follows from (seed, round, client) alone: every rule compared
on one seed meets the same clients, in simulation and in deployment.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Group:
    """Clients that hold the same digits and are there about equally often.

    Attributes
    ----------
    name : str
        What results call it.
    size : int
        How many clients.
    digits : tuple of int
        What the group holds; each client two of them.
    least, most : float
        Probabilities of taking part in a round, of its first and of its last client; those between
        are evenly spaced.
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
"""The groups, in the order of their clients' numbers."""

N_CLIENTS = sum(group.size for group in GROUPS)


def probabilities() -> NDArray[np.float64]:
    """Return how likely each client takes part in a round, shape (n_clients,)."""
    return np.concatenate([np.linspace(group.least, group.most, group.size) for group in GROUPS])


def members(group: Group) -> range:
    """Return the numbers of a group's clients."""
    first = sum(other.size for other in GROUPS[: GROUPS.index(group)])
    return range(first, first + group.size)


def is_there(client: int, *, round_number: int, seed: int) -> bool:
    """Return whether a client takes part in a round.

    Parameters
    ----------
    client : int
        Its number, from 0.
    round_number : int
        The round, from 1.
    seed : int
        Of the run.
    """
    draw = np.random.default_rng([seed, round_number, client]).random()
    return bool(draw < probabilities()[client])
