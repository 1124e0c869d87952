"""Arrays and metrics of Flower's records, prepared so that any strategy can average them.

Arrays are read without a copy, and cast to the number types of the model. Flower averages metrics
only if all replies have the same ones in the same form. Here a reply that lacks a metric, or has it
in another form or with a value that is not finite, is given the weighted mean of the others, so
that the weighted average of the metric is that of the replies that have it:

    Σ_all w_i v_i / Σ_all w_i = Σ_have w_i v_i / Σ_have w_i.

A metric that fewer than half of the replies have in one form is removed. If most values of a metric
are not finite, they are kept: training may have diverged, and the average should show it.
"""

import copy
import logging
import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any, Literal, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import enumerated
from fedavot.errors import TaskError

_log = logging.getLogger("flwr")

Record = TypeVar("Record", bound=ArrayRecord | MetricRecord)

LONGEST_KEPT = 512
"""Length in bytes up to which array headers are cached; clients can send longer ones."""


def view(array: Array) -> NDArray[Any]:
    """Return a read-only view of a serialised array, without a copy."""
    data = array.data
    if array.stype != "numpy.ndarray" or data[6:8] != b"\x01\x00":
        return array.numpy()
    start = 10 + int.from_bytes(data[8:10], "little")
    read = _header if start <= LONGEST_KEPT else _header.__wrapped__
    shape, order, dtype = read(data[:start])
    return np.frombuffer(data, dtype=dtype, offset=start).reshape(shape, order=order)


@lru_cache(maxsize=1 << 12)
def _header(head: bytes) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any]]:
    """Return shape, order and type from a header of NumPy's format, version 1.

    Cached, because parsing a header takes longer than reading a small array, and replies repeat
    headers.
    """
    stream = BytesIO(head)
    npy.read_magic(stream)
    shape, column_major, dtype = npy.read_array_header_1_0(stream)
    if dtype.hasobject or min(shape, default=0) < 0:
        raise ValueError(f"its header has type {dtype} and shape {shape}")
    return shape, "F" if column_major else "C", dtype


def is_float(array: NDArray[Any]) -> bool:
    """Return whether an array holds floating-point numbers."""
    return array.dtype.kind == "f"


def same_kind(left: NDArray[Any], right: NDArray[Any]) -> bool:
    """Return whether both arrays hold floats, or both integers, or both booleans."""
    kinds = ["iu" if array.dtype.kind in "iu" else array.dtype.kind for array in (left, right)]
    return kinds[0] == kinds[1] and kinds[0] in ("f", "iu", "b")


def rename(replies: Sequence[Message], *kinds: type[ArrayRecord] | type[MetricRecord]) -> None:
    """Rename the single record of each kind in every reply to the most common name."""
    found = [[next(iter(records_of(reply, kind))) for kind in kinds] for reply in replies]
    names = [Counter(column).most_common(1)[0][0] for column in zip(*found, strict=True)]
    if len(set(names)) < len(names):
        names = ["arrays", "metrics"]
    for reply, present in zip(replies, found, strict=True):
        if present != names:
            records = [reply.content.pop(name) for name in present]
            reply.content.update(dict(zip(names, records, strict=True)))


def put_weights(
    replies: Sequence[Message],
    weights: Sequence[float],
    model: ArrayRecord,
    *,
    key: str,
    copies: bool,
) -> None:
    """Write one weight into the metric ``key`` of each reply, and prepare their records.

    ``copies`` says whether the strategy may write to the arrays; if not, they are passed on without
    a copy.
    """
    rename(replies, ArrayRecord, MetricRecord)
    metrics = [metrics_of(reply) for reply in replies]
    complete(metrics, weights, but=key)
    for record, reply, weight in zip(metrics, replies, weights, strict=True):
        record[key] = float(weight)
        _prepare(arrays_of(reply), model, copies=copies)


def refuse_other_kinds(model: ArrayRecord) -> None:
    """Raise if a model has arrays that are neither real numbers nor booleans."""
    for key, array in model.items():
        if np.dtype(array.dtype).kind not in "fiub":
            raise TaskError(
                f"array {key!r} of the model is {array.dtype}; only arrays of real numbers, "
                "integers and booleans can be averaged"
            )


def records_of(reply: Message, kind: type[Record]) -> dict[str, Record]:
    """Return the records of one kind, without the checked mapping that Flower's properties make."""
    return {name: it for name, it in reply.content.items() if isinstance(it, kind)}


def shallow(reply: Message) -> Message:
    """Return a reply with the same records, from which some can be taken or replaced."""
    copied = copy.copy(reply)
    if reply.has_content():
        copied.content = RecordDict(dict(reply.content))
    return copied


def metrics_of(reply: Message) -> MetricRecord:
    """Return the only metric record of a reply."""
    return next(it for it in reply.content.values() if isinstance(it, MetricRecord))


def arrays_of(reply: Message) -> ArrayRecord:
    """Return the only array record of a reply."""
    return next(it for it in reply.content.values() if isinstance(it, ArrayRecord))


class _Seen(Array):
    """An array that is read in place; Flower's own class copies it before averaging."""

    def __init__(self, array: Array, dtype: str, shape: tuple[int, ...]) -> None:
        # The constructor of Array takes longer to check its arguments than a small array to read.
        vars(self).update(dtype=dtype, shape=shape, stype=array.stype, data=array.data)

    def numpy(self) -> NDArray[Any]:
        return view(self)


def _prepare(record: ArrayRecord, model: ArrayRecord, *, copies: bool) -> None:
    """Prepare the arrays of a reply, which have the names and shapes of the model.

    Arrays get the order of the model, because some strategies average by position, and the
    precision of the model, because some accumulate in that of the first reply. Integer arrays
    become floats.
    """
    ready = {}
    for key, start in model.items():
        # The declared type is the client's claim; the header has the actual type.
        values, wanted = view(record[key]), np.dtype(start.dtype)
        if wanted.kind != "f":
            ready[key] = Array(np.asarray(values, dtype=np.float64))
        elif values.dtype != wanted or copies:
            ready[key] = Array(np.asarray(values, dtype=wanted))
        else:
            ready[key] = _Seen(record[key], start.dtype, values.shape)
    if list(record) != list(ready):
        record.clear()
    for key, array in ready.items():
        record[key] = array


def typed_as(arrays: ArrayRecord, model: ArrayRecord) -> ArrayRecord:
    """Return arrays in the order and the number types of the model, and after them any others."""
    typed = {key: arrays[key] for key in [*model, *arrays] if key in arrays}
    for key, start in model.items():
        wanted = np.dtype(start.dtype)
        if key in typed and np.dtype(typed[key].dtype) != wanted:
            typed[key] = Array(_cast(view(typed[key]), wanted))
    return ArrayRecord(typed)


def _cast(values: NDArray[Any], wanted: np.dtype[Any]) -> NDArray[Any]:
    """Return values in another type; integers are rounded and clipped to their range."""
    if np.issubdtype(wanted, np.integer):
        limits = np.iinfo(wanted)
        rounded = np.rint(values)
        # As a float, the largest 64-bit integer is rounded up by one, out of range.
        cast = np.clip(rounded, float(limits.min), np.nextafter(float(limits.max), 0.0))
        return np.asarray(np.where(rounded >= limits.max, limits.max, cast.astype(wanted)), wanted)
    if wanted == np.bool_:
        return np.asarray(values >= 0.5)
    return np.asarray(values, dtype=wanted)


def brief(reason: str | None) -> str:
    """Return the last line of an error's text, printable; tracebacks end with the reason."""
    printable = (reason or "").encode(errors="backslashreplace").decode()
    lines = [line.strip() for line in printable.splitlines() if line.strip()]
    if not lines:
        return "no reason given"
    # Flower writes <class 'X'>:<'TEXT'>; if TEXT has several lines, only its end is left here.
    last = lines[-1] if len(lines) == 1 else lines[-1].removesuffix("'>")
    return last[:300]


def complete(records: Sequence[MetricRecord], weights: ArrayLike, *, but: str) -> None:
    """Give all records the metrics that at least half of them have in one form.

    There is one record and one weight per reply; the metric ``but``, which holds the weights, is
    left alone.
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


def fault_of(arrays: ArrayRecord, model: ArrayRecord, *, exact: bool) -> str | None:
    """Return why an aggregate cannot follow the model that was sent; None if it can.

    If ``exact``, it must have the arrays of that model.
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
