"""Correction: clients whose local steps drift less, two lines in a training loop.

    shift = fedavot.flower.correction(context, steps=n_steps)
    for batch in batches:          # n_steps of them
        ...
        optimiser.step()
        shift(model)

Each call adds −κ (y_i − T)/n_steps to the parameters, so that a round adds −κ (y_i − T): what is
particular to client i is taken out of its path, and added to its update again before it is sent.
κ is what the server has learnt so far. y_i and T are those of whole rounds, so step sizes do not
enter.

The shift and what was made of it are records in the state of the app while the train function runs.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context

from fedavot._checks import as_size
from fedavot.errors import OptionError
from fedavot.flower.memory.layout import Layout
from fedavot.rules._held_client import Model, total

SHIFT = "fedavot.shift"
SHIFTED = "fedavot.shifted"


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
        first rounds, and if the server keeps no memory on clients.

    Examples
    --------
    >>> from flwr.app import Context, RecordDict
    >>> weights = [np.zeros(3)]
    >>> shift = correction(Context(1, 1, {}, RecordDict(), {}), steps=10)
    >>> shift(weights)  # after each step
    """
    count = as_size(steps, what="steps", low=1)
    state = context.state
    if SHIFTED not in state:
        return lambda model: None
    done = state.config_records[SHIFTED]
    done["corrects"] = True
    if SHIFT not in state:
        return lambda model: None
    parts = {key: array.numpy() / -count for key, array in state.array_records[SHIFT].items()}
    ready: dict[str, Any] = {}

    def shift(model: Any) -> None:
        for name, values in _named(model, parts):
            if name in parts:
                _add(values, parts[name], ready, name)
                key = f"part/{name}"
                done[key] = float(done.get(key, 0.0)) + 1.0 / count  # type: ignore[arg-type]

    return shift


def offer(context: Context, layout: Layout, path: Model | None) -> None:
    """Put κ (y_i − T) where `correction` finds it."""
    context.state[SHIFTED] = ConfigRecord({"corrects": False})
    if path is not None:
        context.state[SHIFT] = layout.record(path)


def withdraw(context: Context, layout: Layout, path: Model | None) -> tuple[bool, Model | None]:
    """Take it back; return whether the client corrects, and as much of the path as it followed."""
    done: Mapping[str, Any] = context.state.config_records.get(SHIFTED, {})
    for name in (SHIFT, SHIFTED):
        if name in context.state:
            del context.state[name]
    corrects = bool(done.get("corrects", False))
    if path is None or not corrects:
        return corrects, None
    parts = [float(done.get(f"part/{key}", 0.0)) for key in layout.shapes]
    return corrects, [total((part, [array]))[0] for part, array in zip(parts, path, strict=True)]


def _named(model: Any, parts: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return the parameters of a model by name."""
    if hasattr(model, "named_parameters"):
        return [(name, values) for name, values in model.named_parameters()]
    if isinstance(model, Mapping):
        return list(model.items())
    listed = list(model)
    if all(isinstance(item, tuple) and len(item) == 2 for item in listed):
        return listed
    if len(listed) != len(parts):
        raise OptionError(
            f"the model has {len(listed)} arrays, and the correction {len(parts)}; pass the "
            "parameters by name"
        )
    return list(zip(parts, listed, strict=True))


def _add(values: Any, part: Any, ready: dict[str, Any], name: str) -> None:
    """Add to an array or a tensor in place; tensors are made once."""
    if isinstance(values, np.ndarray):
        values += part.astype(values.dtype)
        return
    if name not in ready:
        ready[name] = values.data.new_tensor(part)
    values.data.add_(ready[name])
