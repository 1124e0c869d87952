"""Results of the rate studies: fitted exponents, the spread over cohort sizes, two figures.

Everything is read from outcomes whose settings are named like "lad, K=2, T=1000": a *line* is a
loss, a cohort size and a rule, over all horizons T. Nothing here runs a study.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedavot._checks import Floats
from fedavot.errors import OptionError
from fedavot.experiments.canvas import draw_mean, look_of, new_figure, save
from fedavot.experiments.outcome import Outcome, row
from fedavot.rules.names import RuleName, label_of

_SETTING = re.compile(r"(?P<loss>.+), K=(?P<size>\d+), T=(?P<rounds>\d+)")
_TITLES = {"lad": "least absolute deviations", "hinge": "hinge loss", "sharp": "one model fits all"}
_MARKS: dict[str | int, tuple[str, float]] = {
    RuleName.FULL: ("s", 5.0),
    RuleName.FEDAVOT: ("o", 5.0),
    RuleName.SELF_NORMALISED_IPW: ("^", 5.0),
    RuleName.FEDAVG: ("D", 5.0),
    2: ("o", 3.5),
    5: ("s", 5.5),
    10: ("^", 8.5),
    50: ("o", 11.0),
    100: ("D", 12.0),
}
"""Shape and size of marks; lines of cohort sizes nearly coincide, so theirs lie in one another."""
_COLOURS = {2: "#0072B2", 5: "#D55E00", 10: "#009E73", 50: "#CC79A7"}
"""Colours of cohort sizes; others are black."""
_NO_BIAS = 1e-9
"""Biases up to this are rounding in the linear program."""


class Line(NamedTuple):
    """The line that an outcome lies on."""

    loss: str
    size: int
    rule: str


Lines = dict[Line, dict[int, Outcome]]
"""The outcomes of each line by horizon, shortest first."""


def slopes(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return rows of fitted exponents, and of the spread over cohort sizes.

    "slope" is that of a least-squares line through log excess against log T, the excess averaged
    over seeds first; its standard deviation is over lines fitted to each seed.
    "spread_over_cohort_sizes" is the largest excess at the longest common horizon over the
    smallest, likewise. Both are null where a run diverged or an excess is not positive. A line with
    one horizon has no slope, a rule with one cohort size no spread.
    """
    lines = _lines(outcomes)
    return [*_slope_rows(lines), *_spread_rows(lines)]


def draw(
    outcomes: Sequence[Outcome], stem: Path, *, biases: Iterable[dict[str, Any]] = ()
) -> list[Path]:
    """Draw the excess of every rule, or of every cohort size if there is one rule, against T.

    One panel per loss, with a line of slope −1/2 above the data, and one legend below. Rows of
    `rate.biases` are drawn as the levels that the rules converge to.
    """
    levels = {(one["setting"], one["rule"]): one["mean"] for one in biases}
    lines = _lines(outcomes)
    by_rule = len({line.rule for line in lines}) > 1
    losses = list(dict.fromkeys(line.loss for line in lines))
    figure = new_figure(width=max(6.5, 3.0 * len(losses)), height=3.5)
    handles: dict[str, Any] = {}
    for number, loss in enumerate(losses):
        axes = figure.add_subplot(1, len(losses), number + 1, xscale="log", yscale="log")
        many = {line: points for line, points in lines.items() if line.loss == loss}
        drawn = []
        for line, points in many.items():
            colour = look_of(line.rule).colour if by_rule else _COLOURS.get(line.size, "#000000")
            drawn += _draw_line(axes, line, points, colour=colour, by_rule=by_rule)
            level = levels.get((f"{line.loss}, K={line.size}", line.rule), 0.0)
            if level > _NO_BIAS:
                style = {"color": colour, "linestyle": ":", "label": "bias, in the rule's colour"}
                drawn.append(axes.axhline(level, **style))
        drawn.append(_draw_reference(axes, list(many.values())))
        handles |= {handle.get_label(): handle for handle in drawn}
        axes.set_title(_TITLES.get(loss, loss), size=9)
        axes.set_xlabel("rounds T", size=9)
        if number == 0:
            axes.set_ylabel("excess loss of the averaged model", size=9)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.25, linewidth=0.5)
    # Beside lines with marks, those without come last.
    order = sorted(handles.values(), key=lambda handle: handle.get_marker() == "None")
    columns = min(len(order), 3 if len(losses) < 3 else 6)
    figure.legend(
        handles=order, ncols=columns, loc="outside lower center", frameon=False, fontsize=8
    )
    return save(figure, stem)


def _lines(outcomes: Sequence[Outcome]) -> Lines:
    found: Lines = {}
    for outcome in outcomes:
        match = _SETTING.fullmatch(outcome.setting)
        if match is None:
            raise OptionError(
                f"setting {outcome.setting!r} does not belong to a rate study, whose settings "
                "read like 'lad, K=2, T=1000'"
            )
        line = Line(match["loss"], int(match["size"]), outcome.rule)
        found.setdefault(line, {})[int(match["rounds"])] = outcome
    return {line: dict(sorted(points.items())) for line, points in found.items()}


def _slope_rows(lines: Lines) -> list[dict[str, Any]]:
    found = []
    for line, points in lines.items():
        if len(points) > 1:
            excess = _mean_and_seeds(list(points.values()))
            fits = None
            if excess is not None:
                rounds = np.log(np.array(list(points), dtype=np.float64))
                fits = np.polyfit(rounds, np.log(excess), 1)[0]
            seeds = len(next(iter(points.values())).seeds)
            found.append(_row(f"{line.loss}, K={line.size}", line.rule, "slope", fits, seeds))
    return found


def _spread_rows(lines: Lines) -> list[dict[str, Any]]:
    found = []
    for loss, rule in dict.fromkeys((line.loss, line.rule) for line in lines):
        many = [points for line, points in lines.items() if (line.loss, line.rule) == (loss, rule)]
        common = set.intersection(*(set(points) for points in many))
        if len(many) > 1 and common:
            last = max(common)
            ends = [points[last] for points in many]
            excess = _mean_and_seeds(ends)
            ratios = None if excess is None else excess.max(axis=0) / excess.min(axis=0)
            setting = f"{loss}, T={last}"
            found.append(
                _row(setting, rule, "spread_over_cohort_sizes", ratios, len(ends[0].seeds))
            )
    return found


def _mean_and_seeds(outcomes: Sequence[Outcome]) -> Floats | None:
    """Return the excess, shape (n_outcomes, 1 + n_seeds): the mean over seeds, then each seed's.

    None if any has no logarithm.
    """
    values = [outcome.values("excess") for outcome in outcomes]
    known = [one for one in values if one is not None and (one > 0).all()]
    if len(known) < len(values):
        return None
    excess = np.stack(known)
    return np.column_stack([excess.mean(axis=1), excess])


def _row(setting: str, rule: str, metric: str, found: Floats | None, seeds: int) -> dict[str, Any]:
    """Return a row with the mean curve's value as mean, and the deviation over seeds."""
    if found is None:
        return row(setting, rule, metric, None, seeds)
    return {**row(setting, rule, metric, found[1:], seeds), "mean": float(found[0])}


def _draw_line(
    axes: Any, line: Line, points: dict[int, Outcome], *, colour: str, by_rule: bool
) -> list[Any]:
    """Draw mean ± standard deviation over the horizons that have an excess."""
    known = {rounds: outcome.values("excess") for rounds, outcome in points.items()}
    drawn = {rounds: excess for rounds, excess in known.items() if excess is not None}
    if not drawn:
        return []
    label = label_of(line.rule) if by_rule else f"cohorts of {line.size}"
    values = np.column_stack(list(drawn.values()))
    style = {"color": colour, "linewidth": 1.1, "label": label, "markerfacecolor": "none"}
    shape, size = _MARKS.get(line.rule if by_rule else line.size, ("v", 5.0))
    return [draw_mean(axes, list(drawn), values, marker=shape, markersize=size, **style)]


def _draw_reference(axes: Any, many: list[dict[int, Outcome]]) -> Any:
    """Draw a line of slope −1/2 that starts above everything else."""
    rounds = sorted({number for points in many for number in points})
    means = [outcome.mean("excess") for points in many for outcome in points.values()]
    top = 1.6 * max((mean for mean in means if mean is not None), default=1.0)
    heights = top * np.sqrt(rounds[0] / np.array(rounds))
    (line,) = axes.plot(rounds, heights, "--", color="#555555", linewidth=1.0, label="∝ 1/√T")
    return line
