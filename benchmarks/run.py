"""Run the benchmarks: ``python -m benchmarks.run [P1 P2 ...] [--out FILE] [--repeat N]``.

Everything is timed in turns, in this one process; only the federated frameworks of P6 and P7 and
the audits of P9 have processes of their own. The exit status is 1 if a requirement is not met or
one of our own answers does not check.
"""

import sys
import time
from pathlib import Path

import click
from rich.console import Console

from benchmarks import (
    aggregation,
    audit,
    imports,
    out_of_reach,
    own_loop,
    report,
    scale,
    suites,
    training,
)
from benchmarks.outcome import Outcome

_SUITES = {
    "P0": (imports.import_time,),
    "P1": (suites.small_pairs,),
    "P2": (suites.large_pairs,),
    "P3": (suites.sparse_cohorts,),
    "P4": (suites.independent_clients,),
    "P5": (out_of_reach.regression_small, out_of_reach.regression_large),
    "P6": (training.regression,),
    "P7": (training.softmax,),
    "P8": (aggregation.aggregation, own_loop.own_loop),
    "P9": (audit.audits,),
    "P10": (scale.scale,),
}
_WIDTH = 112
"""What the tables need; a pipe would get 80."""


@click.command()
@click.argument("problems", nargs=-1, type=click.Choice(list(_SUITES)))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("build/bench.json"),
    show_default=True,
    help="Where the results go.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Rounds; slow contenders stop earlier.",
)
def main(problems: tuple[str, ...], out: Path, repeat: int) -> None:
    """Time fedavot and its peers on PROBLEMS (all of them by default), and check their answers."""
    console = Console()
    console = Console(width=max(console.width, _WIDTH))
    begin = time.perf_counter()

    def say(line: str) -> None:
        console.print(f"[dim]{time.perf_counter() - begin:5.0f} s  {line}[/dim]")

    outcomes: dict[str, Outcome] = {}
    for name in dict.fromkeys(problems or _SUITES):
        for number, suite in enumerate(_SUITES[name]):
            outcome = suite(repeat, say)
            report.show(outcome, console)
            outcomes[name if number == 0 else f"{name}, {number + 1}"] = outcome
    report.write(out, outcomes)
    passed = all(outcome.passed for outcome in outcomes.values())
    unmeasured = sum(outcome.unmeasured for outcome in outcomes.values())
    verdict = "every requirement is met" if passed else "some requirement is NOT met"
    if unmeasured:
        verdict += f", but {unmeasured} could not be measured"
    console.print(f"\n{verdict}; results in {out}; {time.perf_counter() - begin:.0f} s")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
