"""Aligned weights under secure aggregation: the server sees the sum, not the updates.

Flower's SecAgg+ sums masked vectors (r_i, r_i θ_i), where r_i is a client's example count divided
by ``max_weight``, and divides the sums. Aligned weights are a softmax of potentials. If each client
uses

    r_i = exp(x_i − max_j x_j)

as its count, the quotient is the aligned average, also when clients drop out: Σ r_i θ_i / Σ r_i
over the survivors is the average by their own softmax. The server sends r_i with the instructions
(`SecureFedAVOT`), the mod `secure_count` replaces the client's count by it, and the
code of the client does not change::

    app = ClientApp(client_fn, mods=[secaggplus_mod, secure_count])         # in this order

    workflow = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2)
    strategy = SecureFedAVOT(FedAvg(initial_parameters=...), workflow, importance={"0": 2.0, ...})
    context = LegacyContext(context, ServerConfig(num_rounds=3), strategy)
    DefaultWorkflow(fit_workflow=workflow)(grid, context)

These are Flower's older interfaces (``flwr.server.strategy``, ``client_fn``), the only ones that
its SecAgg+ supports.

Not supported: alignments with several levels or with the objective "variance", and ``cohort_size``
(their weights in a smaller cohort do not follow from one number per client); memory, because the
server never holds a single update; importance "examples", because the example counts stay with the
clients.

The server learns which clients took part, the counts that it sent them, the sum of the weighted
models, and what Flower does not mask: the metrics that ``fit`` returns, and everything that
``evaluate`` returns. It does not learn single models or the example counts of ``fit``. This holds
for a server that follows the protocol: a server that sends count 0 to all clients but one obtains
the model of that client, and if an honest weight is close to one, the sum reveals most of that
client's model. Noise against this must be added on the clients. Flower 1.41 reduces the seed of
each mask to 32 bits and expands it with a generator that is not cryptographic: this protects
against accidental disclosure, not against an attack.

Precision: with c the workflow's ``clipping_range``, t its ``quantization_range`` and Q = Σ q_i over
the n survivors, q_i = round(t r_i), the error of an entry of the average is below 4 c n / Q: half
of it from rounding r_i θ_i to multiples of 2c/t, the rest from rounding r_i to q_i and from single
precision. Q is at least t if the client with the largest weight survives: 8e-6 n with Flower's
defaults. A client whose weight is below 1/(2t) of the largest, 1.2e-7, is not asked. Flower clips
entries of r_i θ_i at ±c: a global model with such entries is refused, and a client whose update has
such entries drops out. Half precision is refused. Integer arrays, which Flower would clip too, keep
their values in the global model; floating-point arrays are cast back to its types.

Dropouts: a client may drop out after its keys are shared. If one drops out before, Flower 1.41
abandons the round; the model does not change, and the aligner learns nothing from the round.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord
from flwr.common import (
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    Parameters,
    Scalar,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy
from flwr.server.workflow import SecAggPlusWorkflow
from numpy.typing import NDArray

from fedavot.errors import OptionError, TaskError
from fedavot.flower.options import Importance, Weighting
from fedavot.flower.who.asking import ACTION, tell_name
from fedavot.flower.who.identity import Names
from fedavot.flower.worth.records import is_float
from fedavot.flower.worth.weigher import Weigher

_log = logging.getLogger("flwr")

COUNT = "fedavot-count"
"""Key of the count in the instructions of a client."""

LIMIT = "fedavot-limit"
"""Key of the largest absolute entry that an update may have."""

REACH = 0.99
"""Fraction of the clipping range from which entries of the model are refused."""

_INSTRUCTIONS, _EXAMPLES = "fitins.config", "fitres.num_examples"


def secure_count(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Report the count that the server sent instead of the number of examples.

    A client mod, to be listed after ``secaggplus_mod``. It also answers the server's query for the
    client's name. Other messages pass unchanged.
    """
    content = message.content
    if message.metadata.message_type == f"query.{ACTION}":
        return tell_name(message, context)
    instructions = content.config_records.get(_INSTRUCTIONS, ConfigRecord())
    count, limit = instructions.get(COUNT), instructions.get(LIMIT)
    reply = call_next(message, context)
    if isinstance(count, float) and reply.has_content():
        if isinstance(limit, float):
            _refuse_beyond(limit, reply)
        reply.content.metric_records[_EXAMPLES] = MetricRecord({"num_examples": count})
    return reply


def _refuse_beyond(limit: float, reply: Message) -> None:
    """Raise if SecAgg+ would clip an entry; the client then drops out of the round."""
    for record in reply.content.array_records.values():
        for array in record.values():
            values = array.numpy()
            if is_float(values) and not np.abs(values).max(initial=0.0) <= limit:
                raise ValueError(
                    f"an entry of the update is beyond {limit:g}, where SecAgg+ clips; use a "
                    "larger clipping_range in the workflow"
                )


class SecureFedAVOT(Strategy):
    """Send every client its count, and learn from the clients that completed the protocol.

    Parameters
    ----------
    strategy : flwr.server.strategy.Strategy
        Strategy that samples clients and receives the average: FedAvg, or one that takes a step
        from its average.
    workflow : SecAggPlusWorkflow
        The workflow of the run, whose ranges are used.
    importance : "uniform", mapping or path
        As in FedAVOT. Clients without importance are not asked.
    weighting : Weighting, optional
        As in FedAVOT: an alignment, or the step of the online aligner.
    identity : str, mapping or callable
        Client names by node id. Text is the key of the node configuration that each new node is
        asked for, unless it has a registered name.

    Attributes
    ----------
    error_bound : float
        Largest error of an entry of the last average due to quantisation.
    weights : dict of float
        Weights of the last round by client name, summing to one.
    """

    def __init__(
        self,
        strategy: Strategy,
        workflow: SecAggPlusWorkflow,
        *,
        importance: Importance = "uniform",
        weighting: Weighting | None = None,
        identity: str | Mapping[int, str] | Callable[[int], str | None] = "partition-id",
    ) -> None:
        self.strategy = strategy
        self.error_bound = 0.0
        self.weights: dict[str, float] = {}
        weighting = Weighting() if weighting is None else weighting
        _check_weighting(weighting, importance)
        self.workflow = workflow
        self._weigher = Weigher(importance, weighting)
        self._names = Names("auto", identity) if isinstance(identity, str) else identity
        self._model: list[NDArray[Any]] = []
        self._asked: dict[int, tuple[str, float]] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return what was learnt about the clients: plain data and arrays."""
        return self._weigher.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self._weigher.load_state_dict(state)

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """Return the initial parameters of the wrapped strategy."""
        return self.strategy.initialize_parameters(client_manager)

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Add the counts to the wrapped strategy's instructions."""
        self._model = parameters_to_ndarrays(parameters)
        _check_model(self._model, self.workflow.clipping_range)
        chosen = self.strategy.configure_fit(server_round, parameters, client_manager)
        names = self._named([proxy for proxy, _ in chosen])
        _check_size(len(names), self.workflow)
        self._asked = self._counts(names)
        return [
            (proxy, replace(asked, config={**asked.config, **self._told(proxy.node_id)}))
            for proxy, asked in chosen
            if proxy.node_id in self._asked
        ]

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Pass on the average, which every result holds, and learn from the survivors."""
        if not results:
            return self.strategy.aggregate_fit(server_round, results, failures)
        survivors = dict(sorted(self._asked[proxy.node_id] for proxy, _ in results))
        if wrong := self._other_counts(results):
            _log.error("SecureFedAVOT: round %d is abandoned: %s", server_round, wrong)
            return None, {}
        aggregated, metrics = self.strategy.aggregate_fit(server_round, results, failures)
        if aggregated is None:
            return None, metrics
        total = sum(self._quantised(count) for count in survivors.values())
        self.error_bound = 4 * self.workflow.clipping_range * len(survivors) / total
        given = np.array(list(survivors.values())) / sum(survivors.values())
        self._weigher.observe(list(survivors), given)
        self.weights = dict(zip(survivors, given.tolist(), strict=True))
        return self._like_model(aggregated), metrics

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Leave evaluation to the wrapped strategy."""
        return self.strategy.configure_evaluate(server_round, parameters, client_manager)

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Leave evaluation to the wrapped strategy."""
        return self.strategy.aggregate_evaluate(server_round, results, failures)

    def evaluate(
        self, server_round: int, parameters: Parameters
    ) -> tuple[float, dict[str, Scalar]] | None:
        """Leave evaluation to the wrapped strategy."""
        return self.strategy.evaluate(server_round, parameters)

    def _named(self, proxies: list[ClientProxy]) -> dict[int, str]:
        """Return the client names of the nodes that can be asked; log why others cannot."""
        nodes = [proxy.node_id for proxy in proxies]
        found, refused = self._found(proxies)
        names = {node: found[node] for node in nodes if node in found}
        listed = list(names.values())
        refused |= {
            name: f"several nodes have the name {name!r}"
            for name in listed
            if listed.count(name) > 1
        }
        refused |= self._weigher.admit([name for name in listed if name not in refused])
        for who, why in refused.items():
            _log.warning("SecureFedAVOT: %s is not asked: %s", who, why)
        accepted = {node: name for node, name in names.items() if name not in refused}
        return dict(sorted(accepted.items(), key=lambda item: item[1]))

    def _found(self, proxies: list[ClientProxy]) -> tuple[dict[int, str], dict[str, str]]:
        """Return client names by node, and why other nodes have none."""
        if isinstance(self._names, Names):
            if proxies:
                self._names.resolve(vars(proxies[0])["grid"])
            return {node: name for name, node in self._names.nodes.items()}, dict(
                self._names.refused
            )
        look_up = self._names.get if isinstance(self._names, Mapping) else self._names
        names = {proxy.node_id: look_up(proxy.node_id) for proxy in proxies}
        nameless = {f"node {node}": "it has no name" for node in names if names[node] is None}
        return {node: name for node, name in names.items() if name is not None}, nameless

    def _counts(self, names: Mapping[int, str]) -> dict[int, tuple[str, float]]:
        """Return client name and count by node, with ``max_weight`` as the largest count."""
        if not names:
            return {}
        weights = self._weigher.weights(list(names.values()))
        counts = (self.workflow.max_weight * (weights / weights.max())).tolist()
        return {
            node: (name, count)
            for (node, name), count in zip(names.items(), counts, strict=True)
            if self._quantised(count)
        }

    def _told(self, node: int) -> dict[str, Scalar]:
        """Return the count of a node, and the largest entry for which the error bound holds."""
        return {COUNT: self._asked[node][1], LIMIT: float(self.workflow.clipping_range)}

    def _quantised(self, count: float) -> int:
        return round(count / self.workflow.max_weight * self.workflow.quantization_range)

    def _other_counts(self, results: list[tuple[ClientProxy, FitRes]]) -> str | None:
        """Return a message if a client reports a different count than it was sent, else None.

        A client that reports the right count may still mask its model with another one.
        """
        for proxy, result in results:
            name, count = self._asked[proxy.node_id]
            if result.num_examples != count:
                return (
                    f"client {name!r} used the count {result.num_examples} instead of {count}, "
                    "which it was sent, so the average is not aligned; list secure_count after "
                    "secaggplus_mod in the mods of its ClientApp"
                )
        return None

    def _like_model(self, parameters: Parameters) -> Parameters:
        """Return parameters in the types of the model; integer arrays as in the model."""
        arrays = parameters_to_ndarrays(parameters)
        return ndarrays_to_parameters(
            [
                array.astype(old.dtype) if is_float(old) else old
                for array, old in zip(arrays, self._model, strict=True)
            ]
        )


def _check_weighting(weighting: Weighting, importance: Importance) -> None:
    """Refuse weights that do not follow from one number per client."""
    alignment = weighting.alignment
    if alignment is not None and alignment.objective != "entropy":
        raise OptionError(
            f"the alignment's objective is {alignment.objective!r}, whose weights in a smaller "
            "cohort do not follow from one number per client; align with objective='entropy'"
        )
    if alignment is not None and alignment.levels.any():
        raise OptionError(
            f"the alignment has {int(alignment.levels.max()) + 1} levels, and only the lowest "
            "level in a cohort has weight, which depends on dropouts; learn the weights online, or "
            "align softly with softness > 0"
        )
    if weighting.cohort_size is not None:
        raise OptionError(
            "the weights of a chosen cohort do not follow from one number per client; leave out "
            "cohort_size under secure aggregation"
        )
    if importance == "examples":
        raise OptionError(
            "importance 'examples' needs the clients' example counts, which secure aggregation "
            "hides from the server; pass a mapping"
        )


def _check_model(model: list[NDArray[Any]], clipping_range: float) -> None:
    """Refuse a model that Flower's SecAgg+ would silently change."""
    for place, array in enumerate(model):
        if not is_float(array):
            continue
        if array.dtype.itemsize < 4:
            raise TaskError(
                f"array {place} of the model is {array.dtype}, whose precision is too low for the "
                "sums of SecAgg+; use float32"
            )
        if array.ndim == 0:
            raise TaskError(
                f"array {place} of the model has no dimensions, and SecAgg+ does not average it; "
                "give it the shape (1,)"
            )
        largest = float(np.abs(array).max(initial=0.0))
        if not largest < REACH * clipping_range:
            raise TaskError(
                f"array {place} of the model has an entry of size {largest}, and SecAgg+ clips at "
                f"clipping_range {clipping_range}; use a larger one in the workflow"
            )


def _check_size(n_asked: int, workflow: SecAggPlusWorkflow) -> None:
    """Refuse to ask more clients than the sums of the protocol can hold."""
    most = (workflow.modulus_range - 1) // workflow.quantization_range
    if n_asked > most:
        raise OptionError(
            f"{n_asked} clients are asked, but sums of more than {most} overflow the workflow's "
            "modulus_range; ask fewer clients, or use a smaller quantization_range"
        )
