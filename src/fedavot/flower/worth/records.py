"""Arrays of Flower's records: read without a copy, and cast to the number types of the model."""

import copy
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any, Literal, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedavot.errors import TaskError
from fedavot.flower.worth.metrics import complete

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
    """Write weights into replies, and prepare their records so that any strategy can average them.

    Parameters
    ----------
    replies : sequence of Message
        Usable replies.
    weights : sequence of float
        One weight per reply.
    model : ArrayRecord
        The global model.
    key : str
        Metric that holds the weights.
    copies : bool
        As in `prepare`.
    """
    rename(replies, ArrayRecord, MetricRecord)
    metrics = [metrics_of(reply) for reply in replies]
    complete(metrics, weights, but=key)
    for record, reply, weight in zip(metrics, replies, weights, strict=True):
        record[key] = float(weight)
        prepare(arrays_of(reply), model, copies=copies)


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


def prepare(record: ArrayRecord, model: ArrayRecord, *, copies: bool) -> None:
    """Prepare the arrays of a reply so that any strategy can average them.

    Arrays get the order of the model, because some strategies average by position, and the
    precision of the model, because some accumulate in that of the first reply. Integer arrays
    become floats.

    Parameters
    ----------
    record : ArrayRecord
        Arrays of a reply, with the names and shapes of the model.
    model : ArrayRecord
        The global model.
    copies : bool
        Whether the strategy may write to the arrays; if not, they are passed without a copy.
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
