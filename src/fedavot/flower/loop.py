"""The training loop: configure, aggregate, evaluate and save each round.

Flower's own loop always begins at round 1. This one continues from a checkpoint if there is one,
and saves one after each round; otherwise it is the same. Under differential privacy a round is also
saved before it is evaluated: evaluation shows the model to clients, which is a release, and a crash
must not leave a release uncounted.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedavot.flower.kept.folder import RunFolder

_log = logging.getLogger("flwr")

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


@dataclass(kw_only=True)
class Loop:
    """The training loop of one run.

    Attributes
    ----------
    strategy : Strategy
        Strategy that configures and aggregates the rounds.
    grid : Grid
        Grid through which messages are sent and received.
    timeout : float
        Seconds to wait for the replies of a round.
    train_config, evaluate_config : ConfigRecord
        Configuration that is sent to clients with the model.
    evaluate_fn : function of (round, arrays), optional
        Evaluation on the server.
    folder : RunFolder or None
        The files of the run, if any are written.
    releases : bool
        Whether evaluating a model on clients is a release in the sense of differential privacy.
    """

    strategy: Strategy
    grid: Grid
    timeout: float
    train_config: ConfigRecord
    evaluate_config: ConfigRecord
    evaluate_fn: EvaluateFn | None
    folder: RunFolder | None
    releases: bool
    result: Result = field(default_factory=Result)

    def conduct(self, initial_arrays: ArrayRecord, *, num_rounds: int, resume: bool) -> Result:
        """Run the rounds up to ``num_rounds``, and return the final model and all metrics."""
        began, last, evaluated = time.monotonic(), 0, True
        arrays = initial_arrays
        if resume and self.folder is not None:
            arrays, self.result, last, evaluated = self.folder.load(initial_arrays)
        if last:
            _log.info("FedAVOT: resuming after round %d", last)
        elif self.evaluate_fn:
            self._note("evaluate_metrics_serverapp", 0, self.evaluate_fn(0, arrays))
        if not evaluated:
            self._evaluate(last, arrays)
        for number in range(last + 1, num_rounds + 1):
            _log.info("[ROUND %s/%s]", number, num_rounds)
            arrays = self._train(number, arrays)
            if self.releases:
                self._save(number, arrays, evaluated=False)
            self._evaluate(number, arrays)
        self.result.arrays = arrays
        done, seconds = max(num_rounds - last, 0), time.monotonic() - began
        _log.info("FedAVOT: finished round %d; %d rounds in %.1f s", num_rounds, done, seconds)
        return self.result

    def _train(self, number: int, arrays: ArrayRecord) -> ArrayRecord:
        messages = self.strategy.configure_train(number, arrays, self.train_config, self.grid)
        replies = self.grid.send_and_receive(messages, timeout=self.timeout)
        aggregated, metrics = self.strategy.aggregate_train(number, replies)
        self._note("train_metrics_clientapp", number, metrics)
        return arrays if aggregated is None else aggregated

    def _evaluate(self, number: int, arrays: ArrayRecord) -> None:
        messages = self.strategy.configure_evaluate(number, arrays, self.evaluate_config, self.grid)
        replies = self.grid.send_and_receive(messages, timeout=self.timeout)
        metrics = self.strategy.aggregate_evaluate(number, replies)
        self._note("evaluate_metrics_clientapp", number, metrics)
        if self.evaluate_fn:
            self._note("evaluate_metrics_serverapp", number, self.evaluate_fn(number, arrays))
        self._save(number, arrays, evaluated=True)

    def _save(self, number: int, arrays: ArrayRecord, *, evaluated: bool) -> None:
        if self.folder is not None:
            self.folder.save(number, arrays, self.result, evaluated=evaluated)

    def _note(self, history: str, number: int, metrics: MetricRecord | None) -> None:
        if metrics is not None:
            getattr(self.result, history)[number] = metrics
