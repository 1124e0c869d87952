"""Who a node is: a stable name for every live node, or a reason why it has none.

Weight follows identity, and node ids are not identities: without node authentication a client gets
a new one at every start. With authentication the name is the one a node was registered under
(``flwr supernode register KEY --name NAME``), which it cannot choose; its own claim is then never
believed. Otherwise each new node is asked once, and the answer is kept: a value of its node
configuration, by default "partition-id". Answers are kept by node id, which Flower draws at random
from 64 bits and does not use again.

A federation does not say whether it authenticates. "auto" takes the first registered name it sees
for a sign that it does; until then claims are believed, so that "registered" is the choice wherever
nodes are authenticated.

Two live nodes that claim one name cannot both have it. A registered name beats a claim, then the
node that had the name before keeps it; where neither decides, all are refused until one is left.
"""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedavot.flower.replies import brief

ACTION = "fedavot"
RECORD = "fedavot"
ASK_TIMEOUT = 90.0
"""Seconds that new nodes have to say their names."""

RETRY = 60.0
"""Seconds after which a node that did not say its name is asked again."""


def introduce(app: ClientApp) -> ClientApp:
    """Let a ClientApp answer the server's question for its name.

    Only nodes without a registered name are asked, each once. The answer is the value in the
    node's configuration under the key the server names.

    Parameters
    ----------
    app : ClientApp
        The app; it gets a query function for the action "fedavot".

    Returns
    -------
    ClientApp
        The same app.
    """

    @app.query(ACTION)
    def answer(message: Message, context: Context) -> Message:
        key = str(message.content.config_records[RECORD]["key"])
        if key not in context.node_config:
            raise KeyError(f"the node configuration has no {key!r}; it has {_keys(context)}")
        name = ConfigRecord({"name": str(context.node_config[key])})
        return Message(RecordDict({RECORD: name}), reply_to=message)

    return app


@dataclass
class Names:
    """Names of the live nodes, and why others have none.

    Attributes
    ----------
    source : str
        "registered", "asked", "node-id", or "auto": registered where the federation registers
        names at all, otherwise asked.
    key : str
        What to ask for.
    answers : dict
        What each node that was asked said.
    holders : dict
        The node that had each name last.
    registered : set
        Names that were ever seen registered; no claim gets them.
    silent : dict
        When nodes that did not answer were asked last.
    errors : dict
        What nodes answered that were asked last and gave an error.
    told : set
        Reasons for refusals that were reported.
    """

    source: str
    key: str
    answers: dict[int, str] = field(default_factory=dict)
    holders: dict[str, int] = field(default_factory=dict)
    registered: set[str] = field(default_factory=set)
    silent: dict[int, float] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def new(self, refused: Mapping[str, str]) -> list[str]:
        """Return the reasons that were not reported before, and note them as such."""
        fresh = sorted(set(refused.values()) - self.told)
        self.told.update(fresh)
        return fresh

    def resolve(self, grid: Grid) -> tuple[dict[int, str], dict[str, str]]:
        """Return the names of live nodes, and for every other live node why it has none."""
        registered = _registered(grid)
        self.registered.update(name for name in registered.values() if name)
        if self.source == "node-id":
            return {node: str(node) for node in registered}, {}
        refused: dict[str, str] = {}
        claimed: dict[int, str] = {}
        if self._asks:
            claimed = self._asked([node for node, name in registered.items() if not name], grid)
        for node, name in registered.items():
            if not name and node not in claimed:
                refused[_label(node)] = self._nameless(node)
        names = {node: name for node, name in registered.items() if name} | {
            node: name for node, name in claimed.items() if name
        }
        return self._settled(names, registered, refused), refused

    @property
    def _asks(self) -> bool:
        return self.source == "asked" or (self.source == "auto" and not self.registered)

    def _asked(self, nodes: list[int], grid: Grid) -> dict[int, str]:
        """Return what the nodes say their names are, asking those that have not been."""
        now = time.monotonic()
        unknown = [
            node
            for node in nodes
            if node not in self.answers and now - self.silent.get(node, -math.inf) > RETRY
        ]
        if unknown:
            content = RecordDict({RECORD: ConfigRecord({"key": self.key})})
            questions = [
                Message(content, node, f"query.{ACTION}", ttl=ASK_TIMEOUT) for node in unknown
            ]
            replies = grid.send_and_receive(questions, timeout=ASK_TIMEOUT)
            answers, self.errors = _answers(replies, questions)
            self.answers |= answers
            now = time.monotonic()
            self.silent |= {node: now for node in unknown if node not in answers}
            # Who still says nothing is reported again: the run may be waiting for it.
            again = {self._nameless(node) for node in unknown if node not in answers}
            self.told -= again
        return {node: self.answers[node] for node in nodes if node in self.answers}

    def _nameless(self, node: int) -> str:
        if self._asks:
            error = f" ({self.errors[node]})" if node in self.errors else ""
            return (
                f"node {node} did not say its name{error}; call fedavot.flower.introduce(app) in "
                f"its ClientApp and give it {self.key!r} in its node configuration"
            )
        return (
            f"node {node} has no registered name, and what it says of itself is not believed; "
            "register it with flwr supernode register KEY --name NAME (Flower 1.41 can; before "
            "that nodes have no names)"
        )

    def _settled(
        self, names: Mapping[int, str], registered: Mapping[int, str], refused: dict[str, str]
    ) -> dict[int, str]:
        """Return one node a name, and say why the others do not have it."""
        claimants: dict[str, list[int]] = {}
        for node in sorted(names):
            claimants.setdefault(names[node], []).append(node)
        settled = {}
        for name, nodes in claimants.items():
            strongest = [node for node in nodes if registered[node]]
            if not strongest and name not in self.registered:
                strongest = nodes
            holder = self.holders.get(name)
            winner = strongest[0] if len(strongest) == 1 else holder
            if winner in strongest:
                settled[winner] = name
                self.holders[name] = winner
            for node in nodes:
                if node not in settled:
                    held = f"node {winner} has" if winner in strongest else f"{nodes} all claim"
                    if not strongest:
                        held = "is registered for another"
                    refused[_label(node)] = f"node {node} claims the name {name!r}, which {held}"
        return settled


def _registered(grid: Grid) -> dict[int, str]:
    """Return the live nodes and the names they are registered under, "" where none."""
    if hasattr(grid, "get_nodes"):
        return {node.node_id: getattr(node, "name", "") for node in grid.get_nodes()}
    return dict.fromkeys(grid.get_node_ids(), "")


def _answers(
    replies: Iterable[Message], questions: Iterable[Message]
) -> tuple[dict[int, str], dict[int, str]]:
    """Return the names that nodes gave, and the errors that others did."""
    asked = {sent.metadata.dst_node_id: sent.metadata.message_id for sent in questions}
    answers, errors = {}, {}
    for reply in replies:
        node = reply.metadata.src_node_id
        if node not in asked or asked[node] not in ("", reply.metadata.reply_to_message_id):
            continue
        if reply.has_error():
            errors[node] = brief(reply.error.reason)
        elif RECORD in reply.content.config_records:
            name: Any = reply.content.config_records[RECORD].get("name")
            if isinstance(name, str) and name:
                answers[node] = name
    return answers, errors


def _label(node: int) -> str:
    return f"node {node}"


def _keys(context: Context) -> str:
    return ", ".join(map(repr, context.node_config)) or "nothing"
