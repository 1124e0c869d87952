"""Run the settings of a study, save outcomes as they finish, and resume where it stopped.

There is one file per setting and rule. An outcome that is already there, from the same data and
options, is not computed again, and a run that was interrupted continues from its checkpoint.
"""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedavot import __version__
from fedavot._checks import Floats
from fedavot.errors import InputError, InterruptedStudyError
from fedavot.experiments.evaluation import evaluated
from fedavot.experiments.outcome import Metrics, Outcome, divergence, file_name, omission
from fedavot.experiments.study import Setting
from fedavot.rules import Rule
from fedavot.rules.names import label_of
from fedavot.training import Ending, Run, objective
from fedavot.training.checkpoint import fingerprint
from fedavot.training.engine import ActiveRun, finish, prepare

Progress = Callable[[str, int, int], None]
"""Called with a run's label, the rounds done and the rounds in all."""


def conduct(
    settings: Sequence[Setting], folder: Path, *, progress: Progress, workers: int = 2
) -> list[Outcome]:
    """Run every rule of every setting that is not in the folder yet, and return all outcomes.

    Parameters
    ----------
    settings : sequence of Setting
        The settings to run.
    folder : Path
        Folder of outcomes and checkpoints; created if missing. A symbolic link is refused.
    progress : function of (label, done, total)
        Called as runs advance, from several threads.
    workers : int
        Number of runs at a time. Results do not depend on it.
    """
    make_folder(folder)
    stop = threading.Event()
    jobs = [
        _Job(setting, rule, folder, progress, stop)
        for setting in settings
        for rule in setting.rules
    ]
    with ThreadPoolExecutor(workers) as pool:
        runs = [pool.submit(job) for job in jobs]
        left = set(runs)
        try:
            while left:
                # A time limit lets ctrl-C through while runs are under way.
                finished, left = wait(left, timeout=0.5, return_when=FIRST_COMPLETED)
                for run in finished:
                    run.result()
        except BaseException as cause:
            stop.set()
            for run in runs:
                run.cancel()
            if not isinstance(cause, KeyboardInterrupt):
                raise
    done = [run.result() for run in runs if not run.cancelled() and run.exception() is None]
    if stop.is_set():
        raise InterruptedStudyError(list(done))
    return done


def make_folder(folder: Path) -> None:
    """Create a study's folder of outcomes, unless a symbolic link is in its place."""
    if folder.is_symlink():
        raise InputError(f"{folder} is a symbolic link, which a study does not follow; remove it")
    folder.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True, eq=False)
class _Job:
    """One rule on one setting."""

    setting: Setting
    rule: Rule
    folder: Path
    progress: Progress
    stop: threading.Event

    @property
    def label(self) -> str:
        return f"{self.setting.name} · {label_of(self.rule.name)}"

    @property
    def path(self) -> Path:
        return self.folder / file_name(self.setting.name, self.rule.name)

    def __call__(self) -> Outcome:
        """Return the outcome that an earlier run with the same options left, or run."""
        if self.stop.is_set():
            raise KeyboardInterrupt
        training = self.setting.training
        prepared = [
            prepare(one.problem, self.rule, dataclasses.replace(training, seeds=one.seeds))
            for one in self.setting.instances
        ]
        mark = self._fingerprint(prepared)
        outcome = Outcome.load(self.path) if self.path.exists() else None
        if outcome is None or outcome.fingerprint != mark:
            runs = [self._finish(one, number, mark) for number, one in enumerate(prepared)]
            outcome = self._outcome(runs, mark)
            outcome.save(self.path)
        # Also those of a process that was killed right after it had saved the outcome.
        for left in self.folder.glob(f"{self.path.stem}.*.npz"):
            left.unlink(missing_ok=True)
        self.progress(self.label, self._total, self._total)
        return outcome

    def _fingerprint(self, prepared: Sequence[ActiveRun]) -> str:
        """Return a digest that differs between jobs of the same name with other options."""
        setting = self.setting
        options = str((setting.tail, setting.averaged, setting.target))
        tests = [one.test.data for one in setting.instances if one.test is not None]
        return fingerprint(
            *(__version__, setting.name, options, [run.fingerprint for run in prepared]),
            *(list(setting.groups), setting.groups, setting.inclusion, tests),
        )

    @property
    def _total(self) -> int:
        return self.setting.training.rounds * len(self.setting.instances)

    def _finish(self, prepared: ActiveRun, number: int, mark: str) -> Run:
        def progress(done: int, rounds: int) -> None:
            if self.stop.is_set():
                raise KeyboardInterrupt
            self.progress(self.label, min(number * rounds + done, self._total - 1), self._total)

        # A study whose options changed must not find the checkpoints of the old ones.
        checkpoint = self.path.with_suffix(f".{mark[:12]}.{number}.npz")
        run = finish(prepared, progress=progress, checkpoint=checkpoint)
        if run.ending is Ending.INTERRUPTED:
            raise KeyboardInterrupt
        return run

    def _outcome(self, runs: list[Run], mark: str) -> Outcome:
        """Join the instances' runs into one outcome."""
        shortest = min(runs, key=lambda run: run.recorded.size)
        losses = np.concatenate([run.losses[:, : shortest.recorded.size] for run in runs])
        message = next(filter(None, map(divergence, runs)), "")
        groups = {} if message else self._metrics(runs)
        if not message:
            shares = (one.problem.shares for one in self.setting.instances)
            message = next(filter(None, map(omission, runs, shares)), "")
        kept = _thin(shortest.recorded.size)
        return Outcome(
            setting=self.setting.name,
            rule=str(self.rule.name),
            knows=self.rule.knows,
            stores=self.rule.stores,
            seeds=tuple(seed for run in runs for seed in run.seeds),
            recorded=shortest.recorded[kept],
            losses=losses[:, kept],
            optimum=self.setting.optimum,
            metrics=groups.pop("", {}),
            seconds=sum(run.seconds for run in runs),
            message=message,
            fingerprint=mark,
            groups=groups,
        )

    def _metrics(self, runs: list[Run]) -> dict[str, Metrics]:
        """Return the metrics of all clients ("") and of each group, with a value per seed."""
        setting = self.setting
        found: dict[str, Metrics] = {}
        for run, instance in zip(runs, setting.instances, strict=True):
            own = evaluated(setting, instance, run.params)
            tail = run.tail_loss(setting.tail)
            own[""] |= {"tail_loss": tail, "final_loss": run.final_loss}
            if instance.optimum is not None:
                value = objective(instance.problem, run.average) if setting.averaged else tail
                own[""]["excess"] = value - instance.optimum
            if self.rule.has_gap:
                own[""]["realised_gap"] = run.realised_gap(instance.problem.shares)
            if setting.target is not None:
                own[""]["rounds_to_target"] = _first_at(run, setting.target)
            for group, metrics in own.items():
                for name, values in metrics.items():
                    found.setdefault(group, {}).setdefault(name, []).extend(values.tolist())
        return found


def _first_at(run: Run, target: float) -> Floats:
    """Return the first recorded round at or below the target, by seed; infinite if none is."""
    reached = run.losses <= target
    first = run.recorded[reached.argmax(axis=1)].astype(np.float64)
    return np.where(reached.any(axis=1), first, np.inf)


def _thin(n_records: int, at_most: int = 500) -> slice:
    """Return every k-th record up to the last, few enough for a figure."""
    stride = max(1, -(-n_records // at_most))
    return slice((n_records - 1) % stride if n_records else 0, None, stride)
