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
    """The training loop of one run; the attributes are the parameters of Flower's ``start``."""

    grid: Grid
    initial_arrays: ArrayRecord
    num_rounds: int
    timeout: float
    train_config: ConfigRecord
    evaluate_config: ConfigRecord
    evaluate_fn: EvaluateFn | None
    result: Result = field(default_factory=Result)

    def conduct(
        self, strategy: Strategy, folder: RunFolder | None, *, resume: bool, releases: bool
    ) -> Result:
        """Run the rounds up to ``num_rounds``, and return the final model and all metrics.

        Parameters
        ----------
        strategy : Strategy
            Strategy that configures and aggregates the rounds.
        folder : RunFolder or None
            The files of the run, if any are written.
        resume : bool
            Whether to continue from the checkpoint in the folder, if there is one.
        releases : bool
            Whether evaluating a model on clients is a release in the sense of differential privacy.
        """
        began, last, evaluated = time.monotonic(), 0, True
        arrays = self.initial_arrays
        if resume and folder is not None:
            arrays, self.result, last, evaluated = folder.load(arrays)
        if last:
            _log.info("FedAVOT: resuming after round %d", last)
        elif self.evaluate_fn:
            self._note("evaluate_metrics_serverapp", 0, self.evaluate_fn(0, arrays))
        if not evaluated:
            self._evaluate(strategy, last, arrays)
            self._save(folder, last, arrays, evaluated=True)
        for number in range(last + 1, self.num_rounds + 1):
            _log.info("[ROUND %s/%s]", number, self.num_rounds)
            arrays = self._train(strategy, number, arrays)
            if releases:
                self._save(folder, number, arrays, evaluated=False)
            self._evaluate(strategy, number, arrays)
            self._save(folder, number, arrays, evaluated=True)
        self.result.arrays = arrays
        done, seconds = max(self.num_rounds - last, 0), time.monotonic() - began
        _log.info("FedAVOT: finished round %d; %d rounds in %.1f s", self.num_rounds, done, seconds)
        return self.result

    def _train(self, strategy: Strategy, number: int, arrays: ArrayRecord) -> ArrayRecord:
        messages = strategy.configure_train(number, arrays, self.train_config, self.grid)
        replies = self.grid.send_and_receive(messages, timeout=self.timeout)
        aggregated, metrics = strategy.aggregate_train(number, replies)
        self._note("train_metrics_clientapp", number, metrics)
        return arrays if aggregated is None else aggregated

    def _evaluate(self, strategy: Strategy, number: int, arrays: ArrayRecord) -> None:
        messages = strategy.configure_evaluate(number, arrays, self.evaluate_config, self.grid)
        replies = self.grid.send_and_receive(messages, timeout=self.timeout)
        metrics = strategy.aggregate_evaluate(number, replies)
        self._note("evaluate_metrics_clientapp", number, metrics)
        if self.evaluate_fn:
            self._note("evaluate_metrics_serverapp", number, self.evaluate_fn(number, arrays))

    def _save(
        self, folder: RunFolder | None, number: int, arrays: ArrayRecord, *, evaluated: bool
    ) -> None:
        if folder is not None:
            folder.save(number, arrays, self.result, evaluated=evaluated)

    def _note(self, history: str, number: int, metrics: MetricRecord | None) -> None:
        if metrics is not None:
            getattr(self.result, history)[number] = metrics


def loop_class(run: Callable[[Loop], Result]) -> type[Strategy]:
    """Return a class with a ``start`` that runs a loop, for the place of Flower's own."""

    class Looping(Strategy):
        def start(
            self,
            grid: Grid,
            initial_arrays: ArrayRecord,
            num_rounds: int = 3,
            timeout: float = 3600,
            train_config: ConfigRecord | None = None,
            evaluate_config: ConfigRecord | None = None,
            evaluate_fn: EvaluateFn | None = None,
        ) -> Result:
            loop = Loop(
                grid=grid,
                initial_arrays=initial_arrays,
                num_rounds=num_rounds,
                timeout=timeout,
                train_config=ConfigRecord() if train_config is None else train_config,
                evaluate_config=ConfigRecord() if evaluate_config is None else evaluate_config,
                evaluate_fn=evaluate_fn,
            )
            return run(loop)

    return Looping
