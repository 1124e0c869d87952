"""A grid that shows a strategy only the nodes it may ask.

A wrapped strategy samples from what ``get_node_ids`` returns, waiting until there are enough. It is
shown the nodes that have a name and an importance, found anew at each call, or, once that is made,
a choice among them.
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
from fedavot.flower.identity import Names
from fedavot.flower.weigher import Weigher

_log = logging.getLogger("flwr")

STANDS = 0.5
"""Seconds for which a look at the nodes stands. Flower counts them, and then waits until it sees as
many: one that leaves in between would hold up the run. While it waits it looks once a second."""


class Admission(Grid):
    """The part of a grid that may be asked in one round.

    Parameters
    ----------
    grid : Grid
        The whole grid; messages go through it.
    naming : Names
        Tells who the nodes are.
    weigher : Weigher
        Tells who has an importance.

    Attributes
    ----------
    names : dict from node id to str
        Who is admitted now.
    shown : dict from node id to str
        Who was at any time of the round: a strategy may look more than once.
    refused : dict of str
        Who was not, and why.
    """

    def __init__(self, grid: Grid, naming: Names, weigher: Weigher) -> None:
        self._grid = grid
        self._naming = naming
        self._weigher = weigher
        self._chosen: set[str] | None = None
        self.names: dict[int, str] = {}
        self.shown: dict[int, str] = {}
        self.refused: dict[str, str] = {}
        self._looked = -math.inf

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that may be asked, in order of their names."""
        if self._chosen is None and time.monotonic() - self._looked > STANDS:
            self._look()
        nodes = sorted(self.names, key=self.names.__getitem__)
        return [n for n in nodes if self._chosen is None or self.names[n] in self._chosen]

    def get_nodes(self) -> Iterable[Any]:
        """Return what is known of the nodes that may be asked."""
        admitted = set(self.get_node_ids())
        return [node for node in self._grid.get_nodes() if node.node_id in admitted]

    def name_of(self, node: int) -> str:
        """Return the name of a node that was shown, or raise if it was not."""
        if node not in self.shown:
            raise OptionError(
                f"the wrapped strategy asks node {node}, which it was not shown; it must choose "
                "among grid.get_node_ids()"
            )
        return self.shown[node]

    def choose(self, rng: np.random.Generator, least: int) -> dict[str, float]:
        """Choose whom to ask once ``least`` nodes are there, and show no others from then on.

        Returns
        -------
        dict of float
            The weights of those chosen, should all of them reply; empty if that is not known.
        """
        while len(self._look()) < least:
            _log.info("Waiting for nodes: %d of at least %d", len(self.names), least)
            time.sleep(1)
        chosen, shares = self._weigher.choose(list(self.names.values()), rng)
        self._chosen = set(chosen)
        return shares

    def _look(self) -> dict[int, str]:
        """Name the live nodes, and find out which of them have an importance."""
        names, nameless = self._naming.resolve(self._grid)
        unlisted = self._weigher.admit(sorted(names.values()))
        self.refused = nameless | unlisted
        self.names = {node: name for node, name in names.items() if name not in unlisted}
        self.shown |= self.names
        self._looked = time.monotonic()
        # At once: a strategy may be waiting for the very nodes that are refused.
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
