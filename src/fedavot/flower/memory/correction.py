"""Correction: less client drift in local steps, with two lines in a training loop.

    shift = fedavot.flower.correction(context, steps=n_steps)
    for batch in batches:          # n_steps of them
        ...
        optimiser.step()
        shift(model)

Each call adds −κ (y_i − T)/n_steps to the parameters, so that a round adds −κ (y_i − T): the part
that is specific to client i is removed from its local path, and added back to its update before it
is sent. κ is the value that the server has learnt so far. y_i and T refer to whole rounds, so step
sizes do not enter.

While the train function runs, the shift and how much of it was applied are records in the state of
the app.
"""

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context

from fedavot._checks import as_size, enumerated
from fedavot.errors import OptionError
from fedavot.flower.memory.wire import Layout
from fedavot.rules._held_client import Model, total

_log = logging.getLogger("flwr")

SHIFT = "fedavot.shift"
SHIFTED = "fedavot.shifted"
ARRAYS = "arrays"
"""Key of the names of the model's arrays."""


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
        first rounds, and if clients keep no memory, which is logged. If it is called more or fewer
        than ``steps`` times, more or less of the drift is removed from the path, and the same
        amount is added back to the update.

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
        _report_no_memory()
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


def offer(context: Context, layout: Layout, path: Model | None) -> None:
    """Put κ (y_i − T) where `correction` finds it."""
    context.state[SHIFTED] = ConfigRecord({"corrects": False, ARRAYS: list(layout.shapes)})
    if path is not None:
        context.state[SHIFT] = layout.record(path)


def withdraw(context: Context, layout: Layout, path: Model | None) -> tuple[bool, Model | None]:
    """Remove it; return whether the client corrects, and how much of the path it followed."""
    done: Mapping[str, Any] = context.state.config_records.get(SHIFTED, {})
    for name in (SHIFT, SHIFTED):
        if name in context.state:
            del context.state[name]
    corrects = bool(done.get("corrects", False))
    if path is None or not corrects:
        return corrects, None
    parts = [float(done.get(f"part/{key}", 0.0)) for key in layout.shapes]
    return corrects, [total((part, [array]))[0] for part, array in zip(parts, path, strict=True)]


@functools.cache
def _report_no_memory() -> None:
    """Log, once per process, that correction does nothing."""
    _log.warning(
        "FedAVOT: correction() does nothing, because there is no memory on clients; it needs "
        "FedAVOT(..., memory='clients') on the server and introduce(app, memory=True) in this app"
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
