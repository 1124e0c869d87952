"""What an audit found, in sentences, for both the terminal and the page.

Each section has a title and sentences, made from `Findings` alone. There is no sentence for a value
that is None or unknown; where the log is too short for certainty, the sentence says so.
`log_words` has the sections about availability, about what is possible and about the log.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fedavot._checks import Floats
from fedavot.audit.findings import Findings
from fedavot.audit.recommending import Choice, Estimate, Replay
from fedavot.audit.report.log_words import availability, log, reach
from fedavot.audit.report.terms import (
    LAWS,
    MEANT,
    NARROW,
    NEEDS,
    NOTHING,
    OWED,
    amount,
    count,
    interval,
    listed,
    share,
    size,
    stretch,
    times,
    told_name,
)
from fedavot.audit.statistics.rules import FEDAVG, FEDAVOT, FULL, label

EXTREMES = 3
"""How many clients or groups with too much weight, and with too little, are named."""
FEW, ALONE = 20, 1.1
"""Number of rounds, and mean cohort size, from which rounds of one client look like a mistake."""
NOTICEABLE = 0.1
"""Relative deviation from the share that a client should have from which the client is named."""


class Section(NamedTuple):
    """A heading and the sentences below it."""

    title: str
    sentences: tuple[str, ...]


def headline(findings: Findings) -> str:
    """Return the recommendation in a few words, with what it gains."""
    advice, best = findings.recommendation, findings.recommendation.best
    gains = f": {less(best.gain)}" if best else ""
    use = MEANT.get(best.rule, best.rule) if best else ""
    about = f": about {count(advice.rounds_needed)}" if advice.rounds_needed else ""
    words = {
        "nothing to do": "Nothing to do"
        if advice.reason == "one client"
        else f"Nothing to do: {MEANT.get(findings.in_use, findings.in_use)} trains as well as any",
        "change the weights": f"Change to {use}{gains}",
        "use memory": f"Use memory ({use}){gains}",
        "change selection": f"Let the server choose which clients to ask{gains}",
        "collect more rounds": f"Collect more rounds first{about}",
    }
    return words[advice.action]


def less(gain: Estimate) -> str:
    r"""Return what a change gains; if its interval contains 0, say so.

    >>> less(Estimate(0.55, 0.5, 0.6))
    'about 50 to 60\u202f% less excess loss than today'
    >>> less(Estimate(0.05, -0.02, 0.1))
    '5.0\u202f% less excess loss than today, which is within its interval'
    """
    if gain.low <= 0:
        return f"{share(gain.value)} less excess loss than today, which is within its interval"
    low, high = share(gain.low), share(gain.high)
    spread = high if low == high else f"{low.removesuffix(f'{NARROW}%')} to {high}"
    return f"about {spread} less excess loss than today"


def sections(findings: Findings) -> dict[str, Section]:
    """Return what was found, by section.

    Parameters
    ----------
    findings : Findings
        What an audit found.

    Returns
    -------
    dict of Section
        By the keys advice, replay, objective, reach, behaviour, price and log, in this order.
    """
    told = {
        "advice": ("What to do", _advice(findings)),
        "replay": ("How training goes with each rule", _replay(findings)),
        "objective": ("What the plain average really optimises", _objective(findings)),
        "reach": ("Is exact alignment possible?", reach(findings)),
        "behaviour": ("How availability behaves", availability(findings)),
        "price": ("What alignment costs", _price(findings)),
        "log": ("The log", log(findings)),
    }
    return {key: Section(title, tuple(sentences)) for key, (title, sentences) in told.items()}


def _advice(findings: Findings) -> Iterator[str]:
    advice, replay = findings.recommendation, findings.replay
    best, second = advice.best, advice.second
    if findings.rounds >= FEW and findings.mean_cohort_size < ALONE:
        yield (
            "Nearly every round has a single client. If that is not so in your federation, the "
            "column that was read as the round is not the round."
        )
    now = MEANT.get(findings.in_use, findings.in_use)
    yield {
        "one client": "There is only one client, so every rule gives it all weight.",
        "within noise": f"No rule that can be used here trains better than {now}, which is in use, "
        "by more than noise.",
        "trains better": f"In use today: {now}.",
        "too short": f"With {count(findings.rounds, 'round')}, the differences between rules are "
        f"within their intervals. Until there are more, keep {now}.",
        "unobserved": "Less than half of the importance is observed in this log: for the rest, the "
        f"clients' states are unknown. Until more is observed, keep {now}.",
    }[advice.reason]
    if best is not None:
        held = stretch("last", replay.held_out_rounds)
        yield (f"{_where(replay)}, {_gains(best)} in {held}, which no weights were fitted to.")
        yield _needs(best)
    if second is not None:
        yield f"The best without that: {_gains(second)}. {_needs(second)}"


def _where(replay: Replay) -> str:
    """Say what was trained on: without a user's task, how clients differ is an assumption."""
    if replay.task is not None:
        return f"In a replay of training on {told_name(replay.task)} with this log's rounds"
    return "In a replay of this log's rounds on small made-up problems, in which clients differ"


def _gains(choice: Choice) -> str:
    """Say what a rule gains, with its smallest and largest gain."""
    gain = choice.gain
    worst = f"{share(gain.low)} less" if gain.low >= 0 else f"{share(-gain.low)} more"
    return (
        f"{MEANT.get(choice.rule, choice.rule)} ({label(choice.rule)}) had "
        f"{share(gain.value)} less excess loss than what is in use today (from {worst} to "
        f"{share(gain.high)} less over all variants)"
    )


def _needs(choice: Choice) -> str:
    return f"It needs {NEEDS[choice.need] if choice.need else 'only other weights'}."


def _replay(findings: Findings) -> Iterator[str]:
    replay = findings.replay
    yield (
        "The audit trained a small model on this log, with its clients, its importance and its "
        "rounds in their order, once with every rule that the log allows. Excess loss is the loss "
        "above the smallest possible one."
    )
    yield _problems(replay, findings)
    advice = findings.recommendation
    rules = [*(one.rule for one in (advice.best, advice.second) if one), FULL]
    found = [one for rule in rules if (one := replay.find(rule)) is not None]
    if found:
        told = [f"{times(one.to_use.value)} with {MEANT[one.rule]}" for one in found]
        yield (
            "In the last part of the log, relative to what is in use today, the excess loss is "
            f"{listed(told, len(told))}."
        )


def _problems(replay: Replay, findings: Findings) -> str:
    """Say what was trained on."""
    if replay.task is not None:
        what = f"The task is {told_name(replay.task)}, run {count(replay.seeds, 'time')}"
    else:
        differ = "by group" if findings.groups else "one by one, or by when they take part"
        what = (
            f"There are {count(replay.variants)} variants: clients differ {differ}, a little to a "
            f"lot, with little and with much noise; each was run {count(replay.seeds)} times"
        )
    drawn = (
        f" The replay has a random sample of {count(replay.n_clients, 'client')}, because the log "
        "is large."
        if replay.n_clients < len(findings.clients)
        else ""
    )
    return f"{what}, with {count(replay.local_steps, 'local step')} per round.{drawn}"


def _objective(findings: Findings) -> Iterator[str]:
    gap = findings.gap
    yield (
        "In the plain average (FedAvg with equal weights), the weight of a client depends on how "
        "often it takes part and with how many others, whatever its importance: how much it should "
        "count in the model."
    )
    side = "within" if gap.value <= findings.tolerance else "above"
    sure = gap.high <= findings.tolerance or gap.low > findings.tolerance
    chance = "" if sure else ", but the log is too short to be certain of that"
    yield (
        f"Over this log, {_told_apart(gap.value, findings.tolerance)} of the weight went to the "
        f"wrong clients. This gap ({interval(gap)}) is {side} the tolerance of "
        f"{share(findings.tolerance)}{chance}."
    )
    if findings.owes_otherwise:
        yield OWED
    by_group, by_client = findings.by_group, findings.by_client
    if by_group is not None:
        yield from _extremes(by_group.owed, by_group.implied, findings.groups, "group")
    yield from _extremes(by_client.owed, by_client.implied, findings.clients, "client")


def _extremes(owed: Floats, implied: Floats, names: Sequence[str], what: str) -> Iterator[str]:
    """Name the clients or groups with too much and too little weight, largest deviation first."""
    excess = implied - owed
    for sign, word in ((1.0, "much"), (-1.0, "little")):
        off = np.flatnonzero(sign * excess > NOTICEABLE * owed + NOTHING)
        first = off[np.argsort(-sign * excess[off], kind="stable")][:EXTREMES]
        if off.size:
            told = [
                f"{told_name(names[i])} ({share(implied[i])} instead of {share(owed[i])})"
                for i in first.tolist()
            ]
            has = f"{count(off.size, what)} {'have' if off.size > 1 else 'has'} too {word} weight"
            most = ", above all" if off.size > first.size else ":"
            yield f"{has}{most} {listed(told, EXTREMES)}."


def _price(findings: Findings) -> Iterator[str]:
    plain, exact = findings.price.find(FEDAVG), findings.price.find(FEDAVOT)
    yield (
        "Weights that come closer to the importance are less even, and uneven weights average out "
        "less noise. The effective cohort size is the number of equally weighted clients that "
        "would average out as much."
    )
    if plain and exact:
        yield (
            f"It is {size(plain.effective_cohort_size)} for the plain average, with a gap of "
            f"{share(plain.gap)}, and {size(exact.effective_cohort_size)} for alignment (FedAVOT), "
            f"with a gap of {share(exact.gap)}, fitted for {LAWS[findings.fit.law]}."
        )
    near = [point for point in findings.price.curve if point.gap <= findings.tolerance]
    best = max(near, key=lambda point: point.effective_cohort_size, default=None)
    if best is None:
        least = min((point.gap for point in findings.price.curve), default=np.nan)
        yield (
            f"No softness brings the gap within the tolerance of {share(findings.tolerance)}; the "
            f"smallest gap is {_told_apart(least, findings.tolerance)}. Softness is how far "
            "weights may stay from the importance in order to be more even; 0 is exact alignment."
        )
    elif best.softness > 0:
        yield (
            f"Weights fitted to these very rounds with a softness of {best.softness:.3g} (how far "
            "they may stay from the importance in order to be more even) have an effective cohort "
            f"size of {size(best.effective_cohort_size)} with a gap of {share(best.gap)}, which is "
            "within the tolerance."
        )
    for one in findings.price.standings:
        if one.largest_sum_of_weights > 1.05:
            yield (
                f"The weights of {label(one.rule)} do not sum to one: up to "
                f"{amount(one.largest_sum_of_weights)} in a round, which makes training unstable."
            )


def _told_apart(value: float, limit: float) -> str:
    """Return a share, with more digits if it would otherwise read the same as the limit."""
    told = share(value)
    return share(value, 2) if told == share(limit) else told
