"""Studies: rules compared on settings, saved as they finish, resumed where they stopped.

A *case* is one setting: a problem (for each seed, where data is drawn with the seed), the rules
compared, and how to train. A *study* is a list of cases with a way to draw them. Running a study
writes one file a case and rule; what is there already, from the same data and options, is not run
again, and a run that was cut short goes on from its checkpoint.
"""

import dataclasses
import functools
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedavot import __version__
from fedavot._checks import Floats
from fedavot.errors import InputError, InterruptedStudyError
from fedavot.experiments.outcome import Outcome, divergence
from fedavot.rules import Rule
from fedavot.training import Ending, Problem, Run, Training, objective, train
from fedavot.training.checkpoint import fingerprint
from fedavot.training.engine import identity

Notify = Callable[[str, int, int], None]
"""Called with a run's label, its rounds done and its rounds in all."""


@dataclass(frozen=True, eq=False)
class Instance:
    """A problem, the seeds that run on it, and the least value its objective has, if known."""

    problem: Problem
    seeds: tuple[int, ...]
    optimum: float | None = None


@dataclass(frozen=True, eq=False)
class Case:
    """One setting of a study.

    Attributes
    ----------
    setting : str
        Its name in results.
    instances : tuple of Instance
        One if all seeds share their data, else one a seed.
    rules : tuple of Rule
        What is compared.
    training : Training
        How; its seeds are replaced by each instance's.
    tail : int
        Over how many last rounds the tail loss is taken.
    inclusion : float array of shape (n_clients,), optional
        How often clients take part, for the figure.
    averaged : bool
        Whether the excess over the optimum is that of the averaged iterate, as in the theorem,
        or the tail loss's.
    caption : str
        A few words about it, for figures.
    target : float, optional
        The loss whose first record at or below is counted in rounds.
    """

    setting: str
    instances: tuple[Instance, ...]
    rules: tuple[Rule, ...]
    training: Training
    tail: int = 500
    inclusion: Floats | None = None
    averaged: bool = False
    caption: str = ""
    target: float | None = None

    @property
    def importance(self) -> Floats:
        """What the objective gives each client, shape (n_clients,)."""
        return self.instances[0].problem.shares


def conduct(
    cases: Sequence[Case], folder: Path, *, notify: Notify, workers: int = 2
) -> list[Outcome]:
    """Run every rule of every case that is not in the folder yet, and return all outcomes.

    Parameters
    ----------
    cases : sequence of Case
        What to run.
    folder : Path
        Where outcomes and checkpoints are kept; made if missing. A link is refused.
    notify : function of (label, done, total)
        Called as runs advance, from several threads.
    workers : int
        How many runs at a time. Results do not depend on it.
    """
    if folder.is_symlink():
        raise InputError(f"{folder} is a link, which a study does not follow; remove it")
    folder.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()
    outcomes: dict[tuple[str, str], Outcome] = {}
    jobs = []
    for case in cases:
        for rule in case.rules:
            job = _Job(case, rule, folder, notify, stop)
            found = job.find()
            if found is None:
                jobs.append(job)
            else:
                outcomes[case.setting, rule.name] = found
                notify(job.label, case.training.rounds, case.training.rounds)
    with ThreadPoolExecutor(workers) as pool:
        waiting = {pool.submit(job) for job in jobs}
        try:
            for outcome in _as_they_finish(waiting):
                if outcome is None:
                    raise KeyboardInterrupt
                outcomes[outcome.setting, outcome.rule] = outcome
        except BaseException as cause:
            stop.set()
            for future in waiting:
                future.cancel()
            if not isinstance(cause, KeyboardInterrupt):
                raise
    order = [(case.setting, rule.name) for case in cases for rule in case.rules]
    done = [outcomes[key] for key in order if key in outcomes]
    if stop.is_set():
        raise InterruptedStudyError(list(done))
    return done


def file_name(setting: str, rule: str) -> str:
    """Return what the file of an outcome is called."""
    return f"{slug(f'{setting} {rule}')}.json"


def slug(words: str) -> str:
    """Return words as a file name: letters, digits and dots, in lower case, joined by dashes."""
    return re.sub(r"[^\w.]+", "-", words.lower()).strip("-")


def _as_they_finish(waiting: set["Future[Outcome | None]"]) -> Iterator[Outcome | None]:
    left = set(waiting)
    while left:
        # A time limit lets ctrl-C through while runs are under way.
        finished, left = wait(left, timeout=0.5, return_when=FIRST_COMPLETED)
        for future in finished:
            yield future.result()


@dataclass(frozen=True, eq=False)
class _Job:
    """One rule on one case."""

    case: Case
    rule: Rule
    folder: Path
    notify: Notify
    stop: threading.Event

    @property
    def label(self) -> str:
        return f"{self.case.setting} · {self.rule.name}"

    @property
    def path(self) -> Path:
        return self.folder / file_name(self.case.setting, self.rule.name)

    def find(self) -> Outcome | None:
        """Return what an earlier run of the same options left."""
        if not self.path.exists():
            return None
        outcome = Outcome.load(self.path)
        return outcome if outcome.fingerprint == self.fingerprint else None

    @functools.cached_property
    def fingerprint(self) -> str:
        """What tells this job from one of the same name with other options."""
        case = self.case
        words = [__version__, case.setting, str((case.tail, case.averaged, case.target))]
        for instance in case.instances:
            training = dataclasses.replace(case.training, seeds=instance.seeds)
            words.append(identity(instance.problem, self.rule, training))
        return fingerprint(words, [] if case.inclusion is None else [case.inclusion])

    def __call__(self) -> Outcome | None:
        """Run it for every instance; None if it was interrupted."""
        runs: list[Run] = []
        for number, instance in enumerate(self.case.instances):
            run = self._train(number, instance)
            if run.ending is Ending.INTERRUPTED:
                return None
            runs.append(run)
        outcome = self._outcome(runs)
        outcome.save(self.path)
        self._say(self._total)
        for left in self.folder.glob(f"{self.path.stem}.*.npz"):
            left.unlink(missing_ok=True)
        return outcome

    def _checkpoint(self, number: int) -> Path:
        # A study whose options changed must not find what the old ones left.
        return self.path.with_suffix(f".{self.fingerprint[:12]}.{number}.npz")

    @property
    def _total(self) -> int:
        return self.case.training.rounds * len(self.case.instances)

    def _say(self, done: int) -> None:
        self.notify(self.label, done, self._total)

    def _train(self, number: int, instance: Instance) -> Run:
        def progress(done: int, rounds: int) -> None:
            if self.stop.is_set():
                raise KeyboardInterrupt
            self._say(min(number * rounds + done, self._total - 1))

        if self.stop.is_set():
            raise KeyboardInterrupt
        return train(
            instance.problem,
            self.rule,
            dataclasses.replace(self.case.training, seeds=instance.seeds),
            progress=progress,
            checkpoint=self._checkpoint(number),
        )

    def _outcome(self, runs: list[Run]) -> Outcome:
        """Join the instances' runs into one outcome."""
        case = self.case
        shortest = min(runs, key=lambda run: run.recorded.size)
        losses = np.concatenate([run.losses[:, : shortest.recorded.size] for run in runs])
        message = next(filter(None, map(divergence, runs)), "")
        kept = _thin(shortest.recorded.size)
        return Outcome(
            setting=case.setting,
            rule=self.rule.name,
            knows=self.rule.knows,
            stores=self.rule.stores,
            seeds=tuple(seed for run in runs for seed in run.seeds),
            recorded=shortest.recorded[kept],
            losses=losses[:, kept],
            optimum=_optimum(case),
            metrics={} if message else self._metrics(runs),
            seconds=sum(run.seconds for run in runs),
            message=message,
            fingerprint=self.fingerprint,
        )

    def _metrics(self, runs: list[Run]) -> dict[str, list[float]]:
        case = self.case
        parts: dict[str, list[Floats]] = {}

        def add(name: str, values: Floats) -> None:
            parts.setdefault(name, []).append(np.asarray(values, dtype=np.float64))

        for run, instance in zip(runs, case.instances, strict=True):
            add("tail_loss", run.tail_loss(case.tail))
            add("final_loss", run.final_loss)
            if instance.optimum is not None:
                value = run.tail_loss(case.tail)
                if case.averaged:
                    value = objective(instance.problem, run.average)
                add("excess", value - instance.optimum)
            if self.rule.has_gap:
                add("realised_gap", run.realised_gap(instance.problem.shares))
            if case.target is not None:
                add("rounds_to_target", _first_at(run, case.target))
        return {name: np.concatenate(values).tolist() for name, values in parts.items()}


def _optimum(case: Case) -> Floats | None:
    """Return the least value of each seed's objective, shape (n_seeds,), if all are known."""
    values = [instance.optimum for instance in case.instances for _ in instance.seeds]
    if any(value is None for value in values):
        return None
    return np.array(values, dtype=np.float64)


def _first_at(run: Run, target: float) -> Floats:
    """Return the first recorded round at or below the target, by seed; infinite if none is."""
    reached = run.losses <= target
    first = run.recorded[reached.argmax(axis=1)].astype(np.float64)
    return np.where(reached.any(axis=1), first, np.inf)


def _thin(n_records: int, at_most: int = 500) -> slice:
    """Keep every so-manieth record, the last among them: enough for a figure."""
    stride = max(1, -(-n_records // at_most))
    return slice((n_records - 1) % stride if n_records else 0, None, stride)
