"""What the server and clients that keep their own memory exchange: models, and Flower records.

A train message gets a `ConfigRecord` with the numbers of a `Request` and, for clients that correct,
an `ArrayRecord` with the mean. A reply gets a `ConfigRecord` with the numbers of a `Reply` and, if
the server needs it, an `ArrayRecord` with the client's memory. The only other array record is the
model: the one that was sent plus u_i, or plus d_i if trust is 1. Both sides take their records out
before any other code sees them.

Only the floating-point arrays of a model are remembered, as lists of arrays. Arithmetic uses at
least single precision. A model that is sent is rounded to its own types, so both sides compute an
update as the model that arrives minus the model that was sent, and agree to the bit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from fedavot.flower.worth.records import view
from fedavot.rules._held_client import Model

VERSION = 1
RECORD = "fedavot.memory"
MEAN = "fedavot.mean"
HELD = "fedavot.held"


class Layout:
    """Names, shapes and types of the floating-point arrays of a model.

    Parameters
    ----------
    model : ArrayRecord
        Any model with these arrays; its other arrays are left as they are.
    """

    def __init__(self, model: ArrayRecord) -> None:
        arrays = {key: view(array) for key, array in model.items()}
        self.shapes = {key: array.shape for key, array in arrays.items() if array.dtype.kind == "f"}
        self._kinds = {key: arrays[key].dtype for key in self.shapes}
        self.dtype = np.result_type(np.float32, *self._kinds.values())
        self.size = sum(int(np.prod(shape)) for shape in self.shapes.values())

    def zeros(self) -> Model:
        """Return a model of zeros in double precision."""
        return [np.zeros(shape) for shape in self.shapes.values()]

    def take(self, record: ArrayRecord) -> Model:
        """Return the arrays of a record; raise ValueError if it lacks any or has other shapes."""
        taken = []
        for key, shape in self.shapes.items():
            if key not in record:
                raise ValueError(f"array {key!r} is missing")
            values = view(record[key])
            if values.shape != shape or values.dtype.kind != "f":
                raise ValueError(
                    f"array {key!r} has shape {values.shape} and type {values.dtype}; expected "
                    f"floating-point numbers of shape {shape}"
                )
            taken.append(values.astype(self._work(key)))
        return taken

    def put(self, record: ArrayRecord, model: Sequence[NDArray[Any]]) -> None:
        """Write a model into a record, in the types of the layout."""
        record.update(self._arrays(model, self._kinds))

    def record(self, model: Sequence[NDArray[Any]]) -> ArrayRecord:
        """Return a model as a record, in the precision of the arithmetic."""
        return ArrayRecord(self._arrays(model, {key: self._work(key) for key in self._kinds}))

    def flat(self, model: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return a model as one row."""
        parts = [np.asarray(array, self.dtype).reshape(-1) for array in model]
        return np.concatenate(parts) if parts else np.zeros(0, self.dtype)

    def parts(self, row: NDArray[Any]) -> Model:
        """Return a row as a model."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])
        pieces = np.split(row, ends[:-1]) if len(ends) else []
        return [
            np.asarray(piece, self._work(key)).reshape(shape)
            for piece, (key, shape) in zip(pieces, self.shapes.items(), strict=True)
        ]

    def _arrays(self, model: Sequence[NDArray[Any]], kinds: dict[str, Any]) -> dict[str, Array]:
        pairs = zip(self.shapes, model, strict=True)
        with np.errstate(over="ignore"):
            return {key: Array(np.asarray(values, kinds[key])) for key, values in pairs}

    def _work(self, key: str) -> np.dtype[Any]:
        return np.result_type(np.float32, self._kinds[key])


def minus(left: Model, right: Model) -> Model:
    """Return the difference of two models."""
    return [one - other for one, other in zip(left, right, strict=True)]


@dataclass(frozen=True)
class Told:
    """A reply as it arrives at the server."""

    round: int
    since: int
    corrects: bool
    products: tuple[float, ...]
    memory: ArrayRecord | None


def put_request(message: Message, about: Mapping[str, Any], mean: ArrayRecord | None) -> None:
    """Add a request to a train message, whose records may be shared with other messages.

    ``about`` has the fields of a `Request` except the mean, the client's name, and the name of the
    training, which stays the same after a resume: memories of another one are not used.
    """
    records = dict(message.content)
    records[RECORD] = ConfigRecord({"version": VERSION, **about})
    if mean is not None:
        records[MEAN] = mean
    message.content = RecordDict(records)


def take_request(message: Message) -> tuple[dict[str, Any], ArrayRecord | None] | None:
    """Remove what `put_request` added and return it; None if there is none."""
    found = message.content.config_records.get(RECORD)
    if found is None:
        return None
    about: dict[str, Any] = dict(found)
    version = about.pop("version", None)
    if version != VERSION:
        raise RuntimeError(
            f"the server sends version {version!r} of fedavot's memory records, and this app reads "
            f"version {VERSION}; install the same version of fedavot on the server and the clients"
        )
    mean = message.content.array_records.get(MEAN)
    message.content = RecordDict(
        {name: record for name, record in message.content.items() if name not in (RECORD, MEAN)}
    )
    return about, mean


def put_reply(reply: Message, about: Mapping[str, Any], memory: ArrayRecord | None) -> None:
    """Add to a reply what the server needs besides the model."""
    reply.content[RECORD] = ConfigRecord({"version": VERSION, **about})
    if memory is not None:
        reply.content[HELD] = memory


def take_reply(reply: Message) -> Told | None:
    """Remove what `put_reply` added and return it; None if there is none, ValueError if damaged."""
    found = reply.content.config_records.get(RECORD)
    memory = reply.content.array_records.get(HELD)
    for name in (RECORD, HELD):
        if name in reply.content:
            del reply.content[name]
    if found is None:
        return None
    about: dict[str, Any] = dict(found)
    if about.get("version") != VERSION:
        raise ValueError(
            f"it has version {about.get('version')!r} of fedavot's memory records, and the server "
            f"reads version {VERSION}; install the same version of fedavot on both"
        )
    try:
        number, since, corrects = about["round"], about["since"], about["corrects"]
        products = tuple(map(float, about["products"]))
    except (KeyError, TypeError, ValueError) as cause:
        raise ValueError(f"its memory record is damaged: {cause!r}") from None
    if not (type(number) is type(since) is int and type(corrects) is bool and len(products) == 3):
        raise ValueError(f"its memory record is damaged: {about}")
    return Told(number, since, corrects, products, memory)
