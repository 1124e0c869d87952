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
from bisect import bisect_left
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedavot.flower.kept.packing import as_array, packed, unpacked
from fedavot.flower.who.asking import ask, too_long
from fedavot.flower.who.saying import grouped

RETRY = 60.0
"""Seconds after which a node that gave no name is asked again."""

KEPT = 3600.0
"""Seconds for which the answer of a node that left is kept; after that it is asked again."""


@dataclass
class Names:
    """Client names of the live nodes, and the reasons why some nodes have none.

    Apart from listing the nodes, the cost of an update is proportional to the changes since the
    last one, because a federation may have a hundred thousand nodes.

    Attributes
    ----------
    source : str
        "registered", "asked", "node-id" or "auto", as in `Admission`.
    key : str
        Key of the node configuration to ask for.
    record : str
        Name of the record in which the strategy sends a round's configuration.
    nodes : dict from client name to node id
        Live nodes by client name.
    ordered : tuple of list of str and list of int
        The names in order, and their nodes. It is replaced, never changed.
    fresh : set of str
        Names that got a node since this was last replaced.
    refused : dict of str
        Why other live nodes have no name, by node. It is replaced, never changed.
    changes : int
        Number of updates that found different nodes, names or reasons than the update before.
    """

    source: str
    key: str
    record: str = "config"
    nodes: dict[str, int] = field(init=False)
    ordered: tuple[list[str], list[int]] = field(init=False)
    fresh: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(init=False)
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
        self._forget()

    def _forget(self) -> None:
        """Discard the last update, so that the next one treats every node as new."""
        # All nodes as listed and in order, nodes without a name, and refusals of contested names.
        self._listed: list[int] = []
        self._live = np.zeros(0, dtype=np.uint64)
        self._nameless: set[int] = set()
        self._disputed: dict[str, dict[int, str]] = {}
        self.nodes, self.ordered, self.refused = {}, ([], []), {}

    def new_reasons(self, refused: Mapping[str, str]) -> list[str]:
        """Return the reasons that were not reported before, and mark them as reported."""
        fresh = {who: why for who, why in refused.items() if why not in self._reported}
        self._reported.update(fresh.values())
        return grouped(fresh)

    @property
    def hopeless(self) -> int:
        """Number of nameless nodes that answered or are not asked; the others may still answer."""
        return sum(
            not self._asks or node in self._errors or bool(self._registered[node])
            for node in self._nameless
        )

    def resolve(self, grid: Grid, config: Mapping[str, Any] | None = None) -> None:
        """Update ``nodes`` and ``refused`` from the grid.

        Queries for names have the configuration of the current round's messages, because mods of a
        ClientApp may read it.
        """
        listed = list(grid.get_node_ids())
        if listed == self._listed and not self._nameless:
            return
        believed = self._asks
        live = np.sort(np.fromiter(listed, dtype=np.uint64, count=len(listed)))
        missing = self._without_entry(_beyond(live, self._live), grid)
        if missing:
            live = np.array([node for node in live.tolist() if node not in missing], np.uint64)
        if self._asks != believed:
            self._forget()
        came, went = _beyond(live, self._live), _beyond(self._live, live)
        self._listed, self._live = listed, live
        self._remember(came, went)
        waiting = (self._nameless | came) - went
        nameless = {node for node in waiting if not self.name_of(node)}
        told = {"server-round": 0} | dict(config or {})
        asked = bool(nameless) and self._ask([it for it in listed if it in nameless], grid, told)
        self._nameless = {node for node in nameless if not self.name_of(node)}
        named = waiting - self._nameless
        self.changes += bool(came or went or named)
        if came or went or asked:
            self._settle(named, went)

    @property
    def _asks(self) -> bool:
        return self.source == "asked" or (self.source == "auto" and not self._reserved)

    def name_of(self, node: int) -> str:
        """Return the name that a node is registered under or claims, "" if it has none."""
        if self.source == "node-id":
            return str(node)
        if registered := self._registered.get(node, ""):
            return "" if too_long(registered) else registered
        return self._answers.get(node, "") if self._asks else ""

    def _without_entry(self, came: set[int], grid: Grid) -> set[int]:
        """Keep the registered names of new nodes; return the nodes that have already left again."""
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
        """Note which nodes left or came back, and discard claims of nodes that left long ago."""
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
        answers, errors = ask(grid, unknown, self.key, config, record=self.record)
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
        if self._asks and node in self._errors:
            return f"node {node} gave no name when asked: {self._errors[node]}"
        if self._asks:
            return (
                f"node {node} gave no name when asked; call fedavot.flower.introduce(app) in its "
                f"ClientApp and set {self.key!r} in its node configuration"
            )
        return (
            f"node {node} has no registered name, and claimed names are not accepted here; "
            "register it with flwr supernode register KEY --name NAME (needs Flower 1.41)"
        )

    def _settle(self, named: set[int], went: set[int]) -> None:
        """Give each name to at most one node; note why other nodes do not get it."""
        new: dict[str, int] = {}
        lost: set[str] = set()
        disputed = set(self._disputed)
        for node in went:
            name = self.name_of(node)
            if self.nodes.get(name) == node:
                del self.nodes[name]
                lost.add(name)
        for node in named:
            name = self.name_of(node)
            if name in self.nodes or name in new or self._is_anothers(node, name):
                disputed.add(name)
            new[name] = node
        claims: dict[str, list[int]] = {name: [] for name in disputed}
        for node in self._live.tolist() if disputed else ():
            if (name := self.name_of(node)) in claims:
                claims[name].append(node)
        self._disputed = {}
        for name, claimants in claims.items():
            if self.nodes.pop(name, None) is not None:
                lost.add(name)
            new.pop(name, None)
            winner = self._decide(name, claimants)
            if winner is not None:
                new[name] = winner
        for name, node in new.items():
            if self._holders.get(name) != node:
                self._holders[name], self._saved = node, None
        self.nodes |= new
        self.fresh |= new.keys()
        self.ordered = _merged(*self.ordered, lost=lost, new=new)
        reasons = {node: self._reason(node) for node in sorted(self._nameless)}
        for refusals in self._disputed.values():
            reasons |= refusals
        self.refused = {f"node {node}": why for node, why in reasons.items()}

    def _decide(self, name: str, claimants: list[int]) -> int | None:
        """Return which of several nodes gets a name, if any; note why the others do not."""
        strongest = [node for node in claimants if not self._is_anothers(node, name)]
        winner = strongest[0] if len(strongest) == 1 else self._holders.get(name)
        if winner not in strongest:
            winner = None
        held = f"nodes {claimants} claim" if winner is None else f"node {winner} holds"
        if not strongest:
            held = "is registered for another node"
        refusals = {
            node: f"node {node} claims the name {name!r}, which {held}"
            for node in claimants
            if node != winner
        }
        if refusals:
            self._disputed[name] = refusals
        return winner

    def _is_anothers(self, node: int, name: str) -> bool:
        """Return whether a node claims a name that is registered for another node."""
        claims = self.source != "node-id" and not self._registered[node]
        return claims and name in self._reserved

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
        """Continue with the names that `state_dict` returned."""
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


def _beyond(nodes: NDArray[np.uint64], others: NDArray[np.uint64]) -> set[int]:
    """Return the nodes that are not in ``others``, both sorted; sets take several times longer."""
    if not others.size:
        return set(nodes.tolist())
    places = np.minimum(np.searchsorted(others, nodes), others.size - 1)
    return set(nodes[others[places] != nodes].tolist())


def _merged(
    names: list[str], nodes: list[int], *, lost: set[str], new: Mapping[str, int]
) -> tuple[list[str], list[int]]:
    """Return sorted names and their nodes, without the lost names and with the new ones.

    Names that stay are copied in slices: looking up a hundred thousand names takes longer than
    listing the nodes.
    """
    found: tuple[list[str], list[int]] = ([], [])
    begin = 0
    for name in sorted(lost | new.keys()):
        place = bisect_left(names, name, begin)
        found[0].extend(names[begin:place])
        found[1].extend(nodes[begin:place])
        begin = place + (name in lost)
        if name in new:
            found[0].append(name)
            found[1].append(new[name])
    return found[0] + names[begin:], found[1] + nodes[begin:]
