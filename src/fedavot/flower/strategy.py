"""FedAVOT for Flower: any averaging strategy, with weights whose mean is the importance.

Each round finds the client names of the live nodes, lets the wrapped strategy create messages for
nodes that have an importance, or for a chosen cohort of them, sorts the replies, computes the
weights of the clients that replied, passes the usable replies with these weights to the wrapped
strategy, casts the result to the number types of the model and writes the log. With
:meth:`FedAVOT.start` each round also writes a checkpoint, from which an interrupted run resumes.

Server optimisers, momentum, differential privacy and whatever else the wrapped strategy does with
an average apply to this weighted average. Evaluation is left to the wrapped strategy.

The wrapped strategy is not changed. :meth:`FedAVOT.start` runs its own ``start`` on a facade, whose
``configure_train``, ``aggregate_train`` and the like are FedAVOT's, and whose ``super().start`` is
the loop that can resume. Other attributes and methods of the wrapped strategy are reached through
FedAVOT under their own names.
"""

import copy
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedavot._files import PathLike
from fedavot.errors import AggregateError, OptionError
from fedavot.flower.kept.folder import Parts, RunFolder
from fedavot.flower.kept.log import OnRound, as_callbacks
from fedavot.flower.loop import Loop, loop_class
from fedavot.flower.memory import memory_of
from fedavot.flower.memory.options import Memory, as_memory
from fedavot.flower.memory.steady import SteadyMemory
from fedavot.flower.options import Admission, Weighting
from fedavot.flower.rounds import OpenRound
from fedavot.flower.who.admission import AdmittedGrid
from fedavot.flower.who.identity import Names
from fedavot.flower.worth.aggregate import WeightWatch, fault_of, sent_arrays
from fedavot.flower.worth.importance import Importance
from fedavot.flower.worth.records import metrics_of, put_weights, refuse_other_kinds, typed_as
from fedavot.flower.worth.replies import Inspector, Sorted, brief
from fedavot.flower.worth.weigher import Weigher
from fedavot.flower.wrapped import (
    EVERYONE,
    facade,
    is_flowers_own,
    layers,
    least_available,
    missing_noise,
    needed_metric,
    noisy_layers,
    weighted,
    weighted_by,
)

_log = logging.getLogger("flwr")

Aggregate = tuple[ArrayRecord | None, MetricRecord | None]

HOOKS = (
    *("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate"),
    "summary",
)
"""Methods of FedAVOT that the facade of the wrapped strategy has in place of its own."""


class FedAVOT(Strategy):
    """Wrap a Flower strategy so that each client counts by its importance, not its availability.

    Parameters
    ----------
    strategy : Strategy
        Strategy that averages: FedAvg, FedAvgM, FedProx, FedAdagrad, FedAdam, FedYogi, QFedAvg, or
        a privacy wrapper around one of them.
    importance : "examples", "uniform", mapping or path
        Importance of each client: the number of examples that it reports first, which is FedAvg's
        own objective; equal; by client name, on any scale; or a .csv or .json file (see
        `fedavot.importance.read_mapping`).
    memory : "server", "clients", Memory or None
        Whether memories stand in for absent clients (`fedavot.rules.steady`), and where they are:
        "server" keeps one model per client in the folder; with "clients" every client keeps its
        own, by ``introduce(app, memory=True)`` in the ClientApp. `Memory` has more options.
    weighting : Weighting, optional
        How weights are found. By default an online aligner learns them from who replies.
    admission : Admission, optional
        Which nodes are admitted, under which names, and which of their updates are accepted.
    folder : path, optional
        Folder for the participation log, the checkpoint and the memory; without one, nothing is
        written.
    resume : bool
        Whether to continue from the checkpoint in the folder. If there is none, a new run begins,
        so that the same command starts and restarts a run.
    on_round : function of a `Round`, or a sequence of them, optional
        Called after each round. An exception in a callback is logged and does not stop the run.

    Examples
    --------
    >>> from flwr.serverapp.strategy import FedAvg
    >>> strategy = FedAVOT(FedAvg(), importance={"berlin": 2, "lyon": 1, "porto": 1})
    >>> strategy.importance
    {'berlin': 0.5, 'lyon': 0.25, 'porto': 0.25}
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        importance: Importance = "examples",
        memory: Memory | Literal["server", "clients"] | None = None,
        weighting: Weighting | None = None,
        admission: Admission | None = None,
        folder: PathLike | None = None,
        resume: bool = False,
        on_round: OnRound | Sequence[OnRound] | None = None,
    ) -> None:
        if any(isinstance(layer, FedAVOT) for layer in layers(strategy)):
            raise OptionError(
                "the outer FedAVOT would overwrite the weights of the inner one; use only one"
            )
        self.strategy = strategy
        self._weighting = weighting or Weighting()
        self._admission = admission or Admission()
        self._key = weighted_by(strategy)
        chosen = self._weighting.cohort_size is not None
        self._inner = weighted(strategy, **(EVERYONE if chosen else {}))
        hooks = {name: getattr(self, name) for name in HOOKS}
        self._facade = facade(strategy, loop_class(self._run), **hooks)
        self._memory = as_memory(memory)
        self._remembers: SteadyMemory | None = None
        self._copies = not is_flowers_own(strategy)
        self._watch = WeightWatch(self._key) if self._copies and memory is None else None
        self._weigher = Weigher(importance, self._weighting, unlisted=self._admission.unlisted)
        self._names = Names(self._admission.identity, self._admission.key)
        # Under differential privacy, weights must not depend on the updates.
        limit = None if noisy_layers(strategy) else self._admission.norm_limit
        self._inspector = Inspector(limit, self._key, needed_metric(strategy))
        self._folder = None if folder is None else Path(folder).resolve()
        self._resume = resume
        self._best: str | None = None
        self._callbacks = as_callbacks(on_round)
        self._open: OpenRound | None = None
        self._usable = 0
        self._evaluating: dict[int, float] | None = None
        self._files: RunFolder | None = None
        self._ran = self._warned = False
        self._timeout: float | None = None
        on_server = self._memory is not None and self._memory.where == "server"
        if (resume or on_server) and folder is None:
            needs = "resume" if resume else "memory on the server"
            raise OptionError(f"{needs} needs a folder; pass folder=...")
        if memory and noisy_layers(strategy):
            raise OptionError(
                "memory releases every update again in each round, which the noise of one round "
                "does not cover; use either memory or differential privacy"
            )

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped strategy; its methods run on the facade."""
        if name.startswith("__") or "_facade" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self._facade, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the wrapped strategy, unless it is one of FedAVOT's own."""
        if name.startswith("_") or name == "strategy":
            super().__setattr__(name, value)
        else:
            setattr(self.strategy, name, value)

    def keep_best(self, metric: str) -> None:
        """Keep the best model of the run in the folder, for `best_model` to read.

        Parameters
        ----------
        metric : str
            Metric of the evaluation on the server or, if that has none of this name, on clients;
            with "-" in front, such as "-loss", the smallest value is the best.
        """
        if self._folder is None:
            raise OptionError("the best model is kept in a folder; pass folder=... to FedAVOT")
        if not isinstance(metric, str) or not metric.removeprefix("-"):
            raise OptionError(f"metric is {metric!r}; it must be the name of a metric")
        self._best = metric

    @property
    def importance(self) -> dict[str, float]:
        """Current importance by client name, summing to one; empty until a client is known."""
        return self._weigher.importance

    @property
    def weighted_by_key(self) -> str:
        """Metric of the replies in which the wrapped strategy finds their weights."""
        return self._key

    def summary(self) -> None:
        """Log the settings, and those of the wrapped strategy."""
        weighting, admission = self._weighting, self._admission
        source = "an alignment" if weighting.alignment is not None else "an online aligner"
        soft = f", softness {weighting.softness:g}" if weighting.softness else ""
        size = weighting.cohort_size
        cohort = "sampled by the wrapped strategy" if size is None else f"{size} per round"
        known = f", {len(self._weigher.clients)} clients listed" if self._weigher.clients else ""
        _log.info("\t├──> FedAVOT settings:")
        _log.info("\t│\t├── Importance: %s%s", self._weigher.kind, known)
        _log.info("\t│\t├── Weights from: %s%s", source, soft)
        _log.info("\t│\t├── Memory: %s", self._memory.where if self._memory else "none")
        _log.info("\t│\t├── Clients asked: %s", cohort)
        _log.info("\t│\t├── Identity: %s (key %r)", admission.identity, admission.key)
        _log.info("\t│\t└── Folder: %s", self._folder or "none: no log, no checkpoint")
        if self._weigher.kind == "examples" and noisy_layers(self.strategy):
            _log.warning("FedAVOT: weights depend on example counts, which noise does not protect")
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Admit nodes, and let the wrapped strategy create messages for them."""
        self._refuse_without_our_loop()
        self._close_unanswered()
        refuse_other_kinds(arrays)
        self._open_files(arrays, checkpoints=False)
        shares: dict[str, float] = {}
        told = {**config, "server-round": server_round}
        nodes = AdmittedGrid(grid, self._names, self._weigher, told)
        if self._weighting.cohort_size is not None:
            rng = np.random.default_rng([self._weighting.seed, server_round])
            shares = nodes.choose(rng, least_available(self.strategy))
        messages = list(self._inner.configure_train(server_round, arrays, config, nodes))
        sent, gone = self._addressed(messages, nodes, grid)
        messages = list(sent.values())
        self._limit(messages)
        if self._remembers is not None:
            self._remembers.prepare(server_round, sent)
        self._usable = 0
        self._open = OpenRound(
            number=server_round,
            model=sent_arrays(messages, arrays),
            available=nodes.available,
            refused=nodes.refused | gone,
            asked={name: message.metadata for name, message in sent.items()},
            shares=shares,
        )
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Aggregate:
        """Compute the weights of the replies, and let the wrapped strategy aggregate them."""
        open_round = self._open
        if open_round is None:
            raise OptionError("aggregate_train was called without a preceding configure_train")
        self._open = None
        if self._remembers is not None:
            replies = self._remembers.receive(replies)
        found = self._inspector.sort(replies, open_round.asked, open_round.model)
        uncounted = self._weigher.count(
            {name: metrics_of(reply).get(self._key) for name, reply in found.usable.items()}
        )
        if self._remembers is not None:
            left = {name: it for name, it in found.usable.items() if name not in uncounted}
            uncounted |= self._remembers.unusable(left)
        for name, reason in uncounted.items():
            del found.usable[name]
            found.excluded[name] = brief(reason)
        for name, reason in found.excluded.items():
            _log.warning("FedAVOT: the update of client %r is not used: %s", name, reason)
        names = list(found.usable)
        weights = self._weigh(names, open_round.shares)
        if too_little := missing_noise(self.strategy, max(weights, default=0.0)):
            _log.warning("FedAVOT: %s", too_little)
        arrays, metrics = self._aggregate(server_round, found, weights, open_round.model)
        fault = None
        if arrays is not None:
            fault = fault_of(arrays, open_round.model, exact=self._memory is not None)
        if self._remembers is not None:
            self._remembers.settle(accepted=arrays is not None and fault is None)
        if fault is not None:
            raise AggregateError(f"round {server_round}: {fault}. {self._last_good(server_round)}")
        if arrays is None:
            found.excluded.update(dict.fromkeys(names, "the wrapped strategy aggregated nothing"))
            found.usable.clear()
            self._finish(open_round, found, {}, metrics)
            return None, metrics
        applied = True
        if self._watch is not None and self._watch.ignored(arrays):
            weights, applied = self._watch.in_effect(weights), False
            self._warn_of_ignored_weights()
        self._weigher.observe(names, weights)
        given = dict(zip(names, weights.tolist(), strict=True))
        self._finish(open_round, found, given, metrics, applied=applied)
        return typed_as(arrays, open_round.model), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the wrapped strategy evaluate on admitted nodes."""
        self._close_unanswered()
        told = {**config, "server-round": server_round}
        nodes = AdmittedGrid(grid, self._names, self._weigher, told)
        messages = list(self._inner.configure_evaluate(server_round, arrays, config, nodes))
        self._limit(messages)
        self._evaluating = None
        if self._weighting.evaluation:
            importance = self._weigher.importance
            asked = [it.metadata.dst_node_id for it in messages]
            self._evaluating = {node: importance.get(nodes.name_of(node), 0.0) for node in asked}
        return messages

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Let the wrapped strategy aggregate the usable evaluation metrics."""
        kept = self._inspector.usable_evaluations(replies, self._evaluating)
        return self._inner.aggregate_evaluate(server_round, kept)

    def start(self, grid: Grid, initial_arrays: ArrayRecord, *args: Any, **options: Any) -> Result:
        """Run the wrapped strategy's ``start``; if ``resume``, from the checkpoint if there is one.

        Parameters
        ----------
        grid : Grid
            As in Flower.
        initial_arrays : ArrayRecord
            The first model. With a checkpoint, it only gives the names, shapes and types that the
            model must have.
        *args, **options
            As in the wrapped strategy's ``start``; in Flower's own ``num_rounds``, ``timeout``,
            ``train_config``, ``evaluate_config`` and ``evaluate_fn``. ``num_rounds`` is the number
            of the last round, counted from the first start of the run. Messages expire after
            ``timeout`` seconds.

        Returns
        -------
        Result
            The final model and the metrics of all rounds, including those before a resume.
        """
        if self._ran or self._files is not None:
            raise OptionError("this FedAVOT was started before; create a new one for a new run")
        try:
            result = self._facade.start(grid, initial_arrays, *args, **options)
        finally:
            if self._files is not None:
                self._files.close()
        if unseen := self._weigher.unseen_message():
            _log.warning("FedAVOT: %s", unseen)
        return result  # type: ignore[no-any-return]  # a user's start may return anything

    def _run(self, loop: Loop) -> Result:
        """Run the rounds, beneath the wrapped strategy's own ``start``."""
        if self._ran:
            raise OptionError("this FedAVOT was started before; create a new one for a new run")
        loop.announce(type(self.strategy).__name__, self.summary)
        refuse_other_kinds(loop.initial_arrays)
        self._open_files(loop.initial_arrays, checkpoints=True)
        if self._best is not None and self._files is not None:
            self._files.keep_best(self._best)
        self._ran, self._timeout = True, loop.timeout
        return loop.conduct(
            self,
            self._files,
            resume=self._resume,
            releases=bool(noisy_layers(self.strategy)),
            closes=None if self._admission.enough is None else self._closes,
        )

    def _open_files(self, model: ArrayRecord, *, checkpoints: bool) -> None:
        """Open the files in the folder and the memory, before any training."""
        if self._folder is None or self._files is not None:
            if self._memory is not None and self._remembers is None:
                self._remembers = memory_of(model, self._memory, self._weigher, None)
            return
        parts = Parts(self.strategy, self._weigher, self._names, self._inspector)
        files = RunFolder(self._folder, parts, checkpoints=checkpoints)
        files.open(model, memory=self._memory, resume=self._resume)
        self._files, self._remembers = files, files.memory

    def _addressed(
        self, messages: list[Message], nodes: AdmittedGrid, grid: Grid
    ) -> tuple[dict[str, Message], dict[str, str]]:
        """Return the messages by client name, and why others are not sent.

        A strategy may ask nodes that it chose in an earlier round, without a look at who is there.
        """
        if not nodes.names:
            nodes.get_node_ids()
        sent, gone = {}, {}
        for message in messages:
            node = message.metadata.dst_node_id
            try:
                sent[nodes.name_of(node)] = message
            except OptionError:
                if node in grid.get_node_ids():
                    raise
                gone[f"node {node}"] = f"the wrapped strategy asks node {node}, which has left"
                _log.warning("FedAVOT: %s", gone[f"node {node}"])
        return sent, gone

    def _last_good(self, number: int) -> str:
        """Return where the model before a round is."""
        if self._files is None:
            return "Without a folder nothing is kept"
        return f"The model of round {number - 1} is kept in {self._folder}"

    def _warn_of_ignored_weights(self) -> None:
        if not self._warned:
            _log.warning(
                "FedAVOT: %s aggregates without the weights in the metric %r, so that FedAVOT has "
                "no effect on the model; average by this metric in aggregate_train",
                type(self.strategy).__name__,
                self._key,
            )
        self._warned = True

    def _refuse_without_our_loop(self) -> None:
        """Raise if an option needs the loop of FedAVOT and another loop runs."""
        options = {
            "resume": self._resume,
            "keep_best": self._best is not None,
            "enough": self._admission.enough is not None,
        }
        needed = [name for name, given in options.items() if given]
        if needed and not self._ran:
            raise OptionError(
                f"{' and '.join(needed)} needs the loop of FedAVOT.start(): use FedAVOT as the "
                f"outermost strategy, and let start() of {type(self.strategy).__name__} call "
                "super().start()"
            )

    def _closes(self, new: list[Message]) -> bool:
        """Return whether a round has enough usable replies, given those that came since."""
        if self._open is None or self._admission.enough is None:
            return False
        # A copy, because the norms of a round are learnt when it is aggregated.
        inspector = copy.deepcopy(self._inspector)
        self._usable += len(inspector.sort(new, self._open.asked, self._open.model).usable)
        return self._usable >= self._admission.enough

    def _limit(self, messages: list[Message]) -> None:
        """Let messages expire with their round, so that a late node works on the current one."""
        if self._timeout is not None:
            for message in messages:
                message.metadata.ttl = min(message.metadata.ttl, self._timeout)

    def _weigh(self, names: list[str], shares: dict[str, float]) -> Any:
        """Return the weights of the clients that replied, from a selection or an aligner."""
        if not names:
            return np.zeros(0)
        if shares:
            chosen = np.array([shares[name] for name in names])
            return chosen / chosen.sum()
        return self._weigher.weights(names)

    def _aggregate(
        self, server_round: int, found: Sorted, weights: Any, model: ArrayRecord
    ) -> Aggregate:
        """Pass the usable replies with their weights to the wrapped strategy."""
        if not found.usable:
            return None, None
        replies = list(found.usable.values())
        put_weights(replies, weights, model, key=self._key, copies=self._copies)
        if self._watch is not None:
            self._watch.before(replies, weights)
        if self._remembers is not None:
            combined = self._remembers.combine(server_round, found.usable, weights, model)
            for reply in replies:
                next(iter(reply.content.array_records.values())).update(combined)
        return self._inner.aggregate_train(server_round, replies)

    def _finish(
        self,
        open_round: OpenRound,
        found: Sorted,
        weights: dict[str, float],
        metrics: MetricRecord | None,
        *,
        applied: bool = True,
    ) -> None:
        """Log a round and call the callbacks."""
        events, self._weigher.events = self._weigher.events, []
        record = open_round.record(
            found,
            weights,
            gap=self._weigher.gap,
            metrics=metrics,
            applied=applied,
            events=events,
        )
        _log.info("FedAVOT: %s", record.summary())
        if not weights:
            _log.warning("FedAVOT: round %d has no usable update; model unchanged", record.round)
        if self._files is not None:
            self._files.log(record)
        for callback in self._callbacks:
            try:
                callback(record)
            except Exception:
                _log.exception("FedAVOT: on_round failed in round %d", record.round)

    def _close_unanswered(self) -> None:
        """Log a round whose replies an outer wrapper did not pass on."""
        open_round, self._open = self._open, None
        if open_round is not None:
            found = Sorted(usable={}, failed={}, late=sorted(open_round.asked), excluded={})
            self._finish(open_round, found, {}, None)
