"""What a strategy keeps between rounds, for a checkpoint.

A strategy can define its state with ``state_dict()`` and ``load_state_dict(state)``; `FLOWERS`
lists what Flower's own classes keep, also where such a strategy wraps or extends one. Without these
methods, the state is every attribute that is plain data, or has these methods itself, and differs
from its value when the run began. Attributes that did not change are settings and come from the
code, so they can be changed for the rest of a run; so do tools: functions, locks, trackers and
other objects. A container that holds other objects than data and code is neither, and is refused
before any client trains. If an attribute becomes such a container during a run, a warning says so,
and the checkpoint is refused when the run resumes. A tool whose own attributes are plain data and
change, such as a counter, is named in a warning: it starts afresh when the run resumes.
"""

import enum
import functools
import logging
import types
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from fedavot._checks import enumerated
from fedavot.errors import CheckpointError
from fedavot.flower.kept.packing import Arrays, Packer, has_own_default, unpack
from fedavot.flower.wrapped import layers

_log = logging.getLogger("flwr")

_MOMENTS = ("m_t", "v_t")
_SENT = ("current_arrays",)

FLOWERS: dict[type, tuple[tuple[str, ...], tuple[str, ...]]] = {
    flower.FedAvgM: (("current_arrays", "momentum_vector"), ()),
    flower.FedAdagrad: (_MOMENTS, _SENT),
    flower.FedAdam: (_MOMENTS, _SENT),
    flower.FedYogi: (_MOMENTS, _SENT),
    flower.QFedAvg: ((), _SENT),
    flower.DifferentialPrivacyServerSideFixedClipping: (
        ("accountant",),
        (*_SENT, "_pending_events"),
    ),
    flower.DifferentialPrivacyClientSideFixedClipping: (("accountant",), ("_pending_events",)),
    flower.DifferentialPrivacyServerSideAdaptiveClipping: (("clipping_norm",), _SENT),
    flower.DifferentialPrivacyClientSideAdaptiveClipping: (("clipping_norm",), ()),
}
"""What Flower's own strategies keep from one round to the next, and what they set in every round
before they read it."""

CODE = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType),
    *(type, functools.partial, enum.Enum),
)
"""Types of values that come from the code."""

CONTAINERS = (Mapping, list, tuple, Set, deque, np.ndarray)


class StrategyState:
    """The state of a strategy and the strategies it wraps.

    Parameters
    ----------
    strategy : Strategy
        The strategy, before the first round of a run or of its continuation. A strategy with state
        that a checkpoint cannot hold is refused.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._layers = [_Layer(layer) for layer in layers(strategy)]
        self._reported: set[str] = set()
        tools = sorted(f"{layer.name}.{tool}" for layer in self._layers for tool in layer.tools)
        if tools:
            _log.info("FedAVOT: objects that checkpoints leave to the code: %s", enumerated(tools))

    def pack(self) -> tuple[Any, Arrays]:
        """Return the state as JSON and arrays."""
        packer = Packer()
        packed = [layer.pack(packer) for layer in self._layers]
        lost = {name for state in packed for name in state["lost"]}
        for name in sorted(lost - self._reported):
            _log.warning(
                "FedAVOT: %s now holds what a checkpoint cannot, so that this run cannot resume; "
                "add state_dict() and load_state_dict(state) to the strategy",
                name,
            )
        changed = {name for layer in self._layers for name in layer.changed_tools()}
        for name in sorted(changed - self._reported):
            _log.warning(
                "FedAVOT: %s changes during training, and checkpoints leave it to the code: in a "
                "resumed run it begins anew; add state_dict() and load_state_dict(state) to its "
                "class",
                name,
            )
        self._reported |= lost | changed
        return packed, packer.arrays

    def load(self, packed: Any, arrays: Arrays) -> None:
        """Restore the state that `pack` returned."""
        names = [layer.name for layer in self._layers]
        if names != [state["class"] for state in packed]:
            saved = " around ".join(state["class"] for state in packed)
            raise CheckpointError(
                f"the checkpoint was written by {saved}, but the strategy is "
                f"{' around '.join(names)}; continue with that one, or start in another folder"
            )
        if lost := [name for state in packed for name in state["lost"]]:
            raise CheckpointError(
                f"the checkpoint lacks {enumerated(lost)}, which it could not hold; add "
                "state_dict() and load_state_dict(state) to the strategy, and start in another "
                "folder"
            )
        for layer, state in zip(self._layers, packed, strict=True):
            layer.load({key: unpack(state[key], arrays) for key in ("own", "data", "objects")})


class _Layer:
    """The state of one strategy."""

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy
        self.name = type(strategy).__name__
        self.tools: dict[str, Any] = {}
        self._before: dict[str, tuple[Any, list[Any]]] = {}
        self._own = _says_itself(strategy)
        if self._own:
            Packer().pack(strategy.state_dict(), f"{self.name}.state_dict()")
        for name, value in self._attributes():
            packer = Packer()
            try:
                packed = packer.pack(_state_of(value), f"{self.name}.{name}")
            except CheckpointError:
                if _is_mixed(value):
                    raise
                if not isinstance(value, CODE):
                    self.tools[name] = _held_by(value)
                continue
            # Copies, because a strategy may write to its arrays in place.
            self._before[name] = packed, [array.copy() for array in packer.arrays.values()]

    def pack(self, into: Packer) -> dict[str, Any]:
        """Return what changed, what cannot be saved, and the strategy's own ``state_dict``."""
        data: dict[str, Any] = {}
        objects: dict[str, Any] = {}
        lost: list[str] = []
        for name, value in self._attributes():
            label, packer = f"{self.name}.{name}", Packer()
            state = _state_of(value)
            try:
                packed = packer.pack(state, label)
            except CheckpointError:
                lost += [label] if name in self._before or _is_mixed(value) else []
                continue
            if not self._is_as_before(name, packed, list(packer.arrays.values())):
                (data if state is value else objects)[name] = state
        own = self._strategy.state_dict() if self._own else None
        return {
            "class": self.name,
            "lost": lost,
            "own": into.pack(own, f"{self.name}.state_dict()"),
            "data": into.pack(data, self.name),
            "objects": into.pack(objects, self.name),
        }

    def changed_tools(self) -> list[str]:
        """Return the tools whose plain data differ from when the run began."""
        now = {name: _held_by(getattr(self._strategy, name, None)) for name in self.tools}
        return [f"{self.name}.{name}" for name, held in self.tools.items() if now[name] != held]

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `pack` returned."""
        for name, value in state["data"].items():
            setattr(self._strategy, name, value)
        for name, value in state["objects"].items():
            _load(getattr(self._strategy, name), value)
        if self._own:
            self._strategy.load_state_dict(state["own"])

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        """Yield the attributes that may be state."""
        kinds = [names for kind, names in FLOWERS.items() if isinstance(self._strategy, kind)]
        kept = {name for names, _ in kinds for name in names}
        passing = {name for _, names in kinds for name in names}
        for name, value in vars(self._strategy).items():
            if isinstance(value, Strategy):
                continue  # a layer of its own
            if name in kept or not (self._own or name in passing):
                yield name, value

    def _is_as_before(self, name: str, packed: Any, arrays: list[Any]) -> bool:
        before, copies = self._before.get(name, (..., []))
        return before == packed and all(
            one.dtype == other.dtype and np.array_equal(one, other)
            for one, other in zip(copies, arrays, strict=True)
        )


def _held_by(tool: Any) -> Any:
    """Return the numbers and words that are attributes of an object."""
    held = getattr(tool, "__dict__", {})
    return {name: it for name, it in held.items() if isinstance(it, bool | int | float | str)}


def _says_itself(strategy: Any) -> bool:
    """Return whether a strategy has both state methods; raise if it has only one of them."""
    has = _methods(strategy)
    if any(has) and not all(has):
        raise CheckpointError(
            f"{type(strategy).__name__} has only one of state_dict() and load_state_dict(state); a "
            "run that resumes needs both"
        )
    return all(has)


def _methods(value: Any) -> list[bool]:
    kind = type(value)
    return [callable(getattr(kind, name, None)) for name in ("state_dict", "load_state_dict")]


def _state_of(value: Any) -> Any:
    """Return plain data unchanged, and the ``state_dict`` of an object that has one."""
    if type(value) is defaultdict and has_own_default(value):
        return dict(value)
    return value.state_dict() if all(_methods(value)) else value


def _load(value: Any, state: Any) -> None:
    """Restore in an object what `_state_of` returned."""
    if isinstance(value, defaultdict):
        value.clear()
        value.update(state)
    else:
        value.load_state_dict(state)


def _is_mixed(value: Any) -> bool:
    """Return whether a value is a container that holds anything other than data and code."""
    return isinstance(value, CONTAINERS) and not _is_code(value)


def _is_code(value: Any) -> bool:
    """Return whether a value is code or data, or a container of these."""
    if isinstance(value, CODE):
        return True
    if type(value) in (list, tuple, set, frozenset, dict):
        items = [*value, *value.values()] if isinstance(value, dict) else value
        return all(map(_is_code, items))
    try:
        Packer().pack(value, "")
    except CheckpointError:
        return False
    return True
