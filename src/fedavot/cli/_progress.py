"""Progress: bars on a terminal, removed at the end; otherwise a line per file, stage or run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)


@contextmanager
def _bars(*columns: ProgressColumn) -> Iterator[Progress]:
    """Show bars on a terminal, and remove them at the end."""
    shown = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        *columns,
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    quiet = not console.is_terminal or console.is_dumb_terminal
    with Progress(*shown, console=console, transient=True, disable=quiet) as bars:
        yield bars


@contextmanager
def of_bytes(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show how much of a file has been read; without a terminal, one line."""
    with _bars(DownloadColumn()) as bars:
        task = bars.add_task(label, total=None)
        _line(bars, label)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextmanager
def of_stages() -> Iterator[Callable[[str, int, int], None]]:
    """Show the current stage; without a terminal, a line for each."""
    with _bars() as bars:
        task = bars.add_task("", total=None)

        def progress(stage: str, done: int, total: int) -> None:
            bars.update(task, description=f"working out {stage}", completed=done, total=total)
            if done < total:
                _line(bars, f"working out {stage}")

        yield progress


@contextmanager
def of_runs(title: str, total: int) -> Iterator[Callable[[str, int, int], None]]:
    """Show each active run, and how many have ended; without a terminal, a line for each."""
    with _bars(MofNCompleteColumn()) as bars:
        overall = bars.add_task(title, total=total)
        shown: dict[str, Any] = {}

        def progress(label: str, done: int, total: int) -> None:
            if label not in shown:
                shown[label] = bars.add_task(label, total=total)
            bars.update(shown[label], completed=done, visible=done < total)
            if done >= total:
                _line(bars, f"{label}: done")
                bars.advance(overall)

        yield progress


def _line(bars: Progress, text: str) -> None:
    if bars.disable:
        bars.console.print(text, markup=False, soft_wrap=True)
