"""Whether exact alignment is possible, in sentences: which clients are missing, and what helps."""

from collections.abc import Iterator
from math import isfinite

import numpy as np

from fedavot._checks import Integers
from fedavot.audit.findings import Findings, Reach
from fedavot.audit.report.terms import amount, count, interval, listed, share, told_name

NAMED = 5
"""How many clients are named before the rest are counted."""
NO_LIMIT = 0.99
"""An interval whose upper end is at least this is uninformative."""


def reach(findings: Findings) -> Iterator[str]:
    """Say whether weights exist that give every client its importance, or what is missing."""
    found = findings.reach
    if found.feasible and not found.proven:
        yield (
            "Exact alignment seems possible: none of the sets of clients that were tested has more "
            "importance than its rounds allow."
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
        yield _doubt(found)
    if findings.unknown_share > 0:
        yield (
            "For this section, unknown states are drawn at random: each client takes part as often "
            "as it does in the rounds in which its state is known."
        )
    hidden = np.flatnonzero(np.isnan(findings.by_client.inclusion))
    if hidden.size:
        yield (
            f"The state of {_subject(findings, hidden)} is unknown in every round, so nothing can "
            f"be said about {_them(hidden)}."
        )


def _exact(findings: Findings) -> str:
    """Begin a sentence that holds in the long run, or only over this log."""
    return "Exact alignment" if findings.reach.sure else "Over this log, exact alignment"


def _shortfall(findings: Findings) -> Iterator[str]:
    found, weak = findings.reach, findings.reach.deficient
    several = weak.clients.size > 1
    covered = share(weak.coverage)
    rounds = "none of them ever takes part" if several else "never takes part"
    if weak.coverage > 0 and several:
        rounds = f"only {covered} of the rounds include any of them"
    elif weak.coverage > 0:
        rounds = f"takes part in only {covered} of the rounds"
    who = f"these {count(weak.clients.size)} clients" if several else "this client"
    yield (
        f"{_exact(findings)} is not possible: {who} ({_names(findings, weak.clients)}) "
        f"{'have' if several else 'has'} {share(weak.importance)} of the importance, but "
        f"{rounds}."
    )
    yield (
        f"No weights can deliver {share(found.deficiency.value)} of the importance "
        f"({interval(found.deficiency)})."
    )
    if not isfinite(found.hall_ratio.value):
        return
    whose = "Their importance" if several else "Its importance"
    if not np.array_equal(found.worst.clients, weak.clients):
        whose = f"In the worst case, the importance of {_subject(findings, found.worst.clients)}"
    yield (
        f"{whose} is {amount(found.hall_ratio.value)} times the share of the rounds that include "
        f"{'any of them' if found.worst.clients.size > 1 else 'it'} (the Hall ratio; "
        f"{interval(found.hall_ratio, amount)})."
    )


def _fixes(findings: Findings) -> Iterator[str]:
    found, weak = findings.reach, findings.reach.deficient
    often = ""
    if weak.coverage > 0:
        often = f", {amount(weak.importance / weak.coverage)} times as often as now"
    who = "at least one of them" if weak.clients.size > 1 else "this client"
    yield f"What would help: {who} in {share(weak.importance)} of the rounds or more{often}."
    tried = found.tried_cohorts > 1 and found.if_all_asked is None
    if found.larger_cohorts is not None or tried:
        yield _larger(found)
    if found.if_all_asked is not None:
        yield _all_asked(found.if_all_asked, found.deficiency.value)
    yield (
        "Otherwise, accept the closest importance that can be attained, which gives "
        f"{_them(weak.clients)} {share(weak.coverage)} instead of {share(weak.importance)}."
    )


def _never(findings: Findings) -> Iterator[str]:
    """Name the clients that never took part, unless they are the ones already named."""
    never = findings.reach.never_seen
    if never.size and not np.array_equal(never, findings.reach.deficient.clients):
        held = share(float(findings.by_client.importance[never].sum()))
        yield (
            f"{_subject(findings, never)} with {held} of the importance never took part: no "
            f"weights can make up for {_them(never)}."
        )


def _larger(found: Reach) -> str:
    """Say whether larger cohorts would be enough, according to what was tried."""
    times = found.larger_cohorts or found.tried_cohorts
    if found.if_all_asked is None:
        enough = "would also be enough" if found.larger_cohorts else "would not be enough"
        return f"Merging the clients of {count(times)} consecutive rounds into one round {enough}."
    more = "twice" if times == 2 else f"{count(times)} times"
    return f"About {more} as many of the available clients per round would also be enough."


def _all_asked(left: float, now: float) -> str:
    if left <= 1e-9:
        return "If all available clients took part, exact alignment would be possible."
    if left < 0.95 * now:
        return (
            f"If all available clients took part, {share(left)} of the importance would be out of "
            f"reach instead of {share(now)}."
        )
    return "Selecting all available clients would not help: the missing clients are not available."


def _doubt(found: Reach) -> str:
    lost = found.deficiency
    if lost.high >= NO_LIMIT:
        return "The log is too short for any statement about the long run."
    limit = f"anything from {share(lost.low)} to {share(lost.high)}"
    return (
        "The log is too short to be certain: in the long run, "
        f"{f'up to {share(lost.high)}' if found.feasible else limit} of the importance may be out "
        "of reach."
    )


def _names(findings: Findings, clients: Integers) -> str:
    """Name clients, the most important first."""
    first = clients[np.argsort(-findings.by_client.importance[clients], kind="stable")]
    return listed([told_name(findings.clients[i]) for i in first], NAMED)


def _subject(findings: Findings, clients: Integers) -> str:
    """Name one client, or count several and name the first of them."""
    if clients.size == 1:
        return _names(findings, clients)
    return f"{count(clients.size, 'client')} ({_names(findings, clients)})"


def _them(clients: Integers) -> str:
    return "them" if clients.size > 1 else "it"
