"""From the evidence to one recommendation, with its reason.

The questions are asked in order: is there anything to do, is the log long enough, can weights close
the gap, would another selection be better, and do weights from the past carry over. The first
answer that applies is the recommendation; otherwise it is to align, exactly or softly.
"""

from dataclasses import replace
from math import ceil

from fedavot.audit.decision.evidence import GAIN, KNOWN, NEARER, Evidence
from fedavot.audit.decision.rules import AS_APPLIED, FEDAVG, FEDAVOT, ONLINE, SELECT, SOFT
from fedavot.audit.findings import Advice, Standing
from fedavot.audit.report.numerals import count, share, size

NOISE = 0.8
"""With c reports per client, noise moves mean weights by about 0.4 / √c in total variation. For
that to be at most half the tolerance, c = (0.8 / tolerance)² reports per client are needed."""


def advise(evidence: Evidence) -> Advice:
    """Recommend one action: the first answer that applies, or else to align."""
    answers = (_nothing, _too_short, _out_of_reach, _selection, _learn)
    found = (answer(evidence) for answer in answers)
    advice = next((advice for advice in found if advice is not None), None) or _align(evidence)
    if evidence.applied is None or advice.rule == AS_APPLIED:
        return advice
    in_use = f"The weights in use have a gap of {share(evidence.applied.value)} over this log."
    return replace(advice, reason=f"{in_use} {advice.reason}")


def _nothing(evidence: Evidence) -> Advice | None:
    """Return why there is nothing to do, if there is not."""
    gap, applied, tolerance = evidence.gap, evidence.applied, evidence.tolerance
    if evidence.clients == 1:
        return Advice(
            "nothing to do", "There is only one client, so every rule gives it all weight.", FEDAVG
        )
    if evidence.known < KNOWN or evidence.pressing:
        return None
    if applied is not None and applied.high <= tolerance:
        return Advice(
            "nothing to do",
            f"The gap of the weights in use is at most {share(applied.high)}, within the tolerance "
            f"of {share(tolerance)}.",
            AS_APPLIED,
        )
    if gap.value > tolerance or not (gap.high <= tolerance or evidence.settled):
        return None
    within = f", within the tolerance of {share(tolerance)}" if gap.high <= tolerance else ""
    return Advice(
        "nothing to do",
        f"The gap of the plain average is at most {share(gap.high)}{within}.",
        FEDAVG,
    )


def _too_short(evidence: Evidence) -> Advice | None:
    """Return why the log is not enough for a judgement, if it is not."""
    gap, needed = evidence.gap, _rounds_needed(evidence)
    if evidence.known < KNOWN:
        why = (
            f"Only {share(evidence.known)} of the importance is observed. For the rest, the "
            "clients' states are unknown, so it cannot be judged."
        )
    elif gap.low < evidence.tolerance and not (evidence.settled or evidence.pressing):
        why = (
            f"The log is too short: over {count(evidence.rounds, 'round')} the gap of the plain "
            f"average is {share(gap.value)}, but that may be chance; in the long run it is between "
            f"{share(gap.low)} and {share(gap.high)}. About {count(needed)} rounds would be enough "
            "to decide."
        )
    else:
        return None
    return Advice("collect more rounds", why, FEDAVG, rounds_needed=needed)


def _rounds_needed(evidence: Evidence) -> int:
    reports = (NOISE / evidence.tolerance) ** 2
    observations = reports * evidence.rounds_per_observation
    enough = evidence.clients * observations / evidence.cohort_size
    digits: int = 10 ** max(0, len(str(ceil(enough))) - 2)
    return max(ceil(enough / digits) * digits, 2 * evidence.rounds)


def _out_of_reach(evidence: Evidence) -> Advice | None:
    """Choose between another selection and memory if no weights can close the gap."""
    if not evidence.out_of_reach:
        return None
    reach = evidence.reach
    never = reach.never_seen.size
    rule = ONLINE if evidence.learns else FEDAVOT
    if never and reach.deficiency.value - evidence.never <= evidence.tolerance:
        them = "them" if never > 1 else "it"
        return Advice(
            "change selection",
            f"{count(never, 'client')} with {share(evidence.never)} of the importance never took "
            "part, and no rule can give weight to a client that never takes part. Make sure that "
            f"the server selects {them}, or remove {them} from the importance.",
            rule,
            online=evidence.learns,
        )
    why = _shortage(evidence)
    if evidence.selection_helps:
        return _select(evidence, f"{why} {_if_all(evidence)}")
    source = "are learned during training" if evidence.learns else "come from alignment.json"
    left = f" It cannot help {count(never, 'client')} that never took part." if never else ""
    return Advice(
        "use memory",
        f"{why}. If the server keeps the last update of every client, absent clients still "
        f"contribute; this needs storage for one model per client.{left} The weights of the "
        f"clients present {source}.{_choice(evidence, evidence.exact)}",
        rule,
        online=evidence.learns,
    )


def _if_all(evidence: Evidence) -> str:
    return (
        f"while {size(evidence.cohort_size)} of {size(evidence.available)} available clients take "
        "part; if all available clients took part, "
        f"{share(evidence.reach.if_all_asked or 0)} would be missing"
    )


def _selection(evidence: Evidence) -> Advice | None:
    """Recommend that the server selects clients by weight if that is clearly better."""
    chosen, exact = evidence.selection, evidence.exact
    if chosen is None:
        return None
    soft, plain = evidence.price.of(SOFT), evidence.plain
    lost, reached = evidence.reach.deficiency.value, chosen.held_out_gap.value
    nearer = reached <= NEARER * min(exact.held_out_gap.value, soft.held_out_gap.value)
    if lost > evidence.tolerance and nearer and evidence.selection_helps:
        return _select(
            evidence,
            f"As far as this log shows, {share(lost)} of the importance is out of reach "
            f"{_if_all(evidence)}",
        )
    near = reached <= max(evidence.tolerance, exact.held_out_gap.value)
    if evidence.costly and near and _keeps(chosen) >= GAIN * _keeps(soft):
        return _select(evidence, f"Exact weights are uneven: {_evenness(exact, plain)}")
    return None


def _keeps(standing: Standing) -> float:
    """Return what a rule keeps of averaging: its effective cohort size above one client."""
    return standing.effective_cohort_size - 1


def _shortage(evidence: Evidence) -> str:
    """Say which clients have more importance than rounds."""
    deficient = evidence.reach.deficient
    several = deficient.clients.size != 1
    return (
        f"No weights can close the gap: {count(deficient.clients.size, 'client')} "
        f"{'have' if several else 'has'} {share(deficient.importance)} of the importance, but only "
        f"{share(deficient.coverage)} of the rounds include {'any of them' if several else 'it'}, "
        f"so {share(evidence.reach.deficiency.value)} of the importance cannot be delivered"
    )


def _learn(evidence: Evidence) -> Advice | None:
    """Recommend learning weights if weights fitted to the log do not carry over."""
    if not evidence.learns:
        return None
    exact, plain, online = evidence.exact, evidence.plain, evidence.online
    gaps = (
        f"in the last third of the log, the gap is {share(online.held_out_gap.value)} with weights "
        f"learned during training, {share(exact.held_out_gap.value)} with weights fitted to the "
        f"first two thirds, and {share(plain.held_out_gap.value)} with the plain average"
    )
    best = min(online.held_out_gap.value, exact.held_out_gap.value)
    if best >= plain.held_out_gap.value:
        needed = _rounds_needed(evidence)
        return Advice(
            "collect more rounds",
            f"No rule that was tried is better than the plain average: {gaps}. About "
            f"{count(needed)} rounds would give a clearer answer.",
            FEDAVG,
            rounds_needed=needed,
        )
    if exact.held_out_gap.value < online.held_out_gap.value:
        return None
    cause = "Availability changes" if evidence.drift.low > 0 else "Fitted weights do not carry over"
    return Advice(
        "align",
        f"{cause}: {gaps}. Therefore learn the weights during training, and do not use the fixed "
        f"ones in alignment.json.{_choice(evidence, online)}",
        ONLINE,
        online=True,
    )


def _align(evidence: Evidence) -> Advice:
    """Choose between exact and soft weights."""
    plain, exact, soft = evidence.plain, evidence.exact, evidence.price.of(SOFT)
    reach = evidence.reach
    what = (
        f"Weights {'' if reach.proven else 'seem to '}exist that give every client its importance"
        if reach.feasible
        else f"All but {share(reach.deficiency.value)} of the importance can be delivered"
    )
    costly = evidence.costly
    if costly and _keeps(soft) >= GAIN * _keeps(exact):
        return Advice(
            "align softly",
            f"{what}, but exact weights are uneven: {_evenness(exact, plain)}. With softness "
            f"{evidence.softness:g} it averages like {size(soft.effective_cohort_size)} clients."
            f"{_choice(evidence, soft)}",
            SOFT,
            softness=evidence.softness,
        )
    return Advice(
        "align",
        f"{what}. In rounds that the weights were not fitted to, their gap is "
        f"{share(exact.held_out_gap.value)}; that of the plain average is "
        f"{share(plain.held_out_gap.value)}. The price is {'high' if costly else 'moderate'}: "
        f"{_evenness(exact, plain)}"
        f"{', and softer weights would hardly change that' if costly else ''}."
        f"{_choice(evidence, exact)}",
        FEDAVOT,
    )


def _evenness(exact: Standing, plain: Standing) -> str:
    return (
        f"a round averages like {size(exact.effective_cohort_size)} clients instead of "
        f"{size(plain.effective_cohort_size)}"
    )


def _select(evidence: Evidence, why: str) -> Advice:
    chosen, plain = evidence.price.of(SELECT), evidence.plain
    return Advice(
        "change selection",
        f"{why}. Therefore select as many clients per round as now, by weights learned during "
        f"training: in the last third of the log, that has a gap of "
        f"{share(chosen.held_out_gap.value)}, the plain average one of "
        f"{share(plain.held_out_gap.value)}, and a round averages like "
        f"{size(chosen.held_out_effective_cohort_size)} clients.",
        SELECT,
        online=True,
    )


def _choice(evidence: Evidence, used: Standing) -> str:
    """Say that server selection would do even better, if it would."""
    chosen = evidence.selection
    if (
        chosen is None
        or chosen.held_out_gap.value >= used.held_out_gap.value
        or chosen.held_out_effective_cohort_size < NEARER * used.held_out_effective_cohort_size
    ):
        return ""
    return (
        " If the server may choose whom it selects, selecting by weights learned during training "
        f"came even closer: a gap of {share(chosen.held_out_gap.value)} in the last third, where a "
        f"round averages like {size(chosen.held_out_effective_cohort_size)} clients instead of "
        f"{size(used.held_out_effective_cohort_size)}."
    )
