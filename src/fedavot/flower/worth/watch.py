"""What a user's strategy does with the replies: which of them it uses, and with which weights.

This detects two things that would otherwise go unnoticed. A strategy may leave replies out, such as
those of clients that report that they did not train: a reply is used if both its weight and its
arrays are read, or only its arrays if the strategy reads no weight at all. And it may average
without weights: it never reads the metric that holds them, or its result is the plain mean of
replies that differ. A result that is neither the plain nor the weighted mean is taken to be the
strategy's own step.

With memory, replies are combined before the strategy averages them. This happens only when it reads
the first array, because by then Flower's own aggregation has read the weights of all replies that
it is going to use. A strategy that turns out to use others is refused.
"""

from collections.abc import Callable, ItemsView, Mapping, MutableMapping, ValuesView
from functools import partial
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord

from fedavot._checks import Floats, enumerated
from fedavot.flower.worth.records import arrays_of, is_float, view

DIFFERENT = 1e-3
"""Relative difference above which weights, or means, count as different."""

Combine = Callable[[dict[str, Message]], ArrayRecord]
"""A function from the replies that are used, by client name, to the arrays that all of them get."""


class Watch:
    """Watch a strategy use the replies of a round.

    Parameters
    ----------
    key : str
        Metric that holds the weights.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._trusted = False
        self._replies: dict[str, Message] = {}
        self._came: dict[str, dict[str, Any]] = {}
        self._weighed: set[str] = set()
        self._opened: set[str] = set()
        self._combine: Combine | None = None
        self._combined: list[str] | None = None
        self._means: dict[str, tuple[Floats, Floats]] = {}

    def before(
        self, replies: Mapping[str, Message], weights: Floats, combine: Combine | None = None
    ) -> None:
        """Prepare replies for the strategy, which must not have read them yet.

        Replies are given by client name, with weights in their metrics; their records are replaced
        by watched ones. With memory, ``combine`` returns the arrays that replace those of every
        reply, computed from the original replies.
        """
        self._weighed, self._opened, self._means = set(), set(), {}
        self._combine, self._combined = combine, None
        self._replies = dict(replies)
        self._came = {name: dict(reply.content) for name, reply in replies.items()}
        apart = weights.size > 1 and np.ptp(weights) >= DIFFERENT * weights.max()
        if apart and combine is None and not self._trusted:
            self._means = _means([arrays_of(reply) for reply in replies.values()], weights)
        for name, reply in replies.items():
            for record_name, record in self._came[name].items():
                if isinstance(record, MetricRecord):
                    reply.content[record_name] = _Metrics(record, partial(self._weigh, name))
                elif isinstance(record, ArrayRecord):
                    reply.content[record_name] = _Arrays(record, partial(self._open, name))

    @property
    def used(self) -> list[str]:
        """The clients whose replies the strategy used; all if it read no array."""
        found = self._weighed & self._opened or self._opened
        return [name for name in self._replies if name in found or not found]

    @property
    def conflict(self) -> str | None:
        """Why memory is incompatible with what the strategy did; None if it is not."""
        if self._combined is None or self._combined == self.used:
            return None
        dropped = enumerated(map(repr, [name for name in self._combined if name not in self.used]))
        return (
            "with memory, updates are combined before the wrapped strategy averages them, and its "
            f"aggregate_train then left out those of clients {dropped}; choose the replies first "
            "and pass only these to super().aggregate_train, or leave out memory"
        )

    def in_effect(self, arrays: ArrayRecord, weights: Floats) -> tuple[Floats, bool]:
        """Return the weights behind a result, as far as known, and if those given were used."""
        for key, (plain, weighted) in self._means.items():
            if key in arrays and view(arrays[key]).shape == plain.shape:
                self._trusted = not _apart(view(arrays[key]), weighted, plain)
                if not _apart(view(arrays[key]), plain, weighted):
                    return np.full(weights.size, 1 / weights.size), False
        equal = weights.size < 2 or np.ptp(weights) < DIFFERENT * weights.max()
        return weights, bool(self._weighed or equal or self._trusted)

    def _weigh(self, name: str, metric: str | None) -> None:
        """Note that the weight of a reply was read."""
        if metric in (None, self._key):
            self._weighed.add(name)

    def _open(self, name: str, array: str | None) -> None:
        """Note that the arrays of a reply are read; with memory, combine the replies first."""
        self._opened.add(name)
        if self._combine is None or self._combined is not None:
            return
        self._combined = [it for it in self._replies if it in self._weighed or not self._weighed]
        watched = {it: dict(reply.content) for it, reply in self._replies.items()}
        for it, reply in self._replies.items():
            _put(reply, self._came[it])
        combined = self._combine({it: self._replies[it] for it in self._combined})
        for it, reply in self._replies.items():
            _put(reply, watched[it])
            arrays_of(reply).update(combined)


def _put(reply: Message, records: dict[str, Any]) -> None:
    """Replace the records of a reply; Flower warns of each that is overwritten by another type."""
    reply.content.clear()
    reply.content.update(records)


def _means(records: list[ArrayRecord], weights: Floats) -> dict[str, tuple[Floats, Floats]]:
    """Return the plain and the weighted mean of the first array in which they differ."""
    for key, first in records[0].items():
        if is_float(view(first)) and first.shape:
            values = np.stack([view(record[key]).astype(np.float64) for record in records])
            means = values.mean(axis=0), np.tensordot(weights, values, 1)
            if _apart(*means):
                return {key: means}
    return {}


def _apart(one: Any, other: Any, third: Any = None) -> bool:
    """Return whether two means differ, relative to their values or the distance from a third."""
    scale = np.abs(other).max() if third is None else np.abs(other - third).max()
    return bool(np.abs(one - other).max(initial=0.0) > DIFFERENT * scale)


class _Noted(MutableMapping[str, Any]):
    """A Flower record that notes which of its items are read; None stands for all of them."""

    _plain: ClassVar[Any]

    def __init__(self, record: Any, note: Callable[[str | None], None]) -> None:
        begin: Any = super().__init__
        begin(dict(record))
        self.__dict__["_note"] = note

    def __getitem__(self, item: str) -> Any:
        self.__dict__["_note"](item)
        return super().__getitem__(item)

    def values(self) -> ValuesView[Any]:
        self.__dict__["_note"](None)
        return super().values()

    def items(self) -> ItemsView[str, Any]:
        self.__dict__["_note"](None)
        return super().items()

    def copy(self) -> Any:
        """Return a record of Flower's own class."""
        return self._plain(dict(self))

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()


class _Metrics(_Noted, MetricRecord):
    """Metrics that note when they are read."""

    _plain = MetricRecord


class _Arrays(_Noted, ArrayRecord):
    """Arrays that note when they are read."""

    _plain = ArrayRecord
