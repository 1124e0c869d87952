"""Client identity: a stable name for every live node, or the reason why it has none.

Weights belong to clients, and a node id does not identify a client: without node authentication a
client gets a new node id at every start. With authentication a client's name is the name under
which its node was registered (``flwr supernode register KEY --name NAME``). A node cannot choose
it, and a name that the node claims is ignored. Without authentication each new node is asked once
for a value of its node configuration, "partition-id" by default, and the answer is stored by node
id. Flower draws node ids at random from 64 bits and does not reuse them.

A server app cannot see whether a federation authenticates its nodes. "auto" assumes that it does
once any node has a registered name, and accepts claimed names until then; so use "registered"
wherever nodes are authenticated.

If two live nodes claim the same name, a registered name takes precedence over a claimed one, then
the node that held the name before keeps it. If neither rule decides, all of these nodes are refused
until only one is left.
"""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedavot.flower.worth.replies import brief

ACTION = "fedavot"
RECORD = "fedavot"
ASK_TIMEOUT = 90.0
"""Seconds that new nodes have to answer with their names."""

RETRY = 60.0
"""Seconds after which a node that gave no name is asked again."""


def introduce(app: ClientApp) -> ClientApp:
    """Make a ClientApp tell the server its client name when asked.

    Only nodes without a registered name are asked, once each. The answer is the value in the node
    configuration under the key that the server asks for.

    Parameters
    ----------
    app : ClientApp
        The app, to which a query function for the action "fedavot" is added.

    Returns
    -------
    ClientApp
        The same app.
    """

    @app.query(ACTION)
    def answer(message: Message, context: Context) -> Message:
        key = str(message.content.config_records[RECORD]["key"])
        if key not in context.node_config:
            raise KeyError(f"the node configuration has no key {key!r}; it has {_keys(context)}")
        name = ConfigRecord({"name": str(context.node_config[key])})
        return Message(RecordDict({RECORD: name}), reply_to=message)

    return app


@dataclass
class Names:
    """Client names of the live nodes, and the reasons why some nodes have none.

    Attributes
    ----------
    source : str
        "registered", "asked", "node-id" or "auto", as in `Admission`.
    key : str
        Key of the node configuration to ask for.
    answers : dict from node id to str
        Names that nodes gave when asked.
    holders : dict from str to node id
        The node that held each name last.
    registered : set of str
        Names that any node was registered under so far; a claim of one of them is refused.
    silent : dict from node id to float
        Time at which a node that did not answer was last asked.
    errors : dict from node id to str
        Errors with which nodes answered the last question.
    reported : set of str
        Reasons for refusals that have been reported.
    """

    source: str
    key: str
    answers: dict[int, str] = field(default_factory=dict)
    holders: dict[str, int] = field(default_factory=dict)
    registered: set[str] = field(default_factory=set)
    silent: dict[int, float] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    reported: set[str] = field(default_factory=set)

    def new(self, refused: Mapping[str, str]) -> list[str]:
        """Return the reasons that were not reported before, and mark them as reported."""
        fresh = sorted(set(refused.values()) - self.reported)
        self.reported.update(fresh)
        return fresh

    def resolve(self, grid: Grid) -> tuple[dict[int, str], dict[str, str]]:
        """Return the names of the live nodes, and the reasons why other live nodes have none."""
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
        """Return the names that nodes claim, asking the nodes that were not asked before."""
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
            # Report nodes that still give no name again: the run may be waiting for them.
            again = {self._nameless(node) for node in unknown if node not in answers}
            self.reported -= again
        return {node: self.answers[node] for node in nodes if node in self.answers}

    def _nameless(self, node: int) -> str:
        if self._asks:
            error = f" ({self.errors[node]})" if node in self.errors else ""
            return (
                f"node {node} gave no name when asked{error}; call fedavot.flower.introduce(app) "
                f"in its ClientApp and set {self.key!r} in its node configuration"
            )
        return (
            f"node {node} has no registered name, and claimed names are not accepted here; "
            "register it with flwr supernode register KEY --name NAME (needs Flower 1.41)"
        )

    def _settled(
        self, names: Mapping[int, str], registered: Mapping[int, str], refused: dict[str, str]
    ) -> dict[int, str]:
        """Return at most one node per name; add to ``refused`` why other nodes do not get it."""
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
                    held = f"node {winner} holds" if winner in strongest else f"nodes {nodes} claim"
                    if not strongest:
                        held = "is registered for another node"
                    refused[_label(node)] = f"node {node} claims the name {name!r}, which {held}"
        return settled


def _registered(grid: Grid) -> dict[int, str]:
    """Return the live nodes with their registered names, "" for nodes without one."""
    if hasattr(grid, "get_nodes"):
        return {node.node_id: getattr(node, "name", "") for node in grid.get_nodes()}
    return dict.fromkeys(grid.get_node_ids(), "")


def _answers(
    replies: Iterable[Message], questions: Iterable[Message]
) -> tuple[dict[int, str], dict[int, str]]:
    """Return the names that nodes gave, and the errors that other nodes replied with."""
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
