"""Pictures of findings, for the page and as files: one function per picture.

A function returns None if the findings have no data for its picture. `drawing` holds what the
pictures have in common, and turns them into markup.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.audit.findings import Findings
from fedavot.audit.recommending import Trained
from fedavot.audit.report.drawing import (
    COLOURS,
    Picture,
    dots,
    drawing,
    fewer,
    in_percent,
    label_beside,
    name_rows,
    new_figure,
    row_figure,
    settle,
)
from fedavot.audit.report.terms import NOTHING, interval, number, share, shown, times
from fedavot.audit.statistics.rules import FULL, label

MOST_ROWS = 16
"""Largest number of rows of a picture by client or group: more do not fit a phone's screen."""
MOST_POINTS = 300
"""Largest number of points of a scatter plot: more would outweigh the rest of the page in bytes."""


def draw(findings: Findings) -> tuple[Picture, ...]:
    """Draw every picture for which the findings have data."""
    makers = (_shares, _replay, _price, _hours, _drift)
    with drawing():
        pictures = tuple(picture for make in makers if (picture := make(findings)) is not None)
        for picture in pictures:
            settle(picture.figure)
    return pictures


def _shares(findings: Findings) -> Picture:
    """Draw the importance and the weight of each group, or of each client."""
    grouped = findings.by_group is not None
    data, names = findings.by_group or findings.by_client, findings.groups or findings.clients
    wanted = "owed" if findings.owes_otherwise else "importance"
    excess = data.implied - data.owed
    rows = _extremes(excess)
    figure = row_figure(
        [names[row] for row in rows],
        [
            (data.owed[rows], {"colour": "wanted", "label": wanted}),
            (data.implied[rows], {"colour": "plain", "marker": "D", "label": "plain average"}),
            (
                data.attained[rows],
                {"colour": "attained", "s": 120, "hollow": True, "label": "closest possible"},
            ),
        ],
    )
    what = "group" if grouped else "client"
    told = "; ".join(
        f"{shown(names[row])} with {share(data.implied[row])} instead of {share(data.owed[row])}"
        for row in np.argsort(-np.abs(excess), kind="stable")[:4]
        if abs(excess[row]) > NOTHING
    )
    its = "what it is owed" if wanted == "owed" else "its importance"
    far = f"{what}s with the largest deviations" if told else f"first {what}s"
    return Picture(
        "shares",
        f"Importance and weight of each {what}"
        if rows.size == len(names) or not told
        else f"The {rows.size} {far}",
        f"One row per {what}, with {its}, its share of the plain average, and its share with the "
        "weights that come closest to the importance."
        + (f" Largest deviations: {told}." if told else f" Every {what} gets {its}.")
        + fewer(rows.size, len(names), far),
        figure,
    )


def emphasised(findings: Findings) -> dict[str, str]:
    """Return the rules that stand out in pictures, with their colours."""
    advice = findings.recommendation
    rules = {FULL: "ink", findings.in_use: "plain"}
    if advice.second is not None:
        rules[advice.second.rule] = "wanted"
    if advice.best is not None:
        rules[advice.best.rule] = "attained"
    return rules


def _replay(findings: Findings) -> Picture | None:
    """Draw the loss by round: one line per rule, shaded from the best variant to the worst."""
    replay = findings.replay
    if replay.recorded.size < 2:
        return None
    figure, axes = new_figure(3.6)
    colours = emphasised(findings)
    for one in replay.trained:
        _line(axes, replay.recorded, one, colours.get(one.rule))
    marked = [one for one in replay.trained if one.rule in colours]
    later = np.concatenate([one.middle[len(one.middle) // 3 :] for one in marked])
    later = later[np.isfinite(later) & (later > 0)]
    low, high = 0.6 * later.min(initial=1.0), 1.3 * max(1.0, later.max(initial=0.0))
    axes.set(yscale="log", ylim=(low, high), xlim=(0, int(replay.recorded[-1])))
    axes.set(xlabel="round", ylabel="excess loss (first model = 100\u202f%)")
    in_percent(axes.yaxis)
    axes.axvline(replay.fitted_rounds, color=COLOURS["muted"], linewidth=1.2, linestyle=":")
    place = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
    look: Any = {"va": "top", "size": 9, "color": COLOURS["muted"]}
    axes.annotate("held out", (replay.fitted_rounds, 1.0), (4, 0), **place, **look)
    ends = [np.clip(np.nan_to_num(one.middle[-1], nan=high), low, high) for one in marked]
    label_beside(
        axes,
        [(float(replay.recorded[-1]), float(end)) for end in ends],
        [label(one.rule) for one in marked],
        [colours[one.rule] for one in marked],
    )
    said = "; ".join(f"{label(one.rule)} {times(one.middle[-1])}" for one in replay.trained)
    return Picture(
        "replay",
        "Training on this log",
        "Excess loss by round, relative to that of the first model: one line per rule, the median "
        "over all variants, shaded from the smallest to the largest for the rules that are "
        f"labelled. After the last round: {said}. Right of the dotted line are the rounds that no "
        "weights were fitted to.",
        figure,
    )


def _line(axes: Any, rounds: Integers, one: Trained, colour: str | None) -> None:
    if colour is None:
        axes.plot(rounds, one.middle, color=COLOURS["muted"], linewidth=0.8, alpha=0.45)
        return
    style = "--" if one.rule == FULL else "-"
    if one.rule != FULL:
        axes.fill_between(rounds, one.low, one.high, color=COLOURS[colour], alpha=0.16, linewidth=0)
    axes.plot(rounds, one.middle, color=COLOURS[colour], linewidth=1.8, linestyle=style, zorder=4)


def _price(findings: Findings) -> Picture:
    """Draw gap against effective cohort size: the curve over softness, and every rule."""
    figure, axes = new_figure(3.9)
    curve = [(one.effective_cohort_size, one.gap) for one in findings.price.curve]
    axes.plot(*np.reshape(curve, (-1, 2)).T, color=COLOURS["wanted"], linewidth=1.8, zorder=2)
    found = findings.price.standings
    standings = [one for one in found if np.isfinite(one.effective_cohort_size + one.gap)]
    rules = [emphasised(findings).get(one.rule, "muted") for one in standings]
    for one, colour in zip(standings, rules, strict=True):
        dots(axes, one.effective_cohort_size, one.gap, colour=colour, marker="D", s=30)
    tolerance = findings.tolerance
    axes.axhline(tolerance, color=COLOURS["muted"], linewidth=1.2, linestyle=":")
    look: Any = {"transform": axes.get_yaxis_transform(), "size": 9, "color": COLOURS["muted"]}
    axes.text(0.99, tolerance, "tolerance", ha="right", va="top", **look)
    axes.set(xlabel="effective cohort size (larger is better)", ylabel="gap (smaller is better)")
    in_percent(axes.yaxis)
    axes.margins(x=0.08, y=0.08)
    axes.set_ylim(top=max(axes.get_ylim()[1], 1.5 * tolerance))
    label_beside(
        axes,
        [(one.effective_cohort_size, one.gap) for one in standings],
        [label(one.rule) for one in standings],
        rules,
    )
    told = "; ".join(
        f"{label(one.rule)}: gap {share(one.gap)} at {number(one.effective_cohort_size)}"
        for one in standings
    )
    return Picture(
        "price",
        "The price of a smaller gap",
        "Gap against effective cohort size. The line runs from exact to ever softer alignment. "
        f"{told}. The dotted line is the tolerance, {share(tolerance)}.",
        figure,
    )


def _hours(findings: Findings) -> Picture | None:
    """Draw the number of clients by hour of day, in total and by group."""
    behaviour = findings.behaviour
    means = behaviour.by_hour
    if means is None or not np.isfinite(means).any():
        return None
    rows = _fullest(findings)
    heights = [1.5, 0.27 * len(rows)] if rows else [1.5]
    options = {"nrows": len(heights), "sharex": True, "squeeze": False}
    extra = 0.4 * bool(rows) + sum(heights[1:])
    figure, axes = new_figure(2.0 + extra, height_ratios=heights, **options)
    upper, lowest = axes[0, 0], axes[-1, 0]
    upper.bar(np.arange(24), np.nan_to_num(means), width=0.8, color=COLOURS["wanted"])
    upper.set_ylabel("clients")
    upper.grid(visible=False, axis="x")
    if rows:
        _heat(lowest, list(rows.values()), list(rows))
    clock = "UTC" if behaviour.dated else "the log's clock"
    lowest.set_xticks(range(0, 24, 3), [f"{hour}h" for hour in range(0, 24, 3)])
    lowest.set_xlim(-0.6, 23.6)
    lowest.set_xlabel(f"hour of day, {clock}")
    most, least = int(np.nanargmax(means)), int(np.nanargmin(means))
    busiest = {group: int(np.nanargmax(row)) for group, row in rows.items() if row.any()}
    told = "; ".join(f"{shown(group)} most at {hour}h" for group, hour in busiest.items())
    return Picture(
        "hours",
        f"Clients {_kind(findings)} by hour of day",
        f"Mean number of clients {_kind(findings)} by hour of day ({clock}): most at {most}h with "
        f"{number(means[most])}, fewest at {least}h with {number(means[least])}."
        + (f" By group: {told}." if told else "")
        + (fewer(len(rows), len(findings.groups), "largest groups") if rows else ""),
        figure,
    )


def _drift(findings: Findings) -> Picture | None:
    """Draw the plain average's shares in both halves of the log, if it has two rounds."""
    if findings.rounds < 2:
        return None
    found = findings.behaviour
    drift, first, last = found.drift, found.implied_first_half, found.implied_last_half
    told = (
        "The plain average's shares in the first and in the last half of the log: "
        f"{share(drift.value)} of the weight moved ({interval(drift)})."
    )
    if findings.group_of is None:
        figure = _scattered(first, last)
        told += fewer(min(first.size, MOST_POINTS), first.size, "clients that moved most")
    else:
        first, last = (_by_group(findings, half) for half in (first, last))
        rows = _extremes(last - first)
        look = {"colour": "plain", "marker": "D"}
        figure = row_figure(
            [findings.groups[row] for row in rows],
            [
                (first[rows], {**look, "hollow": True, "label": "first half"}),
                (last[rows], {**look, "label": "last half"}),
            ],
        )
        told += fewer(rows.size, len(findings.groups), "groups that moved most")
    return Picture("drift", "The plain average, first half and last half", told, figure)


def _extremes(excess: Floats) -> Integers:
    """Return the rows farthest from 0, at most `MOST_ROWS`, from the most above to the most below.

    Half of them are above 0 and half below, if there are that many. Rows at 0 are left out if not
    all rows fit.
    """
    order, half = np.argsort(-excess, kind="stable"), MOST_ROWS // 2
    if order.size <= MOST_ROWS:
        return order
    rows = np.concatenate([order[:half], order[-half:]])
    off = rows[np.abs(excess[rows]) > NOTHING]
    return off if off.size else rows


def _by_group(findings: Findings, shares: Floats) -> Floats:
    assert findings.group_of is not None
    return np.bincount(findings.group_of, shares, len(findings.groups)).astype(float)


def _fullest(findings: Findings) -> dict[str, Floats]:
    """Return the hours of the most important groups, at most `MOST_ROWS`, in order."""
    by_hour = findings.behaviour.groups_by_hour
    if by_hour is None or findings.group_of is None:
        return {}
    wanted = _by_group(findings, findings.by_client.importance)
    chosen = np.sort(np.argsort(-wanted, kind="stable")[:MOST_ROWS])
    return {findings.groups[at]: np.nan_to_num(by_hour[at]) for at in chosen}


def _kind(findings: Findings) -> str:
    return "available" if findings.behaviour.of_available else "taking part"


def _heat(axes: Any, rows: Sequence[Floats], labels: Sequence[str]) -> None:
    """Draw one row per group, with darker hours for more clients relative to its busiest hour."""
    name_rows(axes, labels)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    for row, counts in enumerate(rows):
        strengths = 0.05 + 0.95 * counts / max(counts.max(), 1e-12)
        shades = [(COLOURS["wanted"], strength) for strength in strengths.tolist()]
        axes.bar(np.arange(24), 0.8, bottom=row - 0.4, width=0.9, color=shades)


def _scattered(first: Floats, last: Floats) -> Any:
    """Draw the clients' shares in the last half against those in the first."""
    figure, axes = new_figure(3.6)
    chosen = np.sort(np.argsort(-np.abs(last - first), kind="stable")[:MOST_POINTS])
    top = 1.08 * max(first[chosen].max(), last[chosen].max(), 1e-9)
    axes.plot([0, top], [0, top], color=COLOURS["muted"], linewidth=1.2, linestyle="--")
    dots(axes, first[chosen], last[chosen], colour="plain", marker="D", s=20, alpha=0.8)
    axes.set(xlabel="share in the first half", ylabel="share in the last half")
    for axis, limit in ((axes.xaxis, axes.set_xlim), (axes.yaxis, axes.set_ylim)):
        in_percent(axis)
        limit(-0.02 * top, top)
    return figure
