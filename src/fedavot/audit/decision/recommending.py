"""From the replay to one recommendation.

A rule can be recommended if it is allowed and the replay shows it to be better than the rule in use
in every variant. Of those, the one with the largest gain is: the mean gain of a rule that
remembers, and the smallest gain over the variants of one that only weighs or selects. Uneven
weights cost more on models that fit all clients at once than on the problems of the replay, so
their gain is counted at its low end; docs/audit.md has the federations on which that was measured.
Horvitz–Thompson is replayed but never recommended: its weights do not sum to one, and a single
round can move the model by many steps.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import ceil

from fedavot.audit.recommended import (
    Action,
    Choice,
    Estimate,
    Need,
    Recommendation,
    Replay,
    Trained,
)
from fedavot.audit.statistics.rules import FULL, HORVITZ_THOMPSON

KNOWN = 0.5
"""Share of the importance that must be observed for a judgement."""
NOISE = 0.8
"""With c reports per client, noise moves mean weights by about 0.4 / √c in total variation. For
that to be at most half the tolerance, c = (0.8 / tolerance)² reports per client are needed."""
NEEDS: tuple[Need, ...] = ("memory-clients", "memory-server", "select")


@dataclass(frozen=True)
class Facts:
    """What a recommendation depends on beside the replay.

    Attributes
    ----------
    gap : Estimate
        Gap of the plain average over the whole log.
    known : float
        Share of the importance that is observed, over all rounds.
    tolerance : float
        The largest gap that calls for no action.
    rounds, clients : int
        Number of rounds with participants, and of clients.
    cohort_size : float
        Mean number of clients that took part.
    rounds_per_observation : float
        Rounds per effectively independent observation of a client.
    """

    gap: Estimate
    known: float
    tolerance: float
    rounds: int
    clients: int
    cohort_size: float
    rounds_per_observation: float

    @property
    def too_short(self) -> bool:
        """Whether the gap may be within the tolerance or beyond it, as far as the log tells."""
        wide = self.gap.high - self.gap.low > self.tolerance
        return wide and self.gap.low < self.tolerance < self.gap.high

    @property
    def rounds_needed(self) -> int:
        """Roughly how many rounds would be enough, in two digits."""
        observations = (NOISE / self.tolerance) ** 2 * self.rounds_per_observation
        enough = self.clients * observations / self.cohort_size
        digits: int = 10 ** max(0, len(str(ceil(enough))) - 2)
        return max(ceil(enough / digits) * digits, 2 * self.rounds)


def recommend(replay: Replay | None, facts: Facts, can: Collection[Need]) -> Recommendation:
    """Recommend a rule, to do nothing, or to collect more rounds.

    Parameters
    ----------
    replay : Replay or None
        How training goes with every rule; None without JAX, and then nothing is recommended.
    facts : Facts
        What is known beside it.
    can : collection of Need
        What is possible: rules that need something else are not recommended.
    """
    if facts.clients == 1:
        return Recommendation("nothing to do", "one client")
    if facts.known < KNOWN:
        needed = facts.rounds_needed
        return Recommendation("collect more rounds", "unobserved", rounds_needed=needed)
    if replay is None:
        return Recommendation("install JAX", "not replayed")
    better = [one for one in replay.trained if one.better and _is_allowed(one, can)]
    if not better:
        if facts.too_short:
            needed = facts.rounds_needed
            return Recommendation("collect more rounds", "too short", rounds_needed=needed)
        return Recommendation("nothing to do", "within noise")
    best = min(better, key=_judged)
    free = [one for one in better if not one.needs] if best.needs else []
    second = _choice(min(free, key=_judged)) if free else None
    return Recommendation(_action(best), "trains better", _choice(best), second)


def _is_allowed(one: Trained, can: Collection[Need]) -> bool:
    return one.rule not in (FULL, HORVITZ_THOMPSON) and (
        not one.needs or not set(one.needs).isdisjoint(can)
    )


def _remembers(one: Trained) -> bool:
    return any(need.startswith("memory") for need in one.needs)


def _judged(one: Trained) -> float:
    """Return the loss, relative to the rule in use, that a rule is judged by."""
    return one.to_use.value if _remembers(one) else one.to_use.high


def _action(one: Trained) -> Action:
    if _remembers(one):
        return "use memory"
    return "change selection" if one.needs else "change the weights"


def _choice(one: Trained) -> Choice:
    loss = one.to_use
    gain = Estimate(1.0 - loss.value, 1.0 - loss.high, 1.0 - loss.low)
    return Choice(one.rule, one.needs, gain, one.softness)
