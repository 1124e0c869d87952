"""The rounds: which clients are asked, how replies are weighted, and how they are aggregated.

A round of training finds the client names of the live nodes, lets the wrapped strategy create
messages for nodes that have an importance, or for a chosen cohort of them, sorts the replies,
computes the weights of the clients that replied, passes the usable replies with these weights to
the wrapped strategy, and checks the result and casts it to the number types of the model.
"""

import copy
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, Metadata, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedavot._checks import Floats, enumerated
from fedavot.errors import AggregateError, OptionError
from fedavot.flower.kept.log import Round
from fedavot.flower.memory.server import RunMemory
from fedavot.flower.options import Admission
from fedavot.flower.who.admission import AdmittedGrid
from fedavot.flower.who.identity import Names
from fedavot.flower.worth.records import (
    arrays_of,
    brief,
    fault_of,
    metrics_of,
    put_weights,
    refuse_other_kinds,
    typed_as,
)
from fedavot.flower.worth.replies import Inspector, Sorted
from fedavot.flower.worth.watch import Watch
from fedavot.flower.worth.weigher import Weigher
from fedavot.flower.wrapped import (
    EVERYONE,
    config_record,
    is_flowers_own,
    least_available,
    missing_noise,
    needed_metric,
    noisy_layers,
    weighted,
    weighted_by,
)

_log = logging.getLogger("flwr")

Aggregate = tuple[ArrayRecord | None, MetricRecord | None]


@dataclass(frozen=True, kw_only=True)
class _Open:
    """A round between sending messages and aggregating replies.

    Attributes
    ----------
    number : int
        Number of the round, from 1.
    model : ArrayRecord
        The model that was sent.
    available, refused
        As in `Round`.
    asked : dict from client name to Metadata
        Metadata of the message sent to each client.
    shares : dict of float
        Weights of the clients asked if all of them reply; empty if the wrapped strategy sampled
        them.
    """

    number: int
    model: ArrayRecord
    available: list[str]
    refused: dict[str, str]
    asked: dict[str, Metadata]
    shares: dict[str, float]


class Rounds:
    """Configure and aggregate the rounds of one run.

    Parameters
    ----------
    strategy : Strategy
        The wrapped strategy.
    weigher : Weigher
        Holds the importance of the clients, and learns their weights.
    admission : Admission
        Which nodes and updates are accepted.
    finished : function of a Round
        Called with every round when it is over.

    Attributes
    ----------
    key : str
        Metric of the replies in which the wrapped strategy finds their weights.
    names : Names
        Maps nodes to client names.
    inspector : Inspector
        Sorts replies.
    memory : RunMemory or None
        What is remembered of the clients, if memory is used; set before the first round.
    timeout : float or None
        Seconds after which messages expire, so that a late node works on the current round.
    any_usable : bool
        Whether any update of these rounds was usable.
    """

    def __init__(
        self,
        strategy: Strategy,
        weigher: Weigher,
        *,
        admission: Admission,
        finished: Callable[[Round], None],
    ) -> None:
        self.key = weighted_by(strategy)
        self.weigher, weighting = weigher, weigher.weighting
        self.names = Names(admission.identity, admission.key, config_record(strategy))
        # Under differential privacy, weights must not depend on the updates.
        limit = None if noisy_layers(strategy) else admission.norm_limit
        self.inspector = Inspector(limit, self.key, needed_metric(strategy))
        self.memory: RunMemory | None = None
        self.timeout: float | None = None
        self.any_usable = False
        self.strategy = strategy
        self._inner = weighted(strategy, **({} if weighting.cohort_size is None else EVERYONE))
        self._weighting, self._admission = weighting, admission
        self._finished = finished
        self._copies = not is_flowers_own(strategy)
        self._watch = Watch(self.key)
        self._warned = False
        self._open: _Open | None = None
        self._usable = 0
        self._evaluating: dict[int, float] | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Admit nodes, and let the wrapped strategy create messages for them."""
        refuse_other_kinds(arrays)
        self._close_unanswered()
        shares: dict[str, float] = {}
        nodes = self._nodes(server_round, config, grid)
        if self._weighting.cohort_size is not None:
            shares = nodes.choose(np.random.default_rng([self._weighting.seed, server_round]))
        asked = list(self._inner.configure_train(server_round, arrays, config, nodes))
        sent, gone = nodes.addressed(asked)
        messages = self._limited(list(sent.values()))
        if self.memory is not None:
            self.memory.prepare(sent)
        self._usable = 0
        # A strategy may send other arrays than those of the model.
        records = list(messages[0].content.array_records.values()) if messages else []
        same = len(records) != 1 or records[0].keys() == arrays.keys()
        self._open = _Open(
            number=server_round,
            model=arrays if same else records[0],
            available=nodes.available,
            refused=nodes.refused | gone,
            asked={name: message.metadata for name, message in sent.items()},
            shares=shares,
        )
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Aggregate:
        """Compute the weights of the replies, and let the wrapped strategy aggregate them."""
        open_round, self._open = self._open, None
        if open_round is None:
            raise OptionError("aggregate_train was called without a preceding configure_train")
        found = self._sorted(replies, open_round)
        names = list(found.usable)
        self.any_usable = self.any_usable or bool(names)
        weights = self._weigh(names, open_round.shares)
        if too_little := missing_noise(self.strategy, max(weights, default=0.0)):
            _log.warning("FedAVOT: %s", too_little)
        arrays, metrics = self._aggregate(found, weights, open_round)
        fault = None
        if arrays is not None:
            fault = fault_of(arrays, open_round.model, exact=self.memory is not None)
            fault = fault or (self._watch.conflict if self._copies else None)
        if self.memory is not None:
            self.memory.settle(accepted=arrays is not None and fault is None)
        if fault is not None:
            raise AggregateError(
                f"round {server_round}: {fault}. With a folder, the last good model is in its "
                "checkpoint, from which the run resumes"
            )
        if arrays is None:
            found.excluded.update(dict.fromkeys(names, "the wrapped strategy aggregated nothing"))
            found.usable.clear()
            self._finish(open_round, found, {}, metrics)
            return None, metrics
        if self._copies:
            names, weights = self._kept(found, weights, open_round.shares)
        weights, applied = self._in_effect(arrays, weights)
        self.weigher.observe(names, weights)
        given = dict(zip(names, weights.tolist(), strict=True))
        self._finish(open_round, found, given, metrics, applied=applied)
        return typed_as(arrays, open_round.model), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Let the wrapped strategy evaluate on admitted nodes."""
        self._close_unanswered()
        nodes = self._nodes(server_round, config, grid)
        messages = list(self._inner.configure_evaluate(server_round, arrays, config, nodes))
        self._evaluating = None
        if self._weighting.evaluation:
            importance = self.weigher.importance
            sent, _ = nodes.addressed(messages)
            self._evaluating = {
                message.metadata.dst_node_id: importance.get(name, 0.0)
                for name, message in sent.items()
            }
        return self._limited(messages)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Let the wrapped strategy aggregate the usable evaluation metrics."""
        kept = self.inspector.usable_evaluations(replies, self._evaluating)
        return self._inner.aggregate_evaluate(server_round, kept)

    def closes(self, new: list[Message]) -> bool:
        """Return whether a round has enough usable replies, given those that have just arrived."""
        assert self._open is not None
        assert self._admission.enough is not None
        inspector = copy.deepcopy(self.inspector)  # aggregation will learn norms from these replies
        self._usable += len(inspector.sort(new, self._open.asked, self._open.model).usable)
        return self._usable >= self._admission.enough

    def _nodes(self, server_round: int, config: ConfigRecord, grid: Grid) -> AdmittedGrid:
        told = {**config, "server-round": server_round}
        least = least_available(self.strategy)
        return AdmittedGrid(grid, self.names, self.weigher, told, least=least)

    def _limited(self, messages: list[Message]) -> list[Message]:
        if self.timeout is not None:
            for message in messages:
                message.metadata.ttl = min(message.metadata.ttl, self.timeout)
        return messages

    def _sorted(self, replies: Iterable[Message], open_round: _Open) -> Sorted:
        """Sort the replies of a round, and leave out those without a count."""
        found = self.inspector.sort(replies, open_round.asked, open_round.model)
        unusable = self.weigher.count(
            {name: metrics_of(reply).get(self.key) for name, reply in found.usable.items()},
            self.key,
        )
        if self.memory is not None:
            self.memory.receive(found.usable)
        for name, reason in unusable.items():
            del found.usable[name]
            found.excluded[name] = brief(reason)
        for name, reason in found.excluded.items():
            _log.warning("FedAVOT: the update of client %r is not used: %s", name, reason)
        return found

    def _weigh(self, names: list[str], shares: dict[str, float]) -> Floats:
        """Return the weights of the clients that replied, from a selection or an aligner."""
        if not names:
            return np.zeros(0)
        if shares:
            chosen = np.array([shares[name] for name in names])
            return np.asarray(chosen / chosen.sum())
        return self.weigher.weights(names)

    def _aggregate(self, found: Sorted, weights: Floats, open_round: _Open) -> Aggregate:
        """Pass the usable replies with their weights to the wrapped strategy."""
        if not found.usable:
            return None, None
        replies: list[Any] = list(found.usable.values())
        put_weights(replies, weights.tolist(), open_round.model, key=self.key, copies=self._copies)
        memory, combine = self.memory, None
        if memory is not None:

            def combine(used: dict[str, Message]) -> ArrayRecord:
                given = self._weigh(list(used), open_round.shares)
                return memory.combine(used, given, open_round.model)

        if self._copies:
            self._watch.before(found.usable, weights, combine)
        elif combine is not None:
            combined = combine(found.usable)
            for reply in replies:
                arrays_of(reply).update(combined)
        return self._inner.aggregate_train(open_round.number, replies)

    def _kept(
        self, found: Sorted, weights: Floats, shares: dict[str, float]
    ) -> tuple[list[str], Floats]:
        """Return the clients whose updates the wrapped strategy used, and their weights."""
        names, used = list(found.usable), self._watch.used
        if used == names:
            return names, weights
        dropped = [name for name in names if name not in used]
        for name in dropped:
            del found.usable[name]
            found.excluded[name] = "the wrapped strategy left it out"
        listed = enumerated(map(repr, dropped))
        _log.info("FedAVOT: the wrapped strategy left out the updates of clients %s", listed)
        if self.memory is not None:
            return used, self._weigh(used, shares)
        left = weights[[name in used for name in names]]
        return used, np.asarray(left / (left.sum() or 1.0))

    def _in_effect(self, arrays: ArrayRecord, weights: Floats) -> tuple[Floats, bool]:
        """Return the weights behind an aggregate, and whether they are those that were given."""
        if self.memory is not None or not self._copies:
            return weights, True
        weights, applied = self._watch.in_effect(arrays, weights)
        if not (applied or self._warned):
            _log.warning(
                "FedAVOT: %s aggregates without the weights in the metric %r, so that FedAVOT has "
                "no effect on the model; average by this metric in aggregate_train",
                type(self.strategy).__name__,
                self.key,
            )
            self._warned = True
        return weights, applied

    def _finish(
        self,
        open_round: _Open,
        found: Sorted,
        weights: dict[str, float],
        metrics: MetricRecord | None,
        *,
        applied: bool = True,
    ) -> None:
        """Report a round that is over."""
        events, self.weigher.events = self.weigher.events, []
        counts = self.weigher.kind == "examples"
        squares = sum(weight**2 for weight in weights.values())
        record = Round(
            round=open_round.number,
            available=open_round.available,
            asked=sorted(open_round.asked),
            replied=list(found.usable),
            failed=found.failed,
            late=found.late,
            excluded=found.excluded,
            refused=open_round.refused,
            weights=weights,
            applied=applied,
            memory=self.memory is not None,
            gap=self.weigher.gap,
            known=len(self.weigher.amounts) if counts else 0,
            unknown=self.weigher.unknown,
            effective_cohort_size=1.0 / squares if squares else 0.0,
            events=events,
            metrics=dict(metrics or {}),
        )
        _log.info("FedAVOT: %s", record.summary())
        if not weights:
            _log.warning("FedAVOT: round %d has no usable update; model unchanged", record.round)
        self._finished(record)

    def _close_unanswered(self) -> None:
        """Report a round whose replies an outer wrapper did not pass on."""
        open_round, self._open = self._open, None
        if open_round is not None:
            found = Sorted(usable={}, failed={}, late=sorted(open_round.asked), excluded={})
            self._finish(open_round, found, {}, None)
