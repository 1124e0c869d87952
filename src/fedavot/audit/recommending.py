"""What training on a log showed, and the recommendation that follows from it.

A rule can be recommended if it is allowed and the replay shows it to be better in every variant
than the rule in use and than the plain average, unless it is the plain average itself. Of these
rules, the one with the largest gain is recommended: for a rule with memory this is the mean gain,
and for one that only weights or selects, the smallest gain over the variants. Uneven weights cost
more on models that fit all clients at once than on the problems of the replay, so their gain is
counted at its low end; docs/audit.md lists the federations on which that was measured.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

from fedavot._checks import Floats, Integers
from fedavot.rules.names import RuleName

Action = Literal[
    "nothing to do",
    "change the weights",
    "use memory",
    "change selection",
    "collect more rounds",
]

Reason = Literal[
    "one client",
    "within noise",
    "trains better",
    "too short",
    "unobserved",
]
"""Reasons, in order: there is one client; no allowed rule trains better than the one in use by more
than noise; one does; the log is too short to tell, or most of the importance is not observed in
it."""

Need = Literal["memory", "select"]
"""What a rule needs beyond weights: memory of one model per client on the server, or a server that
chooses which clients to ask."""
KNOWN = 0.5
"""Share of the importance that must be observed for a judgement."""
NOISE = 0.8
"""With c reports per client, noise moves mean weights by about 0.4 / √c in total variation. For
that to be at most half the tolerance, c = (0.8 / tolerance)² reports per client are needed."""
LEAST_ROUNDS = 20
"""Number of rounds below which training on them says nothing about training on later ones."""
YARDSTICKS = (RuleName.FULL.value, RuleName.HORVITZ_THOMPSON.value)
"""Replayed but never recommended: full participation is out of reach, and the weights of
Horvitz–Thompson do not sum to one, so that a single round can move the model by many steps."""
ACTIONS: dict[Need | None, Action] = {
    None: "change the weights",
    "memory": "use memory",
    "select": "change selection",
}
"""What to do for a rule, by what it needs."""
NEEDS: tuple[Need, ...] = ("memory", "select")


class Estimate(NamedTuple):
    """A figure of this log, and a 95 % interval for its long-run value."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Trained:
    """How training with one rule went in the replay.

    Losses are excess losses: the difference from the smallest possible loss. A figure is a
    geometric mean over all variants and seeds; its ``low`` and ``high`` are the smallest and the
    largest over the variants.

    Attributes
    ----------
    rule : str
        Its name, as in `fedavot.rules`, or one of the audit's own: ``as-applied`` for the weights
        in the log, ``by-examples`` for weights in proportion to the clients' examples.
    need : Need or None
        What the rule needs beyond weights.
    step : float
        The step size at which it did best, relative to that of the plain average.
    to_plain, to_full : Estimate
        Its loss, averaged over all rounds, relative to the plain average's and to that of full
        participation.
    held_out_to_plain, held_out_to_full : Estimate
        The same in the last part of the log, which no weights were fitted to.
    to_use : Estimate
        Its loss in the last part of the log relative to that of the rule in use.
    low, middle, high : float array, shape (n_records,)
        The loss by round, relative to that of the first model: the smallest, the median and the
        largest of the variants.
    better : bool
        Whether it is better than the rule in use in every variant, by more than chance, and better
        than the plain average likewise, unless it is the plain average.
    softness : float
        Softness of its alignment, if it has one.
    """

    rule: str
    need: Need | None
    step: float
    to_plain: Estimate
    to_full: Estimate
    held_out_to_plain: Estimate
    held_out_to_full: Estimate
    to_use: Estimate
    low: Floats
    middle: Floats
    high: Floats
    better: bool = False
    softness: float = 0.0


@dataclass(frozen=True, eq=False)
class Replay:
    """Training on the log: a small federated problem on its clients and rounds, in order.

    Attributes
    ----------
    trained : tuple of Trained
        The rules, among them the plain average, the rule in use, and ``full``, in which all clients
        take part in every round.
    recorded : int array, shape (n_records,)
        The rounds after which the loss was recorded, counted from 1.
    fitted_rounds, held_out_rounds : int
        Number of rounds in the first part, which weights were fitted to, and in the last.
    variants, seeds : int
        Number of problems, which differ in how heterogeneous the clients are and in the noise of
        their gradients; and number of runs on each.
    local_steps : int
        Number of local steps of a client in a round.
    n_clients : int
        Number of clients; fewer than in the log if it is large, and then a random sample.
    task : str or None
        Name of the user's own task, if one was given instead of these problems.
    """

    trained: tuple[Trained, ...]
    recorded: Integers
    fitted_rounds: int
    held_out_rounds: int
    variants: int
    seeds: int
    local_steps: int
    n_clients: int
    task: str | None = None

    def find(self, rule: str) -> Trained | None:
        """Return how training with a rule went, or None if it was not replayed."""
        return next((one for one in self.trained if one.rule == rule), None)


@dataclass(frozen=True)
class Choice:
    """A rule that may be used, what it needs beyond weights, and what it gains.

    ``need`` is as in `Trained`. ``gain`` is the share of the excess loss in the last part of the
    log that it removes, compared with the rule in use, with its smallest and largest over the
    variants. ``softness`` is that of its alignment, if it has one.
    """

    rule: str
    need: Need | None
    gain: Estimate
    softness: float = 0.0


@dataclass(frozen=True)
class Recommendation:
    """What to do, and why.

    Attributes
    ----------
    action : str
        One of `Action`.
    reason : str
        One of `Reason`.
    best : Choice or None
        The rule to use; None if there is nothing to change, or not enough evidence for a change.
    second : Choice or None
        The best rule that needs only weights, if ``best`` needs more and this one is a gain too.
    rounds_needed : int or None
        If the log is too short, roughly how many rounds would be enough.
    """

    action: Action
    reason: Reason
    best: Choice | None = None
    second: Choice | None = None
    rounds_needed: int | None = None


@dataclass(frozen=True)
class Facts:
    """What a recommendation depends on besides the replay.

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
        """Whether the log leaves open if the gap is within the tolerance or beyond it."""
        wide = self.gap.high - self.gap.low > self.tolerance
        return wide and self.gap.low < self.tolerance < self.gap.high

    @property
    def rounds_needed(self) -> int:
        """Roughly how many rounds would be enough, to two digits."""
        observations = (NOISE / self.tolerance) ** 2 * self.rounds_per_observation
        enough = self.clients * observations / self.cohort_size
        return max(to_two_digits(enough), 2 * self.rounds)


def to_two_digits(number: float) -> int:
    """Round up to a whole number of at most two digits other than 0.

    >>> to_two_digits(7.2), to_two_digits(1234.0)
    (8, 1300)
    """
    unit: int = 10 ** max(0, len(str(ceil(number))) - 2)
    return ceil(number / unit) * unit


def recommend(replay: Replay, facts: Facts, can: Collection[Need]) -> Recommendation:
    """Recommend a rule, or no change, or collecting more rounds.

    Parameters
    ----------
    replay : Replay
        How training goes with every rule.
    facts : Facts
        What else is known.
    can : collection of Need
        What the deployment can do: rules that need anything else are not recommended.
    """
    if facts.clients == 1:
        return Recommendation("nothing to do", "one client")
    if facts.known < KNOWN:
        needed = facts.rounds_needed
        return Recommendation("collect more rounds", "unobserved", rounds_needed=needed)
    better = [
        one
        for one in replay.trained
        if one.better and one.need in (None, *can) and one.rule not in YARDSTICKS
    ]
    if not better or facts.rounds < LEAST_ROUNDS:
        if facts.too_short:
            needed = facts.rounds_needed
            return Recommendation("collect more rounds", "too short", rounds_needed=needed)
        return Recommendation("nothing to do", "within noise")
    best = min(better, key=_judged)
    free = [one for one in better if one.need is None] if best.need else []
    second = _choice(min(free, key=_judged)) if free else None
    return Recommendation(ACTIONS[best.need], "trains better", _choice(best), second)


def _judged(one: Trained) -> float:
    """Return the loss, relative to the rule in use, that a rule is judged by."""
    return one.to_use.value if one.need == "memory" else one.to_use.high


def _choice(one: Trained) -> Choice:
    loss = one.to_use
    gain = Estimate(1.0 - loss.value, 1.0 - loss.high, 1.0 - loss.low)
    return Choice(one.rule, one.need, gain, one.softness)
