"""Tables with one row per client, kept on the host: the device holds the rows of one piece.

A rule that reads and writes only the rows of the clients it asks (`Rule.rows`) can leave its tables
on the host. Before a piece of a run the rows of the clients asked in it are copied to the device,
where they are numbered from 0, and after the piece they are copied back. The device then needs
memory for the clients asked in one piece, not for all of them.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fedavot.rules._rule import Rule


class HostTables:
    """Which clients' rows each piece of a run needs, and how to move them.

    Parameters
    ----------
    rule : Rule
        Its `rows` says which leaves of the state are tables.
    members : int array of shape (n_seeds, n_rounds, length)
        The clients asked; n_clients in absent places.
    ends : sequence of int
        The rounds at which pieces begin and end, from 0 to the last.
    n_clients : int
        Number of clients.
    """

    def __init__(
        self, rule: Rule, members: NDArray[np.int32], ends: Sequence[int], n_clients: int
    ) -> None:
        assert rule.rows is not None
        self._rows, self._ends, self._n_clients = rule.rows, list(ends), n_clients
        asked = [
            [np.setdiff1d(seed, n_clients) for seed in members[:, at:to]]
            for at, to in itertools.pairwise(ends)
        ]
        # The same number of rows in every piece, so that one compiled program serves all of them.
        self._n_rows = max(1, *(clients.size for piece in asked for clients in piece))
        self._asked = asked

    def places(self, at: int) -> NDArray[np.int32]:
        """Return the client of each row in the piece with round at+1, shape (n_seeds, n_rows)."""
        piece = self._asked[self._piece(at)]
        found = np.zeros((len(piece), self._n_rows), dtype=np.int32)
        for row, clients in zip(found, piece, strict=True):
            row[: clients.size] = clients
        return found

    def numbered(self, members: NDArray[np.int32], at: int) -> NDArray[np.int32]:
        """Return members as the numbers of their rows; absent places stay n_clients."""
        numbers = [
            np.where(seed < self._n_clients, np.searchsorted(clients, seed), self._n_clients)
            for seed, clients in zip(members, self._asked[self._piece(at)], strict=True)
        ]
        return np.asarray(numbers, dtype=np.int32)

    def taken(self, state: Any, at: int) -> Any:
        """Return the state with the rows of the piece with round at+1 as its tables."""
        places = self.places(at)
        seeds = np.arange(len(places))[:, None]
        return self._mapped(lambda table: np.asarray(table)[seeds, places], state)

    def put_back(self, state: Any, rows: Any, at: int) -> Any:
        """Return the state after a piece, its rows written into the tables in place."""
        piece = self._asked[self._piece(at)]

        def write(table: Any, new: Any) -> Any:
            held = np.asarray(new)
            for seed, clients in enumerate(piece):
                table[seed, clients] = held[seed, : clients.size]
            return table

        marks = self._rows(state)
        return jax.tree.map(
            lambda mark, table, new: write(table, new) if mark else new, marks, state, rows
        )

    def on_host(self, state: Any) -> Any:
        """Return the state with tables as NumPy arrays that can be written to."""
        return self._mapped(np.array, state)

    def _mapped(self, change: Any, state: Any) -> Any:
        return jax.tree.map(
            lambda mark, leaf: change(leaf) if mark else leaf, self._rows(state), state
        )

    def _piece(self, at: int) -> int:
        return int(np.searchsorted(self._ends, at, side="right")) - 1


def first_state(rule: Rule, params: Any, n_clients: int) -> Any:
    """Return a rule's state before the first round as NumPy arrays, created off the device."""
    models = jax.tree.map(np.asarray, params)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        state = jax.vmap(lambda one: rule.init(one, n_clients))(models)
        return jax.tree.map(np.asarray, state)
