"""Aligned weights under secure aggregation: the server sees the sum, not the updates.

Flower's SecAgg+ sums masked vectors (r_i, r_i θ_i), where r_i is a client's example count over
``max_weight``, and divides. Aligned weights are a softmax of potentials, so a client that takes

    r_i = exp(x_i − max_j x_j)

for its count makes the quotient the aligned average, and it stays so when clients drop out:
Σ r_i θ_i / Σ r_i over the survivors is what their own softmax gives. The server puts r_i into the
instructions (:class:`SecureFedAVOT`), the mod :func:`secure_count` puts it in the place of the
client's count, and the client's code does not change::

    app = ClientApp(client_fn, mods=[secaggplus_mod, secure_count])         # in this order

    workflow = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2)
    strategy = SecureFedAVOT(FedAvg(initial_parameters=...), workflow, importance={"0": 2.0, ...})
    context = LegacyContext(context, ServerConfig(num_rounds=3), strategy)
    DefaultWorkflow(fit_workflow=workflow)(grid, context)

These are Flower's older interfaces (``flwr.server.strategy``, ``client_fn``), the only ones that
its SecAgg+ knows.

What cannot be done: an alignment with several levels or of the objective "variance", and a choice
of cohort (their weights in a smaller cohort do not follow from one number a client); memory, for
the server never holds a single update; importance "examples", for the example counts stay with the
clients.

What the server learns: who took part, the count it sent to each itself, the sum of the weighted
models, and what Flower does not mask: the metrics that ``fit`` returns, and all that ``evaluate``
returns. Not single models, and not the example counts of ``fit``. That is against a server that
keeps to the protocol: one that sends count 0 to all but one client gets that one's model, and where
one honest weight is near one the sum shows most of that client's model too. Noise against this
belongs on the clients. Flower 1.41 folds the seed of each mask to 32 bits and expands it with a
generator that is not cryptographic: a guard against looking, not against an attack.

Precision: with c the workflow's ``clipping_range``, t its ``quantization_range`` and Q = Σ q_i over
the n survivors, q_i = round(t r_i), an entry of the average is off by less than 4 c n / Q: half of
it for rounding r_i θ_i to steps of 2c/t, the rest for what r_i loses to q_i and for single
precision. Q is at least t while the heaviest client survives: 8e-6 n with Flower's defaults. A
client whose weight is below 1/(2t) of the largest, 1.2e-7, is not asked. Flower cuts entries of
r_i θ_i at ±c: a global model that reaches there is refused, and a client whose update does drops
out. Half precision is refused. Integer arrays, which Flower would cut too,
stay as they are in the global model; floating-point ones come back in its types.

Dropouts: a client may be lost once its keys are shared. Where one is lost before, Flower 1.41 gives
the round up; the model stays, and nothing is learnt of it.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
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
from fedavot.flower.identity import ACTION, RECORD, Names
from fedavot.flower.options import Weighting
from fedavot.flower.records import is_float
from fedavot.flower.weigher import Importance, Weigher

_log = logging.getLogger("flwr")

COUNT = "fedavot-count"
"""Key of the count in a client's instructions."""

LIMIT = "fedavot-limit"
"""Key of the largest entry that the client's update may have."""

REACH = 0.99
"""Share of the clipping range at which an entry of the model is cut already, or about to be."""

_INSTRUCTIONS, _EXAMPLES = "fitins.config", "fitres.num_examples"


def secure_count(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Report the count the server sent in place of the number of examples.

    A client mod, to stand behind ``secaggplus_mod``. It also tells the server the client's name
    when asked. Other messages pass.
    """
    content = message.content
    if message.metadata.message_type == f"query.{ACTION}":
        key = str(content.config_records[RECORD]["key"])
        name = ConfigRecord({"name": str(context.node_config[key])})
        return Message(RecordDict({RECORD: name}), reply_to=message)
    instructions = content.config_records.get(_INSTRUCTIONS, ConfigRecord())
    count, limit = instructions.get(COUNT), instructions.get(LIMIT)
    reply = call_next(message, context)
    if isinstance(count, float) and reply.has_content():
        if isinstance(limit, float):
            _refuse_beyond(limit, reply)
        reply.content.metric_records[_EXAMPLES] = MetricRecord({"num_examples": count})
    return reply


def _refuse_beyond(limit: float, reply: Message) -> None:
    """Raise where SecAgg+ would cut an entry: the server makes do without the client instead."""
    for record in reply.content.array_records.values():
        for array in record.values():
            values = array.numpy()
            if is_float(values) and not np.abs(values).max(initial=0.0) <= limit:
                raise ValueError(
                    f"an entry of the update is beyond {limit:g}, where SecAgg+ cuts; give the "
                    "workflow a larger clipping_range"
                )


class SecureFedAVOT(Strategy):
    """Send every client its count, and learn from who survived the protocol.

    Parameters
    ----------
    strategy : flwr.server.strategy.Strategy
        Chooses whom to ask, and gets the average; FedAvg, or one that steps from its average.
    workflow : SecAggPlusWorkflow
        The workflow that will run, for its ranges.
    importance : "uniform", mapping or path
        As in FedAVOT. Clients it does not name are not asked.
    weighting : Weighting, optional
        As in FedAVOT: an alignment, or the step of the online aligner.
    names : str, mapping or callable
        Names by node id. Text is the key of the node configuration that each new node is asked
        for, unless it is registered under a name.

    Attributes
    ----------
    error_bound : float
        The most that quantisation can have moved an entry of the last average.
    weights : dict of float
        The last round's weights by name, summing to one.
    """

    def __init__(
        self,
        strategy: Strategy,
        workflow: SecAggPlusWorkflow,
        *,
        importance: Importance = "uniform",
        weighting: Weighting | None = None,
        names: str | Mapping[int, str] | Callable[[int], str | None] = "partition-id",
    ) -> None:
        self.strategy = strategy
        self.error_bound = 0.0
        self.weights: dict[str, float] = {}
        weighting = Weighting() if weighting is None else weighting
        _check_weighting(weighting, importance)
        self.workflow = workflow
        self._weigher = Weigher(importance, weighting)
        self._names = Names("auto", names) if isinstance(names, str) else names
        self._model: list[NDArray[Any]] = []
        self._asked: dict[int, tuple[str, float]] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return what was learnt of the clients, fit for JSON."""
        return self._weigher.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned."""
        self._weigher.load_state_dict(state)

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """Leave it to the wrapped strategy."""
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
        """Hand the average on, which every result carries, and observe whom it is made of."""
        if not results:
            return self.strategy.aggregate_fit(server_round, results, failures)
        survivors = dict(sorted(self._asked[proxy.node_id] for proxy, _ in results))
        if wrong := self._other_counts(results):
            _log.error("SecureFedAVOT: round %d is given up: %s", server_round, wrong)
            return None, {}
        aggregated, metrics = self.strategy.aggregate_fit(server_round, results, failures)
        if aggregated is None:
            return None, metrics
        total = sum(self._quantised(count) for count in survivors.values())
        self.error_bound = 4 * self.workflow.clipping_range * len(survivors) / total
        given = self._weigher.weights(list(survivors))
        self._weigher.observe(list(survivors), given)
        self.weights = dict(zip(survivors, given.tolist(), strict=True))
        return self._like_model(aggregated), metrics

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Leave it to the wrapped strategy."""
        return self.strategy.configure_evaluate(server_round, parameters, client_manager)

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Leave it to the wrapped strategy."""
        return self.strategy.aggregate_evaluate(server_round, results, failures)

    def evaluate(
        self, server_round: int, parameters: Parameters
    ) -> tuple[float, dict[str, Scalar]] | None:
        """Leave it to the wrapped strategy."""
        return self.strategy.evaluate(server_round, parameters)

    def _named(self, proxies: list[ClientProxy]) -> dict[int, str]:
        """Return the names of the nodes that can be asked; log why the others cannot."""
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
        """Return names by node, and why other nodes have none."""
        if isinstance(self._names, Names):
            grids: list[Any] = [vars(proxy)["grid"] for proxy in proxies[:1]]
            return self._names.resolve(grids[0]) if grids else ({}, {})
        look_up = self._names.get if isinstance(self._names, Mapping) else self._names
        names = {proxy.node_id: look_up(proxy.node_id) for proxy in proxies}
        nameless = {f"node {node}": "it has no name" for node in names if names[node] is None}
        return {node: name for node, name in names.items() if name is not None}, nameless

    def _counts(self, names: Mapping[int, str]) -> dict[int, tuple[str, float]]:
        """Return name and count of every node that has one; the largest is ``max_weight``."""
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
        """Return a node's count, and how large an entry may be for the error bound to hold."""
        return {COUNT: self._asked[node][1], LIMIT: float(self.workflow.clipping_range)}

    def _quantised(self, count: float) -> int:
        return round(count / self.workflow.max_weight * self.workflow.quantization_range)

    def _other_counts(self, results: list[tuple[ClientProxy, FitRes]]) -> str | None:
        """Say who tells of another count than it was sent; a client may still mask another."""
        for proxy, result in results:
            name, count = self._asked[proxy.node_id]
            if result.num_examples != count:
                return (
                    f"client {name!r} weighed itself by {result.num_examples}, not by the count "
                    f"{count} it was sent, so the sum is not the aligned one; put secure_count "
                    "behind secaggplus_mod in the mods of its ClientApp"
                )
        return None

    def _like_model(self, parameters: Parameters) -> Parameters:
        """Return parameters in the model's types; integer arrays as the model has them."""
        arrays = parameters_to_ndarrays(parameters)
        return ndarrays_to_parameters(
            [
                array.astype(old.dtype) if is_float(old) else old
                for array, old in zip(arrays, self._model, strict=True)
            ]
        )


def _check_weighting(weighting: Weighting, importance: Importance) -> None:
    """Refuse weights that do not follow from one number a client."""
    alignment = weighting.alignment
    if alignment is not None and alignment.objective != "entropy":
        raise OptionError(
            f"the alignment's objective is {alignment.objective!r}, whose weights in a smaller "
            "cohort do not follow from one number a client; align with objective='entropy'"
        )
    if alignment is not None and alignment.levels.any():
        raise OptionError(
            f"the alignment has {int(alignment.levels.max()) + 1} levels, of which only the lowest "
            "in a cohort has weight: dropouts change who that is; learn the weights online, or "
            "align softly with softness > 0"
        )
    if weighting.cohort_size is not None:
        raise OptionError(
            "the weights of a choice among the available do not follow from one number a client; "
            "leave out cohort_size under secure aggregation"
        )
    if weighting.memory:
        raise OptionError("memory needs single updates, which secure aggregation hides")
    if importance == "examples":
        raise OptionError(
            "importance 'examples' needs the clients' example counts, which secure aggregation "
            "keeps from the server; give a mapping"
        )


def _check_model(model: list[NDArray[Any]], clipping_range: float) -> None:
    """Refuse a model that Flower's SecAgg+ would change in silence."""
    for place, array in enumerate(model):
        if not is_float(array):
            continue
        if array.dtype.itemsize < 4:
            raise TaskError(
                f"array {place} of the model is {array.dtype}, in which SecAgg+ loses what it "
                "adds up; use float32"
            )
        if array.ndim == 0:
            raise TaskError(
                f"array {place} of the model has no dimensions, which SecAgg+ does not average; "
                "give it the shape (1,)"
            )
        largest = float(np.abs(array).max(initial=0.0))
        if not largest < REACH * clipping_range:
            raise TaskError(
                f"array {place} of the model has an entry of size {largest}, and SecAgg+ cuts at "
                f"clipping_range {clipping_range}; give the workflow a larger one"
            )


def _check_size(n_asked: int, workflow: SecAggPlusWorkflow) -> None:
    most = (workflow.modulus_range - 1) // workflow.quantization_range
    if n_asked > most:
        raise OptionError(
            f"{n_asked} clients are asked, but sums of more than {most} overflow the workflow's "
            "modulus_range; ask fewer, or give it a smaller quantization_range"
        )
