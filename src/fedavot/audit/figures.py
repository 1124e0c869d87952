"""Pictures of findings, for the page and as files: one function each, nothing where no data is.

Turning a picture into markup is left to `svg`, what pictures have in common to `canvas`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.audit.canvas import (
    COLOURS,
    dots,
    drawing,
    height_of,
    in_percent,
    joined,
    legend,
    name_rows,
    new_figure,
    place_labels,
    short,
)
from fedavot.audit.findings import Behaviour, Estimate, Findings
from fedavot.audit.numerals import NARROW, count, number, share

MOST_ROWS = 16
"""Rows of a picture by client or group: more do not fit a phone's screen."""
MOST_POINTS = 300
"""Points of a scatter: more would weigh more than the rest of the page."""
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
LAWS = {
    "explicit": "rounds seen so far",
    "independent": "independent clients",
    "mixture": "time of day",
}
"""What the laws say of availability, in a few words."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure, what it is called, and what it shows.

    Attributes
    ----------
    name : str
        For files and anchors: lower case, no spaces.
    title : str
        For its heading.
    alt : str
        What it shows, with numbers, for those who cannot see it.
    figure : matplotlib Figure
    """

    name: str
    title: str
    alt: str
    figure: Any


def draw(findings: Findings) -> tuple[Picture, ...]:
    """Draw every picture that the findings have data for."""
    makers = (_shares, _hours, _weekdays, _drift, _held_out, _price)
    with drawing():
        return tuple(picture for make in makers if (picture := make(findings)) is not None)


def write_png(picture: Picture, stream: IO[bytes]) -> None:
    """Write a picture with its title, on white, at 160 dots an inch."""
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
    """Draw what each group, or client, should count, and what it counts."""
    grouped = findings.by_group is not None
    data = findings.by_group or findings.by_client
    names = findings.groups if grouped else findings.clients
    excess = data.implied - data.owed
    rows = _extremes(excess)
    figure, axes = new_figure(height_of(rows.size))
    lines = np.arange(rows.size)
    joined(axes, data.owed[rows], data.implied[rows])
    dots(axes, data.owed[rows], lines, colour="wanted", marker="o", label="should count")
    dots(axes, data.implied[rows], lines, colour="plain", marker="D", label="plain average")
    dots(
        axes,
        data.attained[rows],
        lines,
        **{"colour": "attained", "marker": "o", "s": 120, "hollow": True},
        label="best weights",
    )
    name_rows(axes, [short(names[row]) for row in rows])
    _from_zero(axes)
    legend(figure, axes)
    what = "group" if grouped else "client"
    told = "; ".join(
        f"{names[row]}, which should count {share(data.owed[row])}, counts "
        f"{share(data.implied[row])}"
        for row in np.argsort(-np.abs(excess), kind="stable")[:4]
    )
    return Picture(
        "shares",
        f"What each {what} should count, and what it counts",
        f"One row a {what}, with its share wanted, its share in the plain average, and its share "
        f"with the weights nearest to what is wanted. Farthest apart: {told}."
        + _fewer(rows.size, len(names), f"{what}s farthest apart"),
        figure,
    )


def _hours(findings: Findings) -> Picture | None:
    """Draw how many clients there are by hour of day, and when each group is there."""
    behaviour = findings.behaviour
    hours = behaviour.by_hour
    if hours is None or not np.isfinite(hours).any():
        return None
    groups = behaviour.groups_by_hour
    chosen = _largest_groups(findings) if groups is not None else np.empty(0, dtype=np.int64)
    figure, axes = new_figure(
        2.0 + 0.27 * chosen.size + 0.4 * bool(chosen.size),
        nrows=1 + bool(chosen.size),
        squeeze=False,
        sharex=True,
        gridspec_kw={"height_ratios": (1.5, 0.27 * chosen.size) if chosen.size else (1,)},
    )
    upper = axes[0, 0]
    upper.bar(np.arange(24), np.nan_to_num(hours), width=0.8, color=COLOURS["wanted"])
    upper.set_ylabel("clients")
    upper.set_ylim(bottom=0)
    upper.grid(visible=False, axis="x")
    if chosen.size:
        _heat(axes[1, 0], groups[chosen], [short(findings.groups[at]) for at in chosen])
    lowest = axes[-1, 0]
    lowest.set_xticks(range(0, 24, 3), [f"{hour}h" for hour in range(0, 24, 3)])
    lowest.set_xlim(-0.6, 23.6)
    clock = "UTC" if behaviour.dated else "the log's clock"
    lowest.set_xlabel(f"hour of day, {clock}")
    most, least = int(np.nanargmax(hours)), int(np.nanargmin(hours))
    told = "; ".join(
        f"{findings.groups[at]} most at {int(np.nanargmax(groups[at]))}h"
        for at in chosen
        if groups is not None and np.isfinite(groups[at]).any() and np.nanmax(groups[at]) > 0
    )
    return Picture(
        "hours",
        f"Clients {_kind(behaviour)} by hour of day",
        f"Mean number of clients {_kind(behaviour)} by hour of day ({clock}): most at {most}h with "
        f"{number(hours[most])}, fewest at {least}h with {number(hours[least])}."
        + (f" By group: {told}." if told else "")
        + (_fewer(chosen.size, len(findings.groups), "largest groups") if chosen.size else ""),
        figure,
    )


def _weekdays(findings: Findings) -> Picture | None:
    """Draw how many clients there are by day of week."""
    days = findings.behaviour.by_weekday
    if days is None or np.isfinite(days).sum() < 2:
        return None
    figure, axes = new_figure(1.9)
    axes.bar(WEEKDAYS, np.nan_to_num(days), width=0.7, color=COLOURS["wanted"])
    axes.set_ylabel("clients")
    axes.grid(visible=False, axis="x")
    told = ", ".join(
        f"{day} {number(value)}"
        for day, value in zip(WEEKDAYS, days, strict=True)
        if np.isfinite(value)
    )
    kind = _kind(findings.behaviour)
    return Picture(
        "weekdays",
        f"Clients {kind} by day of week",
        f"Mean number of clients {kind} by day of week: {told}.",
        figure,
    )


def _drift(findings: Findings) -> Picture:
    """Draw the plain average's shares in both halves of the log."""
    first, last = findings.behaviour.halves
    drift = findings.behaviour.drift
    told = (
        "The plain average's shares in the first and in the last half of the log: "
        f"{share(drift.value)} of the weight moved ({_interval(drift)})."
    )
    if findings.group_of is None:
        figure = _scattered(first, last)
        told += _fewer(min(first.size, MOST_POINTS), first.size, "clients that moved most")
    else:
        first, last = (
            np.bincount(findings.group_of, half, len(findings.groups)) for half in (first, last)
        )
        rows = _extremes(last - first)
        figure, axes = new_figure(height_of(rows.size))
        lines = np.arange(rows.size)
        joined(axes, first[rows], last[rows])
        dots(axes, first[rows], lines, colour="plain", marker="D", hollow=True, label="first half")
        dots(axes, last[rows], lines, colour="plain", marker="D", label="last half")
        name_rows(axes, [short(findings.groups[row]) for row in rows])
        _from_zero(axes)
        legend(figure, axes)
        told += _fewer(rows.size, len(findings.groups), "groups that moved most")
    return Picture("drift", "The plain average, first half and last half", told, figure)


def _held_out(findings: Findings) -> Picture | None:
    """Draw the gaps of laws and rules in the part of the log they were not fitted to."""
    laws = [(LAWS.get(one.law, one.law), one.held_out) for one in findings.fit.scores]
    rules = [(one.rule, one.held_out) for one in findings.price.standings]
    blocks = [
        ("By description of availability", laws, LAWS.get(findings.fit.law)),
        ("By rule", rules, findings.advice.rule),
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
    for panel, (title, rows, best) in zip(axes[:, 0], blocks, strict=True):
        _intervals(panel, rows, best)
        panel.set_title(title)
        panel.axvline(findings.tolerance, color=COLOURS["muted"], linewidth=1.2, linestyle=":")
    _from_zero(axes[-1, 0])
    axes[-1, 0].set_xlabel(f"gap, with 95{NARROW}% interval")
    told = "; ".join(f"{name} {share(gap.value)} ({_interval(gap)})" for name, gap in laws + rules)
    return Picture(
        "held-out",
        "Gaps in the held-out part of the log",
        f"Gaps in the last {count(findings.fit.held_out)} rounds, of weights that had not seen "
        f"them: {told}. The dotted line is the tolerance, {share(findings.tolerance)}.",
        figure,
    )


def _price(findings: Findings) -> Picture:
    """Draw gap against effective cohort size: the curve over softness, and every rule."""
    figure, axes = new_figure(3.9)
    curve = np.array(
        [
            (point.effective, point.gap)
            for point in findings.price.curve
            if np.isfinite([point.effective, point.gap]).all()
        ]
    ).reshape(-1, 2)
    axes.plot(*curve.T, color=COLOURS["wanted"], linewidth=1.8, zorder=2)
    standings = [
        one for one in findings.price.standings if np.isfinite([one.effective, one.gap]).all()
    ]
    chosen = [one.rule == findings.advice.rule for one in standings]
    for one, best in zip(standings, chosen, strict=True):
        look = {"colour": "attained", "s": 110} if best else {"colour": "plain", "marker": "D"}
        dots(axes, one.effective, one.gap, **{"s": 30, "zorder": 4 + best, **look})
    axes.axhline(findings.tolerance, color=COLOURS["muted"], linewidth=1.2, linestyle=":")
    limit = axes.annotate(
        "tolerance",
        (1, findings.tolerance),
        **{"xycoords": ("axes fraction", "data"), "xytext": (-2, 2)},
        **{"textcoords": "offset points", "ha": "right", "size": 9, "color": COLOURS["muted"]},
    )
    axes.set(xlabel="effective cohort size: more is steadier", ylabel="gap: less is nearer")
    in_percent(axes.yaxis)
    _make_room(axes, findings.tolerance)
    place_labels(
        axes,
        [(one.effective, one.gap) for one in standings],
        [one.rule for one in standings],
        bold=chosen,
        avoid=_filled(curve),
        taken=[limit],
    )
    told = "; ".join(
        f"{one.rule}: gap {share(one.gap)} at {number(one.effective)}" for one in standings
    )
    return Picture(
        "price",
        "The price of being nearer",
        "Gap against effective cohort size. The line goes from exact to ever softer alignment. "
        f"{told}. Recommended: {findings.advice.rule}. The dotted line is the tolerance, "
        f"{share(findings.tolerance)}.",
        figure,
    )


def _extremes(excess: Floats) -> Integers:
    """Return the rows farthest from 0, at most `MOST_ROWS`, from the most above to the most below.

    Half of them are above and half below, as far as there are so many.
    """
    order = np.argsort(-excess, kind="stable")
    if order.size <= MOST_ROWS:
        return order
    return np.concatenate([order[: MOST_ROWS // 2], order[-(MOST_ROWS // 2) :]])


def _fewer(shown: int, there: int, which: str) -> str:
    return f" Shown are the {shown} {which}, of {count(there)}." if shown < there else ""


def _largest_groups(findings: Findings) -> Integers:
    """Return the groups that should count most, at most `MOST_ROWS`, in their own order."""
    wanted = np.bincount(findings.group_of, findings.by_client.importance, len(findings.groups))
    return np.sort(np.argsort(-wanted, kind="stable")[:MOST_ROWS])


def _kind(behaviour: Behaviour) -> str:
    return "available" if behaviour.of_available else "taking part"


def _interval(estimate: Estimate) -> str:
    return f"95 % interval {share(estimate.low)} to {share(estimate.high)}"


def _from_zero(axes: Any) -> None:
    in_percent(axes.xaxis)
    axes.margins(x=0.06)
    axes.set_xlim(left=-0.03 * axes.get_xlim()[1])


def _heat(axes: Any, counts: Floats, labels: Sequence[str]) -> None:
    """Draw one row a group, each hour as dark as it is full against the group's fullest."""
    name_rows(axes, labels)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    for row, values in enumerate(np.nan_to_num(counts)):
        most = values.max()
        for hour, value in enumerate(values):
            strength = 0.05 + 0.95 * value / most if most > 0 else 0.05
            axes.bar(
                hour, 0.8, bottom=row - 0.4, width=0.9, color=COLOURS["wanted"], alpha=strength
            )


def _scattered(first: Floats, last: Floats) -> Any:
    """Draw clients' shares in either half against each other."""
    figure, axes = new_figure(3.6)
    chosen = np.sort(np.argsort(-np.abs(last - first), kind="stable")[:MOST_POINTS])
    top = 1.08 * max(first[chosen].max(), last[chosen].max(), 1e-9)
    axes.plot([0, top], [0, top], color=COLOURS["muted"], linewidth=1.2, linestyle="--")
    dots(axes, first[chosen], last[chosen], colour="plain", marker="D", s=20, alpha=0.8)
    axes.set(xlabel="share in the first half", ylabel="share in the last half")
    axes.set(xlim=(-0.02 * top, top), ylim=(-0.02 * top, top))
    in_percent(axes.xaxis)
    in_percent(axes.yaxis)
    return figure


def _intervals(axes: Any, rows: Sequence[tuple[str, Estimate]], best: str | None) -> None:
    """Draw a value and its interval in each row; the best one stands out."""
    name_rows(axes, [short(name) for name, _ in rows])
    for row, (name, gap) in enumerate(rows):
        colour = "attained" if name == best else "plain"
        axes.hlines(row, gap.low, gap.high, color=COLOURS[colour], linewidth=2.2)
        look = {"marker": "o", "s": 70} if name == best else {"marker": "D", "s": 34}
        dots(axes, gap.value, row, colour=colour, **look)
        if name == best:
            axes.get_yticklabels()[row].set_fontweight("bold")


def _make_room(axes: Any, tolerance: float) -> None:
    """Leave room for labels around the marks, and show the tolerance."""
    axes.margins(x=0.16, y=0.14)
    left, right = axes.get_xlim()
    axes.set_xlim(left, right)
    low, high = axes.get_ylim()
    axes.set_ylim(low, max(high, 1.5 * tolerance))


def _filled(curve: Floats) -> list[tuple[float, float]]:
    """Return points close together along a line."""
    if len(curve) < 2:
        return []
    places = np.linspace(0, len(curve) - 1, 20 * len(curve))
    columns = (np.interp(places, np.arange(len(curve)), column) for column in curve.T)
    return list(zip(*columns, strict=True))
