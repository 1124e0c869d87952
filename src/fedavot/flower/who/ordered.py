"""Sorted nodes and names: differences between lists, and merging a few changes into a list.

A federation may have a hundred thousand nodes, of which few come or go between two updates.
"""

from bisect import bisect_left
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


def beyond(nodes: NDArray[np.uint64], others: NDArray[np.uint64]) -> set[int]:
    """Return the nodes that are not in ``others``, both sorted; sets take several times longer."""
    if not others.size:
        return set(nodes.tolist())
    places = np.minimum(np.searchsorted(others, nodes), others.size - 1)
    return set(nodes[others[places] != nodes].tolist())


def merged(
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
