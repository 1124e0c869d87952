"""Figures from saved outcomes: the paper's form, legible in print.

One column a setting: the objective against the round, mean ± standard deviation over seeds, and
below it the importance p and the share of participation r. Colours are Okabe and Ito's, which
colour-blind readers can tell apart; line styles differ as well. A run that diverged is drawn as far
as it stays near the others, and the legend says when it diverged. Nothing here runs a study.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import Floats
from fedavot._files import write_whole
from fedavot.experiments.outcome import LARGEST, Outcome
from fedavot.experiments.summary import has_diverged
from fedavot.rules.names import RuleName, label_of

_LEGEND_COLUMN, _LEGEND_LETTERS = 2.45, 26
"""Inches a label of so many letters, the most a rule's has, takes with its line."""
WINDOW = 50
"""Curves are moving means over this fraction of the run: one in so many rounds."""
_ROOM = 10.0
"""How far above the curves of runs that went well those that diverged are drawn."""


class Look(NamedTuple):
    """How a rule's curve is drawn."""

    colour: str
    dashes: str = "-"


LOOKS: dict[str, Look] = {
    RuleName.FULL: Look("#000000"),
    RuleName.FEDAVOT: Look("#0072B2"),
    RuleName.VARIANCE: Look("#0072B2", "--"),
    RuleName.SOFT: Look("#0072B2", ":"),
    RuleName.ONLINE: Look("#56B4E9"),
    RuleName.MEMORY: Look("#009E73"),
    RuleName.SELECT: Look("#CC79A7"),
    RuleName.FEDAVG: Look("#E69F00"),
    RuleName.IMPORTANCE_AVERAGE: Look("#E69F00", "--"),
    RuleName.SELF_NORMALISED_IPW: Look("#D55E00"),
    RuleName.HORVITZ_THOMPSON: Look("#999999", "--"),
    RuleName.FEDAVG_K: Look("#999999", ":"),
    RuleName.FEDAU: Look("#882255"),
    RuleName.F3AST: Look("#882255", "--"),
    RuleName.MIFA: Look("#117733", "--"),
    RuleName.FEDVARP: Look("#117733", ":"),
    RuleName.FEDAWE: Look("#AA4499", "--"),
    RuleName.FEDPROX: Look("#DDCC77", "--"),
    RuleName.SCAFFOLD: Look("#332288", "--"),
    RuleName.QFFL: Look("#888888", "-."),
    RuleName.AFL: Look("#888888", ":"),
}


def look_of(rule: str) -> Look:
    """Return how to draw a rule by its name; rules that are not the library's own are brown."""
    return LOOKS.get(rule, Look("#8B4513"))


@dataclass(frozen=True, eq=False)
class Sheet:
    """What a figure needs to know of a setting beside its outcomes.

    Attributes
    ----------
    setting : str
        Its name.
    importance : float array, shape (n_clients,)
        p.
    inclusion : float array, shape (n_clients,), or None
        How often clients take part.
    excess : bool
        Whether to draw the loss above its least value, or the loss.
    caption : str
        A few words about it, for its heading.
    rules : tuple of str
        Those compared on it.
    """

    setting: str
    importance: Floats
    inclusion: Floats | None
    excess: bool
    caption: str = ""
    rules: tuple[str, ...] = ()


def draw_curves(
    outcomes: Sequence[Outcome], sheets: Sequence[Sheet], stem: Path, *, title: str
) -> list[Path]:
    """Draw one column a setting; return the PNG's and the PDF's path.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Of these settings, in the order their rules are to be listed.
    sheets : sequence of Sheet
        The settings, from left to right.
    stem : Path
        Where to, without extension.
    title : str
        Above the figure.
    """
    width = max(3.4 * len(sheets), 5.2)
    figure = new_figure(width=width, height=5.6)
    grid = figure.add_gridspec(2, len(sheets), height_ratios=(3.2, 1))
    handles: dict[str, Any] = {}
    for column, sheet in enumerate(sheets):
        upper, lower = (figure.add_subplot(grid[row, column]) for row in (0, 1))
        held = [one for one in outcomes if one.setting == sheet.setting]
        lines = [_curve(upper, one, excess=sheet.excess) for one in held]
        handles |= {line.get_label(): line for line in lines}
        _name_axes(upper, sheet, title)
        _keep_in_view(upper, held, lines)
        _draw_shares(lower, sheet)
        if column == 0:
            what = "loss above the least possible" if sheet.excess else "loss"
            upper.set_ylabel(f"{what} (log scale)")
            lower.set_ylabel("share")
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=_legend_columns(width, handles),
        frameon=False,
    )
    figure.suptitle(title, parse_math=False)
    return save(figure, stem)


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in Matplotlib's own style, whatever the user's is, and keep its warnings to itself.

    They are about letters that a font lacks and labels that leave no room: nothing that whoever
    runs a study could act on.
    """
    import matplotlib.style

    with warnings.catch_warnings(), matplotlib.style.context("default"):
        warnings.simplefilter("ignore", UserWarning)
        yield


def new_figure(*, width: float, height: float) -> Any:
    """Return an empty figure, of inches, apart from any global state of Matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, stem: Path) -> list[Path]:
    """Write a figure as PNG and PDF, each whole or not at all, without the date."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "pdf")]
    write_whole(paths[0], lambda stream: figure.savefig(stream, format="png", dpi=200))
    metadata = {"CreationDate": None}
    write_whole(paths[1], lambda stream: figure.savefig(stream, format="pdf", metadata=metadata))
    return paths


def _curve(axes: Any, outcome: Outcome, *, excess: bool) -> Any:
    look = look_of(outcome.rule)
    values = outcome.excess_curve if excess else outcome.losses
    # Matplotlib's axes fail where their ticks pass 1e308.
    drawn = np.logical_and.accumulate((np.abs(values) <= LARGEST).all(axis=0))
    values, rounds = values[:, drawn], outcome.recorded[drawn]
    width = max(1, outcome.recorded.size // WINDOW)
    smooth = np.array([_moving_mean(row, width) for row in values])
    mean, spread = smooth.mean(axis=0), smooth.std(axis=0, ddof=min(1, len(smooth) - 1))
    (line,) = axes.plot(rounds, mean, look.dashes, color=look.colour, linewidth=1.4)
    line.set_label(label_of(outcome.rule) + _gone(outcome, rounds.size))
    # On a log scale a band that reaches zero would fill the axes: it stops at a tenth of the mean.
    low = np.maximum(mean - spread, mean / 10)
    axes.fill_between(rounds, low, mean + spread, color=look.colour, alpha=0.15, linewidth=0)
    return line


def _gone(outcome: Outcome, n_drawn: int) -> str:
    """Say in the legend from which round on a run is not drawn, if it is not drawn to its end."""
    if has_diverged(outcome):
        last = int(outcome.recorded[n_drawn - 1]) if n_drawn else 0
        return f": diverged after round {last}"
    if n_drawn < outcome.recorded.size:
        return f": above {LARGEST:g} from round {outcome.recorded[n_drawn]}"
    return ""


def _keep_in_view(axes: Any, outcomes: Sequence[Outcome], lines: Sequence[Any]) -> None:
    """Let runs that diverged leave the axes at the top, so that the others can be told apart."""
    pairs = list(zip(outcomes, lines, strict=True))
    kept = [line for one, line in pairs if not _gone(one, line.get_xdata().size)]
    values = np.concatenate([[], *(line.get_ydata() for line in kept or lines)])
    values = values[values > 0]
    if not values.size:
        axes.set_ylim(1, _ROOM)  # Matplotlib finds no limits of its own on a log scale
    if len(kept) == len(lines):
        return
    if values.size:
        axes.set_ylim(values.min() / 2, values.max() * _ROOM)
    rounds = np.concatenate([one.recorded for one in outcomes])
    if rounds.size and np.ptp(rounds):
        axes.set_xlim(rounds.min(), rounds.max())


def _legend_columns(width: float, labels: Iterable[str]) -> int:
    """Return how many columns of labels fit into so many inches."""
    letters = max([_LEGEND_LETTERS, *map(len, labels)])
    return max(1, int(width // (_LEGEND_COLUMN * letters / _LEGEND_LETTERS)))


def _name_axes(axes: Any, sheet: Sheet, above: str) -> None:
    """Label the axes; a setting named like the whole figure needs no heading of its own."""
    axes.set_yscale("log")
    axes.set_xlabel("round")
    heading = f"{sheet.setting}: {sheet.caption}" if sheet.caption else sheet.setting
    if heading != above:
        axes.set_title(heading, size=9, parse_math=False)
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.margins(x=0)


def _draw_shares(axes: Any, sheet: Sheet) -> None:
    clients = np.arange(1, sheet.importance.size + 1)
    axes.plot(clients, sheet.importance, color="#0072B2", linewidth=1.4)
    axes.annotate(
        "p wanted",
        (clients[0], sheet.importance[0]),
        xytext=(5, 3),
        textcoords="offset points",
        color="#0072B2",
        fontsize=8,
    )
    if sheet.inclusion is not None:
        shares = sheet.inclusion / sheet.inclusion.sum()
        axes.plot(clients, shares, color="#D55E00", linewidth=1.4, linestyle="--")
        axes.annotate(
            "r taking part",
            (clients[-1], shares[-1]),
            xytext=(-4, 5),
            textcoords="offset points",
            ha="right",
            color="#D55E00",
            fontsize=8,
        )
    axes.set_xlabel("client, counted from 1")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.margins(x=0)
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
    axes.grid(alpha=0.25, linewidth=0.5)


def _moving_mean(values: Floats, width: int) -> Floats:
    """Return the mean over the last ``width`` values, over fewer at the start."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, values.size + 1)
    starts = np.maximum(ends - width, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))
