"""Whether exact alignment is possible, in sentences: who is short of reach, and what would help."""

from collections.abc import Iterator
from math import isfinite

import numpy as np

from fedavot._checks import Integers
from fedavot.audit.findings import Findings, Reach
from fedavot.audit.numerals import share
from fedavot.audit.telling import amount, count, interval, listed, told_name

NAMED = 5
"""How many clients are named before the rest are counted."""
NO_LIMIT = 0.99
"""A deficiency that may be this much may be anything."""


def reach(findings: Findings) -> Iterator[str]:
    """Say whether weights exist that give every client its importance, and what if not."""
    found = findings.reach
    if found.feasible and not found.proven:
        yield (
            "No set of clients that was tried is wanted more than it takes part: exact alignment "
            "seems possible."
        )
    elif found.feasible:
        yield (
            f"{_exact(findings)} is possible: there are weights that give each client its "
            "importance."
        )
    else:
        yield from _shortfall(findings)
        yield from _fixes(findings)
        yield from _never(findings)
    if found.proven and not found.sure:
        yield _doubt(findings)
    if findings.unknown > 0:
        yield (
            "Where it is not known whether a client was there, this section has it there by a "
            "draw, as often as where it is known."
        )
    hidden = np.flatnonzero(np.isnan(findings.by_client.inclusion))
    if hidden.size:
        yield (
            f"{_subject(findings, hidden, 'is', 'are')} known in no round: nothing can be said of "
            f"{_them(hidden)}."
        )


def _exact(findings: Findings) -> str:
    """Begin a sentence that holds in the long run, or over the log alone."""
    return "Exact alignment" if findings.reach.sure else "Over this log, exact alignment"


def _shortfall(findings: Findings) -> Iterator[str]:
    found, weak = findings.reach, findings.reach.deficient
    several = weak.clients.size > 1
    if weak.coverage > 0:
        covered = share(weak.coverage)
        rounds = (
            f"only {covered} of rounds have any of them"
            if several
            else f"takes part in only {covered} of rounds"
        )
    else:
        rounds = "none of them ever takes part" if several else "never takes part"
    who = f"these {count(weak.clients.size)} clients" if several else "this client"
    yield (
        f"{_exact(findings)} is not possible: {who} ({_names(findings, weak.clients)}) "
        f"{'hold' if several else 'holds'} {share(weak.importance)} of the importance, but "
        f"{rounds}."
    )
    yield (
        f"So {share(found.deficiency.value)} of the importance is out of reach of any weights "
        f"({interval(found.deficiency, share)})."
    )
    if isfinite(found.hall_ratio.value):
        yield _ratio(findings)


def _ratio(findings: Findings) -> str:
    found, worst = findings.reach, findings.reach.worst
    if np.array_equal(worst.clients, found.deficient.clients):
        who = "They are" if worst.clients.size > 1 else "This client is"
    else:
        who = f"Worst off, {_subject(findings, worst.clients, 'is', 'are')}"
    return (
        f"{who} {amount(found.hall_ratio.value)} times as important as the rounds with "
        f"{'any of them' if worst.clients.size > 1 else 'it'} allow (the Hall ratio; "
        f"{interval(found.hall_ratio)})."
    )


def _fixes(findings: Findings) -> Iterator[str]:
    found, weak = findings.reach, findings.reach.deficient
    more = ""
    if weak.coverage > 0:
        more = f", {amount(weak.importance / weak.coverage)} times as often as now"
    if weak.clients.size > 1:
        yield (
            f"What would help: one or more of them in at least {share(weak.importance)} of "
            f"rounds{more}."
        )
    else:
        yield f"What would help: this client in at least {share(weak.importance)} of rounds{more}."
    tried = found.tried_cohorts > 1 and found.if_all_asked is None
    if found.larger_cohorts is not None or tried:
        yield _larger(found)
    if found.if_all_asked is not None:
        yield _all_asked(found.if_all_asked, found.deficiency.value)
    yield (
        f"Or accept the nearest importance that can be had, which gives {_them(weak.clients)} "
        f"{share(weak.coverage)} instead of {share(weak.importance)}."
    )


def _never(findings: Findings) -> Iterator[str]:
    """Name those who never took part, if they are not the very clients named before."""
    never = findings.reach.never
    if never.size and not np.array_equal(never, findings.reach.deficient.clients):
        held = share(float(findings.by_client.owed[never].sum()))
        yield (
            f"{_subject(findings, never, 'holds', 'hold')} {held} of the importance and never took "
            f"part: no weights can make up for {_them(never)} until {_they(never)}."
        )


def _larger(found: Reach) -> str:
    """Say whether more clients a round would do, by what was tried: a larger draw, or merging."""
    times = found.larger_cohorts or found.tried_cohorts
    if found.if_all_asked is None:
        gathered = f"rounds that gather the clients of {count(times)} rounds in a row"
        return f"Or {gathered}." if found.larger_cohorts else f"Even {gathered} would not do."
    more = "twice" if times == 2 else f"{count(times)} times"
    return f"Or about {more} as many of the available clients a round."


def _all_asked(left: float, now: float) -> str:
    if left <= 1e-9:
        return "If all who were available took part, exact alignment would be possible."
    if left < 0.95 * now:
        return (
            f"If all who were available took part, {share(left)} of the importance would be out "
            f"of reach instead of {share(now)}."
        )
    return "Asking all who are available would not help: those who are missed are not available."


def _doubt(findings: Findings) -> str:
    lost = findings.reach.deficiency
    if lost.high >= NO_LIMIT:
        return "The log is too short to say anything about the long run."
    limit = (
        f"up to {share(lost.high)}"
        if findings.reach.feasible
        else f"anything from {share(lost.low)} to {share(lost.high)}"
    )
    return (
        "The log is too short to be sure of the long run, in which "
        f"{limit} of the importance may be out of reach."
    )


def _names(findings: Findings, clients: Integers) -> str:
    """Name clients, the most important first."""
    first = clients[np.argsort(-findings.by_client.importance[clients], kind="stable")]
    return listed([told_name(findings.clients[i]) for i in first], NAMED)


def _subject(findings: Findings, clients: Integers, one: str, several: str) -> str:
    if clients.size == 1:
        return f"{_names(findings, clients)} {one}"
    return f"{count(clients.size, 'client')} ({_names(findings, clients)}) {several}"


def _them(clients: Integers) -> str:
    return "them" if clients.size > 1 else "it"


def _they(clients: Integers) -> str:
    return "they do" if clients.size > 1 else "it does"
