"""The training loop: configure, aggregate, evaluate and save each round.

Flower's own loop always begins at round 1. This one continues from a checkpoint if there is one,
and saves one after each round; otherwise it is the same, and logs the same lines. Under
differential privacy a round is also saved before it is evaluated: evaluation shows the model to
clients, which is a release, and a crash must not leave a release uncounted.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.serverapp.strategy.strategy_utils import log_strategy_start_info

from fedavot.flower.kept.folder import Progress, RunFolder

_log = logging.getLogger("flwr")

PAUSE = 0.5
"""Seconds between two polls for replies, if a round closes as soon as there are enough."""


Closes = Callable[[list[Message]], bool]
EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


@dataclass
class Loop:
    """The training loop of one run; the attributes are the parameters of Flower's ``start``."""

    grid: Grid
    initial_arrays: ArrayRecord
    num_rounds: int = 3
    timeout: float = 3600
    train_config: ConfigRecord | None = None
    evaluate_config: ConfigRecord | None = None
    evaluate_fn: EvaluateFn | None = None

    def __post_init__(self) -> None:
        given = (self.train_config, self.evaluate_config)
        train, evaluate = (ConfigRecord() if config is None else config for config in given)
        self._configs = train, evaluate

    def announce(self, name: str, summary: Callable[[], None]) -> None:
        """Log the settings of a run."""
        _log.info("Starting %s strategy:", name)
        log_strategy_start_info(self.num_rounds, self.initial_arrays, *self._configs)
        summary()
        _log.info("")

    def conduct(
        self,
        strategy: Strategy,
        folder: RunFolder | None,
        *,
        releases: bool,
        closes: Closes | None,
    ) -> Result:
        """Run the rounds up to ``num_rounds``, and return the final model and all metrics.

        ``releases`` says whether evaluating a model on clients is a release in the sense of
        differential privacy. ``closes`` is called with the new replies of a round as they arrive,
        and returns whether there are enough.
        """
        run = Progress(model=self.initial_arrays, configs=self._configs)
        if folder is not None:
            folder.begin(run)
        began = time.time()
        if run.number:
            _log.info("FedAVOT: resuming after round %d", run.number)
            if run.number > self.num_rounds:
                _log.warning(
                    "FedAVOT: num_rounds is %d, and %d rounds are done already, so that nothing is "
                    "trained; num_rounds counts from the first start of the run",
                    self.num_rounds,
                    run.number,
                )
        elif self.evaluate_fn:
            metrics = self.evaluate_fn(0, run.model)
            _log.info("Initial global evaluation results: %s", metrics)
            _note(run.result.evaluate_metrics_serverapp, 0, metrics)
        if not run.evaluated:
            self._evaluate(strategy, run)
            _save(folder, run)
        for number in range(run.number + 1, self.num_rounds + 1):
            _log.info("")
            _log.info("[ROUND %s/%s]", number, self.num_rounds)
            run.number, run.evaluated = number, False
            self._train(strategy, run, closes)
            if releases:
                _save(folder, run)
            self._evaluate(strategy, run)
            _save(folder, run)
        run.result.arrays = run.model
        _report(run.result, time.time() - began)
        return run.result

    def _train(self, strategy: Strategy, run: Progress, closes: Closes | None) -> None:
        config, _ = run.configs
        messages = strategy.configure_train(run.number, run.model, config, self.grid)
        if closes is None:
            replies = self.grid.send_and_receive(messages, timeout=self.timeout)
        else:
            replies = self._receive(messages, closes)
        arrays, metrics = strategy.aggregate_train(run.number, replies)
        if arrays is not None:
            run.model = arrays
        if metrics is not None:
            _log.info("\t└──> Aggregated MetricRecord: %s", metrics)
        _note(run.result.train_metrics_clientapp, run.number, metrics)

    def _receive(self, messages: Iterable[Message], closes: Closes) -> list[Message]:
        """Send messages, and return the replies as soon as there are enough of them."""
        waiting = set(self.grid.push_messages(messages))
        until = time.monotonic() + self.timeout
        replies: list[Message] = []
        while waiting and time.monotonic() < until:
            new = list(self.grid.pull_messages(waiting))
            replies += new
            waiting -= {reply.metadata.reply_to_message_id for reply in new}
            if closes(new):
                break
            if not new:
                time.sleep(PAUSE)
        return replies

    def _evaluate(self, strategy: Strategy, run: Progress) -> None:
        _, config = run.configs
        messages = strategy.configure_evaluate(run.number, run.model, config, self.grid)
        replies = self.grid.send_and_receive(messages, timeout=self.timeout)
        metrics = strategy.aggregate_evaluate(run.number, replies)
        if metrics is not None:
            _log.info("\t└──> Aggregated MetricRecord: %s", metrics)
        _note(run.result.evaluate_metrics_clientapp, run.number, metrics)
        if self.evaluate_fn:
            _log.info("Global evaluation")
            found = self.evaluate_fn(run.number, run.model)
            _log.info("\t└──> MetricRecord: %s", found)
            _note(run.result.evaluate_metrics_serverapp, run.number, found)
        run.evaluated = True


def _save(folder: RunFolder | None, run: Progress) -> None:
    if folder is not None:
        folder.save(run)


def _note(history: dict[int, MetricRecord], number: int, metrics: MetricRecord | None) -> None:
    if metrics is not None:
        history[number] = metrics


def _report(result: Result, seconds: float) -> None:
    """Log the results of a run."""
    _log.info("")
    _log.info("Strategy execution finished in %.2fs", seconds)
    _log.info("")
    _log.info("Final results:")
    _log.info("")
    for line in str(result).splitlines():
        _log.info("\t%s", line)
    _log.info("")


def loop_class(run: Callable[[Loop], Result]) -> type[Strategy]:
    """Return a class whose ``start`` runs a loop, in place of Flower's own."""

    class Looping(Strategy):
        def start(self, *args: Any, **options: Any) -> Result:
            return run(Loop(*args, **options))

    return Looping
