"""Correction: less client drift in local steps, with two lines in a training loop.

    shift = fedavot.flower.correction(context, steps=n_steps)
    for batch in batches:          # n_steps of them
        ...
        optimiser.step()
        shift(model)

Each call adds −κ (y_i − ŷ)/n_steps to the parameters, so that a round adds −κ (y_i − ŷ): the part
that is specific to client i is removed from its local path, and added back to its update before it
is sent. y_i and ŷ refer to whole rounds, so step sizes do not enter.

With a correction, every train message has a `ConfigRecord`, and for clients whose last reply said
that they correct, κ (y_i − ŷ) as an `ArrayRecord`. While the train function runs, that and how much
of it was applied are records in the state of the app. Both sides take these records out before any
other code sees them.
"""

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fedavot._checks import as_size, enumerated
from fedavot.errors import OptionError
from fedavot.flower.worth.records import is_float, view

_log = logging.getLogger("flwr")

RECORD = "fedavot.correction"
SHIFT = "fedavot.shift"
SHIFTED = "fedavot.shifted"
ARRAYS = "arrays"
"""Key of the names of the model's arrays."""

Call = Callable[[Message, Context], Message]


def correction(context: Context, *, steps: int) -> Callable[[Any], None]:
    """Return a function that corrects the parameters after a local step.

    Parameters
    ----------
    context : Context
        The context that the train function got.
    steps : int
        Number of local steps of this round.

    Returns
    -------
    function of a model
        To be called after each step with a PyTorch module, or with the parameters by name (an
        iterable of pairs or a mapping), or with a list of NumPy arrays in the order of the model.
        They are changed in place. It does nothing if there is nothing to correct: in a client's
        first rounds, and if the server asks for no correction, which is logged. If it is called
        more or fewer than ``steps`` times, more or less of the drift is removed from the path, and
        the same amount is added back to the update.

    Examples
    --------
    >>> from flwr.app import Context, RecordDict
    >>> weights = [np.zeros(3)]
    >>> shift = correction(Context(1, 1, {}, RecordDict(), {}), steps=10)
    >>> shift(weights)  # after each step
    """
    count = as_size(steps, what="steps", low=1)
    state = context.state
    done = state.config_records.get(SHIFTED, ConfigRecord())
    if SHIFTED not in state:
        _report_no_correction()
    done["corrects"] = True
    expected: Any = done.get(ARRAYS)
    offered = state.array_records.get(SHIFT, ArrayRecord())
    parts = {key: array.numpy() / -count for key, array in offered.items()}
    ready: dict[str, Any] = {}

    def shift(model: Any) -> None:
        # Also in rounds without a shift, so that a mistake shows in the first round.
        for name, values in _named(model, expected):
            if name in parts:
                _add(values, parts[name], ready, name)
                key = f"part/{name}"
                before: Any = done.get(key, 0.0)
                done[key] = float(before) + 1.0 / count

    return shift


def put_request(message: Message, shift: ArrayRecord | None) -> None:
    """Ask in a train message whether the client corrects, and add κ (y_i − ŷ) if that is known."""
    records = {**message.content, RECORD: ConfigRecord()}  # which other messages may share
    if shift is not None:
        records[SHIFT] = shift
    message.content = RecordDict(records)


def take_answer(reply: Message) -> bool:
    """Take the answer out of a reply: whether the client corrects."""
    if not isinstance(reply.content.get(RECORD), ConfigRecord):
        return False  # a client may give its model this name
    del reply.content[RECORD]
    return True


def correcting(message: Message, context: Context, call_next: Call) -> Message:
    """Correct the drift of a train function that calls `correction`, as a mod of a ClientApp.

    Only messages with a request from FedAVOT are changed.
    """
    if not message.has_content() or RECORD not in message.content:
        return call_next(message, context)
    records = dict(message.content)
    del records[RECORD]
    shift: Any = records.pop(SHIFT, None)
    message.content = RecordDict(records)
    sent = {
        key: it for model in message.content.array_records.values() for key, it in model.items()
    }
    state = context.state
    expected = [key for key, array in sent.items() if is_float(view(array))]
    state[SHIFTED] = ConfigRecord({"corrects": False, ARRAYS: expected})
    if shift is not None:
        state[SHIFT] = shift
    try:
        reply = call_next(message, context)
    finally:
        done: Mapping[str, Any] = state.config_records.get(SHIFTED, {})
        for name in (SHIFT, SHIFTED):
            if name in state:
                del state[name]
    if reply.has_error() or not done.get("corrects"):
        return reply
    reply.content[RECORD] = ConfigRecord()
    for trained in reply.content.array_records.values():
        for key in {} if shift is None else shift.keys() & trained.keys():
            values, part = view(trained[key]), float(done.get(f"part/{key}", 0.0))
            if part and values.shape == tuple(shift[key].shape):
                moved = values + part * view(shift[key])
                trained[key] = Array(np.asarray(moved, values.dtype))
    return reply


@functools.cache
def _report_no_correction() -> None:
    """Log, once per process, that correction does nothing."""
    _log.warning(
        "FedAVOT: correction() does nothing; it needs FedAVOT(..., memory=Memory(correction=...)) "
        "on the server and introduce(app) in this app"
    )


def _named(model: Any, expected: Sequence[str] | None) -> Iterable[tuple[str, Any]]:
    """Return the parameters of a model by name; raise if they are not those of the model."""
    if hasattr(model, "named_parameters"):
        listed = list(model.named_parameters())
    elif hasattr(model, "shape"):
        raise OptionError(
            f"correction got one array of shape {tuple(model.shape)}; pass a list of arrays, not "
            "one array"
        )
    else:
        listed = list(model.items() if isinstance(model, Mapping) else model)
    by_name = all(isinstance(item, tuple) and len(item) == 2 for item in listed)
    if expected is None:
        return listed if by_name else []
    if not by_name and len(listed) != len(expected):
        raise OptionError(
            f"correction got {len(listed)} arrays, and the model has {len(expected)}; pass the "
            "parameters by name"
        )
    pairs = listed if by_name else list(zip(expected, listed, strict=True))
    if not {name for name, _ in pairs} & set(expected):
        raise OptionError(
            f"correction got parameters {enumerated((repr(name) for name, _ in pairs), 3)}, and "
            f"the arrays of the model are {enumerated(map(repr, expected), 3)}; use these names"
        )
    return pairs


def _add(values: Any, part: Any, ready: dict[str, Any], name: str) -> None:
    """Add to an array or a tensor in place; tensors are created once."""
    if isinstance(values, np.ndarray):
        values += part.astype(values.dtype)
        return
    if name not in ready:
        ready[name] = values.data.new_tensor(part)
    values.data.add_(ready[name])
