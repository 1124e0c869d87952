"""From the evidence to one recommendation, with its reason.

In order: is the log long enough to tell, is there anything to do, can weights do it, do weights
from the past carry over, and is exactness worth its price. Each question is answered by intervals
of other modules; the thresholds are here.
"""

from dataclasses import dataclass
from math import ceil

from fedavot.audit.findings import Advice, Estimate, Point, Price, Reach, Standing
from fedavot.audit.numerals import share
from fedavot.audit.telling import amount, count, size

NOISE = 0.8
"""With c reports a client, noise moves mean weights by about 0.4 / √c in total variation; it is to
be half the tolerance at most, which takes c = (0.8 / tolerance)² reports a client."""
ROOM = 1.5
"""How many times as many clients must be available as take part, for a choice to matter."""
KEPT = 0.5
"""Exact weights that keep less than this share of what a cohort averages beyond one client are
dear ..."""
GAIN = 1.3
"""... and soft ones are worth it if they keep this many times as much."""


@dataclass(frozen=True)
class Evidence:
    """What a recommendation rests on.

    Attributes
    ----------
    gap : Estimate
        Of the plain average, over the whole log.
    applied : Estimate or None
        Of the weights that were really used, where the log tells.
    reach : Reach
    price : Price
    drift : Estimate
        Between the halves of the log.
    softness : float
        Of the soft rule in ``price``.
    tolerance : float
        The gap up to which nothing needs to be done.
    rounds, clients : int
    cohort, available : float
        Mean numbers of clients that took part, and that could have (0 if not known).
    look : float
        How many rounds tell as much as one independent one.
    """

    gap: Estimate
    applied: Estimate | None
    reach: Reach
    price: Price
    drift: Estimate
    softness: float
    tolerance: float
    rounds: int
    clients: int
    cohort: float
    available: float
    look: float

    @property
    def plain(self) -> Standing:
        """Return where the plain average stands."""
        return self.price.of("plain average")

    @property
    def exact(self) -> Standing:
        """Return where weights fixed beforehand stand."""
        return self.price.of("FedAVOT")

    @property
    def online(self) -> Standing:
        """Return where weights learned on the way stand."""
        return self.price.of("online")


def choose_softness(points: tuple[Point, ...], tolerance: float) -> float:
    """Return the largest softness whose gap is still within reach of the tolerance."""
    most = max(tolerance, points[0].gap + tolerance / 2)
    fine = [point.softness for point in points[1:] if point.gap <= most]
    return max(fine, default=points[1].softness)


def advise(evidence: Evidence) -> Advice:
    """Recommend one thing to do."""
    gap, tolerance = evidence.gap, evidence.tolerance
    # Where availability drifts, the last part tells more of what is to come than all of it.
    lately = evidence.drift.low > tolerance and evidence.plain.held_out.low >= tolerance
    nothing = _nothing(evidence, lately)
    if nothing is not None:
        return nothing
    if not lately and gap.low < tolerance and not _settled(evidence):
        return _too_short(evidence)
    if evidence.reach.deficiency.low > tolerance:
        return _out_of_reach(evidence)
    if _misses(evidence):
        return _learn(evidence)
    return _align(evidence)


def _settled(evidence: Evidence) -> bool:
    """Say whether the gap is known as closely as it needs to be."""
    return evidence.gap.high - evidence.gap.low <= evidence.tolerance


def _nothing(evidence: Evidence, lately: bool) -> Advice | None:
    """Say why nothing needs to be done, if so."""
    gap, applied, tolerance = evidence.gap, evidence.applied, evidence.tolerance
    if evidence.clients == 1:
        return Advice(
            "nothing to do", "There is one client: whatever the rule, it counts.", "plain average"
        )
    if applied is not None and applied.high <= tolerance:
        return Advice(
            "nothing to do",
            f"The weights in use are off the importance by {amount(applied.high)} at most, within "
            f"the tolerance of {amount(tolerance)}.",
            "as applied",
        )
    if lately or gap.value > tolerance or not (gap.high <= tolerance or _settled(evidence)):
        return None
    within = f", within the tolerance of {amount(tolerance)}" if gap.high <= tolerance else ""
    return Advice(
        "nothing to do",
        f"The plain average is off the importance by {amount(gap.high)} at most{within}.",
        "plain average",
    )


def _too_short(evidence: Evidence) -> Advice:
    gap = evidence.gap
    needed = _rounds_needed(evidence)
    return Advice(
        "collect more rounds",
        f"The log is too short to tell: over {count(evidence.rounds, 'round')} the plain average "
        f"is off by {amount(gap.value)}, but that may be chance; in the long run it is between "
        f"{amount(gap.low)} and {amount(gap.high)}. About {count(needed)} rounds would tell.",
        "plain average",
        rounds_needed=needed,
    )


def _rounds_needed(evidence: Evidence) -> int:
    reports = (NOISE / evidence.tolerance) ** 2
    enough = evidence.clients * reports * evidence.look / evidence.cohort
    digits: int = 10 ** max(0, len(str(ceil(enough))) - 2)
    return max(ceil(enough / digits) * digits, 2 * evidence.rounds)


def _out_of_reach(evidence: Evidence) -> Advice:
    """Choose between another selection and memory, where no weights can do it."""
    reach = evidence.reach
    deficient = reach.deficient
    why = (
        f"No weights can do it: {count(deficient.clients.size, 'client')} hold "
        f"{share(deficient.importance)} of the importance, and any of them takes part in only "
        f"{share(deficient.coverage)} of rounds, so {amount(reach.deficiency.value)} of the "
        "importance cannot be delivered"
    )
    asked = reach.if_all_asked
    chosen = [one for one in evidence.price.standings if one.rule == "online selection"]
    enough = max(evidence.tolerance, reach.deficiency.value / 2)
    if asked is not None and asked <= enough and chosen:
        return Advice(
            "change selection",
            f"{why} while {size(evidence.cohort)} of {size(evidence.available)} available clients "
            f"take part as they do now. Had all available taken part, {amount(asked)} would be "
            "missing. So choose whom to ask by weights learned on the way, as many clients a round as now: "
            f"in the last third of the log that is off by {amount(chosen[0].held_out.value)}, the "
            f"plain average by {amount(evidence.plain.held_out.value)}.",
            "online selection",
            online=True,
        )
    learned = _misses(evidence)
    return Advice(
        "use memory",
        f"{why}. With the last update of every client kept on the server, those absent still "
        "count; that takes one model a client. The weights for those present come from "
        f"{'learning on the way' if learned else 'alignment.json'}.",
        "online" if learned else "FedAVOT",
        online=learned,
    )


def _misses(evidence: Evidence) -> bool:
    """Say whether weights fixed by the first part are clearly off in the last."""
    missed = evidence.exact.held_out
    return missed.low > evidence.reach.deficiency.value + evidence.tolerance


def _learn(evidence: Evidence) -> Advice:
    """Choose where weights fixed beforehand do not carry over."""
    exact, plain, online = evidence.exact, evidence.plain, evidence.online
    why = (
        f"Availability changes: weights fitted to the first two thirds of the log are off by "
        f"{amount(exact.held_out.value)} in the last third, where the plain average is off by "
        f"{amount(plain.held_out.value)}"
    )
    if online.held_out.value >= min(plain.held_out.value, exact.held_out.value):
        needed = _rounds_needed(evidence)
        return Advice(
            "collect more rounds",
            f"{why}, and weights learned on the way by {amount(online.held_out.value)}: nothing "
            "tried is better than the plain average. "
            f"About {count(needed)} rounds would tell more.",
            "plain average",
            rounds_needed=needed,
        )
    return Advice(
        "align",
        f"{why}. Weights learned on the way are off by {amount(online.held_out.value)}. So let the "
        "weights be learned while training goes on, and do not fix those in alignment.json.",
        "online",
        online=True,
    )


def _align(evidence: Evidence) -> Advice:
    """Choose between exact and soft weights."""
    plain, exact, soft = evidence.plain, evidence.exact, evidence.price.of("FedAVOT, soft")
    reach = evidence.reach
    what = (
        "Weights exist that give every client its importance"
        if reach.feasible
        else f"Weights exist that leave {amount(reach.deficiency.value)} of the importance missing"
    )
    why = f"{what}; the plain average is off by {amount(evidence.gap.value)}"
    dear = exact.effective - 1 < KEPT * (plain.effective - 1)
    if dear and soft.effective - 1 >= GAIN * (exact.effective - 1):
        return Advice(
            "align softly",
            f"{why}. But exact weights are uneven: a round averages like {size(exact.effective)} "
            f"clients instead of {size(plain.effective)}. With softness {evidence.softness:g} the "
            f"gap is {amount(soft.gap)}, and a round averages like {size(soft.effective)}.",
            "FedAVOT, soft",
            softness=evidence.softness,
        )
    return Advice(
        "align",
        f"{why}. The price is {'high' if dear else 'moderate'}: a round averages like "
        f"{size(exact.effective)} clients instead of {size(plain.effective)}"
        f"{', and softer weights would not change that much' if dear else ''}.",
        "FedAVOT",
    )
