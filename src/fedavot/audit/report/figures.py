"""Pictures of findings, for the page and as files: one function per picture.

A function returns None if the findings have no data for its picture. `svg` turns pictures into
markup; `canvas` holds what they have in common.
"""

from collections.abc import Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike

from fedavot.audit.decision.rules import label, recommended
from fedavot.audit.findings import Estimate, Findings
from fedavot.audit.report.availability_figures import drift, hours, weekdays
from fedavot.audit.report.canvas import (
    COLOURS,
    Picture,
    dots,
    drawing,
    extremes,
    fewer,
    from_zero,
    height_of,
    in_percent,
    joined,
    legend,
    name_rows,
    new_figure,
    settle,
    short,
)
from fedavot.audit.report.labels import place_labels
from fedavot.audit.report.numerals import NARROW, NOTHING, interval, number, share, shown, stretch

LAWS = {
    "explicit": "rounds of the log",
    "independent": "independent clients",
    "mixture": "time of day",
}
"""Short labels of the laws."""
WIDER = 1.7
"""Factor by which weights that do not sum to one may widen an axis of gaps."""


def draw(findings: Findings) -> tuple[Picture, ...]:
    """Draw every picture for which the findings have data."""
    makers = (_shares, hours, weekdays, drift, _held_out, _price)
    with drawing():
        pictures = tuple(picture for make in makers if (picture := make(findings)) is not None)
        for picture in pictures:
            settle(picture.figure)
    return pictures


def write_png(picture: Picture, stream: IO[bytes]) -> None:
    """Write a picture with its title, on white, at 160 dots per inch."""
    with drawing():
        title = picture.figure.text(
            *(0.01, 1.01, picture.title), ha="left", va="bottom", weight="bold", size=11
        )
        try:
            picture.figure.savefig(
                stream,
                format="png",
                dpi=160,
                facecolor="white",
                bbox_inches="tight",
                pad_inches=0.15,
            )
        finally:
            title.remove()


def _shares(findings: Findings) -> Picture:
    """Draw the importance and the weight of each group, or of each client."""
    grouped = findings.by_group is not None
    data = findings.by_group or findings.by_client
    names = findings.groups if grouped else findings.clients
    wanted = "owed" if findings.owes_otherwise else "importance"
    excess = data.implied - data.owed
    rows = extremes(excess)
    figure, axes = new_figure(height_of(rows.size))
    lines = np.arange(rows.size)
    joined(axes, data.owed[rows], data.implied[rows])
    dots(axes, data.owed[rows], lines, colour="wanted", marker="o", label=wanted)
    dots(axes, data.implied[rows], lines, colour="plain", marker="D", label="plain average")
    dots(
        axes,
        data.attained[rows],
        lines,
        **{"colour": "attained", "marker": "o", "s": 120, "hollow": True},
        label="closest possible",
    )
    name_rows(axes, [short(names[row]) for row in rows])
    from_zero(axes)
    legend(figure, axes)
    what = "group" if grouped else "client"
    told = "; ".join(
        f"{shown(names[row])} with {share(data.implied[row])} instead of {share(data.owed[row])}"
        for row in np.argsort(-np.abs(excess), kind="stable")[:4]
        if abs(excess[row]) > NOTHING
    )
    its = "what it is owed" if wanted == "owed" else "its importance"
    apart = f" Largest deviations: {told}." if told else f" Every {what} gets {its}."
    return Picture(
        "shares",
        f"Importance and weight of each {what}"
        if rows.size == len(names) or not told
        else f"The {rows.size} {what}s with the largest deviations",
        f"One row per {what}, with {its}, its share of the plain average, and its share "
        f"with the weights that come closest to the importance.{apart}"
        + fewer(
            rows.size,
            len(names),
            f"{what}s with the largest deviations" if told else f"first {what}s",
        ),
        figure,
    )


def _held_out(findings: Findings) -> Picture | None:
    """Draw the gaps of laws and rules in the held-out part of the log."""
    if not findings.has_held_out:
        return None
    best = recommended(findings.advice)
    laws = [(LAWS.get(one.law, one.law), one.held_out_gap) for one in findings.fit.scores]
    rules = [(label(one.rule), one.held_out_gap) for one in findings.price.standings]
    blocks = [
        ("By description of availability", laws, LAWS.get(findings.fit.law)),
        ("By rule", rules, best and label(best)),
    ]
    blocks = [block for block in blocks if block[1]]
    if not blocks:
        return None
    sizes = [len(rows) + 0.6 for _, rows, _ in blocks]
    figure, axes = new_figure(
        0.9 + 0.27 * sum(sizes) + 0.3 * len(sizes),
        nrows=len(blocks),
        squeeze=False,
        sharex=True,
        gridspec_kw={"height_ratios": sizes},
    )
    limit = _limit(findings)
    for panel, (title, rows, marked) in zip(axes[:, 0], blocks, strict=True):
        _intervals(panel, rows, marked, limit)
        panel.set_title(title)
        panel.axvline(findings.tolerance, color=COLOURS["muted"], linewidth=1.2, linestyle=":")
    from_zero(axes[-1, 0])
    axes[-1, 0].set_xlim(-0.03 * limit, 1.03 * limit)
    axes[-1, 0].set_xlabel(f"gap, with 95{NARROW}% interval")
    told = "; ".join(
        f"{name} {share(gap.value)} ({interval(gap)})"
        for name, gap in laws + rules
        if np.isfinite(gap.value)
    )
    return Picture(
        "held-out",
        "Gaps in the held-out part of the log",
        f"Gaps in {stretch('last', findings.fit.held_out_rounds)}, of weights that were not fitted "
        f"to them: {told}. The dotted line is the tolerance, {share(findings.tolerance)}.",
        figure,
    )


def _price(findings: Findings) -> Picture:
    """Draw gap against effective cohort size: the curve over softness, and every rule."""
    figure, axes = new_figure(3.9)
    curve = np.array(
        [
            (point.effective_cohort_size, point.gap)
            for point in findings.price.curve
            if np.isfinite([point.effective_cohort_size, point.gap]).all()
        ]
    ).reshape(-1, 2)
    axes.plot(*curve.T, color=COLOURS["wanted"], linewidth=1.8, zorder=2)
    standings = [
        one
        for one in findings.price.standings
        if np.isfinite([one.effective_cohort_size, one.gap]).all()
    ]
    advised = recommended(findings.advice)
    chosen = [one.rule == advised for one in standings]
    for one, best in zip(standings, chosen, strict=True):
        look = {"colour": "attained", "s": 110} if best else {"colour": "plain", "marker": "D"}
        dots(axes, one.effective_cohort_size, one.gap, **{"s": 30, "zorder": 4 + best, **look})
    axes.axhline(findings.tolerance, color=COLOURS["muted"], linewidth=1.2, linestyle=":")
    limit = axes.annotate(
        "tolerance",
        (1, findings.tolerance),
        **{"xycoords": ("axes fraction", "data"), "xytext": (-2, 2)},
        **{"textcoords": "offset points", "ha": "right", "size": 9, "color": COLOURS["muted"]},
    )
    axes.set(xlabel="effective cohort size (larger is better)", ylabel="gap (smaller is better)")
    in_percent(axes.yaxis)
    left, right = _make_room(axes, findings.tolerance)
    place_labels(
        axes,
        [(one.effective_cohort_size, one.gap) for one in standings],
        [label(one.rule) for one in standings],
        bold=chosen,
        avoid=_filled(curve) + _filled([(left, findings.tolerance), (right, findings.tolerance)]),
        taken=[limit],
    )
    told = "; ".join(
        f"{label(one.rule)}: gap {share(one.gap)} at {number(one.effective_cohort_size)}"
        for one in standings
    )
    return Picture(
        "price",
        "The price of a smaller gap",
        "Gap against effective cohort size. The line runs from exact to ever softer alignment. "
        f"{told}. {f'Recommended: {label(advised)}. ' if advised else ''}The dotted line is the "
        f"tolerance, {share(findings.tolerance)}.",
        figure,
    )


def _limit(findings: Findings) -> float:
    """Return the end of the axis of held-out gaps.

    The gap of weights that do not sum to one may be arbitrarily large, and would squeeze the others
    together; it may lie beyond the end.
    """
    standings = findings.price.standings
    shares = [one.held_out_gap for one in findings.fit.scores]
    shares += [one.held_out_gap for one in standings if one.largest_sum_of_weights <= 1 + NOTHING]
    most, all_of_them = _end(shares), _end([*shares, *(one.held_out_gap for one in standings)])
    return 1.08 * (all_of_them if all_of_them <= WIDER * most or not most else most) or 1.0


def _end(gaps: Sequence[Estimate]) -> float:
    """Return the largest finite value or upper end of an interval."""
    ends = [end for gap in gaps for end in (gap.value, gap.high) if np.isfinite(end)]
    return max(ends, default=0.0)


def _intervals(
    axes: Any, rows: Sequence[tuple[str, Estimate]], best: str | None, limit: float
) -> None:
    """Draw a value and its interval in each row; the best one is highlighted."""
    name_rows(axes, [short(name) for name, _ in rows])
    for row, (name, gap) in enumerate(rows):
        colour = "attained" if name == best else "plain"
        look = {"marker": "o", "s": 70} if name == best else {"marker": "D", "s": 34}
        if gap.low < limit:
            axes.hlines(row, gap.low, min(gap.high, limit), color=COLOURS[colour], linewidth=2.2)
        if gap.high > limit:
            dots(axes, limit, row, colour=colour, marker=">", s=34)
        if gap.value <= limit:
            dots(axes, gap.value, row, colour=colour, **look)
        elif np.isfinite(gap.value):
            axes.annotate(
                share(gap.value),
                (limit, row),
                **{"xytext": (-8, 2), "textcoords": "offset points", "size": 9},
                **{"ha": "right", "va": "bottom", "color": COLOURS[colour]},
            )
        if name == best:
            axes.get_yticklabels()[row].set_fontweight("bold")


def _make_room(axes: Any, tolerance: float) -> tuple[float, float]:
    """Leave room for labels around the marks, show the tolerance, and return the width."""
    axes.margins(x=0.16, y=0.14)
    low, high = axes.get_ylim()
    axes.set_ylim(low, max(high, 1.5 * tolerance))
    left, right = axes.get_xlim()
    axes.set_xlim(left, right)
    return left, right


def _filled(line: ArrayLike) -> list[tuple[float, float]]:
    """Return closely spaced points along a line."""
    corners = np.asarray(line, dtype=float)
    if len(corners) < 2:
        return []
    places = np.linspace(0, len(corners) - 1, 20 * len(corners))
    columns = (np.interp(places, np.arange(len(corners)), column) for column in corners.T)
    return list(zip(*columns, strict=True))
