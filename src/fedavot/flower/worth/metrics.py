"""Metrics of replies, made uniform so that any strategy can average them.

Flower averages metrics only if all replies have the same ones in the same form. Here a reply that
lacks a metric, or has it in another form or with a value that is not finite, is given the weighted
mean of the others, so that the weighted average of the metric is that of the replies that have it:

    Σ_all w_i v_i / Σ_all w_i = Σ_have w_i v_i / Σ_have w_i.

A metric that fewer than half of the replies have in one form is removed. If most values of a metric
are not finite, they are kept: training may have diverged, and the average should show it.
"""

import logging
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import MetricRecord
from numpy.typing import ArrayLike

from fedavot._checks import enumerated

_log = logging.getLogger("flwr")


def complete(records: Sequence[MetricRecord], weights: ArrayLike, *, but: str) -> None:
    """Give all records the metrics that at least half of them have in one form.

    Parameters
    ----------
    records : sequence of MetricRecord
        One record per reply; they are changed.
    weights : array_like of shape (n_replies,)
        One weight per reply.
    but : str
        Metric to leave alone, which holds the weights.
    """
    filled: list[str] = []
    for key in sorted({key for record in records for key in record} - {but}):
        forms = Counter(_form(record[key]) for record in records if key in record)
        usual, times = forms.most_common(1)[0]
        if 2 * times < len(records):
            for record in records:
                record.pop(key, None)
            continue
        has = [key in record and _form(record[key]) == usual for record in records]
        finite = [it and _is_finite(record[key]) for it, record in zip(has, records, strict=True)]
        good = finite if 2 * sum(finite) >= len(records) else has
        if not all(good):
            filled.append(repr(key))
            _fill(records, key, good, np.asarray(weights, dtype=np.float64))
    if filled:
        _log.warning(
            "FedAVOT: metrics %s are averaged over the replies that have them as finite numbers "
            "of the usual form, which not all do",
            enumerated(filled),
        )


def _fill(records: Sequence[MetricRecord], key: str, good: list[bool], weights: Any) -> None:
    """Give the records that are not good the weighted mean of the others."""
    known = [record[key] for record, it in zip(records, good, strict=True) if it]
    shares = weights[np.array(good)]
    shares = shares / shares.sum() if shares.sum() > 0 else np.full(len(known), 1 / len(known))
    mean = shares @ np.asarray(known, dtype=np.float64)
    for record, it in zip(records, good, strict=True):
        if not it:
            record[key] = mean.tolist()


def _form(value: Any) -> int | None:
    """Return the length of a list, or None for a number."""
    return len(value) if isinstance(value, list) else None


def _is_finite(value: Any) -> bool:
    return all(map(math.isfinite, value)) if isinstance(value, list) else math.isfinite(value)
