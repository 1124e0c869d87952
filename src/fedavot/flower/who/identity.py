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
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from fedavot.flower.kept.names import as_array, packed, unpacked
from fedavot.flower.who.asking import ask, too_long

RETRY = 60.0
"""Seconds after which a node that gave no name is asked again."""

KEPT = 3600.0
"""Seconds for which the answer of a node that left is kept; after that it is asked again."""


@dataclass
class Names:
    """Client names of the live nodes, and the reasons why some nodes have none.

    A look at the grid costs as much as the changes since the last one, apart from listing the
    nodes, because a federation may have a hundred thousand of them.

    Attributes
    ----------
    source : str
        "registered", "asked", "node-id" or "auto", as in `Admission`.
    key : str
        Key of the node configuration to ask for.
    nodes : dict from client name to node id
        Live nodes by client name, in the order of the names. It is replaced, never changed.
    refused : dict of str
        Why other live nodes have no name, by node. It is replaced, never changed.
    changes : int
        Number of looks that found other nodes, names or reasons than the look before.
    """

    source: str
    key: str
    nodes: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    changes: int = 0

    def __post_init__(self) -> None:
        self._registered: dict[int, str] = {}  # by node; "" if a node has no registered name
        self._answers: dict[int, str] = {}
        self._errors: dict[int, str] = {}
        self._asked_at: dict[int, float] = {}  # nodes that gave no name
        self._holders: dict[str, int] = {}
        self._reserved: set[str] = set()  # names that any node was registered under
        self._gone: dict[int, float] = {}  # when nodes were found gone, the longest gone first
        self._reported: set[str] = set()
        self._saved: dict[str, Any] | None = None
        # Of the last look: all nodes, those without a name, claims, and why claims were refused.
        self._listed: list[int] = []
        self._live: set[int] = set()
        self._nameless: set[int] = set()
        self._claims: dict[str, set[int]] = {}
        self._contested: dict[int, str] = {}

    def new_reasons(self, refused: Mapping[str, str]) -> list[str]:
        """Return the reasons that were not reported before, and mark them as reported."""
        fresh = sorted(set(refused.values()) - self._reported)
        self._reported.update(fresh)
        return fresh

    def resolve(self, grid: Grid, config: Mapping[str, Any] | None = None) -> None:
        """Look at the grid: update ``nodes`` and ``refused``.

        Parameters
        ----------
        grid : Grid
            The grid to look at.
        config : mapping, optional
            What a message of the present round has as its configuration. Questions for names have
            it too, because mods of a ClientApp may read it.
        """
        listed = list(grid.get_node_ids())
        if listed == self._listed and not self._nameless:
            return
        live, believed = set(listed), self._asks
        live -= self._without_entry(live - self._live, grid)
        if self._asks != believed:
            self._forget()
        came, went = live - self._live, self._live - live
        self._listed, self._live = listed, live
        touched = {self.name_of(node) for node in came | went}
        for node in went:
            self._claims.get(self.name_of(node), set()).discard(node)
        self._remember(came, went)
        self._nameless = (self._nameless | came) - went
        config = {"server-round": 0} | dict(config or {})
        asked = self._ask([node for node in listed if node in self._nameless], grid, config)
        named = [node for node in self._nameless if self.name_of(node)]
        for node in named:
            self._claims.setdefault(self.name_of(node), set()).add(node)
            touched.add(self.name_of(node))
        self._nameless.difference_update(named)
        self.changes += bool(came or went or named)
        if came or went or asked:
            self._settle(touched - {""})

    @property
    def _asks(self) -> bool:
        return self.source == "asked" or (self.source == "auto" and not self._reserved)

    def _forget(self) -> None:
        """Forget the last look, so that the next one finds every node anew."""
        self._listed, self._live, self._nameless = [], set(), set()
        self._claims, self._contested = {}, {}
        self.nodes, self.refused = {}, {}

    def name_of(self, node: int) -> str:
        """Return the name under which a node comes, "" if it has none."""
        if self.source == "node-id":
            return str(node)
        if registered := self._registered.get(node, ""):
            return "" if too_long(registered) else registered
        return self._answers.get(node, "") if self._asks else ""

    def _without_entry(self, came: set[int], grid: Grid) -> set[int]:
        """Keep the registered names of nodes that came; return those that left again meanwhile."""
        # The names take longer to list than the ids, and those of known nodes do not change.
        unknown = came - self._registered.keys()
        if not unknown:
            return set()
        found = dict.fromkeys(unknown, "")
        if hasattr(grid, "get_nodes"):
            names = {node.node_id: getattr(node, "name", "") for node in grid.get_nodes()}
            found = {node: names[node] for node in unknown if node in names}
        self._registered |= found
        self._reserved.update(name for name in found.values() if name)
        self._saved = None
        return unknown - found.keys()

    def _remember(self, came: Set[int], went: Set[int]) -> None:
        """Note who left and who is back, and forget claims of nodes that left long ago."""
        now = time.monotonic()
        for node in came & self._gone.keys():
            del self._gone[node]
        self._gone.update(dict.fromkeys(went, now))
        for node in list(self._gone):
            if now - self._gone[node] <= KEPT:
                break
            del self._gone[node]
            name = self._answers.pop(node, None)
            if name is not None and self._holders.get(name) == node:
                del self._holders[name]
            if not self._registered.get(node):
                for table in (self._registered, self._errors, self._asked_at):
                    table.pop(node, None)
            self._saved = None

    def _ask(self, nodes: list[int], grid: Grid, config: Mapping[str, Any]) -> bool:
        """Ask nodes for their names, unless they were just asked; return whether any was."""
        now = time.monotonic()
        unknown = [
            node
            for node in nodes
            if not (self.name_of(node) or self._registered[node])
            and now - self._asked_at.get(node, -math.inf) > RETRY
        ]
        if not unknown or not self._asks:
            return False
        answers, errors = ask(grid, unknown, self.key, config)
        for node in unknown:
            self._errors.pop(node, None)
        self._answers |= answers
        self._errors |= errors
        silent = [node for node in unknown if node not in answers]
        self._asked_at |= dict.fromkeys(silent, time.monotonic())
        # Report nodes that still give no name again: the run may be waiting for them.
        self._reported -= {self._reason(node) for node in silent}
        self._saved = None
        return True

    def _reason(self, node: int) -> str:
        """Return why a node has no name."""
        if wrong := too_long(self._registered[node]):
            return f"node {node} is refused: {wrong}; register it under a shorter name"
        error = f" ({self._errors[node]})" if node in self._errors else ""
        if self._asks:
            return (
                f"node {node} gave no name when asked{error}; call fedavot.flower.introduce(app) "
                f"in its ClientApp and set {self.key!r} in its node configuration"
            )
        return (
            f"node {node} has no registered name, and claimed names are not accepted here; "
            "register it with flwr supernode register KEY --name NAME (needs Flower 1.41)"
        )

    def _settle(self, touched: set[str]) -> None:
        """Give each of these names to at most one node; note why other nodes do not get it."""
        nodes = {name: node for name, node in self.nodes.items() if name not in touched}
        self._contested = {node: why for node, why in self._contested.items() if node in self._live}
        for name in touched:
            claimants = sorted(self._claims.get(name, ()))
            if not claimants:
                self._claims.pop(name, None)
                continue
            strongest = [node for node in claimants if self._registered[node]]
            if not strongest and name not in self._reserved:
                strongest = claimants
            winner = strongest[0] if len(strongest) == 1 else self._holders.get(name, -1)
            if winner in strongest:
                nodes[name] = winner
                self._hold(name, winner)
            held = f"node {winner} holds" if winner in strongest else f"nodes {claimants} claim"
            if not strongest:
                held = "is registered for another node"
            for node in claimants:
                self._contested.pop(node, None)
                if nodes.get(name) != node:
                    self._contested[node] = f"node {node} claims the name {name!r}, which {held}"
        self.nodes = {name: nodes[name] for name in sorted(nodes)}
        reasons = {node: self._reason(node) for node in sorted(self._nameless)} | self._contested
        self.refused = {f"node {node}": why for node, why in reasons.items()}

    def _hold(self, name: str, node: int) -> None:
        if self._holders.get(name) != node:
            self._holders[name] = node
            self._saved = None

    def state_dict(self) -> dict[str, Any]:
        """Return the names of the nodes for a checkpoint, as arrays."""
        if self._saved is None:
            registered = {node: name for node, name in self._registered.items() if name}
            names = self._answers | registered
            self._saved = {
                "nodes": np.fromiter(names, dtype=np.uint64, count=len(names)),
                "names": as_array(packed(names.values())),
                "registered": np.array([node in registered for node in names], dtype=bool),
                "holders": np.array([self._holders.get(names[it]) == it for it in names], bool),
            }
        return self._saved

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the names that :meth:`state_dict` returned."""
        names = dict(zip(state["nodes"].tolist(), unpacked(state["names"]), strict=True))
        registered, holders = state["registered"].tolist(), state["holders"].tolist()
        for (node, name), is_registered, holds in zip(
            names.items(), registered, holders, strict=True
        ):
            (self._registered if is_registered else self._answers)[node] = name
            if holds:
                self._holders[name] = node
        self._reserved = {name for name in self._registered.values() if name}
        self._gone = dict.fromkeys(names, time.monotonic())
        self._saved = None
        self._forget()
