"""A grid that shows a strategy only the nodes that are admitted.

A wrapped strategy samples from what ``get_node_ids`` returns, and waits until there are enough
nodes. It sees the nodes that have a name and an importance, updated at each call; once a cohort has
been chosen, it sees only the nodes of that cohort.
"""

import logging
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedavot.errors import OptionError
from fedavot.flower.who.identity import Names
from fedavot.flower.who.saying import grouped
from fedavot.flower.worth.weigher import Weigher

_log = logging.getLogger("flwr")

MOST_REASONS = 3
"""Number of reasons in an error message."""

CACHE_SECONDS = 0.5
"""Seconds for which the node list is cached. Flower counts the nodes and then waits until it sees
as many, so a node that left between the two calls would stall the run. While Flower waits, it calls
once per second."""

MOST_LOOKS = 600
"""Number of consecutive polls that find the same nodes, some of them refused, after which the run
stops waiting; ten minutes at one poll per second, and longer if nodes are slow to answer. If no
node is refused, the run waits for nodes without a limit, as Flower does."""


FEW_LOOKS = 30
"""The same, if the reason why it cannot be asked is known for every connected node, and there are
as many nodes as the strategy waits for: then there is nothing left to wait for."""


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
    config : mapping
        The configuration of the round's messages, for the queries to new nodes.
    least : int
        Number of nodes that the strategy waits for.

    Attributes
    ----------
    names : list of str
        Clients that are admitted now, in order.
    nodes : list of int
        Their nodes.
    refused : dict of str
        Reasons why the other nodes are not admitted, by node or client name.
    """

    def __init__(
        self,
        grid: Grid,
        naming: Names,
        weigher: Weigher,
        config: Mapping[str, Any],
        *,
        least: int,
    ) -> None:
        self._grid, self._naming, self._weigher = grid, naming, weigher
        self._config, self._least = config, least
        self._chosen: set[str] | None = None
        # A strategy may list the nodes more than once, with a different result each time.
        self._looks: list[tuple[list[str], list[int]]] = []
        self._updated = -math.inf
        self._idle = 0
        self.names: list[str] = []
        self.nodes: list[int] = []
        self.refused: dict[str, str] = {}

    @property
    def available(self) -> list[str]:
        """Clients that were admitted at any time in the round, in order."""
        if len(self._looks) <= 1:
            return list(self.names)
        return sorted(set().union(*(names for names, _ in self._looks)))

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes that may be asked, in the order of their client names."""
        if self._chosen is not None:
            pairs = zip(self.names, self.nodes, strict=True)
            return [node for name, node in pairs if name in self._chosen]
        if time.monotonic() - self._updated > CACHE_SECONDS:
            self._update()
        return list(self.nodes)

    def get_nodes(self) -> Iterable[Any]:
        """Return Flower's information about the nodes that may be asked."""
        admitted = set(self.get_node_ids())
        return [node for node in self._grid.get_nodes() if node.node_id in admitted]

    def name_of(self, node: int) -> str:
        """Return the client name of an admitted node; raise if the node was not admitted."""
        name = self._naming.name_of(node)
        if self._naming.nodes.get(name) == node and name not in self.refused:
            return name
        for names, nodes in self._looks:  # it may have left since it was shown, or changed its name
            if node in nodes:
                return names[nodes.index(node)]
        raise OptionError(
            f"the wrapped strategy asks node {node}, which is not admitted; it must choose from "
            "grid.get_node_ids()"
        )

    def addressed(self, messages: Iterable[Message]) -> tuple[dict[str, Message], dict[str, str]]:
        """Return messages by client name, and why those to nodes that have left are not sent.

        A strategy may ask nodes that it chose in an earlier round, without listing the live nodes.
        """
        if not self.names:
            self.get_node_ids()
        sent, gone = {}, {}
        for message in messages:
            node = message.metadata.dst_node_id
            try:
                sent[self.name_of(node)] = message
            except OptionError:
                if node in self._grid.get_node_ids():
                    raise
                gone[f"node {node}"] = f"the wrapped strategy asks node {node}, which has left"
                _log.warning("FedAVOT: %s", gone[f"node {node}"])
        return sent, gone

    def choose(self, rng: np.random.Generator) -> dict[str, float]:
        """Wait for enough nodes, choose the cohort to ask, and show only its nodes from then on.

        The weights of the chosen clients if all of them reply are returned; they are empty if these
        are not known yet.
        """
        while len(self._update()) < self._least:
            _log.info("Waiting for nodes: %d of at least %d", len(self.names), self._least)
            time.sleep(1)
        chosen, shares = self._weigher.choose(list(self.names), rng)
        self._chosen = set(chosen)
        return shares

    def _update(self) -> list[int]:
        """Find the names of the live nodes and admit those that have an importance."""
        before = self._naming.changes
        self._naming.resolve(self._grid, self._config)
        look = self._naming.ordered
        fresh = {name for name in self._naming.fresh if name in self._naming.nodes}
        unlisted = self._weigher.admit(fresh)
        self._naming.fresh = set(unlisted)
        self.refused = self._naming.refused | unlisted
        if unlisted:
            kept = [pair for pair in zip(*look, strict=True) if pair[0] not in unlisted]
            look = [name for name, _ in kept], [node for _, node in kept]
        if not self._looks or look is not self._looks[-1]:
            self._looks.append(look)
        self.names, self.nodes = look
        self._updated = time.monotonic()
        # Report refusals at once: a strategy may be waiting for the very nodes that are refused.
        for reason in self._naming.new_reasons(self.refused):
            _log.warning("FedAVOT: %s", reason)
        self._idle = self._idle + 1 if self._naming.changes == before else 0
        self._give_up(len(unlisted))
        return self.nodes

    def _give_up(self, unlisted: int) -> None:
        """Raise if the grid has not changed for so long that it is not expected to."""
        count, refused = len(self.nodes), len(self.refused)
        final = self._naming.hopeless + unlisted == refused >= self._least and not count
        if not refused or self._idle < (FEW_LOOKS if final else MOST_LOOKS):
            return
        remedy = "" if final else "; correct these nodes, or lower min_available_nodes"
        raise OptionError(
            f"the strategy waits for nodes: {count:,} of those connected are admitted, and "
            f"{refused:,} refused, which {self._idle} looks at the grid did not change; "
            f"{'; '.join(grouped(self.refused)[:MOST_REASONS])}{remedy}"
        )

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
