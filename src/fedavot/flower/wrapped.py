"""The strategy that FedAVOT wraps, which must average replies by weight.

Flower's FedAvg and its variants (FedAvgM, FedProx, FedAdagrad, FedAdam, FedYogi, also inside
wrappers for differential privacy) average by a metric of the reply, ``weighted_by_key``. QFedAvg
does not; here its step gets weights,

    θ ← θ − Σ w_i F_i^q g_i / Σ w_i (q F_i^(q−1) ‖g_i‖² + L F_i^q),   g_i = L (θ − θ_i),

which is FedAVOT for q = 0 and Flower's QFedAvg for equal weights. Medians, trimmed means, Krum and
trees do not use weights and are refused.

A strategy is never changed. Where it has to behave differently, it is seen through a facade: an
object that shares its attributes and extends its class.
"""

import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import QFedAvg, Strategy

from fedavot.errors import OptionError
from fedavot.flower.worth.records import arrays_of, metrics_of, view

WEIGHTLESS = (
    *("Bulyan", "FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum"),
    *("FedXgbBagging", "FedXgbCyclic"),
)
"""Flower's strategies whose result does not depend on weights."""

OLDER = "flwr.server.strategy"
"""Module with the strategies of Flower's older interface."""

EPSILON = 1e-10
"""Added to losses before they are raised to a power, as in Flower."""


def layers(strategy: Strategy) -> Iterator[Strategy]:
    """Yield a strategy and the strategies it wraps, outermost first."""
    inner: Any = strategy
    while isinstance(inner, Strategy):
        yield inner
        inner = getattr(inner, "strategy", None)


def weighted_by(strategy: Strategy) -> str:
    """Return the metric that a strategy averages by; raise if it does not average by one."""
    if not isinstance(strategy, Strategy):
        bases = (it for it in type(strategy).__mro__ if it.__module__.startswith(OLDER))
        if older := next(bases, None):
            raise OptionError(
                f"this is the older {OLDER}.{older.__name__}; import it from "
                "flwr.serverapp.strategy"
            )
        raise OptionError(
            f"strategy is {strategy!r}; it must be a flwr.serverapp.strategy.Strategy, such as "
            "FedAvg()"
        )
    *_, leaf = layers(strategy)
    classes = tuple(getattr(flower, name) for name in WEIGHTLESS if hasattr(flower, name))
    key = getattr(leaf, "weighted_by_key", None)
    if isinstance(leaf, classes) or key is None:
        raise OptionError(
            f"{type(leaf).__name__} does not average by weight, so FedAVOT cannot wrap it; wrap "
            "FedAvg, FedAvgM, FedProx, FedAdagrad, FedAdam, FedYogi or QFedAvg"
        )
    return str(key)


def config_record(strategy: Strategy) -> str:
    """Return the name of the record in which a strategy sends a round's configuration."""
    *_, leaf = layers(strategy)
    return str(getattr(leaf, "configrecord_key", "config"))


def is_flowers_own(strategy: Strategy) -> bool:
    """Return whether all layers are Flower's or ours, which do not write to reply arrays."""
    ours = ("flwr.", "fedavot.")
    return all(type(layer).__module__.startswith(ours) for layer in layers(strategy))


class _Fixed:
    """An attribute that reads as a fixed value; values written to it go to the strategy itself."""

    def __init__(self, name: str, value: Any) -> None:
        self._name, self._value = name, value

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self._value

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self._name] = value


def facade(strategy: Strategy, /, *beneath: type, **fixed: Any) -> Any:
    """Return an object that shares the attributes of a strategy, with some of them fixed.

    Parameters
    ----------
    strategy : Strategy
        The strategy, which is not changed.
    *beneath : type
        Classes whose methods come after those of a user's class and before those that they
        override in Flower's classes, so that ``super()`` in the user's class reaches them.
    **fixed : Any
        Attributes and methods that differ from those of the strategy.
    """
    kind = type(strategy)
    slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
    if slots:
        raise OptionError(
            f"{kind.__name__} declares __slots__ ({slots[0]!r}), which a wrapper cannot share; "
            "remove __slots__"
        )
    bases = beneath if any(issubclass(it, kind) for it in beneath) else (kind, *beneath)
    content: dict[str, Any] = {name: _Fixed(name, value) for name, value in fixed.items()}
    content |= {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    seen = types.new_class(kind.__name__, bases, exec_body=lambda body: body.update(content))
    shared: Any = object.__new__(seen)
    shared.__dict__ = vars(strategy)
    return shared


def refusing_to_train(strategy: Strategy) -> dict[str, Any]:
    """Return Flower helpers that refuse to train, for a facade with its own way of training.

    FedAvg's ``configure_train`` and ``aggregate_train`` call them. The facade reaches these methods
    only if a user's class calls them as ``FedAvg.configure_train(self, ...)`` or
    ``super().configure_train(...)`` in its ``start``: then the facade's own methods would be
    bypassed.
    """
    trains: dict[str, tuple[str, Callable[..., bool]]] = {
        "_construct_messages": ("configure_train", lambda _, nodes, kind: kind == "train"),
        "_check_and_log_replies": ("aggregate_train", lambda _, is_train, *more: is_train),
    }

    def refusing(name: str, method: str, is_train: Callable[..., bool]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if is_train(*args, *options.values()):
                raise OptionError(
                    f"start() of {type(strategy).__name__} calls {method} of its base class, so "
                    f"that no weights of FedAVOT's would be applied; call self.{method}(...)"
                )
            return getattr(strategy, name)(*args, **options)

        return call

    known = {name: it for name, it in trains.items() if hasattr(strategy, name)}
    return {name: refusing(name, *it) for name, it in known.items()}


def weighted(strategy: Strategy, /, **fixed: Any) -> Strategy:
    """Return a strategy that averages by weight, with some attributes of the innermost one fixed.

    It is the strategy itself, unless QFedAvg needs a weighted step or attributes are given.
    """
    inner = getattr(strategy, "strategy", None)
    if isinstance(inner, Strategy):
        seen = weighted(inner, **fixed)
        return strategy if seen is inner else facade(strategy, strategy=seen)
    beneath = (_WeightedQ,) if isinstance(strategy, QFedAvg) else ()
    present = {name: value for name, value in fixed.items() if hasattr(strategy, name)}
    return facade(strategy, *beneath, **present) if beneath or present else strategy


EVERYONE = {"fraction_train": 1.0, "min_train_nodes": 0, "min_available_nodes": 0}
"""Settings with which a strategy asks every node that it sees, for a cohort already chosen."""


def least_available(strategy: Strategy) -> int:
    """Return the number of nodes that a strategy waits for before it asks any."""
    *_, leaf = layers(strategy)
    return max(int(getattr(leaf, "min_available_nodes", 1)), 1)


def needed_metric(strategy: Strategy) -> str | None:
    """Return the metric that a strategy requires in every update, if there is one."""
    *_, leaf = layers(strategy)
    return str(leaf.train_loss_key) if isinstance(leaf, QFedAvg) else None


def noisy_layers(strategy: Strategy) -> list[Any]:
    """Return the layers that add noise for differential privacy."""
    return [layer for layer in layers(strategy) if hasattr(layer, "noise_multiplier")]


def missing_noise(strategy: Strategy, largest: float) -> str | None:
    """Return a message if a wrapper adds too little noise for weights up to ``largest``.

    Flower's wrappers add noise for an average of ``num_sampled_clients`` equal weights.
    """
    for layer in noisy_layers(strategy):
        count = getattr(layer, "num_sampled_clients", None)
        if count is not None and layer.noise_multiplier > 0 and largest * count > 1 + 1e-9:
            return (
                f"{type(layer).__name__} adds noise for weights of 1/{count}, but the largest "
                f"weight is {largest:.3g}: the noise is too small by a factor of "
                f"{largest * count:.2g}; use fedavot.flower.ExactNoise instead"
            )
    return None


class _WeightedQ(QFedAvg):
    """QFedAvg whose step has weights."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate as QFedAvg does, with weights."""
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        if not valid or self.current_arrays is None:
            return None, None
        begin = {key: view(array).astype(np.float64) for key, array in self.current_arrays.items()}
        smoothness = 1.0 / self.client_learning_rate
        descent = {key: np.zeros_like(values) for key, values in begin.items()}
        total = 0.0
        for reply in valid:
            metrics: Any = metrics_of(reply)
            loss = float(metrics[self.train_loss_key]) + EPSILON
            weight = float(metrics[self.weighted_by_key])
            arrays = arrays_of(reply)
            gradient = {key: smoothness * (begin[key] - view(arrays[key])) for key in begin}
            squared = sum(float(np.vdot(values, values)) for values in gradient.values())
            for key, values in gradient.items():
                descent[key] += weight * loss**self.q * values
            curvature = self.q * loss ** (self.q - 1) * squared + smoothness * loss**self.q
            total += weight * curvature
        model = {key: begin[key] - descent[key] / total for key in begin}
        record = ArrayRecord({key: Array(np.asarray(values)) for key, values in model.items()})
        average: Any = self.train_metrics_aggr_fn
        return record, average([reply.content for reply in valid], self.weighted_by_key)
