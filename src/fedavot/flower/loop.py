"""The rounds of a run: ask, aggregate, evaluate, save; from a checkpoint on if there is one.

Flower's own loop always begins at round 1. This one is the same but for that, and for what is on
disk after each round. Under differential privacy a round is saved before it is evaluated too: to
evaluate is to show the model to clients, a release, which a crash must not leave uncounted.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedavot.flower.run import Run

_log = logging.getLogger("flwr")

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


@dataclass(kw_only=True)
class Loop:
    """A run under way.

    Attributes
    ----------
    strategy : Strategy
        Configures and aggregates.
    grid : Grid
        Sends and receives.
    timeout : float
        Seconds until the replies of a round must be there.
    train_config, evaluate_config : ConfigRecord
        What clients are sent beside the model.
    evaluate_fn : function of (round, arrays), optional
        The server's own evaluation.
    run : Run or None
        The files, if any.
    releases : bool
        Whether a model that is evaluated is a private release.
    """

    strategy: Strategy
    grid: Grid
    timeout: float
    train_config: ConfigRecord
    evaluate_config: ConfigRecord
    evaluate_fn: EvaluateFn | None
    run: Run | None
    releases: bool
    result: Result = field(default_factory=Result)

    def conduct(self, initial_arrays: ArrayRecord, *, num_rounds: int, resume: bool) -> Result:
        """Run the rounds up to the last, and return the model and all metrics."""
        began, last, evaluated = time.monotonic(), 0, True
        arrays = initial_arrays
        if resume and self.run is not None:
            arrays, self.result, last, evaluated = self.run.load(initial_arrays)
        if last:
            _log.info("FedAVOT: going on after round %d", last)
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
        _log.info("FedAVOT: done with round %d; %d here, in %.1f s", num_rounds, done, seconds)
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
        if self.run is not None:
            self.run.save(number, arrays, self.result, evaluated=evaluated)

    def _note(self, history: str, number: int, metrics: MetricRecord | None) -> None:
        if metrics is not None:
            getattr(self.result, history)[number] = metrics
