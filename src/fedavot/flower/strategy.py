"""FedAVOT for Flower: any averaging strategy, with weights whose mean is the importance.

`fedavot.flower.rounds` describes what happens in a round. With `FedAVOT.start` each round also
writes a checkpoint, from which an interrupted run resumes.

Server optimisers, momentum, differential privacy and anything else that the wrapped strategy does
with an average apply to this weighted average. Evaluation is left to the wrapped strategy.

The wrapped strategy is not changed. `FedAVOT.start` runs its own ``start`` on a facade, whose
``configure_train``, ``aggregate_train`` and the like are FedAVOT's, and whose ``super().start`` is
the loop that can resume. Other attributes and methods of the wrapped strategy are reached through
FedAVOT under their own names.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedavot._checks import enumerated
from fedavot._files import PathLike
from fedavot.errors import AggregateError, OptionError
from fedavot.flower.kept.folder import RunFolder
from fedavot.flower.kept.log import OnRound, Round, as_callbacks
from fedavot.flower.loop import Loop, loop_class
from fedavot.flower.memory.server import RunMemory
from fedavot.flower.options import (
    Admission,
    Importance,
    Memory,
    Weighting,
    as_admission,
    as_memory,
    as_switch,
    as_weighting,
)
from fedavot.flower.rounds import Aggregate, Rounds
from fedavot.flower.who.saying import of_clients
from fedavot.flower.worth.records import refuse_other_kinds
from fedavot.flower.worth.weigher import Weigher
from fedavot.flower.wrapped import facade, layers, noisy_layers, refusing_to_train

_log = logging.getLogger("flwr")

HOOKS = (
    *("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate"),
    "summary",
)
"""Methods of FedAVOT that the facade of the wrapped strategy has in place of its own."""

OPTIONS = ("memory", "weighting", "admission", "folder", "resume", "on_round")
"""Options of FedAVOT that are set once; a wrapped strategy may have attributes of these names."""

FIXED = {
    "strategy": "FedAVOT(...)",
    "importance": "FedAVOT(...)",
    "weighted_by_key": "the wrapped strategy before FedAVOT(...)",
    "keep_best": "keep_best(metric)",
}
"""Names that FedAVOT itself uses, and where they are set."""


class FedAVOT(Strategy):
    """Wrap a Flower strategy so that each client counts by its importance, not its availability.

    Parameters
    ----------
    strategy : Strategy
        Strategy that averages: FedAvg, FedAvgM, FedProx, FedAdagrad, FedAdam, FedYogi, QFedAvg, or
        a privacy wrapper around one of them.
    importance : "examples", "uniform", mapping or path
        Importance of each client: the number of examples in its first report, which is FedAvg's own
        objective; equal importance; a mapping from client name, on any scale; or a .csv or .json
        file (see `fedavot.importance.read_mapping`).
    memory : bool or Memory
        Whether the last updates of the clients are remembered, in the folder, and take out the
        variance that is due to absences (`fedavot.rules.steady`). `Memory` has options.
    weighting : Weighting, optional
        How weights are found. By default an online aligner learns them from which clients reply.
    admission : Admission, optional
        Which nodes are admitted, under which names, and which of their updates are accepted.
    folder : path, optional
        Folder for the participation log, the checkpoint and the memory; without one, or if it is
        "", nothing is written.
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
        memory: Memory | bool | None = None,
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
        self._weighting, self._admission = as_weighting(weighting), as_admission(admission)
        self._weigher = Weigher(importance, self._weighting, unlisted=self._admission.unlisted)
        self._rounds = Rounds(
            strategy, self._weigher, admission=self._admission, finished=self._record
        )
        hooks = {name: getattr(self, name) for name in HOOKS} | refusing_to_train(strategy)
        self._facade = facade(strategy, loop_class(self._run), **hooks)
        self._memory = as_memory(memory)
        # Run configurations have no None: there "" means that nothing is written.
        self._folder = None if folder is None or folder == "" else Path(folder).resolve()
        self._resume = as_switch(resume, what="resume")
        self._best: str | None = None
        self._callbacks = as_callbacks(on_round)
        self._files: RunFolder | None = None
        self._ran = self._weighed = False
        self._asked: Round | None = None
        if (resume or self._memory) and self._folder is None:
            needs = "resume" if resume else "memory"
            raise OptionError(f"{needs} needs a folder, and folder is {folder!r}; pass folder=...")
        if self._memory and noisy_layers(strategy):
            raise OptionError(
                "a memory is used in every later round, so that the noise of one round does not "
                "cover it and the accounting does not hold; use either memory or differential "
                "privacy"
            )

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped strategy; its methods run on the facade."""
        if name.startswith("__") or "_facade" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self._facade, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the wrapped strategy, unless it is one of FedAVOT's own."""
        if name.startswith("_") or "_facade" not in vars(self):
            super().__setattr__(name, value)
        elif name in FIXED or (name in OPTIONS and not hasattr(self.strategy, name)):
            where = FIXED.get(name, "FedAVOT(...)")
            raise OptionError(f"{name} is set in {where}, and cannot be changed afterwards")
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
        return self._rounds.key

    def summary(self) -> None:
        """Log the settings, and those of the wrapped strategy."""
        weighting, admission = self._weighting, self._admission
        learnt = f"an online aligner, softness {weighting.price:g}"
        source = "an alignment" if weighting.alignment is not None else learnt
        size = weighting.cohort_size
        cohort = "sampled by the wrapped strategy" if size is None else f"{size} per round"
        count = len(self._weigher.clients)
        known = f", {count:,} client{'s' * (count > 1)} listed" if count else ""
        _log.info("\t├──> FedAVOT settings:")
        _log.info("\t│\t├── Importance: %s%s", self._weigher.kind, known)
        _log.info("\t│\t├── Weights from: %s", source)
        _log.info("\t│\t├── Memory: %s", self._memory or "none")
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
        self._open_files(arrays, checkpoints=False)
        return self._rounds.configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Aggregate:
        """Compute the weights of the replies, and let the wrapped strategy aggregate them."""
        return self._rounds.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the wrapped strategy evaluate on admitted nodes."""
        return self._rounds.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Let the wrapped strategy aggregate the usable evaluation metrics."""
        return self._rounds.aggregate_evaluate(server_round, replies)

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
            As in the wrapped strategy's ``start``; for Flower's own, these are ``num_rounds``,
            ``timeout``, ``train_config``, ``evaluate_config`` and ``evaluate_fn``. ``num_rounds``
            is the number of the last round, counted from the first start of the run. Messages
            expire after ``timeout`` seconds.

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
        if not (self._ran or self._weighed):
            name = type(self.strategy).__name__
            _log.warning("FedAVOT: start() of %s did not aggregate; no weights were applied", name)
        self._report_absent()
        if not (self._rounds.any_usable or self._weigher.rounds):
            if self._asked is not None:
                raise AggregateError(_nothing_used(self._asked))
            _log.warning("FedAVOT: no update was used in this run; the model is the first one")
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
        self._ran, self._rounds.timeout = True, loop.timeout
        return loop.conduct(
            self,
            self._files,
            releases=bool(noisy_layers(self.strategy)),
            closes=None if self._admission.enough is None else self._rounds.closes,
        )

    def _open_files(self, model: ArrayRecord, *, checkpoints: bool) -> None:
        """Open the files in the folder and the memory, before any training."""
        rounds, folder, resume = self._rounds, self._folder, self._resume
        if folder is None or self._files is not None:
            return
        files = RunFolder(folder, rounds, model, checkpoints=checkpoints, resume=resume)
        try:
            if self._memory is not None:
                rounds.memory = RunMemory(model, self._memory, self._weigher, folder)
        except BaseException:
            files.close()
            raise
        self._files = files

    def _report_absent(self) -> None:
        """Log which clients were never available or never sent a usable update."""
        importance, seen = self.importance, self._weigher.seen
        if unseen := [name for name, share in importance.items() if share > 0 and name not in seen]:
            _log.warning(
                "FedAVOT: these clients, with %.3g of the importance, were never available: %s",
                sum(importance[name] for name in unseen),
                enumerated(map(repr, unseen)),
            )
        if self._weigher.unknown:
            _log.warning(
                "FedAVOT: %s available but never sent a usable update; with importance 'examples' "
                "they do not count, and the gap leaves them out: give importance as a mapping",
                of_clients(seen - importance.keys(), one="was", several="were"),
            )

    def _refuse_without_our_loop(self) -> None:
        """Raise if an option needs FedAVOT's loop but another loop is running."""
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

    def _record(self, record: Round) -> None:
        """Log a round and call the callbacks."""
        self._weighed = True
        self._asked = record if record.asked else self._asked  # the last that asked any client
        if self._files is not None:
            self._files.log(record)
        for callback in self._callbacks:
            try:
                callback(record)
            except Exception:
                _log.exception("FedAVOT: on_round failed in round %d", record.round)


def _nothing_used(last: Round) -> str:
    """Return why a run trained nothing, from the last round in which any client was asked."""
    reasons: dict[str, list[str]] = {}
    late = dict.fromkeys(last.late, "no reply in time")
    for name, reason in (last.excluded | last.failed | late).items():
        reasons.setdefault(reason, []).append(name)
    found = [
        of_clients(names, one=f"({reason})", several=f"({reason})")
        for reason, names in reasons.items()
    ]
    return (
        f"no update was usable in any round up to round {last.round}, so that the model is still "
        f"the first one; nothing usable came from {enumerated(found, 3)}"
    )
