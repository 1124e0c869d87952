"""How availability behaves, in sentences: when, together or not, and how it lasts."""

from collections.abc import Iterator, Sequence
from math import isfinite

import numpy as np

from fedavot._checks import Floats
from fedavot.audit.findings import Estimate, Findings, Fit
from fedavot.audit.numerals import share
from fedavot.audit.telling import amount, count, interval, listed, size, stretch, told_name

LAWS = {
    "explicit": "rounds like those seen so far",
    "independent": "clients that come independently of each other",
    "mixture": "clients that come independently of each other, given the time of day",
}
"""What the laws say of availability, in words."""
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NOTEWORTHY = 1.2
"""A ratio to what independent clients would show, below which it may be chance."""
NO_LIMIT = 0.99
"""A drift that may be this much may be anything."""
GROUPS = 6
"""How many groups' hours are told."""


def behaviour(findings: Findings) -> Iterator[str]:
    """Say how availability behaves."""
    found = findings.behaviour
    if findings.rounds == 1:
        yield "One round says nothing about how availability behaves."
        return
    verb = "are available" if found.of_available else "take part"
    if found.by_hour is not None and np.isfinite(found.by_hour).sum() > 1:
        hours = [f"{hour:02d}:00" for hour in range(24)]
        clock = "UTC" if found.dated else "of the log's own clock"
        yield _range(verb, found.by_hour, hours, f" {clock}")
        if findings.unknown > 0:
            yield (
                "In these means, clients whose state is not known are taken to be there as often "
                "as the others."
            )
    if found.groups_by_hour is not None:
        yield from _group_hours(found.groups_by_hour, findings.groups)
    if found.by_weekday is not None and np.isfinite(found.by_weekday).sum() > 1:
        yield _range(verb, found.by_weekday, WEEKDAYS, "")
    if _is_constant(findings.by_client.inclusion):
        yield _constant(findings)
    else:
        if isfinite(found.look):
            yield _look(found.look)
        if isfinite(found.dispersion):
            yield _dispersion(found.dispersion)
    if isfinite(found.drift.value):
        yield _drift(found.drift, findings.tolerance)
    if has_held_out(findings):
        yield from _laws(findings.fit)


def has_held_out(findings: Findings) -> bool:
    """Say whether the log has rounds that weights fitted to the others had not seen."""
    fit = findings.fit
    return fit.held_out > 0 and fit.fitted + fit.held_out <= findings.rounds


def _constant(findings: Findings) -> str:
    who = "As far as is known, every" if findings.unknown > 0 else "Every"
    empty = ", those with nobody apart" if findings.empty_rounds else ""
    return f"{who} client takes part in all rounds or in none{empty}."


def _is_constant(inclusion: Floats) -> bool:
    known = inclusion[np.isfinite(inclusion)]
    return bool(np.all((known == 0.0) | (known == 1.0)))


def _range(verb: str, means: Floats, labels: Sequence[str], unit: str) -> str:
    high, low = int(np.nanargmax(means)), int(np.nanargmin(means))
    most, fewest = size(means[high]), size(means[low])
    days = labels is WEEKDAYS
    if most == fewest:
        when = "On every weekday" if days else "At every hour"
        return f"{when} about as many clients {verb} on average ({most})."
    return (
        f"On average most clients {verb} {'on' if days else 'in the hour from'} {labels[high]}"
        f"{unit} ({most}), and fewest {'on' if days else 'from'} {labels[low]} ({fewest})."
    )


def _group_hours(by_hour: Floats, groups: Sequence[str]) -> Iterator[str]:
    told = [
        f"{told_name(group)} from {int(np.nanargmax(hours)):02d}:00"
        for group, hours in zip(groups, by_hour, strict=True)
        if np.isfinite(hours).any() and np.nanmax(hours) > np.nanmin(hours)
    ]
    if told:
        yield f"By group, most are there in these hours: {listed(told, GROUPS)}."


def _look(look: float) -> str:
    if look < NOTEWORTHY:
        return "Whether a client takes part in a round says next to nothing about the next one."
    return (
        f"Clients come and go slowly: about {size(look)} rounds tell as much about a client as one "
        "would if each round were a fresh draw."
    )


def _dispersion(ratio: float) -> str:
    if ratio > NOTEWORTHY:
        return (
            "Clients come together: the variance of their number in a round is "
            f"{amount(ratio)} times what it would be if each came on its own."
        )
    if ratio < 1 / NOTEWORTHY:
        return (
            "The number of clients in a round varies less than if each came on its own, as it "
            "does where a round takes no more than so many."
        )
    return "Clients come independently of each other, as far as their number in a round tells."


def _drift(drift: Estimate, tolerance: float) -> str:
    told = (
        f"From the first half of the log to the second, {share(drift.value)} of the plain "
        f"average's weight moved from some clients to others ({interval(drift, share)})"
    )
    if drift.high >= NO_LIMIT:
        return f"{told.partition(' (')[0]}; whether that is chance, so short a log cannot tell."
    if drift.low > tolerance:
        return f"{told}: availability drifts, and weights made from an old log wear out."
    if drift.high <= tolerance:
        return f"{told}: availability is steady."
    return f"{told}."


def _laws(fit: Fit) -> Iterator[str]:
    best = next((score for score in fit.scores if score.law == fit.law), None)
    if best is None:
        return
    parts = f", divided into {count(fit.states, 'part')}" if fit.law == "mixture" else ""
    yield (
        f"Availability is best described as {LAWS[best.law]}{parts}. Weights made for that from "
        f"{stretch('first', fit.fitted)} left a gap of {amount(best.held_out.value)} in "
        f"{stretch('last', fit.held_out)}, which they had not seen ({interval(best.held_out)})."
    )
    others = [score for score in fit.scores if score.law != fit.law]
    if others:
        told = "; ".join(f"{LAWS[one.law]}: {amount(one.held_out.value)}" for one in others)
        yield f"The same for other descriptions: {told}."
