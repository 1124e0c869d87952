"""The figures of the rivals: every rule on every setting, and the steady rule's best rivals.

The first is a table of losses over the best rule's, in colours. Full participation, which asks
clients that the others cannot, is in a row of its own. The second has losses over the steady
rule's, on a logarithmic axis. Both show every rule at its own best steps.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedavot.experiments.canvas import new_figure, save
from fedavot.experiments.comparison import OURS, SOLVED, Comparison, compared
from fedavot.experiments.outcome import Outcome
from fedavot.experiments.study import COMMON
from fedavot.rules.names import RuleName, label_of

_OURS, _RIVAL, _PLAIN, _FULL = "#0072B2", "#D55E00", "#999999", "#000000"
_EMPTY = "#ececec"
_DARKEST = 4.0
"""The ratio from which on cells have the darkest colour."""
_EDGES = (0.05, 20.0)
"""Ratios outside these are written at the edge of the second figure."""


def draw_rivals(outcomes: Sequence[Outcome], stem: Path) -> list[Path]:
    """Draw both figures; return the paths of their PNGs and PDFs.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Outcomes of a tuned study; those at the common step are left out.
    stem : Path
        Path of the first figure without extension; the second's ends in "-steady".
    """
    held = compared([one for one in outcomes if one.steps != COMMON])
    rows, columns = len(held.rules), len(held.settings)
    figure = new_figure(width=7.0, height=2.0 + 0.19 * rows)
    _heat_map(figure.add_subplot(), held)
    paths = save(figure, stem)
    if OURS in held.rules:
        figure = new_figure(width=7.0, height=1.3 + 0.22 * columns)
        _dots(figure.add_subplot(), held)
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
        paths += save(figure, stem.with_name(f"{stem.name}-steady"))
    return paths


def _heat_map(axes: Any, held: Comparison) -> None:
    """Write every ratio to the best into a cell, the darker the larger."""
    ratios = np.array([[held.ratio(one, rule) for one in held.settings] for rule in held.rules])
    shade = np.log(np.clip(ratios, 1.0, _DARKEST)) / np.log(_DARKEST)
    # Up to a medium blue, on which black is still read.
    axes.imshow(0.6 * shade, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_facecolor(_EMPTY)
    for row, rule in enumerate(held.rules):
        for column, setting in enumerate(held.settings):
            ratio = ratios[row, column]
            if np.isnan(ratio) and (setting, rule) not in held.losses:
                continue
            best = rule == held.best(setting)
            weight = "bold" if best else "normal"
            text = {"ha": "center", "va": "center", "size": 6, "weight": weight}
            axes.text(column, row, _number(ratio), **text)
    kinds = [setting.partition(",")[0] for setting in held.settings]
    for at in range(1, len(kinds)):
        if kinds[at] != kinds[at - 1]:
            axes.axvline(at - 0.5, color="white", linewidth=3)
    if held.rules[0] == RuleName.FULL:
        axes.axhline(0.5, color="white", linewidth=3)
    labels = [label_of(rule) for rule in held.rules]
    axes.set_yticks(range(len(labels)), labels, size=7)
    axes.set_xticks(range(len(kinds)), held.settings, size=7, rotation=60, ha="left")
    axes.tick_params(top=True, bottom=False, labeltop=True, labelbottom=False, length=0)
    axes.tick_params(axis="x", pad=1)
    for tick, rule in zip(axes.get_yticklabels(), held.rules, strict=True):
        tick.set(color=_OURS if rule.startswith("fedavot") else "black")
        tick.set(weight="bold" if rule == OURS else "normal")
    if OURS in held.rules:
        _outline(axes, held.rules.index(OURS), len(kinds))
    axes.spines[:].set_visible(False)
    axes.set_xlabel(
        "loss over the best rule's (bold: best), each at its own steps; full participation is "
        "not counted; grey: not run",
        size=7,
    )


def _outline(axes: Any, row: int, columns: int) -> None:
    """Draw a frame around a row."""
    left, right, low, high = -0.5, columns - 0.5, row - 0.5, row + 0.5
    corners = ([left, right, right, left, left], [low, low, high, high, low])
    axes.autoscale(False)
    axes.plot(*corners, color=_OURS, linewidth=1.5, clip_on=False, zorder=5)


def _number(ratio: float) -> str:
    """Return a ratio in at most four characters."""
    if not np.isfinite(ratio):
        return "div."
    if ratio >= 100:
        return ">99"
    if ratio >= 10:
        return f"{ratio:.0f}"
    return f"{ratio:.2f}" if ratio >= 0.005 else "0"


def _dots(axes: Any, held: Comparison) -> None:
    """Draw each setting's best rival, plain average and full participation over the steady rule."""
    settings = [one for one in held.settings if np.isfinite(held.mean(one, OURS))]
    rivals = [held.best(setting, but=OURS) for setting in settings]
    shown: dict[str, tuple[str, str, Sequence[str | None]]] = {
        OURS.label: (_OURS, "o", [OURS] * len(settings)),
        "best rival": (_RIVAL, "D", rivals),
        RuleName.FEDAVG.label: (_PLAIN, "s", [RuleName.FEDAVG] * len(settings)),
        RuleName.FULL.label: (_FULL, "|", [RuleName.FULL] * len(settings)),
    }
    low, high = _EDGES
    for label, (colour, marker, rules) in shown.items():
        ratios = [_over_ours(held, *pair) for pair in zip(settings, rules, strict=True)]
        places = np.clip(np.array(ratios, dtype=np.float64), low, high)
        style = {"color": colour, "marker": marker, "linestyle": "none", "label": label}
        axes.plot(places, range(len(settings)), markersize=6 if marker == "|" else 4, **style)
        for row, (rule, ratio) in enumerate(zip(rules, ratios, strict=True)):
            if rule is not None and label == "best rival":
                axes.text(1.02, row, label_of(rule), **_beside(axes), color=colour)
            if not low <= ratio <= high and not np.isnan(ratio):
                side = "left" if ratio < low else "right"
                _at_edge(axes, row, _number(ratio), side=side, colour=colour)
    axes.set_xscale("log")
    axes.set_xlim(low / 1.6, high * 1.6)
    axes.axvline(1.0, color=_OURS, linewidth=0.8, zorder=0)
    ticks = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(settings)), settings, size=7)
    axes.set_ylim(len(settings) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.set_xlabel(f"loss over that of {OURS.label}, each rule at its own best steps", size=8)


def _over_ours(held: Comparison, setting: str, rule: str | None) -> float:
    if rule is None:
        return np.nan
    return float(
        np.maximum(held.mean(setting, rule), SOLVED) / max(held.mean(setting, OURS), SOLVED)
    )


def _beside(axes: Any) -> dict[str, Any]:
    """Return how text to the right of the axes is placed."""
    return {"transform": axes.get_yaxis_transform(), "va": "center", "size": 6}


def _at_edge(axes: Any, row: int, text: str, *, side: str, colour: str) -> None:
    """Write a ratio that lies outside the axes beside the dot at its edge."""
    edge = 0.012 if side == "left" else 0.988
    place = {"transform": axes.get_yaxis_transform(), "va": "center", "ha": side, "size": 6}
    axes.text(edge, row, text, color=colour, **place)
