"""From the evidence to one recommendation, with its reason.

In order: is there anything to do, is the log long enough to tell, can weights do it, is it better
to choose whom to ask, and do weights from the past carry over. The first answer that applies is
given; else to align, exactly or softly.
"""

from dataclasses import replace
from math import ceil

from fedavot.audit.evidence import GAIN, KNOWN, NEARER, Evidence
from fedavot.audit.findings import Advice, Standing
from fedavot.audit.numerals import share
from fedavot.audit.telling import amount, count, size

NOISE = 0.8
"""With c reports a client, noise moves mean weights by about 0.4 / √c in total variation; it is to
be half the tolerance at most, which takes c = (0.8 / tolerance)² reports a client."""


def advise(evidence: Evidence) -> Advice:
    """Recommend one thing to do: the first of the answers that applies, or else to align."""
    answers = (_nothing, _too_short, _out_of_reach, _chosen, _learn)
    found = (answer(evidence) for answer in answers)
    advice = next((advice for advice in found if advice is not None), None) or _align(evidence)
    if evidence.applied is None or advice.rule == "as applied":
        return advice
    in_use = f"The weights in use are off by {amount(evidence.applied.value)} over this log."
    return replace(advice, reason=f"{in_use} {advice.reason}")


def _nothing(evidence: Evidence) -> Advice | None:
    """Say why nothing needs to be done, if so."""
    gap, applied, tolerance = evidence.gap, evidence.applied, evidence.tolerance
    if evidence.clients == 1:
        return Advice(
            "nothing to do", "There is one client: whatever the rule, it counts.", "plain average"
        )
    if evidence.known < KNOWN or evidence.pressing:
        return None
    if applied is not None and applied.high <= tolerance:
        return Advice(
            "nothing to do",
            f"The weights in use are off the importance by {amount(applied.high)} at most, within "
            f"the tolerance of {amount(tolerance)}.",
            "as applied",
        )
    if gap.value > tolerance or not (gap.high <= tolerance or evidence.settled):
        return None
    within = f", within the tolerance of {amount(tolerance)}" if gap.high <= tolerance else ""
    return Advice(
        "nothing to do",
        f"The plain average is off the importance by {amount(gap.high)} at most{within}.",
        "plain average",
    )


def _too_short(evidence: Evidence) -> Advice | None:
    """Say that the log does not tell enough, if so."""
    gap, needed = evidence.gap, _rounds_needed(evidence)
    if evidence.known < KNOWN:
        why = (
            f"Only {share(evidence.known)} of the importance is observed. In the other rounds the "
            "state of its clients is not known, and what is not known cannot be judged."
        )
    elif gap.low < evidence.tolerance and not (evidence.settled or evidence.pressing):
        why = (
            f"The log is too short to tell: over {count(evidence.rounds, 'round')} the plain "
            f"average is off by {amount(gap.value)}, but that may be chance; in the long run it is "
            f"between {amount(gap.low)} and {amount(gap.high)}. About {count(needed)} rounds would "
            "tell."
        )
    else:
        return None
    return Advice("collect more rounds", why, "plain average", rounds_needed=needed)


def _rounds_needed(evidence: Evidence) -> int:
    reports = (NOISE / evidence.tolerance) ** 2
    enough = evidence.clients * reports * evidence.look / evidence.cohort
    digits: int = 10 ** max(0, len(str(ceil(enough))) - 2)
    return max(ceil(enough / digits) * digits, 2 * evidence.rounds)


def _out_of_reach(evidence: Evidence) -> Advice | None:
    """Choose between another selection and memory, where no weights can do it."""
    if not evidence.hopeless:
        return None
    reach = evidence.reach
    never = reach.never.size
    if never and reach.deficiency.value - evidence.never <= evidence.tolerance:
        them = "they are" if never > 1 else "it is"
        return Advice(
            "change selection",
            f"{count(never, 'client')} with {share(evidence.never)} of the importance never took "
            f"part, and no rule can count who never takes part. See that {them} asked, or take "
            f"{'them' if never > 1 else 'it'} out of the importance.",
            "online" if evidence.learns else "FedAVOT",
            online=evidence.learns,
        )
    why = _shortage(evidence)
    if evidence.within_reach_of_all:
        return _select(evidence, f"{why}, {_if_all(evidence)}")
    source = "learning on the way" if evidence.learns else "alignment.json"
    left = f" It cannot help {count(never, 'client')} that never took part." if never else ""
    return Advice(
        "use memory",
        f"{why}. With the last update of every client kept on the server, those absent still "
        f"count; that takes one model a client.{left} The weights for those present come from "
        f"{source}.{_choice(evidence, evidence.exact)}",
        "online" if evidence.learns else "FedAVOT",
        online=evidence.learns,
    )


def _if_all(evidence: Evidence) -> str:
    return (
        f"while {size(evidence.cohort)} of {size(evidence.available)} available clients take part "
        f"as they do now; had all available taken part, {amount(evidence.reach.if_all_asked or 0)} "
        "would be missing"
    )


def _chosen(evidence: Evidence) -> Advice | None:
    """Say that the server should choose whom to ask, where that is clearly better."""
    chosen, exact = evidence.selection, evidence.exact
    if chosen is None:
        return None
    soft, plain = evidence.price.of("FedAVOT, soft"), evidence.plain
    lost = evidence.reach.deficiency.value
    nearer = chosen.held_out.value <= NEARER * min(exact.held_out.value, soft.held_out.value)
    if lost > evidence.tolerance and nearer and evidence.within_reach_of_all:
        return _select(
            evidence,
            f"As far as this log tells, {amount(lost)} is out of reach {_if_all(evidence)}",
        )
    near = chosen.held_out.value <= max(evidence.tolerance, exact.held_out.value)
    if evidence.dear and near and chosen.effective - 1 >= GAIN * (soft.effective - 1):
        return _select(evidence, f"Exact weights are uneven: {_evenness(exact, plain)}")
    return None


def _shortage(evidence: Evidence) -> str:
    """Say which clients are wanted more than they can be had."""
    deficient = evidence.reach.deficient
    several = deficient.clients.size != 1
    return (
        f"No weights can do it: {count(deficient.clients.size, 'client')} "
        f"{'hold' if several else 'holds'} {share(deficient.importance)} of the importance, and "
        f"only {share(deficient.coverage)} of rounds have {'any of them' if several else 'it'}, so "
        f"{amount(evidence.reach.deficiency.value)} of it cannot be delivered"
    )


def _learn(evidence: Evidence) -> Advice | None:
    """Choose where weights fixed beforehand do not carry over."""
    if not evidence.learns:
        return None
    exact, plain, online = evidence.exact, evidence.plain, evidence.online
    fits = (
        f"in the last third of the log weights learned on the way are off by "
        f"{amount(online.held_out.value)}, weights fitted to the first two thirds by "
        f"{amount(exact.held_out.value)}, and the plain average by {amount(plain.held_out.value)}"
    )
    if min(online.held_out.value, exact.held_out.value) >= plain.held_out.value:
        needed = _rounds_needed(evidence)
        return Advice(
            "collect more rounds",
            f"Nothing tried is better than the plain average: {fits}. About {count(needed)} rounds "
            "would tell more.",
            "plain average",
            rounds_needed=needed,
        )
    if exact.held_out.value < online.held_out.value:
        return None
    cause = "Availability changes: " if evidence.drift.low > 0 else "Learn the weights: "
    return Advice(
        "align",
        f"{cause}{fits}. So let the weights be learned while training goes on, and do not fix "
        f"those in alignment.json.{_choice(evidence, online)}",
        "online",
        online=True,
    )


def _align(evidence: Evidence) -> Advice:
    """Choose between exact and soft weights."""
    plain, exact, soft = evidence.plain, evidence.exact, evidence.price.of("FedAVOT, soft")
    reach = evidence.reach
    what = (
        f"Weights {'' if reach.proven else 'seem to '}exist that give every client its importance"
        if reach.feasible
        else f"All but {amount(reach.deficiency.value)} of the importance can be delivered"
    )
    why = (
        f"{what}. Over this log the weights in alignment.json are off by {amount(exact.gap)}, the "
        f"plain average by {amount(evidence.gap.value)}; in rounds that the weights were not "
        f"fitted to, by {amount(exact.held_out.value)} and {amount(plain.held_out.value)}"
    )
    dear = evidence.dear
    if dear and soft.effective - 1 >= GAIN * (exact.effective - 1):
        return Advice(
            "align softly",
            f"{what}, but exact weights are uneven: {_evenness(exact, plain)}. With softness "
            f"{evidence.softness:g} it averages like {size(soft.effective)}, at a gap of "
            f"{amount(soft.gap)}; the plain average has {amount(evidence.gap.value)}."
            f"{_choice(evidence, soft)}",
            "FedAVOT, soft",
            softness=evidence.softness,
        )
    return Advice(
        "align",
        f"{why}. The price is {'high' if dear else 'moderate'}: {_evenness(exact, plain)}"
        f"{', and softer weights would not change that much' if dear else ''}."
        f"{_choice(evidence, exact)}",
        "FedAVOT",
    )


def _evenness(exact: Standing, plain: Standing) -> str:
    return (
        f"a round averages like {size(exact.effective)} clients instead of {size(plain.effective)}"
    )


def _select(evidence: Evidence, why: str) -> Advice:
    chosen, plain = evidence.price.of("online selection"), evidence.plain
    return Advice(
        "change selection",
        f"{why}. So choose whom to ask by weights learned on the way, as many clients a round as "
        f"now: in the last third of the log that is off by {amount(chosen.held_out.value)}, the "
        f"plain average by {amount(plain.held_out.value)}, and a round averages like "
        f"{size(chosen.held_out_effective)} clients.",
        "online selection",
        online=True,
    )


def _choice(evidence: Evidence, used: Standing) -> str:
    """Say that choosing whom to ask would do better still, where it would."""
    chosen = evidence.selection
    if (
        chosen is None
        or chosen.held_out.value >= used.held_out.value
        or chosen.held_out_effective < NEARER * used.held_out_effective
    ):
        return ""
    return (
        " If the server may choose whom to ask, choosing by weights learned on the way came nearer "
        f"still: off by {amount(chosen.held_out.value)} in the last third, where a round averages "
        f"like {size(chosen.held_out_effective)} clients instead of "
        f"{size(used.held_out_effective)}."
    )
