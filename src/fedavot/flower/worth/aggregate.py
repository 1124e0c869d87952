"""What a wrapped strategy makes of the weighted replies: whether it is finite, and weighted at all.

A strategy of the user's may average without looking at the weights. That is noticed in two ways: it
never reads the metric that holds them, or its result is the plain mean of replies that differ. A
result that is neither the plain nor the weighted mean is taken for a step of the strategy's own.
"""

from collections.abc import ItemsView, Sequence, ValuesView
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord

from fedavot._checks import Floats, enumerated
from fedavot.flower.worth.records import is_float, view

DIFFERENT = 1e-3
"""Relative difference of weights, and of means, from which they can be told apart."""


def fault_of(arrays: ArrayRecord, model: ArrayRecord, *, exact: bool) -> str | None:
    """Return why an aggregate cannot be the next model; None if it can.

    Parameters
    ----------
    arrays : ArrayRecord
        What the wrapped strategy returned.
    model : ArrayRecord
        The model that was sent.
    exact : bool
        Whether the aggregate must have the arrays of the model.
    """
    if exact and arrays.keys() != model.keys():
        differing = enumerated(map(repr, sorted(arrays.keys() ^ model.keys())), 3)
        return (
            f"the wrapped strategy returned other arrays than those of the model ({differing}), "
            "which memory does not allow; leave out memory"
        )
    for key, array in arrays.items():
        values = view(array)
        if values.dtype.kind not in "fiub":
            return f"array {key!r} that the wrapped strategy returned is {values.dtype}, no number"
        if key in model and values.shape != tuple(model[key].shape):
            return (
                f"array {key!r} that the wrapped strategy returned has shape {values.shape}, and "
                f"in the model it has {tuple(model[key].shape)}"
            )
        if is_float(values) and not np.isfinite(values).all():
            bad = int((~np.isfinite(values)).sum())
            return (
                f"array {key!r} that the wrapped strategy returned is not finite in {bad} of "
                f"{values.size} places, though every update was; lower its step or the clients'"
            )
    return None


def sent_arrays(messages: Sequence[Message], model: ArrayRecord) -> ArrayRecord:
    """Return the arrays that clients were sent to train: the model, unless a strategy sends others.

    Parameters
    ----------
    messages : sequence of Message
        The messages of a round.
    model : ArrayRecord
        The global model.
    """
    records = list(messages[0].content.array_records.values()) if messages else []
    if len(records) != 1 or records[0].keys() == model.keys():
        return model
    return records[0]


class WeightWatch:
    """Find out whether a strategy averages by the weights in the replies.

    Parameters
    ----------
    key : str
        Metric that holds the weights.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._trusted = False
        self._read = self._plain = False
        self._means: dict[str, tuple[Floats, Floats]] = {}

    def before(self, replies: Sequence[Message], weights: Floats) -> None:
        """Look at the replies before the strategy gets them."""
        self._read, self._means = False, {}
        if self._trusted or weights.size < 2 or np.ptp(weights) < DIFFERENT * weights.max():
            self._read = True  # nothing to be told apart
            return
        for reply in replies:
            name, record = next(iter(reply.content.metric_records.items()))
            reply.content[name] = _Watched(record, self._key, self)
        records = [next(iter(reply.content.array_records.values())) for reply in replies]
        for key, first in records[0].items():
            if is_float(view(first)) and first.shape:
                values = np.stack([view(record[key]).astype(np.float64) for record in records])
                means = values.mean(axis=0), np.tensordot(weights, values, 1)
                if _apart(*means):
                    self._means[key] = means
                    return

    def note(self) -> None:
        """Note that a weight was read."""
        self._read = True

    def ignored(self, arrays: ArrayRecord) -> bool:
        """Return whether the strategy did not use the weights, given what it returned."""
        self._plain = False
        for key, (plain, weighted) in self._means.items():
            if key in arrays and view(arrays[key]).shape == plain.shape:
                self._plain = not _apart(view(arrays[key]), plain, weighted)
                self._trusted = not _apart(view(arrays[key]), weighted, plain)
        return self._plain or not self._read

    def in_effect(self, weights: Floats) -> Floats:
        """Return the weights that had an effect, as far as they are known."""
        return np.full(weights.size, 1 / weights.size) if self._plain else weights


def _apart(one: Any, other: Any, third: Any = None) -> bool:
    """Return whether two means differ, by the scale of their values or of a third's distance."""
    scale = np.abs(other).max() if third is None else np.abs(other - third).max()
    return bool(np.abs(one - other).max(initial=0.0) > DIFFERENT * scale)


class _Watched(MetricRecord):
    """A metric record that notes when one of its metrics is read."""

    def __init__(self, record: MetricRecord, key: str, watch: WeightWatch) -> None:
        super().__init__(dict(record))
        self.__dict__["_watched"] = key, watch

    def __getitem__(self, item: str) -> Any:
        key, watch = self.__dict__["_watched"]
        if item == key:
            watch.note()
        return super().__getitem__(item)

    def values(self) -> ValuesView[Any]:
        self.__dict__["_watched"][1].note()
        return super().values()

    def items(self) -> ItemsView[str, Any]:
        self.__dict__["_watched"][1].note()
        return super().items()

    def copy(self) -> Any:
        return MetricRecord(dict(self))

    def __deepcopy__(self, memo: Any) -> MetricRecord:
        return self.copy()  # type: ignore[no-any-return]
