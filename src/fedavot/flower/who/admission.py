"""A grid that shows a strategy only the nodes that are admitted.

A wrapped strategy samples from what ``get_node_ids`` returns, and waits until there are enough
nodes. It sees the nodes that have a name and an importance, updated at each call; once a cohort has
been chosen, it sees only the nodes of that cohort.
"""

import logging
import math
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedavot.errors import OptionError
from fedavot.flower.who.identity import Names
from fedavot.flower.worth.weigher import Weigher

_log = logging.getLogger("flwr")

CACHE_SECONDS = 0.5
"""Seconds for which the node list is cached. Flower counts the nodes and then waits until it sees
as many, so a node that left between the two calls would stall the run. While Flower waits, it calls
once per second."""


class AdmittedGrid(Grid):
    """The admitted nodes of a grid in one round.

    Parameters
    ----------
    grid : Grid
        The whole grid, through which messages are sent.
    naming : Names
        Maps nodes to client names.
    weigher : Weigher
        Decides which clients have an importance.

    Attributes
    ----------
    names : dict from node id to str
        Client names of the nodes that are admitted now.
    shown : dict from node id to str
        Client names of the nodes that were admitted at any time in the round; a strategy may list
        the nodes more than once.
    refused : dict of str
        Reasons why the other nodes are not admitted, by node or client name.
    """

    def __init__(self, grid: Grid, naming: Names, weigher: Weigher) -> None:
        self._grid = grid
        self._naming = naming
        self._weigher = weigher
        self._chosen: set[str] | None = None
        self.names: dict[int, str] = {}
        self.shown: dict[int, str] = {}
        self.refused: dict[str, str] = {}
        self._updated = -math.inf

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes that may be asked, in the order of their client names."""
        if self._chosen is None and time.monotonic() - self._updated > CACHE_SECONDS:
            self._update()
        nodes = sorted(self.names, key=self.names.__getitem__)
        return [n for n in nodes if self._chosen is None or self.names[n] in self._chosen]

    def get_nodes(self) -> Iterable[Any]:
        """Return Flower's information about the nodes that may be asked."""
        admitted = set(self.get_node_ids())
        return [node for node in self._grid.get_nodes() if node.node_id in admitted]

    def name_of(self, node: int) -> str:
        """Return the client name of an admitted node; raise if the node was not admitted."""
        if node not in self.shown:
            raise OptionError(
                f"the wrapped strategy asks node {node}, which is not admitted; it must choose "
                "from grid.get_node_ids()"
            )
        return self.shown[node]

    def choose(self, rng: np.random.Generator, least: int) -> dict[str, float]:
        """Wait for ``least`` nodes, choose the cohort to ask, and show only its nodes from then on.

        Returns
        -------
        dict of float
            Weights of the chosen clients if all of them reply; empty if these are not known yet.
        """
        while len(self._update()) < least:
            _log.info("Waiting for nodes: %d of at least %d", len(self.names), least)
            time.sleep(1)
        chosen, shares = self._weigher.choose(list(self.names.values()), rng)
        self._chosen = set(chosen)
        return shares

    def _update(self) -> dict[int, str]:
        """Find the names of the live nodes and admit those that have an importance."""
        names, nameless = self._naming.resolve(self._grid)
        unlisted = self._weigher.admit(sorted(names.values()))
        self.refused = nameless | unlisted
        self.names = {node: name for node, name in names.items() if name not in unlisted}
        self.shown |= self.names
        self._updated = time.monotonic()
        # Report refusals at once: a strategy may be waiting for the very nodes that are refused.
        for reason in self._naming.new(self.refused):
            _log.warning("FedAVOT: %s", reason)
        return self.names

    def set_run(self, run: Any) -> None:
        """Set the run of the whole grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run of the whole grid."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Create a message on the whole grid."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages through the whole grid."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Receive messages through the whole grid."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send and receive through the whole grid."""
        return self._grid.send_and_receive(messages, timeout=timeout)
