"""Central differential privacy whose noise fits a weighted average, and its accounting.

Each update Δ_i = θ_i − θ is clipped to norm C, and the model handed on is

    θ + Σ w_i clip(Δ_i) + ν,   ν ~ N(0, (z C max_i w_i)² I).

Removing the update of one client moves the average by at most C w_i, so z is the ratio of noise to
sensitivity for all weights. (A standard deviation of z C / K, as for K equal weights, is too small
by the factor K max_i w_i: 2.46 for K = 3 and a largest weight of .82.) The noise is added before a
server optimiser sees the average, and the wrapped strategy does not see single updates: every reply
that it gets holds the noised average, whose weighted average is itself. What FedAdam does with it
is post-processing, which costs no privacy.

Guarantees and assumptions:

* Neighbouring runs differ in the updates of one client, which are replaced by no update (the global
  model sent back) in every round. Participation and weights are assumed to be public. If the
  updates may be replaced by *other* updates, sensitivity doubles: account with half the multiplier.
* Every release is charged in full. The server does not draw a secret sample of the clients, so
  there is no amplification by sampling.
* Weights must not depend on the updates. With importance "examples" they depend on the example
  counts, which are data and not protected. With noise inside it, FedAVOT ignores its ``norm_limit``
  and refuses memory. Whether a reply is usable (finite, with the model's shapes) is assumed to be
  public: unusable replies are left out, and the other clients have more weight.
* Integer and boolean arrays (batch counters) have no clipped update: they keep their values in the
  global model, and nothing about them is released.
* Metrics that clients send in training or evaluation are passed on unchanged: not protected.
* The noise consists of floating-point numbers and is not hardened against attacks on the last bits.
"""

import copy
import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import QFedAvg, Strategy
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtri

from fedavot._checks import Floats, as_amount, as_floats, as_seed, as_size
from fedavot.errors import CheckpointError, OptionError, RuleError, TaskError
from fedavot.flower.worth.records import is_float, shallow
from fedavot.flower.wrapped import layers, weighted_by

_log = logging.getLogger("flwr")

EPSILON_TOLERANCE = 1e-12
"""Relative width at which the search for ε stops; it returns the upper end."""


class ExactNoise(Strategy):
    """Clip updates and add noise that fits their weighted average.

    Inside FedAVOT the weights are those that FedAVOT applies:
    ``FedAVOT(ExactNoise(FedAvg(), noise_multiplier=1.0, clipping_norm=0.5), importance=...)``.

    Parameters
    ----------
    strategy : flwr.serverapp.strategy.Strategy
        A strategy that averages replies by the metric ``weighted_by_key``: FedAvg, FedAvgM,
        FedProx, FedAdam, FedAdagrad, FedYogi, or a subclass that also does.
    noise_multiplier : float
        z, the ratio of noise to sensitivity; 0 clips without noise and gives no protection.
    clipping_norm : float
        C, above 0: updates are clipped to this norm, taken over all floating-point arrays.
    seed : int, optional
        Seed for the noise, for tests and studies only: anyone who knows it can remove the noise.
        By default noise comes from the operating system's cryptographic generator.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        noise_multiplier: float,
        clipping_norm: float,
        seed: int | None = None,
    ) -> None:
        self.strategy = strategy
        self.noise_multiplier = as_amount(noise_multiplier, what="noise_multiplier")
        self.clipping_norm = as_amount(clipping_norm, what="clipping_norm", positive=True)
        self._key = _weight_key(strategy)
        self._rng: np.random.Generator | None = None
        if seed is not None:
            self._rng = np.random.default_rng(as_seed(seed))
        self._model: dict[str, NDArray[Any]] = {}
        self._releases = 0

    @property
    def releases(self) -> int:
        """Number of noised averages released so far, each of which costs privacy."""
        return self._releases

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Keep the model that updates are relative to; the wrapped strategy does the rest."""
        self._model = {name: array.numpy() for name, array in arrays.items()}
        for name, array in self._model.items():
            if np.issubdtype(array.dtype, np.complexfloating):
                raise TaskError(
                    f"array {name!r} of the model is {array.dtype}; noise is only added to "
                    "real arrays: send the real and imaginary parts as two arrays"
                )
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Let the wrapped strategy aggregate replies that all hold the noised average."""
        valid = [reply for reply in replies if not reply.has_error()]
        if not valid:
            return None, None
        if not self._model:
            raise RuleError(
                "aggregate_train was called before configure_train, so there is no model yet"
            )
        weights = _shares([_weight(reply, self._key) for reply in valid])
        released = self._noised(self._average(valid, weights), weights)
        self._releases += 1
        carried = [_carrying(reply, released) for reply in valid]
        arrays, metrics = self.strategy.aggregate_train(server_round, carried)
        return (None if arrays is None else self._like_model(arrays)), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Leave evaluation to the wrapped strategy."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Leave evaluation to the wrapped strategy."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Log the settings, and those of the wrapped strategy."""
        _log.info("\t├──> ExactNoise settings:")
        _log.info("\t│\t├── Noise multiplier: %s", self.noise_multiplier)
        _log.info("\t│\t└── Clipping norm: %s", self.clipping_norm)
        self.strategy.summary()

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint, as JSON, without that of the wrapped strategy."""
        rng = None if self._rng is None else self._rng.bit_generator.state
        return {"releases": self._releases, "rng": copy.deepcopy(rng)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        try:
            releases = as_size(state["releases"], what="releases", low=0)
            saved = state["rng"]
        except (KeyError, OptionError) as cause:
            raise CheckpointError(f"this is not a state of ExactNoise: {cause}") from None
        if (saved is None) != (self._rng is None):
            had, has = ("no seed", "one") if saved is None else ("a seed", "none")
            raise CheckpointError(f"the run of the checkpoint had {had}, and this run has {has}")
        if self._rng is not None:
            try:
                self._rng.bit_generator.state = saved
            except (TypeError, ValueError, KeyError) as cause:
                raise CheckpointError(f"this is not a state of a generator: {cause!r}") from None
        self._releases = releases

    def _average(self, replies: list[Message], weights: Floats) -> dict[str, Floats]:
        """Return Σ w_i clip(Δ_i) for the floating-point arrays."""
        real = {name: array for name, array in self._model.items() if is_float(array)}
        base = {name: array.astype(np.float64) for name, array in real.items()}
        total = {name: np.zeros(array.shape) for name, array in base.items()}
        for reply, weight in zip(replies, weights, strict=True):
            update = _update(reply, base)
            norm = math.sqrt(sum(float(np.vdot(part, part)) for part in update.values()))
            if not math.isfinite(norm):
                _log.warning(
                    "ExactNoise: the update of node %s is not finite and is replaced by no update",
                    reply.metadata.src_node_id,
                )
                continue
            scale = weight * (min(1.0, self.clipping_norm / norm) if norm else 1.0)
            for name, part in update.items():
                total[name] += scale * part
        return total

    def _noised(self, average: dict[str, Floats], weights: Floats) -> ArrayRecord:
        deviation = self.noise_multiplier * self.clipping_norm * float(weights.max())
        released = dict(self._model)
        for name, part in average.items():
            array = self._model[name]
            noised = array + (part + deviation * self._gaussian(part.shape))
            released[name] = np.asarray(noised, dtype=array.dtype)
        return ArrayRecord({name: Array(array) for name, array in released.items()})

    def _gaussian(self, shape: tuple[int, ...]) -> Floats:
        if self._rng is not None:
            return np.asarray(self._rng.standard_normal(shape))
        # The midpoints of 2^52 equal intervals of (0, 1) are exact in floating point, so that the
        # inverse of the distribution function is finite: at most 8.2 standard deviations.
        steps = np.frombuffer(os.urandom(8 * math.prod(shape)), dtype=np.uint64) >> np.uint64(12)
        return np.asarray(ndtri((steps + 0.5) * 2.0**-52)).reshape(shape)

    def _like_model(self, arrays: ArrayRecord) -> ArrayRecord:
        """Return the arrays in the types of the model; non-float arrays as in the model."""
        kept = {}
        for name, array in arrays.items():
            old = self._model[name]
            kept[name] = Array(array.numpy().astype(old.dtype) if is_float(old) else old)
        return ArrayRecord(kept)


def _weight_key(strategy: Strategy) -> str:
    """Return the metric that the innermost strategy averages by; raise if there is none."""
    if isinstance(strategy, Strategy):
        *_, leaf = layers(strategy)
        names = {type(layer).__name__ for layer in layers(strategy)}
        if "FedAVOT" in names:
            raise OptionError(
                "ExactNoise around FedAVOT does not see the weights that FedAVOT applies; "
                "use FedAVOT(ExactNoise(...), ...)"
            )
        if isinstance(leaf, QFedAvg):
            raise OptionError(
                "QFedAvg does not average replies by weight alone, so the noise would not fit; "
                "wrap FedAvg, FedAvgM, FedProx, FedAdam, FedAdagrad or FedYogi"
            )
    return weighted_by(strategy)


def _weight(reply: Message, key: str) -> float:
    """Return the weight in a reply's metrics."""
    found = [metrics[key] for metrics in reply.content.metric_records.values() if key in metrics]
    if len(found) != 1 or not isinstance(found[0], int | float):
        raise RuleError(
            f"the metrics of node {reply.metadata.src_node_id} hold {found} under {key!r}; "
            "exactly one number is required"
        )
    return float(found[0])


def _shares(weights: Sequence[float]) -> Floats:
    """Return weights divided by their sum."""
    array = as_floats(weights, what="weights", error=RuleError)
    if not (array.size and (array >= 0).all() and 0 < (total := float(array.sum())) < np.inf):
        raise RuleError(
            f"weights are {array[:5].tolist()} ({array.size} in all); they must be finite, "
            "at least 0 and not all 0"
        )
    return np.asarray(array / total)


def _update(reply: Message, base: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the difference between the arrays of a reply and those of the global model."""
    records = list(reply.content.array_records.values())
    sent = records[0] if len(records) == 1 else {}
    update = {}
    for name, old in base.items():
        new = sent[name].numpy() if name in sent else None
        if new is None or new.shape != old.shape:
            found = "none" if new is None else f"shape {new.shape}"
            raise TaskError(
                f"node {reply.metadata.src_node_id} should reply with one array record that has "
                f"{name!r} of shape {old.shape}; found {found}"
            )
        with np.errstate(invalid="ignore", over="ignore"):
            update[name] = np.asarray(new.astype(np.float64) - old)
    return update


def _carrying(reply: Message, arrays: ArrayRecord) -> Message:
    """Return a copy of the reply with other arrays; the reply itself is not changed."""
    carrier = shallow(reply)
    for name in reply.content.array_records:
        carrier.content[name] = ArrayRecord(dict(arrays))
    return carrier


def epsilon_spent(noise_multiplier: float, releases: int, *, delta: float) -> float:
    """Return the exact ε that a number of releases has spent at a given δ.

    T adaptively composed Gaussian releases are as private as a single one with μ = √T / z (Dong,
    Roth & Su 2022), for which (Balle & Wang 2018)

        δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).

    The module of `ExactNoise` states what is protected and under which assumptions.

    Parameters
    ----------
    noise_multiplier : float
        z, the ratio of noise to sensitivity. Pass half of it if neighbouring runs replace a
        client's updates by other updates.
    releases : int
        T, such as `ExactNoise.releases`.
    delta : float
        δ, above 0 and below 1.

    Returns
    -------
    float
        ε, to at least eight digits; infinite without noise, 0 without releases.

    Examples
    --------
    >>> round(epsilon_spent(1.0, 1, delta=1e-5), 3)
    4.377
    """
    multiplier = as_amount(noise_multiplier, what="noise_multiplier")
    count = as_size(releases, what="releases", low=0)
    probability = as_amount(delta, what="delta", positive=True)
    if not probability < 1.0:
        raise OptionError(f"delta is {delta}; it must be below 1")
    if count == 0:
        return 0.0
    if multiplier == 0.0:
        return math.inf
    mu = math.sqrt(count) / multiplier
    wanted = math.log(probability)
    if math.erf(mu / math.sqrt(8.0)) <= probability:
        return 0.0
    low, high = 0.0, mu * (mu / 2 + math.sqrt(-2 * wanted))  # the bound from concentrated privacy
    while high - low > EPSILON_TOLERANCE * high:
        middle = (low + high) / 2
        if _log_delta(middle, mu) > wanted:
            low = middle
        else:
            high = middle
    return high


def _log_delta(epsilon: float, mu: float) -> float:
    """Return log δ(ε) for ε > 0 without cancellation between large exponents.

    With a, b = −ε/μ ± μ/2 we have b² − a² = 2ε, so e^ε Φ(b) = e^(−a²/2) erfcx(−b/√2) / 2.
    """
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    first = float(log_ndtr(a))
    second = math.log(erfcx(-b / math.sqrt(2.0)) / 2) - a * a / 2
    # If both are equal up to rounding, δ is smaller than any δ that can be requested.
    return first + math.log(-math.expm1(second - first)) if second < first else -math.inf
