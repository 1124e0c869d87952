"""The figure of the rivals: every rule's tail loss, best first, one panel per setting.

Curves of all rules would hide one another. A dot is the mean over seeds, a bar one standard
deviation to each side; values outside the panel are written at its edge.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedavot.experiments.canvas import new_figure, save
from fedavot.experiments.outcome import Outcome
from fedavot.rules.names import RuleName, label_of

_COLUMNS = 2
_OURS, _THEIRS, _ALL = "#0072B2", "#D55E00", "#000000"
_SIMPLE = (
    *(RuleName.FEDAVG, RuleName.IMPORTANCE_AVERAGE, RuleName.SELF_NORMALISED_IPW),
    *(RuleName.HORVITZ_THOMPSON, RuleName.FEDAVG_K),
)
_SIMPLE_COLOUR = "#777777"
_BEYOND = 4.0
"""Losses above this multiple of the best are written at the edge."""


def draw_rivals(outcomes: Sequence[Outcome], stem: Path) -> list[Path]:
    """Draw the tail losses of every setting; return the paths of the PNG and the PDF.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Outcomes of `rivals.settings`.
    stem : Path
        Path of the figure without extension.
    """
    settings = list(dict.fromkeys(one.setting for one in outcomes))
    rows = -(-len(settings) // _COLUMNS)
    figure = new_figure(width=7.0, height=3.5 * rows + 0.4)
    for number, setting in enumerate(settings):
        axes = figure.add_subplot(rows, _COLUMNS, number + 1)
        _panel(axes, [one for one in outcomes if one.setting == setting])
        axes.set_title(setting, size=9)
    handles = [
        axes.plot([], [], "o", color=colour, markersize=4, label=label)[0]
        for label, colour in (
            (RuleName.FULL.label, _ALL),
            ("FedAVOT's", _OURS),
            ("simple weights", _SIMPLE_COLOUR),
            ("rivals", _THEIRS),
        )
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return save(figure, stem)


def _panel(axes: Any, outcomes: list[Outcome]) -> None:
    known = {one.rule: one.values("tail_loss") for one in outcomes}
    means = {rule: np.inf if values is None else values.mean() for rule, values in known.items()}
    least = min(means.values())
    edge = _BEYOND * least if np.isfinite(least) else 1.0
    order = sorted(means, key=lambda rule: means[rule])
    for place, rule in enumerate(order):
        values, colour = known[rule], _colour(rule)
        if values is None or means[rule] > edge:
            text = "diverged" if values is None else f"{means[rule]:.3g} →"
            axes.text(edge, place, text, ha="right", va="center", size=7, color=colour)
            continue
        spread = values.std(ddof=min(1, values.size - 1))
        axes.errorbar(means[rule], place, xerr=spread, fmt="o", color=colour, markersize=4)
    axes.set_yticks(range(len(order)), [label_of(rule) for rule in order], size=7)
    for tick, rule in zip(axes.get_yticklabels(), order, strict=True):
        tick.set_color(_colour(rule))
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.set_xlim(0, edge)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("loss over the last fifth of the rounds", size=8)
    axes.grid(alpha=0.25, linewidth=0.5)


def _colour(rule: str) -> str:
    if rule == RuleName.FULL:
        return _ALL
    if rule.startswith("fedavot"):
        return _OURS
    return _SIMPLE_COLOUR if rule in _SIMPLE else _THEIRS
