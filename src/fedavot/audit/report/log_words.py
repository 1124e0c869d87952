"""What a log shows, in sentences: how availability behaves, what is possible, and notes on the log.

`words` has the sections about the rules, and puts all sections together.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from math import isfinite, sqrt

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.audit.findings import Findings, Reach
from fedavot.audit.recommending import Estimate
from fedavot.audit.report.terms import (
    LAWS,
    amount,
    count,
    digits_of,
    interval,
    listed,
    share,
    size,
    stretch,
    told_name,
)

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NAMED = 5
"""How many clients or groups are named before the rest are counted."""
NO_LIMIT = 0.99
"""An interval whose upper end is at least this is uninformative."""
NOTEWORTHY = 1.2
"""Ratio to the variance of independent clients below which a difference may be chance."""
ALIKE = 1.15
"""Ratio of the largest to the smallest mean below which hours or weekdays are alike."""
LASTING = 0.1
"""Correlation from one round to the next below which a round says little about the next."""
LEAST_ROUNDS = 50
"""Number of rounds from which a ratio of variances, whose standard error is about √(2 / rounds), is
precise enough to show a noteworthy difference."""


def availability(findings: Findings) -> Iterator[str]:
    """Describe how availability behaves."""
    found = findings.behaviour
    if findings.rounds == 1:
        yield "A single round does not show how availability behaves."
        return
    verb = "are available" if found.of_available else "take part"
    if found.by_hour is not None and np.isfinite(found.by_hour).sum() > 1:
        clock = "UTC" if found.dated else "on the log's own clock"
        yield _range(verb, found.by_hour, [f"{hour:02d}:00" for hour in range(24)], f" {clock}")
        if findings.unknown_share > 0:
            yield (
                "These means assume that clients in an unknown state are available as often as the "
                "others."
            )
    if found.groups_by_hour is not None:
        yield from _group_hours(found.groups_by_hour, findings.groups)
    if found.by_weekday is not None and np.isfinite(found.by_weekday).sum() > 1:
        yield _range(verb, found.by_weekday, WEEKDAYS, "")
    known = findings.by_client.inclusion[np.isfinite(findings.by_client.inclusion)]
    if np.all((known == 0.0) | (known == 1.0)):
        who = "As far as is known, every" if findings.unknown_share > 0 else "Every"
        empty = " that have participants" if findings.empty_rounds else ""
        yield f"{who} client takes part in all rounds{empty} or in none."
    elif findings.rounds < LEAST_ROUNDS:
        yield (
            f"{count(findings.rounds)} rounds are too few to say how long clients stay, and "
            "whether they come together."
        )
    else:
        yield from _persistence(findings)
        if isfinite(found.dispersion):
            yield _dispersion(found.dispersion)
    if isfinite(found.drift.value):
        yield _drift(found.drift, findings.tolerance)
    if findings.has_held_out:
        yield from _carried_over(findings)


def _range(verb: str, means: Floats, labels: Sequence[str], unit: str) -> str:
    high, low = int(np.nanargmax(means)), int(np.nanargmin(means))
    most, fewest = size(means[high]), size(means[low])
    days = labels is WEEKDAYS
    if means[high] < ALIKE * means[low]:
        when = "On every weekday" if days else "At every hour"
        about = most if most == fewest else f"{fewest} to {most}"
        return f"{when} about the same number of clients {verb} on average ({about})."
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
        yield f"Busiest hours by group: {listed(told, NAMED)}."


def _persistence(findings: Findings) -> Iterator[str]:
    """Say how well a round predicts the next: for a client, for groups, and for all together."""
    found = findings.behaviour
    alone, together = found.rounds_per_observation, found.joint_persistence
    if isfinite(alone) and alone >= NOTEWORTHY:
        yield (
            f"Clients come and go slowly: about {size(alone)} rounds per effectively independent "
            "observation of a client."
        )
    elif isfinite(alone):
        yield "Whether a single client takes part in one round says little about the next."
    yield from _group_returns(findings)
    if together.low > LASTING:
        yield (
            "Taken together, a round tells about the next: the mix of clients has a correlation of "
            f"{amount(together.value)} from one round to the next ({interval(together, amount)}), "
            "so weights fitted to one stretch of the log may not suit another."
        )
    elif together.high < 1:
        yield "Taken together, the clients of one round say little about those of the next."


def _group_returns(findings: Findings) -> Iterator[str]:
    """Name the groups for which a round predicts the next, the most persistent first."""
    after, without = (
        findings.behaviour.group_after_presence,
        findings.behaviour.group_after_absence,
    )
    if after is None or without is None:
        return
    # The difference is a correlation from round to round: by chance about 1 / √rounds.
    lasting = np.nan_to_num(after - without)
    off = np.flatnonzero(lasting > max(LASTING, 3 / sqrt(findings.rounds)))
    first = off[np.argsort(-lasting[off], kind="stable")]
    told = [
        f"{told_name(findings.groups[at])} {share(after[at])} and {share(without[at])}"
        for at in first.tolist()
    ]
    if told:
        yield (
            "Groups take part for several rounds in a row. The share of rounds with any of them, "
            f"after a round with and after one without: {listed(told, NAMED)}."
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
            "cohort size were capped."
        )
    return "The number of clients in a round varies as with independent clients."


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
    return f"{told}." if drift.low > 0 else f"{told}, which may be chance."


def _carried_over(findings: Findings) -> Iterator[str]:
    """Say whether weights fitted to the first part carry over to the last, if it is known."""
    fit = findings.fit
    best = next((score for score in fit.scores if score.law == fit.law), None)
    if best is None:
        return
    gap, first, last = (
        best.held_out_gap,
        stretch("first", fit.fitted_rounds),
        stretch("last", fit.held_out_rounds),
    )
    parts = f", divided into {count(fit.parts_of_day, 'part')}" if fit.law == "mixture" else ""
    if not (gap.low <= 0 and gap.high >= NO_LIMIT):
        yield (
            f"Weights fitted to {first}, for {LAWS[best.law]}{parts}, have a gap of "
            f"{share(gap.value)} in {last} ({interval(gap)})."
        )
        others = [score for score in fit.scores if score.law != fit.law]
        if others:
            digits = digits_of([one.held_out_gap.value for one in others]) or 1
            told = [
                f"{share(one.held_out_gap.value, digits)} for {LAWS[one.law]}" for one in others
            ]
            chance = any(one.held_out_gap.low <= gap.high for one in others)
            within = ", a difference within the intervals" if chance else ""
            yield f"Under other assumptions, that gap is {' and '.join(told)}{within}."
    yield _verdict(findings, gap)


def _verdict(findings: Findings, gap: Estimate) -> str:
    oracle, needed = findings.fit.oracle_gap, findings.rounds_to_judge
    by_chance = (
        f" Weights that are right in the long run would have about {share(oracle)} there, by "
        "chance."
        if isfinite(oracle)
        else ""
    )
    if gap.low > findings.reach.deficiency.value + findings.tolerance:
        return f"So FedAVOT's weights fitted to the log did not carry over.{by_chance}"
    if gap.value <= findings.reach.deficiency.value + findings.tolerance:
        return "So FedAVOT's weights fitted to the log carried over."
    enough = f"; about {count(needed)} rounds would do" if needed else ""
    return f"The rounds are too few to say whether fitted weights carry over{enough}.{by_chance}"


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


def log(findings: Findings) -> Iterator[str]:
    """Describe the log, and what was unusual in it."""
    groups = f" in {count(len(findings.groups), 'group')}" if findings.groups else ""
    yield (
        f"{told_name(findings.source)} has {count(findings.rounds, 'round')} of "
        f"{count(len(findings.clients), 'client')}{groups}, with {size(findings.mean_cohort_size)} "
        "clients per round on average."
    )
    if findings.span is not None and findings.behaviour.dated:
        first, last = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}" for at in findings.span)
        yield f"It covers {first} to {last} UTC."
    if findings.empty_rounds:
        rounds = count(findings.empty_rounds, "more round")
        left_out = "it is" if findings.empty_rounds == 1 else "they are"
        yield f"Nobody took part in {rounds}; {left_out} left out of every figure."
    if findings.unknown_share > 0:
        yield (
            f"In {share(findings.unknown_share)} of all pairs of client and round, it is unknown "
            "whether the client was available. These pairs count neither as present nor as absent."
        )
    yield from findings.notes
