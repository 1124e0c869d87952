"""Running a study from the command line: progress, and its tables in the terminal."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedavot.cli._group import INTERRUPTED
from fedavot.cli._progress import of_runs
from fedavot.errors import InterruptedStudyError


def run_study(study: Any, settings: Sequence[Any], folder: Path, console: Console) -> None:
    """Run settings with a bar for each active run, then write and show the results."""
    from fedavot.experiments import running, tuning

    conduct = tuning.conduct if study.tuned else running.conduct
    total = sum(len(setting.rules) for setting in settings)
    interrupted = False
    outcomes: Sequence[Any]
    with of_runs(f"{study.name}: runs", total) as progress:
        try:
            outcomes = conduct(settings, folder / "runs", progress=progress)
        except InterruptedStudyError as stopped:
            outcomes, interrupted = stopped.outcomes, True
    if outcomes:
        report_study(study, _panels(study, settings), outcomes, folder, console)
    if interrupted:
        finished = len(outcomes) // (2 if study.tuned else 1)
        kept = "rules being tuned start again" if study.tuned else "others from their checkpoints"
        console.print(
            f"[yellow]Interrupted[/yellow] with {finished} of {total} runs finished. The same "
            f"command continues: finished runs are kept, {kept}."
        )
        sys.exit(INTERRUPTED)


def _panels(study: Any, settings: Sequence[Any]) -> list[Any]:
    """Return what the report shows of each setting, at the common step as well if it is tuned."""
    from fedavot.experiments.study import common

    panels = [setting.panel for setting in settings]
    if study.tuned:
        panels += [dataclasses.replace(one, setting=common(one.setting)) for one in panels]
    return panels


def restricted(settings: Sequence[Any], wanted: Sequence[str], rules: str | None) -> list[Any]:
    """Return the settings whose name has every part of one of those wanted, and some rules only.

    Parts and rules are separated by commas. Everything is returned where nothing is wanted.
    """
    kept = [one for one in settings if not wanted or any(_fits(one.name, part) for part in wanted)]
    for part in wanted:
        if not any(_fits(one.name, part) for one in settings):
            names = "; ".join(one.name for one in settings)
            raise click.BadParameter(f"no setting is called {part!r}; there are: {names}")
    if rules is None:
        return kept
    known = {str(rule.name) for one in settings for rule in one.rules}
    chosen = {word.strip() for word in rules.split(",")}
    for name in sorted(chosen - known):
        raise click.BadParameter(
            f"no rule is called {name!r}; there are: {', '.join(sorted(known))}"
        )
    return [
        dataclasses.replace(one, rules=tuple(rule for rule in one.rules if rule.name in chosen))
        for one in kept
    ]


def _fits(name: str, wanted: str) -> bool:
    return all(part.strip().lower() in name.lower() for part in wanted.split(","))


def report_study(
    study: Any, panels: Sequence[Any], outcomes: Sequence[Any], folder: Path, console: Console
) -> None:
    """Write results, summary and figures, and print the tables."""
    from fedavot.experiments.report import in_order, report
    from fedavot.experiments.summary import sections

    with console.status("drawing"):
        figures = report(study, panels, outcomes, folder)
    console.print(f"{study.title}\n\n{study.text}\n", markup=False)
    for part in sections(study, panels, in_order(outcomes, panels), narrow=True):
        for number, cells in enumerate(part.tables):
            _show(console, "" if number else f"{study.name}: {part.title}", cells)
        for sentence in part.sentences:
            console.print(f"  {sentence.replace('**', '')}", markup=False)
    console.print(f"\n{study.foot}", markup=False)
    for path in (*figures, folder / "summary.md", folder / "results.json"):
        console.print(f"{path}", soft_wrap=True, markup=False)


def _show(console: Console, title: str, cells: list[list[str]]) -> None:
    """Print a table whose first row is the heading."""
    shown = Table(title=escape(title), box=box.SIMPLE, padding=(0, 1, 0, 0))
    for at, name in enumerate(cells[0]):
        shown.add_column(name, justify="right" if at else "left", no_wrap=True)
    for row in cells[1:]:
        shown.add_row(*map(escape, row))
    console.print(shown)
