"""What an audit found, in plain sentences: for the terminal and for the page alike.

Each section is a title and sentences, drawn from `Findings` alone. What is None or not known has no
sentence; what the log is too short to say is said with its doubt.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from fedavot._checks import Floats
from fedavot.audit.availability_words import LAWS, behaviour, has_held_out
from fedavot.audit.findings import Advice, Findings, Standing
from fedavot.audit.numerals import NOTHING, share
from fedavot.audit.reach_words import reach
from fedavot.audit.telling import amount, count, interval, listed, size, told_name

PLAIN, EXACT, SELECTION, APPLIED = "plain average", "FedAVOT", "online selection", "as applied"
MEANT = {
    PLAIN: "the plain average",
    "IPW": "weighting by inverse probability",
    "self-normalised IPW": "weighting by inverse probability, scaled to sum to one,",
    EXACT: "alignment",
    "FedAVOT, soft": "soft alignment",
    "least variance": "alignment with the evenest weights",
    "online": "alignment learned on the way",
    SELECTION: "choosing whom to ask by weights learned on the way",
    APPLIED: "what was applied",
}
"""What the rules are, in words."""
EXPLAINED = {
    SELECTION: "Choosing whom to ask by weights learned on the way, as many clients a round as now",
    APPLIED: "The weights that were really used",
}
"""Rules that not every log has, explained."""
EXTREMES = 3
"""How many clients, or groups, are told that count too much, and too little."""
NOTICEABLE = 0.1
"""How much a client must be off by, as a part of what it should count, to be told of."""


class Section(NamedTuple):
    """A heading and what stands below it."""

    title: str
    sentences: tuple[str, ...]


def headline(findings: Findings) -> str:
    """Return the recommendation in a few words."""
    advice = findings.advice
    way = ", with weights learned on the way" if advice.online else ""
    goal = (
        "give each client its importance"
        if findings.reach.feasible
        else "come as near to the importance as can be"
    )
    about = f": about {count(advice.rounds_needed)}" if advice.rounds_needed else ""
    near = "the weights in use are" if advice.rule == APPLIED else "the plain average is"
    words = {
        "nothing to do": f"Nothing to do: {near} near enough",
        "align": f"Align{way or f': use weights that {goal}'}",
        "align softly": f"Align softly, with softness {advice.softness:.3g}{way}",
        "use memory": f"Use memory: let the last update of an absent client stand in for it{way}",
        "change selection": f"Change which clients are selected{_selected(advice)}",
        "collect more rounds": f"Collect more rounds first{about}",
    }
    return words[advice.action]


def _selected(advice: Advice) -> str:
    if advice.rule == SELECTION:
        return ": choose whom to ask by weights learned on the way"
    if advice.online:
        return "; until then use weights learned on the way"
    return ": weights alone cannot do it"


def sections(findings: Findings) -> dict[str, Section]:
    """Return what was found, by section.

    Parameters
    ----------
    findings : Findings
        What an audit found.

    Returns
    -------
    dict of Section
        By the keys advice, objective, reach, behaviour, price and log, in this order.
    """
    told = {
        "advice": ("What to do", _advice(findings)),
        "objective": ("What the plain average really optimises", _objective(findings)),
        "reach": ("Is exact alignment possible?", reach(findings)),
        "behaviour": ("How availability behaves", behaviour(findings)),
        "price": ("What alignment costs", _price(findings)),
        "log": ("The log", _log(findings)),
    }
    return {key: Section(title, tuple(sentences)) for key, (title, sentences) in told.items()}


def _advice(findings: Findings) -> Iterator[str]:
    advice = findings.advice
    yield advice.reason
    plain, chosen = findings.price.find(PLAIN), findings.price.find(advice.rule)
    if plain and chosen and chosen is not plain and not _has_said(advice, chosen):
        alone = ", without memory," if advice.action == "use memory" else ""
        yield (
            f"Over this log, {MEANT.get(chosen.rule, chosen.rule)}{alone} leaves a gap of "
            f"{amount(chosen.gap)}, where the plain average has {amount(plain.gap)}."
        )


def _has_said(advice: Advice, chosen: Standing) -> bool:
    """Say whether the reason has told the gap of weights fitted to the log."""
    gap = amount(chosen.gap)
    told = (f"off by {gap}, ", f"at a gap of {gap};")
    return not advice.online and any(one in advice.reason for one in told)


def _objective(findings: Findings) -> Iterator[str]:
    gap = findings.gap
    yield (
        "With the plain average (FedAvg), a client counts by how often it takes part, and with how "
        "many others, whatever its importance."
    )
    side = "within" if gap.value <= findings.tolerance else "above"
    yield (
        f"Over this log, {share(gap.value)} of the weight went to clients that should not have had "
        f"it: a gap of {_told_apart(gap.value, findings.tolerance)} ({interval(gap)}), {side} the "
        f"tolerance of {findings.tolerance:.3g}."
    )
    by_group, by_client = findings.by_group, findings.by_client
    if by_group is not None:
        yield from _extremes(by_group.owed, by_group.implied, findings.groups, "group")
    yield from _extremes(by_client.owed, by_client.implied, findings.clients, "client")


def _extremes(owed: Floats, implied: Floats, names: Sequence[str], what: str) -> Iterator[str]:
    """Say who counts too much and who too little, the furthest off first."""
    excess = implied - owed
    for sign, word in ((1.0, "much"), (-1.0, "little")):
        off = np.flatnonzero(sign * excess > NOTICEABLE * owed + NOTHING)
        first = off[np.argsort(-sign * excess[off], kind="stable")][:EXTREMES]
        if off.size:
            told = [
                f"{told_name(names[i])} ({share(implied[i])} instead of {share(owed[i])})"
                for i in first.tolist()
            ]
            most = ", most of all" if off.size > first.size else ":"
            yield (
                f"{count(off.size, what)} {'count' if off.size > 1 else 'counts'} too {word}{most} "
                f"{listed(told, EXTREMES)}."
            )


def _price(findings: Findings) -> Iterator[str]:
    plain, exact = findings.price.find(PLAIN), findings.price.find(EXACT)
    yield (
        "Weights nearer to the importance are less even, and uneven weights average out less "
        "noise. The effective cohort size says how many equally weighted clients average as well."
    )
    if plain and exact:
        yield (
            f"It is {size(plain.effective)} for the plain average, at a gap of "
            f"{amount(plain.gap)}, and {size(exact.effective)} for alignment (FedAVOT), at a gap "
            f"of {amount(exact.gap)}."
        )
    for_rates = tuple(_made_for_rates(findings, exact)) if exact else ()
    yield from for_rates
    near = [point for point in findings.price.curve if point.gap <= findings.tolerance]
    best = max(near, key=lambda point: point.effective, default=None)
    if best is None:
        least = min((point.gap for point in findings.price.curve), default=np.nan)
        yield (
            f"No softness brings the gap within the tolerance of {findings.tolerance:.3g}; the "
            f"least is {_told_apart(least, findings.tolerance)}."
        )
    elif best.softness > 0:
        such = "With weights made for these very rounds, a" if for_rates else "A"
        yield (
            f"{such} softness of {best.softness:.3g} trades closeness for evenness: an effective "
            f"cohort size of {size(best.effective)}, at a gap of {amount(best.gap)}, within the "
            "tolerance."
        )
    for rule in (SELECTION, APPLIED):
        if one := findings.price.find(rule):
            yield (
                f"{EXPLAINED[rule]} ({rule}): a gap of {amount(one.gap)}, and an effective cohort "
                f"size of {size(one.effective)}."
            )
    for one in findings.price.standings:
        if one.most > 1.05:
            yield (
                f"{one.rule} gives weights that do not sum to one: up to {amount(one.most)} in a "
                "round, which makes training unsteady."
            )


def _made_for_rates(findings: Findings, exact: Standing) -> Iterator[str]:
    """Say why weights are off by more over the log than weights can be, where they are."""
    law, nearest = findings.fit.law, findings.price.curve[0].gap
    unseen = {score.law: amount(score.held_out.value) for score in findings.fit.scores}
    made_for_rounds = law == "explicit" or "explicit" not in unseen
    if made_for_rounds or not has_held_out(findings) or exact.gap < nearest + 0.005:
        return
    yield (
        f"Weights made for these very rounds would be off by {amount(nearest)}. FedAVOT is made "
        f"for {LAWS[law]} instead, which carries over better: in rounds that neither had seen it "
        f"was off by {unseen[law]}, the others by {unseen['explicit']}."
    )


def _log(findings: Findings) -> Iterator[str]:
    groups = f" in {count(len(findings.groups), 'group')}" if findings.groups else ""
    yield (
        f"{told_name(findings.source)} has {count(findings.rounds, 'round')} of "
        f"{count(len(findings.clients), 'client')}{groups}, with {size(findings.mean_cohort)} "
        "clients in a round on average."
    )
    if findings.span is not None and findings.behaviour.dated:
        first, last = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}" for at in findings.span)
        yield f"It goes from {first} to {last} UTC."
    if findings.empty_rounds:
        rounds = count(findings.empty_rounds, "more round")
        yield f"In {rounds} nobody took part; that is left out of every figure."
    if findings.unknown > 0:
        yield (
            f"For {share(findings.unknown)} of clients and rounds it is not known whether the "
            "client was there. That counts neither for it nor against it."
        )
    yield from findings.notes


def _told_apart(value: float, limit: float) -> str:
    """Return an amount, with one more digit where it would read as the limit does."""
    told = amount(value)
    return f"{value:.3f}" if told == amount(limit) else told
