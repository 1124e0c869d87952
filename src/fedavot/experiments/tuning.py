"""Every rule at its own best steps: chosen on seeds of their own, reported on others.

A choice is a local step, a schedule, and a server's step and momentum. There is a grid for each
momentum: `LOCAL` multiples of the setting's step, `SERVER` steps and both schedules, and the
setting's own schedule if it is another. Where the best choice of a grid lies at its edge, the grid
is extended beyond it, up to `WAVES` times. The best choice of all has the least tail loss, averaged
over the tuning seeds. It is then run on the seeds that are reported, beside the setting's own step,
which is the same for every rule.

Rules that do not move the model by a change have neither a server's step nor momentum, and those
with a server's optimiser of their own keep it.
"""

import dataclasses
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedavot import __version__
from fedavot._checks import Floats, Integers
from fedavot.errors import InputError, InterruptedStudyError
from fedavot.experiments.outcome import LARGEST, Outcome, file_name
from fedavot.experiments.running import Progress, make_folder
from fedavot.experiments.study import COMMON, Instance, Setting, common
from fedavot.rules import Rule
from fedavot.rules.names import RuleName, label_of
from fedavot.training import constant, cosine
from fedavot.training.checkpoint import fingerprint
from fedavot.training.engine import prepare
from fedavot.training.sweep import Steps, sweep

LOCAL = (0.3, 1.0, 2.0, 4.0)
SERVER: dict[float, tuple[float, ...]] = {0.0: (1.0, 2.0, 4.0), 0.9: (2.0, 4.0, 8.0)}
"""Server steps for each momentum: averaged over rounds, a change bears longer ones."""
OPTIMISED = frozenset({RuleName.FEDAVGM, RuleName.FEDADAM})
"""Rules with a server's optimiser of their own."""
SCHEDULES = {"constant": constant, "cosine": cosine}
OWN = "falling as set"
"""The schedule of the setting itself, if it is not constant."""
WAVES = 3
RECORDS = 100
"""Largest number of records that an outcome keeps, about."""
TOGETHER = 12
"""Number of choices in one program: grids and their extensions are compiled once."""


class Choice(NamedTuple):
    """A schedule's name, its largest local step, and the server's step and momentum."""

    schedule: str
    step: float
    server_step: float = 1.0
    momentum: float = 0.0

    def __str__(self) -> str:
        server = "" if self.server_step == 1.0 else f", server {self.server_step:g}"
        momentum = f", momentum {self.momentum:g}" if self.momentum else ""
        return f"{self.step:.3g} {self.schedule}{server}{momentum}"


def conduct(settings: Sequence[Setting], folder: Path, *, progress: Progress) -> list[Outcome]:
    """Tune and run every rule of every setting that is not in the folder yet.

    Rules are tuned one after another, because a sweep already uses every core.

    Parameters
    ----------
    settings, folder, progress
        As in `running.conduct`.

    Returns
    -------
    list of Outcome
        Two per setting and rule: at its own best steps, and at the common step, under the
        setting's name followed by `COMMON`.
    """
    for setting in settings:
        _refuse_shared_seeds(setting)
    make_folder(folder)
    done: list[Outcome] = []
    try:
        for setting in settings:
            for rule in setting.rules:
                done += _Tuning(setting, rule, folder, progress)()
    except KeyboardInterrupt:
        raise InterruptedStudyError(list(done)) from None
    return done


def _refuse_shared_seeds(setting: Setting) -> None:
    """Refuse a setting that cannot be tuned, or would be on what it reports."""
    reported, tuned = (
        {seed for one in instances for seed in one.seeds}
        for instances in (setting.instances, setting.tuning)
    )
    if not tuned:
        raise InputError(f"setting {setting.name!r} has no instances for tuning; give it some")
    if reported & tuned:
        raise InputError(
            f"setting {setting.name!r} is tuned on seed {min(reported & tuned)} and reports it as "
            "well; tune on other seeds"
        )


@dataclass(frozen=True, eq=False)
class _Tuning:
    """One rule on one setting."""

    setting: Setting
    rule: Rule
    folder: Path
    progress: Progress

    def __call__(self) -> list[Outcome]:
        """Return the outcomes that an earlier run with the same options left, or run."""
        names = (self.setting.name, common(self.setting.name))
        paths = [self.folder / file_name(name, self.rule.name) for name in names]
        mark = self._fingerprint()
        held = [Outcome.load(path) for path in paths if path.exists()]
        if [one.fingerprint for one in held] != [mark, mark]:
            begin = time.perf_counter()
            best = self._best()
            both = (self._steps(best), Steps(self.setting.training.step))
            recorded, losses = self._losses(self.setting.instances, both)
            seconds = time.perf_counter() - begin
            held = [
                self._outcome(name, steps, recorded, own, seconds, mark)
                for name, steps, own in zip(names, (str(best), COMMON), losses, strict=True)
            ]
            for one, path in zip(held, paths, strict=True):
                one.save(path)
        self._say(WAVES + 2)
        return held

    def _say(self, done: int) -> None:
        label = f"{self.setting.name}: {label_of(self.rule.name)}"
        self.progress(label, done, WAVES + 2)

    def _fingerprint(self) -> str:
        """Return a digest that differs between rules of the same name with other options."""
        setting = self.setting
        grid = str((setting.tail, LOCAL, self._server_steps, *SCHEDULES, WAVES))
        words = [__version__, setting.name, grid]
        for one in (*setting.instances, *setting.tuning):
            training = dataclasses.replace(setting.training, seeds=one.seeds)
            words.append(prepare(one.problem, self.rule, training).fingerprint)
        return fingerprint(words)

    @property
    def _server_steps(self) -> dict[float, tuple[float, ...]]:
        """The server's steps to begin with, for each momentum that the rule can have."""
        if not self.rule.moves:
            return {0.0: (1.0,)}
        return {0.0: SERVER[0.0]} if self.rule.name in OPTIMISED else SERVER

    def _best(self) -> Choice:
        """Return the choice with the least tail loss over the tuning seeds."""
        training = self.setting.training
        sizes = training.step(training.rounds, training.local_steps)
        own = float(sizes[0])
        local_steps = [own * factor for factor in LOCAL]
        wanted = [
            choice
            for momentum, server_steps in self._server_steps.items()
            for choice in _grid(local_steps, server_steps, momentum)
        ]
        if not (np.asarray(sizes) == own).all():
            wanted.append(Choice(OWN, own))
        tried: dict[Choice, float] = {}
        for wave in range(WAVES + 1):
            steps = [self._steps(choice) for choice in wanted]
            recorded, losses = self._losses(self.setting.tuning, steps)
            self._say(wave + 1)
            tails = self._tails(recorded, losses).mean(axis=1)
            finished = _finite(losses).all(axis=(1, 2))
            tried |= dict(zip(wanted, np.where(finished, tails, np.inf), strict=True))
            wanted = [
                choice
                for momentum in self._server_steps
                for choice in _beyond(tried, momentum, self.rule.moves)
                if choice not in tried
            ]
            if not wanted:
                break
        return min(tried, key=lambda choice: tried[choice])

    def _steps(self, choice: Choice) -> Steps:
        """Return a choice as a sweep takes it."""
        if choice.schedule == OWN:
            return Steps(self.setting.training.step)
        return Steps(SCHEDULES[choice.schedule](choice.step), *choice[2:])

    def _losses(
        self, instances: Sequence[Instance], steps: Sequence[Steps]
    ) -> tuple[Integers, Floats]:
        """Return the recorded rounds, and the losses of all steps, seeds and records."""
        filled = [*steps, *[steps[-1]] * (-len(steps) % TOGETHER)]
        training, found = self.setting.training, []
        for one in instances:
            own = dataclasses.replace(training, seeds=one.seeds)
            parts = [
                sweep(one.problem, self.rule, own, filled[at : at + TOGETHER])
                for at in range(0, len(filled), TOGETHER)
            ]
            found.append(np.concatenate(parts)[: len(steps)])
        every = training.record_every
        return np.arange(every, training.rounds + 1, every), np.concatenate(found, axis=1)

    def _tails(self, recorded: Integers, losses: Floats) -> Floats:
        """Return the mean loss of the last rounds, shape (n_choices, n_seeds)."""
        last = recorded > self.setting.training.rounds - self.setting.tail
        return np.asarray(losses[..., last].mean(axis=-1))

    def _outcome(
        self,
        name: str,
        steps: str,
        recorded: Integers,
        losses: Floats,
        seconds: float,
        mark: str,
    ) -> Outcome:
        setting = self.setting
        optimum = setting.optimum
        tail = self._tails(recorded, losses)
        metrics = {"tail_loss": tail.tolist(), "final_loss": losses[:, -1].tolist()}
        if optimum is not None:
            metrics["excess"] = (tail - optimum).tolist()
        finite = _finite(losses).all(axis=0)
        diverged = not finite.all()
        message = ""
        if diverged:
            kept = int(finite.argmin())
            message = (
                f"{label_of(self.rule.name)} diverged on {name} ({steps}) before round "
                f"{recorded[kept]}"
            )
            recorded, losses = recorded[:kept], losses[:, :kept]
        stride = max(1, recorded.size // RECORDS)
        return Outcome(
            setting=name,
            rule=str(self.rule.name),
            knows=self.rule.knows,
            stores=self.rule.stores,
            seeds=tuple(seed for instance in setting.instances for seed in instance.seeds),
            recorded=recorded[stride - 1 :: stride],
            losses=losses[:, stride - 1 :: stride],
            optimum=optimum,
            metrics={} if diverged else metrics,
            seconds=seconds,
            message=message,
            fingerprint=mark,
            steps=steps,
        )


def _finite(losses: Floats) -> NDArray[np.bool_]:
    """Return where a run has not diverged; NaN fails the comparison."""
    return np.asarray(np.abs(losses) <= LARGEST)


def _grid(
    local_steps: Sequence[float], server_steps: Sequence[float], momentum: float
) -> list[Choice]:
    return [
        Choice(schedule, step, server, momentum)
        for schedule, step, server in itertools.product(SCHEDULES, local_steps, server_steps)
    ]


def _beyond(tried: dict[Choice, float], momentum: float, moves: bool) -> list[Choice]:
    """Return the next choices beyond each edge of a momentum's grid at which its best one lies."""
    grid = {choice: loss for choice, loss in tried.items() if choice.momentum == momentum}
    best = min(grid, key=lambda choice: grid[choice])
    found = []
    local_steps = sorted({choice.step for choice in grid})
    server_steps = sorted({choice.server_step for choice in grid})
    near = [step for step in local_steps if best.step / 5 < step < best.step * 5]
    if best.step == local_steps[-1]:
        found += _grid((2 * best.step,), server_steps, momentum)
        near.append(2 * best.step)
    elif best.step == local_steps[0]:
        found += _grid((best.step / 3,), server_steps, momentum)
        near.append(best.step / 3)
    if moves and best.server_step == server_steps[-1]:
        found += _grid(near, (2 * best.server_step,), momentum)
    elif moves and best.server_step == server_steps[0]:
        found += _grid(near, (best.server_step / 2,), momentum)
    return found
