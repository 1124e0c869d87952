"""Sort the replies of a round: usable updates, failures, late clients and excluded updates.

In Flower a client can fail to reply in three ways: the client replies with an error, the SuperLink
replies with an error because the node is dead, or no reply arrives before the timeout. In all three
the client was asked and did not reply. An update is used only if it has the arrays and shapes of
the model, is finite, and has a norm in proportion to those of earlier updates.

Arrays are read in the reply without a copy, in blocks that fit into a cache.
"""

import logging
import os
import reprlib
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, Metadata, MetricRecord
from numpy.typing import NDArray

from fedavot._checks import enumerated
from fedavot.flower.worth.learning import plausible
from fedavot.flower.worth.records import (
    brief,
    complete,
    is_float,
    metrics_of,
    records_of,
    rename,
    same_kind,
    view,
)

_log = logging.getLogger("flwr")

PIECE = 1 << 16
"""Number of array entries per block."""

WORTH_WORKERS = 1 << 22
"""Total number of entries above which threads pay off; NumPy releases the interpreter's lock. For
models smaller than a block they do not: then most of the work holds the lock."""

MOST_WORKERS = 4

LARGEST_LOSS = 1e12
"""Largest loss that is accepted; it is raised to a power."""

RECENT = 100
"""Number of accepted norms whose median a new norm is compared with."""

FEWEST = 3
"""Smallest number of norms for which the norm limit applies."""

EXPIRED = (3, 4)
"""Flower's error codes MESSAGE_UNAVAILABLE and REPLY_MESSAGE_UNAVAILABLE."""

Views = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Sorted:
    """The replies of a round by client name, in the order of the names."""

    usable: dict[str, Message]
    failed: dict[str, str]
    late: list[str]
    excluded: dict[str, str]


@dataclass
class Inspector:
    """Separate usable updates from the others.

    Attributes
    ----------
    norm_limit : float or None
        Largest norm of an update, as a multiple of the median of recent norms.
    weighted_by : str
        Metric that holds the weights. A reply may lack it, because it is overwritten.
    needed : str or None
        Metric that every usable update must have.
    norms : deque of float
        Norms of the last accepted updates.
    doubtful : int
        Number of updates in the most recent rounds in which most updates were over the limit.
    """

    norm_limit: float | None
    weighted_by: str
    needed: str | None = None
    norms: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    doubtful: int = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"norms": list(self.norms), "doubtful": self.doubtful}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state in a checkpoint."""
        self.norms.extend(state["norms"])
        self.doubtful = int(state["doubtful"])

    def sort(
        self, replies: Iterable[Message], asked: Mapping[str, Metadata], model: ArrayRecord
    ) -> Sorted:
        """Sort the replies to the messages of a round, one message per client.

        ``asked`` has the metadata of the message sent to each client. Updates are measured from the
        model that was sent.
        """
        by_node = {sent.dst_node_id: name for name, sent in asked.items()}
        by_message = {sent.message_id: name for name, sent in asked.items() if sent.message_id}
        replied: dict[str, Message] = {}
        failed: dict[str, str] = {}
        for reply in replies:
            about = reply.metadata
            name = by_node.get(about.src_node_id)
            if name and asked[name].message_id not in ("", about.reply_to_message_id):
                continue  # a reply to another message
            if name is None and reply.has_error() and reply.error.code not in EXPIRED:
                # The SuperLink reports that a node is dead; updates never come this way. If a
                # message has expired, the SuperLink reports it as unavailable: the client is late.
                name = by_message.get(about.reply_to_message_id)
            if name is None:
                continue
            if reply.has_error():
                failed[name] = f"error {reply.error.code}: {brief(reply.error.reason)}"
            else:
                replied[name] = reply
        failed = {name: failed[name] for name in sorted(failed) if name not in replied}
        usable = {name: replied[name] for name in sorted(replied)}
        excluded = self._unusable(usable, model)
        for name in excluded:
            del usable[name]
        silent = sorted(asked.keys() - replied.keys() - failed.keys())
        return Sorted(usable=usable, failed=failed, late=silent, excluded=excluded)

    def _unusable(self, replies: Mapping[str, Message], model: ArrayRecord) -> dict[str, str]:
        """Return why some replies cannot be used, and keep the norms of the others."""
        start = {key: view(array) for key, array in model.items()}
        excluded: dict[str, str] = {}
        arrays: dict[str, Views] = {}
        for name, reply in replies.items():
            try:
                metrics = _only(records_of(reply, MetricRecord), "metric")
                loss = None if self.needed is None else metrics.get(self.needed)
                is_loss = isinstance(loss, int | float) and 0 <= loss <= LARGEST_LOSS
                if self.needed is not None and not is_loss:
                    raise ValueError(
                        f"its metric {self.needed!r} is {reprlib.repr(loss)}; "
                        f"it must be a number from 0 to {LARGEST_LOSS:g}"
                    )
                arrays[name] = _like(_only(records_of(reply, ArrayRecord), "array"), start)
            except ValueError as cause:
                excluded[name] = brief(str(cause))
        norms = _norms(arrays, start)
        for name in [name for name, norm in norms.items() if not np.isfinite(norm)]:
            wrong = [key for key, values in arrays[name].items() if not np.isfinite(values).all()]
            found = f"array {wrong[0]!r} is not finite" if wrong else "its update is not finite"
            excluded[name] = found
            del norms[name]
        excluded |= self._judged(norms, self._out_of_proportion(norms, start))
        self.norms.extend(norm for name, norm in norms.items() if name not in excluded)
        return excluded

    def _out_of_proportion(self, norms: Mapping[str, float], start: Views) -> dict[str, str]:
        known = [*self.norms, *norms.values()]
        if self.norm_limit is None or len(known) < FEWEST:
            return {}
        usual, what = median(known), "the median"
        if usual == 0:  # most clients return the model unchanged
            zeros = {key: np.zeros_like(values) for key, values in start.items()}
            usual, what = _norms({"model": start}, zeros)["model"], "the model's norm"
        return {
            name: f"the norm of its update, {norm:.3g}, is more than {self.norm_limit:g} times "
            f"{what} of {usual:.3g}"
            for name, norm in norms.items()
            if norm > self.norm_limit * usual > 0
        }

    def _judged(self, norms: Mapping[str, float], over: dict[str, str]) -> dict[str, str]:
        """Return the updates over the limit, unless most of a round are: then the limit is wrong.

        Updates may have grown for all clients, for example after a change of the step size. If
        rounds have only one or two replies, several such rounds in a row, with at least three
        replies in total, are needed.
        """
        if norms:
            self.doubtful = self.doubtful + len(norms) if 2 * len(over) > len(norms) else 0
        if self.doubtful < FEWEST:
            return over
        _log.warning(
            "FedAVOT: %d of %d updates are over the norm limit, which is therefore wrong: all are "
            "accepted, and later ones are compared with these; the first: %s",
            len(over),
            len(norms),
            next(iter(over.values())),
        )
        self.norms.clear()
        self.doubtful = 0
        return {}

    def usable_evaluations(
        self, replies: Iterable[Message], importance: Mapping[int, float] | None = None
    ) -> list[Message]:
        """Return the replies to an evaluation that can be averaged, and the error replies.

        They are weighted by the importance of their nodes, if it is given, instead of the counts in
        them.
        """
        usable: list[Message] = []
        errors: list[Message] = []
        weights: list[float] = []
        left: list[int] = []
        for reply in replies:
            node = reply.metadata.src_node_id
            if reply.has_error():
                errors.append(reply)
                continue
            found = list(records_of(reply, MetricRecord).values())
            weight: Any = None
            if len(found) == 1:
                counted = found[0].get(self.weighted_by)
                weight = counted if importance is None else importance.get(node)
            if isinstance(weight, int | float) and 0 < weight < np.inf:
                usable.append(reply)
                weights.append(weight)
            else:
                left.append(node)
        if left:
            _log.warning(
                "FedAVOT: the evaluations of nodes %s are not used: %s is missing or not above 0",
                left,
                repr(self.weighted_by) if importance is None else "their importance",
            )
        if usable:
            counts = np.array(weights, dtype=np.float64)
            shares = plausible(counts) if importance is None else counts
            metrics: list[Any] = [metrics_of(reply) for reply in usable]
            for record, share in zip(metrics, shares.tolist(), strict=True):
                if record.get(self.weighted_by) != share:
                    record[self.weighted_by] = share
            rename(usable, MetricRecord)
            complete(metrics, shares, but=self.weighted_by)
        return usable + errors


def _only(records: Mapping[str, Any], what: str) -> Any:
    if len(records) != 1:
        raise ValueError(f"it has {len(records)} {what} records; exactly one is expected")
    return next(iter(records.values()))


def _like(record: ArrayRecord, start: Views) -> Views:
    """Return the floating-point arrays of a reply; raise if they do not match the model."""
    missing = [key for key in start if key not in record]
    surplus = [key for key in record if key not in start]
    if missing or surplus:
        raise ValueError(
            f"its arrays are not those of the model: missing {enumerated(map(repr, missing), 3)}, "
            f"unexpected {enumerated(map(repr, surplus), 3)}"
        )
    views = {}
    for key, model in start.items():
        try:
            values = view(record[key])
        except Exception as cause:  # arbitrary bytes from a client can raise anything
            raise ValueError(f"array {key!r} cannot be read: {brief(str(cause))}") from None
        if values.shape != model.shape:
            raise ValueError(
                f"array {key!r} has shape {values.shape}; in the model it has {model.shape}"
            )
        if not same_kind(values, model):
            raise ValueError(f"array {key!r} is {values.dtype}; in the model it is {model.dtype}")
        if is_float(values):
            if values.dtype != model.dtype:
                with np.errstate(over="ignore"):
                    values = values.astype(model.dtype)
            views[key] = values
    return views


def _norms(arrays: Mapping[str, Views], start: Views) -> dict[str, float]:
    """Return the norm of every update; not finite if any value is not."""
    size = sum(model.size for model in start.values())
    workers = min(os.cpu_count() or 1, MOST_WORKERS, len(arrays))
    if workers < 2 or size < PIECE or size * len(arrays) <= WORTH_WORKERS:
        return _norms_of(arrays, start)
    names = list(arrays)
    shares = [{name: arrays[name] for name in names[i::workers]} for i in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        found = pool.map(lambda share: _norms_of(share, start), shares)
        return {name: norm for norms in found for name, norm in norms.items()}


def _norms_of(arrays: Mapping[str, Views], start: Views) -> dict[str, float]:
    totals = dict.fromkeys(arrays, 0.0)
    for key, model in start.items():
        if is_float(model):
            there = {name: views[key].reshape(-1) for name, views in arrays.items()}
            for name, squares in _squares(there, model.reshape(-1)).items():
                totals[name] += squares
    return {name: float(np.sqrt(total)) for name, total in totals.items()}


def _squares(arrays: Mapping[str, NDArray[Any]], model: NDArray[Any]) -> dict[str, float]:
    """Return ‖values − model‖² of each reply, block by block, so that the model stays in cache."""
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
                    # The squares of finite numbers can overflow their type.
                    squares = float(np.square(change, dtype=np.float64).sum())
                totals[name] += squares
    return totals
