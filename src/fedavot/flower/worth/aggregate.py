"""The arrays that clients are sent, and checks of a wrapped strategy's aggregate."""

from collections.abc import Sequence

import numpy as np
from flwr.app import ArrayRecord, Message

from fedavot._checks import enumerated
from fedavot.flower.worth.records import is_float, view


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
