"""The command line: what a user types, and what comes back.

Only this module prints. It parses, calls one function of the library, and shows the result; errors
of the library become one line and exit status 2.
"""

import sys

import click
from rich.console import Console
from rich.table import Table

from fedavot import __version__
from fedavot.errors import FedavotError


class _Group(click.Group):
    """A command group in which the library's errors are messages, not tracebacks."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except FedavotError as error:
            raise click.UsageError(str(error)) from None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fedavot")
def main() -> None:
    """Federated learning that optimises the objective you meant."""


@main.group()
def reproduce() -> None:
    """Reproduce the paper's figures and tables."""


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


if __name__ == "__main__":
    main()
