"""Wording of messages about clients and nodes: one, several, or many for the same reason."""

from collections.abc import Iterable, Mapping

from fedavot._checks import enumerated


def of_clients(names: Iterable[str], *, one: str, several: str) -> str:
    """Return a sentence about clients, given its ending for one client and for several.

    >>> of_clients(["a"], one="was", several="were"), of_clients("ba", one="was", several="were")
    ("client 'a' was", "clients 'a' and 'b' were")
    """
    ordered = sorted(names)
    listed = enumerated(map(repr, ordered))
    return f"client {listed} {one}" if len(ordered) == 1 else f"clients {listed} {several}"


def grouped(refused: Mapping[str, str]) -> list[str]:
    """Return reasons for refusals, merging those that differ only in the node or client.

    Parameters
    ----------
    refused : mapping
        Reasons by "node" and its id or by client name; each reason begins with its key.

    Examples
    --------
    >>> grouped({"node 1": "node 1 has no name", "node 2": "node 2 has no name"})
    ['each of 2 nodes (1 and 2) has no name']
    """
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for key, reason in refused.items():
        kind, name = ("node", key.removeprefix("node ")) if reason.startswith(key) else ("", "")
        if reason.startswith(label := f"client {key!r}"):
            kind, name, rest = "client", repr(key), reason.removeprefix(label)
        else:
            rest = reason.removeprefix(key)
        groups.setdefault((kind, rest), []).append((name, reason))
    found = []
    for (kind, rest), members in groups.items():
        names = enumerated([name for name, _ in members], 3)
        several = f"each of {len(members):,} {kind}s ({names}){rest}"
        found.append(several if kind and len(members) > 1 else members[0][1])
    return found
