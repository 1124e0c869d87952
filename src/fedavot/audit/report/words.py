"""What an audit found, in sentences, for the terminal and the page alike.

Each section has a title and sentences, made from `Findings` alone. There is no sentence for what is
None or unknown; where the log is too short for certainty, the sentence says so.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from fedavot._checks import Floats
from fedavot.audit.decision.rules import (
    AS_APPLIED,
    FEDAVG,
    FEDAVOT,
    HORVITZ_THOMPSON,
    ONLINE,
    SELECT,
    SELF_NORMALISED_IPW,
    SOFT,
    VARIANCE,
    label,
)
from fedavot.audit.findings import Advice, Findings, Standing
from fedavot.audit.report.availability_words import LAWS, OWED, behaviour
from fedavot.audit.report.numerals import (
    NOTHING,
    amount,
    count,
    interval,
    listed,
    share,
    size,
    told_name,
)
from fedavot.audit.report.reach_words import reach

MEANT = {
    FEDAVG: "the plain average",
    HORVITZ_THOMPSON: "weighting by inverse probability",
    SELF_NORMALISED_IPW: "weighting by inverse probability, scaled to sum to one,",
    FEDAVOT: "alignment",
    SOFT: "soft alignment",
    VARIANCE: "alignment with the most even weights",
    ONLINE: "alignment learned during training",
    SELECT: "selection by weights learned during training",
    AS_APPLIED: "the weighting that was applied",
}
"""The rules within a sentence."""
EXPLAINED = {
    SELECT: "Selecting as many clients per round as now, by weights learned during training",
    AS_APPLIED: "The weights that were applied",
}
"""Explanations of the rules that not every log has."""
EXTREMES = 3
"""How many clients or groups with too much weight, and with too little, are named."""
NOTICEABLE = 0.1
"""Deviation from what a client should count, relative to that, from which on it is named."""


class Section(NamedTuple):
    """A heading and the sentences below it."""

    title: str
    sentences: tuple[str, ...]


def headline(findings: Findings) -> str:
    """Return the recommendation in a few words."""
    advice = findings.advice
    way = ", with weights learned during training" if advice.online else ""
    goal = (
        "give each client its importance"
        if findings.reach.feasible
        else "come as close to the importance as possible"
    )
    about = f": about {count(advice.rounds_needed)}" if advice.rounds_needed else ""
    close = "the weights in use are" if advice.rule == AS_APPLIED else "the plain average is"
    words = {
        "nothing to do": f"Nothing to do: {close} close enough",
        "align": f"Align{way or f': use weights that {goal}'}",
        "align softly": f"Align softly, with softness {advice.softness:.3g}{way}",
        "use memory": f"Use memory: reuse the last update of each absent client{way}",
        "change selection": f"Change which clients are selected{_selected(advice)}",
        "collect more rounds": f"Collect more rounds first{about}",
    }
    return words[advice.action]


def _selected(advice: Advice) -> str:
    if advice.rule == SELECT:
        return ": select them by weights learned during training"
    if advice.online:
        return "; until then, use weights learned during training"
    return ": weights alone are not enough"


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
    plain, chosen = findings.price.find(FEDAVG), findings.price.find(advice.rule)
    if plain and chosen and chosen is not plain:
        alone = ", without memory," if advice.action == "use memory" else ""
        yield (
            f"Over this log, {MEANT.get(chosen.rule, chosen.rule)}{alone} leaves a gap of "
            f"{share(chosen.gap)}; the plain average leaves {share(plain.gap)}."
        )


def _objective(findings: Findings) -> Iterator[str]:
    gap = findings.gap
    yield (
        "In the plain average (FedAvg), the weight of a client depends on how often it takes part "
        "and with how many others, whatever its importance."
    )
    side = "within" if gap.value <= findings.tolerance else "above"
    yield (
        f"Over this log, {_told_apart(gap.value, findings.tolerance)} of the weight went to the "
        f"wrong clients. This gap ({interval(gap)}) is {side} the tolerance of "
        f"{share(findings.tolerance)}."
    )
    if findings.owes_otherwise:
        yield OWED
    by_group, by_client = findings.by_group, findings.by_client
    if by_group is not None:
        yield from _extremes(by_group.owed, by_group.implied, findings.groups, "group")
    yield from _extremes(by_client.owed, by_client.implied, findings.clients, "client")


def _extremes(owed: Floats, implied: Floats, names: Sequence[str], what: str) -> Iterator[str]:
    """Name those with too much and with too little weight, the largest deviation first."""
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
            f"with a gap of {share(exact.gap)}."
        )
    for_rates = tuple(_made_for_rates(findings, exact)) if exact else ()
    yield from for_rates
    near = [point for point in findings.price.curve if point.gap <= findings.tolerance]
    best = max(near, key=lambda point: point.effective_cohort_size, default=None)
    if best is None:
        least = min((point.gap for point in findings.price.curve), default=np.nan)
        yield (
            f"No softness brings the gap within the tolerance of {share(findings.tolerance)}; the "
            f"smallest gap is {_told_apart(least, findings.tolerance)}."
        )
    elif best.softness > 0:
        such = "With weights fitted to these very rounds, a" if for_rates else "A"
        yield (
            f"{such} softness of {best.softness:.3g} gives an effective cohort size of "
            f"{size(best.effective_cohort_size)} with a gap of {share(best.gap)}, which is within "
            "the tolerance."
        )
    for rule in (SELECT, AS_APPLIED):
        if one := findings.price.find(rule):
            yield (
                f"{EXPLAINED[rule]} ({label(rule)}): a gap of {share(one.gap)} and an effective "
                f"cohort size of {size(one.effective_cohort_size)}."
            )
    for one in findings.price.standings:
        if one.largest_sum_of_weights > 1.05:
            yield (
                f"The weights of {label(one.rule)} do not sum to one: up to "
                f"{amount(one.largest_sum_of_weights)} in a round, which makes training unstable."
            )


def _made_for_rates(findings: Findings, exact: Standing) -> Iterator[str]:
    """Explain why the gap over the log is larger than it could be, if it is."""
    law, least = findings.fit.law, findings.price.curve[0].gap
    unseen = {score.law: share(score.held_out_gap.value) for score in findings.fit.scores}
    made_for_rounds = law == "explicit" or "explicit" not in unseen
    if made_for_rounds or not findings.has_held_out or exact.gap < least + 0.005:
        return
    yield (
        f"Weights fitted to these very rounds would have a gap of {share(least)}. FedAVOT is "
        f"fitted to {LAWS[law]} instead, because that carries over better: in rounds that neither "
        f"was fitted to, its gap was {unseen[law]}, that of the others {unseen['explicit']}."
    )


def _log(findings: Findings) -> Iterator[str]:
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


def _told_apart(value: float, limit: float) -> str:
    """Return a share, with more digits if it would otherwise read the same as the limit."""
    told = share(value)
    return share(value, 2) if told == share(limit) else told
