"""What the server and clients that keep their own memory exchange, as Flower records.

A train message gets a `ConfigRecord` with the numbers of a `Request` and, for clients that correct,
an `ArrayRecord` with the mean. A reply gets a `ConfigRecord` with the numbers of a `Reply` and, if
the server needs it, an `ArrayRecord` with the client's memory. The only other array record is the
model: the one that was sent plus u_i, or plus d_i if trust is 1. Both sides take their records out
before any other code sees them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

VERSION = 1
RECORD = "fedavot.memory"
MEAN = "fedavot.mean"
HELD = "fedavot.held"


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

    Parameters
    ----------
    message : Message
        The message to a client.
    about : mapping
        The fields of a `Request` except the mean; the client's name; and the name of the training,
        which stays the same after a resume: memories of another one are not used.
    mean : ArrayRecord or None
        The mean, if the client needs it.
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
