"""What came back: who replied, who did not and why, and whose update cannot be used.

Flower has three ways of not replying: an error reply from the client, an error reply from the
SuperLink in the client's stead (its node is dead), and silence until the time is up. All count as
asked minus replied. An update is used only if it has the model's arrays and shapes, is finite, and
is in proportion to the updates seen before.

Arrays are looked at where they lie in the reply, without a copy, in pieces that fit a cache.
"""

import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, Metadata
from numpy.typing import NDArray

from fedavot.flower.records import is_float, metrics_of, same_kind, view

_log = logging.getLogger("flwr")

PIECE = 1 << 16
"""Entries compared at a time."""

RECENT = 100
"""How many accepted norms a new one is held against."""

FEWEST = 3
"""Norms below which nothing is said to be out of proportion."""

EXPIRED = 3
"""Flower's error code MESSAGE_UNAVAILABLE."""

Views = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Sorted:
    """A round's replies by client name, in order of the names."""

    usable: dict[str, Message]
    failed: dict[str, str]
    late: list[str]
    excluded: dict[str, str]


@dataclass
class Inspector:
    """Tell usable updates from others.

    Attributes
    ----------
    norm_limit : float or None
        How many times the median norm an update may have.
    weighted_by : str
        The metric that holds weights; it may be missing, for it is overwritten.
    norms : deque of float
        Norms of the last accepted updates.
    """

    norm_limit: float | None
    weighted_by: str
    norms: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def sort(
        self, replies: Iterable[Message], asked: Mapping[str, Metadata], model: ArrayRecord
    ) -> Sorted:
        """Sort replies to the messages sent, one to a client.

        Parameters
        ----------
        replies : iterable of Message
            What came back, in any order.
        asked : mapping from client name to Metadata
            The metadata of what was sent to whom.
        model : ArrayRecord
            What was sent: updates are measured from it.
        """
        by_node = {sent.dst_node_id: name for name, sent in asked.items()}
        by_message = {sent.message_id: name for name, sent in asked.items() if sent.message_id}
        replied: dict[str, Message] = {}
        failed: dict[str, str] = {}
        for reply in replies:
            about = reply.metadata
            name = by_node.get(about.src_node_id)
            if name is None and reply.has_error() and reply.error.code != EXPIRED:
                # The SuperLink's word that a node is dead; nobody's update comes that way. Of a
                # message whose time is up it says that there is none, which is silence.
                name = by_message.get(about.reply_to_message_id)
            if name is None:
                continue
            if reply.has_error():
                failed[name] = f"error {reply.error.code}: {_brief(reply.error.reason)}"
            else:
                replied[name] = reply
        failed = {name: failed[name] for name in sorted(failed) if name not in replied}
        usable = {name: replied[name] for name in sorted(replied)}
        excluded = self._unusable(usable, model)
        for name in excluded:
            del usable[name]
        silent = sorted(asked.keys() - replied.keys() - failed.keys())
        return Sorted(usable, failed, silent, excluded)

    def _unusable(self, replies: Mapping[str, Message], model: ArrayRecord) -> dict[str, str]:
        """Return why some replies cannot be used, and remember the norms of the others."""
        start = {key: view(array) for key, array in model.items()}
        excluded: dict[str, str] = {}
        arrays: dict[str, Views] = {}
        for name, reply in replies.items():
            try:
                _only(reply.content.metric_records, "metric")
                arrays[name] = _like(_only(reply.content.array_records, "array"), start)
            except ValueError as cause:
                excluded[name] = str(cause)
        norms = _norms(arrays, start)
        for name in [name for name, norm in norms.items() if not np.isfinite(norm)]:
            wrong = [key for key, values in arrays[name].items() if not np.isfinite(values).all()]
            found = f"array {wrong[0]!r} is not finite" if wrong else "its update is not finite"
            excluded[name] = found
            del norms[name]
        excluded |= self._out_of_proportion(norms)
        excluded |= self._of_other_metrics(
            {name: reply for name, reply in replies.items() if name not in excluded}
        )
        self.norms.extend(norm for name, norm in norms.items() if name not in excluded)
        return excluded

    def _out_of_proportion(self, norms: Mapping[str, float]) -> dict[str, str]:
        known = [*self.norms, *norms.values()]
        if self.norm_limit is None or len(known) < FEWEST:
            return {}
        usual = median(known)
        return {
            name: f"the norm of its update, {norm:.3g}, is more than {self.norm_limit:g} times "
            f"the median of {usual:.3g}"
            for name, norm in norms.items()
            if norm > self.norm_limit * usual > 0
        }

    def evaluations(self, replies: Iterable[Message]) -> list[Message]:
        """Return the replies to an evaluation that can be averaged, and the errors."""
        listed = list(replies)
        weighted = {
            str(place): reply
            for place, reply in enumerate(listed)
            if not reply.has_error()
            and len(reply.content.metric_records) == 1
            and is_weight(metrics_of(reply).get(self.weighted_by))
        }
        usable = weighted.keys() - self._of_other_metrics(weighted).keys()
        kept = [r for i, r in enumerate(listed) if r.has_error() or str(i) in usable]
        if len(kept) < len(listed):
            left = sorted({r.metadata.src_node_id for r in listed if r not in kept})
            _log.warning(
                "FedAVOT: the evaluations of nodes %s are not used: no %r above 0, or metrics that "
                "the others do not have",
                left,
                self.weighted_by,
            )
        return kept

    def _of_other_metrics(self, replies: Mapping[str, Message]) -> dict[str, str]:
        """Exclude replies whose metrics are not the cohort's: one average is made of them."""
        kinds = {
            name: tuple(
                (key, len(value) if isinstance(value, list) else None)
                for key, value in sorted(metrics_of(reply).items())
                if key != self.weighted_by
            )
            for name, reply in replies.items()
        }
        usual = max(Counter(kinds.values()).items(), key=lambda item: item[1], default=((), 0))[0]
        return {
            name: f"its metrics are {_metrics(these)}, where the cohort's are {_metrics(usual)}"
            for name, these in kinds.items()
            if these != usual
        }


def is_weight(value: Any) -> bool:
    """Return whether a metric can weigh others in an average."""
    return isinstance(value, int | float) and 0 < value < np.inf


def _metrics(kinds: tuple[tuple[str, int | None], ...]) -> str:
    """Return the names of metrics, those of lists with their lengths."""
    return ", ".join(key if size is None else f"{key}[{size}]" for key, size in kinds) or "none"


def _only(records: Mapping[str, Any], what: str) -> Any:
    if len(records) != 1:
        raise ValueError(f"it has {len(records)} {what} records, and one is expected")
    return next(iter(records.values()))


def _like(record: ArrayRecord, start: Views) -> Views:
    """Return a reply's floating-point arrays, or raise how they differ from the model's."""
    missing = [key for key in start if key not in record]
    surplus = [key for key in record if key not in start]
    if missing or surplus:
        parts = [f"lacks {missing[:3]}"] * bool(missing) + [f"adds {surplus[:3]}"] * bool(surplus)
        raise ValueError(f"it {' and '.join(parts)}: not the model's arrays")
    views = {}
    for key, model in start.items():
        try:
            values = view(record[key])
        except Exception as cause:  # whatever a client's bytes may bring about
            raise ValueError(f"array {key!r} cannot be read: {_brief(str(cause))}") from None
        if values.shape != model.shape:
            raise ValueError(
                f"array {key!r} has shape {values.shape}, where the model has {model.shape}"
            )
        if not same_kind(values, model):
            raise ValueError(f"array {key!r} is {values.dtype}, where the model has {model.dtype}")
        if is_float(values):
            with np.errstate(over="ignore"):
                views[key] = values.astype(model.dtype, copy=False)
    return views


def _norms(arrays: Mapping[str, Views], start: Views) -> dict[str, float]:
    """Return the norm of every update; not finite where a value is not."""
    totals = dict.fromkeys(arrays, 0.0)
    for key, model in start.items():
        if is_float(model):
            there = {name: views[key].reshape(-1) for name, views in arrays.items()}
            for name, squares in _squares(there, model.reshape(-1)).items():
                totals[name] += squares
    return {name: float(np.sqrt(total)) for name, total in totals.items()}


def _squares(arrays: Mapping[str, NDArray[Any]], model: NDArray[Any]) -> dict[str, float]:
    """Return ‖values − model‖² for each, taking the model piece by piece while it is in cache."""
    totals = dict.fromkeys(arrays, 0.0)
    dtype = np.result_type(model, np.float32)
    buffer = np.empty(min(PIECE, model.size), dtype=dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, model.size, PIECE):
            start = model[begin : begin + PIECE]
            change = buffer[: start.size]
            for name, values in arrays.items():
                np.subtract(values[begin : begin + PIECE], start, out=change, casting="same_kind")
                squares = float(np.dot(change, change))
                if not np.isfinite(squares):
                    # Of numbers that are finite, the squares may yet be too large for their type.
                    squares = float(np.square(change, dtype=np.float64).sum())
                totals[name] += squares
    return totals


def _brief(reason: str | None) -> str:
    """Return the last line of an error's text: tracebacks end with what went wrong."""
    lines = [line.strip() for line in (reason or "no reason given").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no reason given"
