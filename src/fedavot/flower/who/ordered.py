"""Nodes and names in order: what is in one list and not in another, and lists with few changes.

A federation may have a hundred thousand nodes, of which few come or go between two looks.
"""

from bisect import bisect_left
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


def beyond(nodes: NDArray[np.uint64], others: NDArray[np.uint64]) -> set[int]:
    """Return the nodes that are not among others, both in order; sets take several times longer."""
    if not others.size:
        return set(nodes.tolist())
    places = np.minimum(np.searchsorted(others, nodes), others.size - 1)
    return set(nodes[others[places] != nodes].tolist())


def merged(
    names: list[str], nodes: list[int], *, lost: set[str], new: Mapping[str, int]
) -> tuple[list[str], list[int]]:
    """Return names in order and their nodes, without those lost and with new ones.

    What stays is copied in slices: to look up a hundred thousand names takes longer than to list
    the nodes.
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
