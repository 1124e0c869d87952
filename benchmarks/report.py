"""Show outcomes as tables, and write them down."""

import json
import os
import platform
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.outcome import Outcome, Row

_PACKAGES = ("numpy", "scipy", "jax", "ortools", "POT", "choix")


def show(outcome: Outcome, console: Console) -> None:
    """Print one problem's table, checks and requirements."""
    table = Table(title=outcome.title, title_justify="left", title_style="bold")
    table.add_column("contender")
    rate = [] if outcome.rounds is None else ["rounds/s"]
    for heading in ("seconds", *rate, "of ours", outcome.checked):
        table.add_column(heading, justify="right")
    table.add_column("note")
    for row in outcome.rows:
        residual = "" if row.residual is None else f"{row.residual:.1e}"
        table.add_row(
            row.contender,
            *_times(row, outcome.rounds),
            residual if row.ok is not False else f"[red]{residual}[/red]",
            _note(row),
            style="bold" if row.role == "ours" else "dim" if row.role == "reference" else None,
        )
    console.print()
    console.print(table)
    for text, holds in outcome.checks.items():
        console.print(f"  {_verdict(holds)} check: {text}")
    for requirement in outcome.requirements:
        relation = "at least" if requirement.at_least else "at most"
        figure = "?" if requirement.measured is None else f"{requirement.measured:.3g}"
        console.print(
            f"  {_verdict(requirement.passed)} {figure} {requirement.text} "
            f"({relation} {requirement.bound:g})"
        )
    for observation in outcome.observations:
        console.print(f"  [dim]note[/dim] {observation}")


def _times(row: Row, rounds: int | None) -> list[str]:
    """Return the columns that say how fast a contender was."""
    if row.seconds is None or row.ratio is None:
        return ["–"] * (2 if rounds is None else 3)
    rate = [] if rounds is None else [f"{rounds / row.seconds:,.0f}"]
    return [f"{row.seconds:.3g}", *rate, f"{row.ratio:.3g}×"]


def _verdict(holds: bool | None) -> str:
    if holds is None:
        return "[bold yellow]NOT MEASURED[/bold yellow]"
    return "[green]PASS[/green]" if holds else "[bold red]FAIL[/bold red]"


def _note(row: Row) -> str:
    if row.seconds is None:
        return f"[yellow]{row.note}[/yellow]"
    if row.ok is False:
        return f"[red]wrong or short of the target[/red]; {row.note}".rstrip("; ")
    if row.role == "reference" and row.residual is not None:
        return f"not required; {row.note}".rstrip("; ")
    return row.note


def machine() -> dict[str, Any]:
    """Return what matters about the machine, and nothing that names it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cores": cores,
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str | None:
    """Return the version of a package; None if it is not there, so that its rows are missing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def write(path: Path, outcomes: Mapping[str, Outcome]) -> None:
    """Write the results as JSON: all of them or none."""
    content = {
        "format": "fedavot benchmarks",
        "version": 1,
        "machine": machine(),
        "problems": {name: outcome.as_dict() for name, outcome in outcomes.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, ensure_ascii=False)
            file.write("\n")
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
