"""Figures of saved outcomes: the objective over the rounds, as in the paper.

One column per setting: the objective against the round, mean ± standard deviation over seeds, and
below it the importance p and the share of participation r. A run that diverged is drawn as far as
it stays near the others, and the legend says when it diverged. Losses by group of clients and
accuracies, where there are any, are points in rows below. Nothing here runs a study.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedavot._checks import Floats
from fedavot.experiments.canvas import draw_mean, look_of, new_figure, save
from fedavot.experiments.outcome import LARGEST, METRICS, Outcome
from fedavot.experiments.study import Panel
from fedavot.rules.names import label_of

_LEGEND_COLUMN, _LEGEND_LETTERS = 2.45, 26
"""Width in inches of a legend entry with this number of letters, the most a label has."""
FLOOR = 1e-16
"""Smallest excess drawn."""
WINDOW = 50
"""Curves are moving means over the run's rounds divided by this."""
Columns = Mapping[str, tuple[str, str | None]]
"""A metric, and a group or None for all clients, by its label."""
_ROOM = 10.0
"""Factor by which the axes extend above the other curves where a run diverged."""


def draw_curves(
    outcomes: Sequence[Outcome], panels: Sequence[Panel], stem: Path, *, title: str
) -> list[Path]:
    """Draw one column per setting, with outcomes in the order of the legend.

    Returns the paths of the PNG and the PDF, which ``stem`` is without its extension.
    """
    width = max(3.4 * len(panels), 5.2)
    extra = _point_rows(outcomes)
    figure = new_figure(width=width, height=5.6 + 1.6 * len(extra))
    heights = (3.2, *[1.0] * (1 + len(extra)))
    grid = figure.add_gridspec(len(heights), len(panels), height_ratios=heights)
    handles: dict[str, Any] = {}
    for column, panel in enumerate(panels):
        upper, lower, *others = (
            figure.add_subplot(grid[row, column]) for row in range(len(heights))
        )
        held = [one for one in outcomes if one.setting == panel.setting]
        lines = [_curve(upper, one, excess=panel.excess) for one in held]
        handles |= {line.get_label(): line for line in lines}
        _name_axes(upper, panel, title)
        _keep_in_view(upper, held, lines)
        _draw_shares(lower, panel)
        for axes, columns in zip(others, extra.values(), strict=True):
            _draw_points(axes, held, columns)
        if column == 0:
            what = "loss above the least possible" if panel.excess else "loss"
            labels = (f"{what} (log scale)", "share", *extra)
            for axes, label in zip((upper, lower, *others), labels, strict=True):
                axes.set_ylabel(label)
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=_legend_columns(width, handles),
        frameon=False,
    )
    figure.suptitle(title, parse_math=False)
    return save(figure, stem)


def _curve(axes: Any, outcome: Outcome, *, excess: bool) -> Any:
    look = look_of(outcome.rule)
    values = outcome.excess_curve if excess else outcome.losses
    # Matplotlib's axes fail where their ticks pass 1e308.
    drawn = np.logical_and.accumulate((np.abs(values) <= LARGEST).all(axis=0))
    values, rounds = values[:, drawn], outcome.recorded[drawn]
    width = max(1, outcome.recorded.size // WINDOW)
    smooth = np.array([_moving_mean(row, width) for row in values])
    if excess:
        # What is left is rounding, which a log scale would show as noise over many decades.
        smooth = np.maximum(smooth, FLOOR)
    style = {"color": look.colour, "linestyle": look.dashes, "linewidth": 1.4}
    label = label_of(outcome.rule) + _gone(outcome, rounds.size)
    return draw_mean(axes, rounds, smooth, label=label, **style)


def _gone(outcome: Outcome, n_drawn: int) -> str:
    """Return the legend's note on a run that is not drawn to its end."""
    if outcome.diverged:
        last = int(outcome.recorded[n_drawn - 1]) if n_drawn else 0
        return f": diverged after round {last}"
    if n_drawn < outcome.recorded.size:
        return f": above {LARGEST:g} from round {outcome.recorded[n_drawn]}"
    return ""


def _keep_in_view(axes: Any, outcomes: Sequence[Outcome], lines: Sequence[Any]) -> None:
    """Limit the axes to the other curves where a run diverged."""
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
    """Return the number of legend columns that fit into a width in inches."""
    letters = max([_LEGEND_LETTERS, *map(len, labels)])
    return max(1, int(width // (_LEGEND_COLUMN * letters / _LEGEND_LETTERS)))


def _name_axes(axes: Any, panel: Panel, above: str) -> None:
    """Label the axes; a setting with the figure's name gets no heading of its own."""
    axes.set_yscale("log")
    axes.set_xlabel("round")
    heading = f"{panel.setting}: {panel.caption}" if panel.caption else panel.setting
    if heading != above:
        axes.set_title(heading, size=9, parse_math=False)
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.margins(x=0)


def _draw_shares(axes: Any, panel: Panel) -> None:
    clients = np.arange(1, panel.importance.size + 1)
    lines = [("importance p", panel.importance, "#0072B2", "-", 0)]
    if panel.inclusion is not None:
        shares = panel.inclusion / panel.inclusion.sum()
        lines.append(("participation r", shares, "#D55E00", "--", -1))
    for label, values, colour, dashes, end in lines:
        axes.plot(clients, values, dashes, color=colour, linewidth=1.4)
        place = {"xytext": (-4, 5), "ha": "right"} if end else {"xytext": (5, 3)}
        style = {"textcoords": "offset points", "color": colour, "fontsize": 8}
        axes.annotate(label, (clients[end], values[end]), **place, **style)
    axes.set_xlabel("client, counted from 1")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.margins(x=0)
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
    axes.grid(alpha=0.25, linewidth=0.5)


def _point_rows(outcomes: Sequence[Outcome]) -> dict[str, Columns]:
    """Return what is drawn as points below the curves, by its label: groups, and accuracy."""
    groups = {group: own for one in outcomes for group, own in one.groups.items()}
    names = {name for one in outcomes for name in one.metrics}
    loss = "test_loss" if any("test_loss" in own for own in groups.values()) else "final_loss"
    rows: dict[str, Columns] = {METRICS[loss]: {group: (loss, group) for group in groups}}
    shown = [name for name in ("accuracy", "test_accuracy") if name in names]
    rows["accuracy"] = {METRICS[name]: (name, None) for name in shown}
    return {label: columns for label, columns in rows.items() if columns}


def _draw_points(axes: Any, outcomes: Sequence[Outcome], columns: Columns) -> None:
    """Draw each rule's mean ± standard deviation over seeds, in one place per column."""
    for number, outcome in enumerate(outcomes):
        shift = 0.6 * ((number + 0.5) / len(outcomes) - 0.5)
        for place, column in enumerate(columns.values()):
            values = outcome.values(*column)
            if values is not None:
                spread = values.std(ddof=min(1, values.size - 1))
                style = {"fmt": "o", "markersize": 3, "color": look_of(outcome.rule).colour}
                axes.errorbar(place + shift, values.mean(), yerr=spread, **style)
    axes.set_xticks(range(len(columns)), columns, rotation=30 if len(columns) > 4 else 0)
    for text in axes.get_xticklabels():
        text.set_parse_math(False)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.grid(alpha=0.25, linewidth=0.5)


def _moving_mean(values: Floats, width: int) -> Floats:
    """Return the mean over the last ``width`` values, over fewer at the start."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, values.size + 1)
    starts = np.maximum(ends - width, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))
