"""The strategy that FedAVOT wraps, which must average replies by weight.

Flower's FedAvg and its variants (FedAvgM, FedProx, FedAdagrad, FedAdam, FedYogi, also inside
wrappers for differential privacy) average by a metric of the reply, ``weighted_by_key``. QFedAvg
does not; here its step gets weights,

    θ ← θ − Σ w_i F_i^q g_i / Σ w_i (q F_i^(q−1) ‖g_i‖² + L F_i^q),   g_i = L (θ − θ_i),

which is FedAVOT for q = 0 and Flower's QFedAvg for equal weights. Medians, trimmed means, Krum and
trees do not use weights and are refused.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import QFedAvg, Strategy

from fedavot.errors import OptionError
from fedavot.flower.worth.records import view

WEIGHTLESS = (
    *("Bulyan", "FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum"),
    *("FedXgbBagging", "FedXgbCyclic"),
)
"""Flower's strategies whose result does not depend on weights."""

EPSILON = 1e-10
"""Added to losses before they are raised to a power, as in Flower."""


def layers(strategy: Strategy) -> Iterator[Strategy]:
    """Yield a strategy and the strategies it wraps, outermost first."""
    inner: Any = strategy
    while inner is not None:
        yield inner
        inner = getattr(inner, "strategy", None)


def weighted_by(strategy: Strategy) -> str:
    """Return the metric that a strategy averages by; raise if it does not average by one.

    Parameters
    ----------
    strategy : Strategy
        The wrapped strategy. If it is or wraps a QFedAvg, the step of that gets weights.
    """
    if not isinstance(strategy, Strategy):
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
    if isinstance(leaf, QFedAvg):
        vars(leaf)["aggregate_train"] = partial(_q_fedavg, leaf)
    return str(key)


def is_flowers_own(strategy: Strategy) -> bool:
    """Return whether all layers are Flower's or ours, which do not write to reply arrays."""
    ours = ("flwr.", "fedavot.")
    return all(type(layer).__module__.startswith(ours) for layer in layers(strategy))


@contextmanager
def asking_everyone(strategy: Strategy) -> Iterator[None]:
    """Make a strategy ask every node that it sees, because the cohort is already chosen."""
    *_, leaf = layers(strategy)
    everyone = {"fraction_train": 1.0, "min_train_nodes": 0, "min_available_nodes": 0}
    before = {name: getattr(leaf, name) for name in everyone if hasattr(leaf, name)}
    try:
        for name in before:
            setattr(leaf, name, everyone[name])
        yield
    finally:
        for name, value in before.items():
            setattr(leaf, name, value)


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


def _q_fedavg(
    leaf: Any, server_round: int, replies: Iterable[Message]
) -> tuple[ArrayRecord | None, MetricRecord | None]:
    """Aggregate as QFedAvg does, with weights."""
    contents = [reply.content for reply in replies if not reply.has_error()]
    if not contents:
        return None, None
    start = {key: view(array).astype(np.float64) for key, array in leaf.current_arrays.items()}
    smoothness = 1.0 / leaf.client_learning_rate
    descent = {key: np.zeros_like(values) for key, values in start.items()}
    total = 0.0
    for content in contents:
        metrics: Any = next(iter(content.metric_records.values()))
        loss = float(metrics[leaf.train_loss_key]) + EPSILON
        weight = float(metrics[leaf.weighted_by_key])
        arrays = next(iter(content.array_records.values()))
        gradient = {key: smoothness * (start[key] - view(arrays[key])) for key in start}
        squared = sum(float(np.vdot(values, values)) for values in gradient.values())
        for key, values in gradient.items():
            descent[key] += weight * loss**leaf.q * values
        curvature = leaf.q * loss ** (leaf.q - 1) * squared + smoothness * loss**leaf.q
        total += weight * curvature
    model = {key: start[key] - descent[key] / total for key in start}
    metrics_out = leaf.train_metrics_aggr_fn(contents, leaf.weighted_by_key)
    return ArrayRecord({key: Array(np.asarray(v)) for key, v in model.items()}), metrics_out
