"""Pictures of how availability behaves: by hour, by weekday, and from one half to the other."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedavot._checks import Floats
from fedavot.audit.findings import Behaviour, Findings
from fedavot.audit.report.canvas import (
    COLOURS,
    MOST_ROWS,
    Picture,
    dots,
    extremes,
    fewer,
    from_zero,
    height_of,
    in_percent,
    joined,
    legend,
    name_rows,
    new_figure,
    short,
)
from fedavot.audit.report.numerals import interval, number, share, shown

MOST_POINTS = 300
"""Points of a scatter plot: more would be larger than the rest of the page."""
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def hours(findings: Findings) -> Picture | None:
    """Draw the number of clients by hour of day, in total and by group."""
    behaviour = findings.behaviour
    means = behaviour.by_hour
    if means is None or not np.isfinite(means).any():
        return None
    rows = _fullest(findings)
    figure, axes = new_figure(
        2.0 + (0.4 + 0.27 * len(rows) if rows else 0.0),
        nrows=2 if rows else 1,
        squeeze=False,
        sharex=True,
        gridspec_kw={"height_ratios": (1.5, 0.27 * len(rows)) if rows else (1,)},
    )
    upper, lowest = axes[0, 0], axes[-1, 0]
    upper.bar(np.arange(24), np.nan_to_num(means), width=0.8, color=COLOURS["wanted"])
    upper.set_ylabel("clients")
    upper.grid(visible=False, axis="x")
    if rows:
        _heat(lowest, list(rows.values()), [short(group) for group in rows])
    clock = "UTC" if behaviour.dated else "the log's clock"
    lowest.set_xticks(range(0, 24, 3), [f"{hour}h" for hour in range(0, 24, 3)])
    lowest.set_xlim(-0.6, 23.6)
    lowest.set_xlabel(f"hour of day, {clock}")
    most, least = int(np.nanargmax(means)), int(np.nanargmin(means))
    told = "; ".join(
        f"{shown(group)} most at {int(np.nanargmax(row))}h"
        for group, row in rows.items()
        if row.any()
    )
    kind = _kind(behaviour)
    return Picture(
        "hours",
        f"Clients {kind} by hour of day",
        f"Mean number of clients {kind} by hour of day ({clock}): most at {most}h with "
        f"{number(means[most])}, fewest at {least}h with {number(means[least])}."
        + (f" By group: {told}." if told else "")
        + (fewer(len(rows), len(findings.groups), "largest groups") if rows else ""),
        figure,
    )


def weekdays(findings: Findings) -> Picture | None:
    """Draw the number of clients by day of week."""
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


def drift(findings: Findings) -> Picture | None:
    """Draw the plain average's shares in both halves of the log, if it has two rounds."""
    if findings.rounds < 2:
        return None
    drift = findings.behaviour.drift
    first = findings.behaviour.implied_first_half
    last = findings.behaviour.implied_last_half
    told = (
        "The plain average's shares in the first and in the last half of the log: "
        f"{share(drift.value)} of the weight moved ({interval(drift)})."
    )
    if findings.group_of is None:
        figure = _scattered(first, last)
        told += fewer(min(first.size, MOST_POINTS), first.size, "clients that moved most")
    else:
        first, last = (_by_group(findings, half) for half in (first, last))
        rows = extremes(last - first)
        figure, axes = new_figure(height_of(rows.size))
        lines = np.arange(rows.size)
        joined(axes, first[rows], last[rows])
        dots(axes, first[rows], lines, colour="plain", marker="D", hollow=True, label="first half")
        dots(axes, last[rows], lines, colour="plain", marker="D", label="last half")
        name_rows(axes, [short(findings.groups[row]) for row in rows])
        from_zero(axes)
        legend(figure, axes)
        told += fewer(rows.size, len(findings.groups), "groups that moved most")
    return Picture("drift", "The plain average, first half and last half", told, figure)


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


def _kind(behaviour: Behaviour) -> str:
    return "available" if behaviour.of_available else "taking part"


def _heat(axes: Any, rows: Sequence[Floats], labels: Sequence[str]) -> None:
    """Draw one row per group, with darker hours for more clients relative to its busiest hour."""
    name_rows(axes, labels)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    for row, counts in enumerate(rows):
        strengths = 0.05 + 0.95 * counts / max(counts.max(), 1e-12)
        for hour, strength in enumerate(strengths):
            axes.bar(
                hour, 0.8, bottom=row - 0.4, width=0.9, color=COLOURS["wanted"], alpha=strength
            )


def _scattered(first: Floats, last: Floats) -> Any:
    """Draw the clients' shares in the last half against those in the first."""
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
