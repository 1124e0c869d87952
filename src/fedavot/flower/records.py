"""Flower's records as arrays: looked at without a copy, and kept to the model's number types."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedavot.errors import TaskError

LONGEST_KEPT = 512
"""Bytes of a header beyond which it is a client's whim, and not kept."""


def view(array: Array) -> NDArray[Any]:
    """Return a serialised array without copying it; read-only."""
    data = array.data
    if array.stype != "numpy.ndarray" or data[6:8] != b"\x01\x00":
        return array.numpy()
    start = 10 + int.from_bytes(data[8:10], "little")
    read = _header if start <= LONGEST_KEPT else _header.__wrapped__
    shape, order, dtype = read(data[:start])
    return np.frombuffer(data, dtype=dtype, offset=start).reshape(shape, order=order)


@lru_cache(maxsize=1 << 12)
def _header(head: bytes) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any]]:
    """Return shape, order and type from the head of NumPy's format, version 1.

    Kept, for reading one takes longer than looking at a small array, and replies repeat them.
    """
    stream = BytesIO(head)
    npy.read_magic(stream)
    shape, column_major, dtype = npy.read_array_header_1_0(stream)
    if dtype.hasobject or min(shape, default=0) < 0:
        raise ValueError(f"its header says {dtype}, shape {shape}")
    return shape, "F" if column_major else "C", dtype


def is_float(array: NDArray[Any]) -> bool:
    """Return whether an array holds floating-point numbers."""
    return array.dtype.kind == "f"


def same_kind(left: NDArray[Any], right: NDArray[Any]) -> bool:
    """Return whether both arrays hold floats, or both integers, or both truth values."""
    kinds = ["iu" if array.dtype.kind in "iu" else array.dtype.kind for array in (left, right)]
    return kinds[0] == kinds[1] and kinds[0] in ("f", "iu", "b")


def rename(replies: Sequence[Message]) -> None:
    """Give the only array and the only metric record of all replies the names most have."""
    arrays = Counter(next(iter(reply.content.array_records)) for reply in replies)
    metrics = Counter(next(iter(reply.content.metric_records)) for reply in replies)
    names = arrays.most_common(1)[0][0], metrics.most_common(1)[0][0]
    if len(set(names)) == 1:
        names = "arrays", "metrics"
    for reply in replies:
        content = reply.content
        found = next(iter(content.array_records)), next(iter(content.metric_records))
        if found != names:
            records = [content.pop(name) for name in found]
            content.update(dict(zip(names, records, strict=True)))


def refuse_other_kinds(model: ArrayRecord) -> None:
    """Raise if a model has arrays that are neither real numbers nor truth values."""
    for key, array in model.items():
        if np.dtype(array.dtype).kind not in "fiub":
            raise TaskError(
                f"array {key!r} of the model is {array.dtype}; arrays of real numbers, integers "
                "and truth values can be averaged"
            )


def form_of(metrics: MetricRecord, *, but: str) -> tuple[tuple[str, int | None], ...]:
    """Return the names of metrics, and the lengths of those that are lists, but for one."""
    return tuple(
        (key, len(value) if isinstance(value, list) else None)
        for key, value in sorted(metrics.items())
        if key != but
    )


def keep_common_metrics(replies: Sequence[Message], *, but: str) -> None:
    """Leave out the metrics that not all replies have in one form: averages are made of them."""
    forms = [form_of(metrics_of(reply), but=but) for reply in replies]
    common = {key for key, _ in set(forms[0]).intersection(*map(set, forms[1:]))} | {but}
    for reply in replies:
        metrics = metrics_of(reply)
        for key in [key for key in metrics if key not in common]:
            del metrics[key]


def metrics_of(reply: Message) -> MetricRecord:
    """Return a reply's only metric record."""
    return next(iter(reply.content.metric_records.values()))


class _Seen(Array):
    """An array that is read where it lies: Flower's own copies each one before averaging it."""

    def numpy(self) -> NDArray[Any]:
        return view(self)


def prepare(record: ArrayRecord, model: ArrayRecord, *, copies: bool) -> None:
    """Make a reply's arrays ready to be averaged by any strategy.

    Arrays are put in the model's order, for some strategies go by position, and have the model's
    precision, for some accumulate in that of the first reply. Integer buffers become floats.

    Parameters
    ----------
    record : ArrayRecord
        A reply's arrays, of the model's names and shapes.
    model : ArrayRecord
        The global model.
    copies : bool
        Whether the strategy may write into what it reads; otherwise it reads without a copy.
    """
    ready = {}
    for key, start in model.items():
        # What the array is said to be is the client's word; what it is stands in its header.
        values, wanted = view(record[key]), np.dtype(start.dtype)
        if wanted.kind != "f":
            ready[key] = Array(np.asarray(values, dtype=np.float64))
        elif values.dtype != wanted or copies:
            ready[key] = Array(np.asarray(values, dtype=wanted))
        else:
            ready[key] = _Seen(str(wanted), values.shape, record[key].stype, record[key].data)
    record.clear()
    record.update(ready)


def typed_as(arrays: ArrayRecord, model: ArrayRecord) -> ArrayRecord:
    """Return arrays in the model's order and number types."""
    typed = {}
    for key, start in model.items():
        array, wanted = arrays[key], np.dtype(start.dtype)
        if np.dtype(array.dtype) != wanted:
            array = Array(_cast(view(array), wanted))
        typed[key] = array
    return ArrayRecord(typed)


def _cast(values: NDArray[Any], wanted: np.dtype[Any]) -> NDArray[Any]:
    """Return values in another type: integers rounded, and kept within their range."""
    if np.issubdtype(wanted, np.integer):
        limits = np.iinfo(wanted)
        rounded = np.rint(values)
        # Clipped as floats the largest 64-bit integer would be one too many.
        cast = np.clip(rounded, float(limits.min), np.nextafter(float(limits.max), 0.0))
        return np.asarray(np.where(rounded >= limits.max, limits.max, cast.astype(wanted)), wanted)
    if wanted == np.bool_:
        return np.asarray(values >= 0.5)
    return np.asarray(values, dtype=wanted)
