"""How availability behaves, in sentences: by time, together or not, and for how long."""

from collections.abc import Iterator, Sequence
from math import isfinite

import numpy as np

from fedavot._checks import Floats
from fedavot.audit.findings import Estimate, Findings, Fit
from fedavot.audit.report.numerals import (
    amount,
    count,
    interval,
    listed,
    share,
    size,
    stretch,
    told_name,
)

LAWS = {
    "explicit": "cohorts like those in the log",
    "independent": "clients that are available independently of each other",
    "mixture": "clients that are available independently, given the time of day",
}
"""What each law assumes about availability, within a sentence."""
OWED = (
    "What a client is owed is its importance, counted only in rounds in which its state is known; "
    "in the other rounds it is owed nothing, and the other clients share its importance."
)
"""What owed means."""
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NOTEWORTHY = 1.2
"""Ratio to independent clients below which a difference may be chance."""
NO_LIMIT = 0.99
"""Upper end of an interval from which on it says nothing."""
LEAST_ROUNDS = 50
"""Rounds from which on a ratio of variances, whose standard error is about √(2 / rounds), is known
to within what is noteworthy."""
GROUPS = 6
"""How many groups are named with their hours."""


def behaviour(findings: Findings) -> Iterator[str]:
    """Describe how availability behaves."""
    found = findings.behaviour
    if findings.rounds == 1:
        yield "A single round does not show how availability behaves."
        return
    verb = "are available" if found.of_available else "take part"
    if found.by_hour is not None and np.isfinite(found.by_hour).sum() > 1:
        hours = [f"{hour:02d}:00" for hour in range(24)]
        clock = "UTC" if found.dated else "on the log's own clock"
        yield _range(verb, found.by_hour, hours, f" {clock}")
        if findings.unknown_share > 0:
            yield (
                "These means assume that clients in an unknown state are available as often as the "
                "others."
            )
    if found.groups_by_hour is not None:
        yield from _group_hours(found.groups_by_hour, findings.groups)
    if found.by_weekday is not None and np.isfinite(found.by_weekday).sum() > 1:
        yield _range(verb, found.by_weekday, WEEKDAYS, "")
    if _is_constant(findings.by_client.inclusion):
        yield _constant(findings)
    elif findings.rounds < LEAST_ROUNDS:
        yield (
            f"{count(findings.rounds)} rounds are too few to say how long clients stay, and "
            "whether they come together."
        )
    else:
        if isfinite(found.rounds_per_observation):
            yield _per_observation(found.rounds_per_observation)
        if isfinite(found.dispersion):
            yield _dispersion(found.dispersion)
    if isfinite(found.drift.value):
        yield _drift(found.drift, findings.tolerance)
    if findings.has_held_out:
        yield from _laws(findings.fit)


def _constant(findings: Findings) -> str:
    who = "As far as is known, every" if findings.unknown_share > 0 else "Every"
    empty = " that have participants" if findings.empty_rounds else ""
    return f"{who} client takes part in all rounds{empty} or in none."


def _is_constant(inclusion: Floats) -> bool:
    known = inclusion[np.isfinite(inclusion)]
    return bool(np.all((known == 0.0) | (known == 1.0)))


def _range(verb: str, means: Floats, labels: Sequence[str], unit: str) -> str:
    high, low = int(np.nanargmax(means)), int(np.nanargmin(means))
    most, fewest = size(means[high]), size(means[low])
    days = labels is WEEKDAYS
    if most == fewest:
        when = "On every weekday" if days else "At every hour"
        return f"{when} about the same number of clients {verb} on average ({most})."
    best, worst = (labels[at] if days else f"the hour from {labels[at]}" for at in (high, low))
    return (
        f"{best[0].upper()}{best[1:]}{unit} has the most clients that {verb} ({most} on average), "
        f"{worst} the fewest ({fewest})."
    )


def _group_hours(by_hour: Floats, groups: Sequence[str]) -> Iterator[str]:
    told = [
        f"{told_name(group)} from {int(np.nanargmax(hours)):02d}:00"
        for group, hours in zip(groups, by_hour, strict=True)
        if np.isfinite(hours).any() and np.nanmax(hours) > np.nanmin(hours)
    ]
    if told:
        yield f"Busiest hours by group: {listed(told, GROUPS)}."


def _per_observation(rounds: float) -> str:
    if rounds < NOTEWORTHY:
        return "Whether a client takes part in one round says next to nothing about the next."
    return (
        f"Clients come and go slowly: about {size(rounds)} rounds per effectively independent "
        "observation of a client."
    )


def _dispersion(ratio: float) -> str:
    if ratio > NOTEWORTHY:
        return (
            "Clients come together: the variance of their number in a round is "
            f"{amount(ratio)} times that of independent clients."
        )
    if ratio < 1 / NOTEWORTHY:
        return (
            "The number of clients in a round varies less than with independent clients, as if the "
            "cohort size is capped."
        )
    return "Judging by their number in a round, clients are available independently of each other."


def _drift(drift: Estimate, tolerance: float) -> str:
    moved = (
        f"From the first half of the log to the second, {share(drift.value)} of the plain "
        "average's weight moved from some clients to others"
    )
    if drift.high >= NO_LIMIT:
        return f"{moved}; the log is too short to say whether that is chance."
    told = f"{moved} ({interval(drift)})"
    if drift.low > tolerance:
        return f"{told}: availability drifts, so weights from an old log become outdated."
    if drift.high <= tolerance:
        return f"{told}: availability is steady."
    return f"{told}."


def _laws(fit: Fit) -> Iterator[str]:
    best = next((score for score in fit.scores if score.law == fit.law), None)
    if best is None:
        return
    first, last = stretch("first", fit.fitted_rounds), stretch("last", fit.held_out_rounds)
    if best.held_out_gap.low <= 0 and best.held_out_gap.high >= NO_LIMIT:
        yield f"The log is too short to judge weights fitted to {first} by their gap in {last}."
        return
    parts = f", divided into {count(fit.parts_of_day, 'part')}" if fit.law == "mixture" else ""
    others = [score for score in fit.scores if score.law != fit.law]
    carried = "carry over best if" if others else "assume that"
    yield (
        f"Weights fitted to {first} {carried} availability is described by {LAWS[best.law]}{parts}"
        f"; their gap in {last} is {share(best.held_out_gap.value)} "
        f"({interval(best.held_out_gap)})."
    )
    if others:
        told = [f"{share(one.held_out_gap.value)} with {LAWS[one.law]}" for one in others]
        yield f"With other descriptions of availability, that gap is {' and '.join(told)}."
