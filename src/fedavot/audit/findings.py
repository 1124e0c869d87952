"""What an audit finds, as data: every output is drawn from this and from nothing else.

An `Estimate` is a figure of this log, with an interval for the law behind the log. Shares of rounds
are of the rounds in which anybody took part. Words and pictures are left to `words` and `page`.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from fedavot._checks import Floats, Integers
from fedavot.alignment import Alignment
from fedavot.errors import UnavailableError

Action = Literal[
    "nothing to do",
    "align",
    "align softly",
    "use memory",
    "change selection",
    "collect more rounds",
]

LawName = Literal["explicit", "independent", "mixture"]


class Estimate(NamedTuple):
    """A figure of this log, and a 95 % interval for what it is in the long run."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Shares:
    """Every client's part, one entry a client or a group.

    Attributes
    ----------
    importance : float array
        What each should count.
    owed : float array
        The same, while its state was known: a client counts only in the rounds it is known in.
        Equal to the importance where nothing is unknown.
    implied : float array
        Its mean weight in the plain average of each round: what FedAvg optimises.
    attained : float array
        Its mean weight under the weights nearest to the importance.
    inclusion : float array
        The share of rounds it took part in, of those it is known in; NaN if it is known in none.
        Of a group: the share of rounds with at least one of its clients.
    """

    importance: Floats
    owed: Floats
    implied: Floats
    attained: Floats
    inclusion: Floats


class Reached(NamedTuple):
    """A set of clients, the importance it holds, and the share of rounds with any of them."""

    clients: Integers
    importance: float
    coverage: float


@dataclass(frozen=True, eq=False)
class Reach:
    """Whether weights exist that give every client its importance, and what if not.

    Attributes
    ----------
    feasible : bool
        Whether they do over this log.
    proven : bool
        Whether that is proven; not so of a very large log in which no set that was tried is short.
    sure : bool
        Whether the log is long enough to say so of the long run.
    deficiency : Estimate
        How much importance no weights can deliver; 0 if feasible.
    hall_ratio : Estimate
        How many times too important the worst set is; infinite if it never took part.
    deficient : Reached
        The clients wanted more than they can be had; empty if feasible.
    worst : Reached
        The set behind the Hall ratio; empty if feasible.
    never : int array
        Clients with importance that never took part, though known in some round.
    larger_cohorts : int or None
        How many times as many clients a round would do: of those available where the log tells,
        else by merging that many rounds in a row. None if feasible, or if no number that was tried
        would.
    tried_cohorts : int
        The largest such number that was tried.
    if_all_asked : float or None
        The deficiency if all who were available took part; None where the log does not tell.
    """

    feasible: bool
    proven: bool
    sure: bool
    deficiency: Estimate
    hall_ratio: Estimate
    deficient: Reached
    worst: Reached
    never: Integers
    larger_cohorts: int | None
    tried_cohorts: int
    if_all_asked: float | None


@dataclass(frozen=True, eq=False)
class Behaviour:
    """How availability behaves.

    Attributes
    ----------
    of_available : bool
        Whether the counts are of clients available; else of those that took part.
    by_hour : float array, shape (24,), or None
        Mean number of clients by hour of day, NaN where no round was; None without times.
    by_weekday : float array, shape (7,), or None
        The same from Monday to Sunday; None without dates.
    groups_by_hour : float array, shape (n_groups, 24), or None
        The same by group.
    dated : bool
        Whether the hours are of UTC; else of the log's own clock.
    look : float
        How many rounds tell as much of a client as one independent look would: 1 if presence in
        a round tells nothing of the next.
    dispersion : float
        Variance of the number of clients over that of independent ones: 1 if they come
        independently, more if they come together, less if cohorts are capped.
    drift : Estimate
        Total variation between the plain average's shares in the first and the last half.
    halves : two float arrays, shape (n_clients,)
        The plain average's shares in either half.
    """

    of_available: bool
    by_hour: Floats | None
    by_weekday: Floats | None
    groups_by_hour: Floats | None
    dated: bool
    look: float
    dispersion: float
    drift: Estimate
    halves: tuple[Floats, Floats]


class LawScore(NamedTuple):
    """A law fitted to the first part of the log, and how its weights did in the last."""

    law: LawName
    fitted_gap: float
    held_out: Estimate


@dataclass(frozen=True)
class Fit:
    """Which law describes availability best.

    Attributes
    ----------
    scores : tuple of LawScore
        Those that were tried.
    law : str
        The one whose weights came nearest in the held-out part.
    states : int
        How many parts of the day a mixture has; 0 without a mixture.
    fitted, held_out : int
        How many rounds either part has.
    """

    scores: tuple[LawScore, ...]
    law: LawName
    states: int
    fitted: int
    held_out: int


class Point(NamedTuple):
    """The gap and the effective cohort size at one softness, over the whole log."""

    softness: float
    gap: float
    effective: float


class Standing(NamedTuple):
    """Where a rule stands: over the whole log, and in the part it was not fitted to.

    ``most`` is the largest sum of its weights in a round, 1 but for IPW.
    """

    rule: str
    gap: float
    effective: float
    held_out: Estimate
    held_out_effective: float
    most: float


@dataclass(frozen=True)
class Price:
    """What closeness to the importance costs in evenness of the weights."""

    curve: tuple[Point, ...]
    standings: tuple[Standing, ...]

    def find(self, rule: str) -> Standing | None:
        """Return a rule's standing, or None for a rule that this log does not have."""
        return next((one for one in self.standings if one.rule == rule), None)

    def of(self, rule: str) -> Standing:
        """Return the standing of a rule that every log has."""
        found = self.find(rule)
        if found is None:
            raise UnavailableError(f"no rule {rule!r}; find() tells whether there is one")
        return found


@dataclass(frozen=True)
class Advice:
    """What to do, and why.

    Attributes
    ----------
    action : str
        One of `Action`.
    reason : str
        Why, in sentences.
    rule : str
        The rule of `Price` that it comes to, the one to use meanwhile where nothing else can be
        done with weights.
    softness : float
        Of the alignment; 0 for exact.
    online : bool
        Whether weights are better learned on the way than taken from the log.
    rounds_needed : int or None
        About how many rounds would tell, where the log is too short.
    """

    action: Action
    reason: str
    rule: str
    softness: float = 0.0
    online: bool = False
    rounds_needed: int | None = None


@dataclass(frozen=True, eq=False)
class Findings:
    """All that an audit found.

    Attributes
    ----------
    source : str
        What the log is called.
    clients : tuple of str
        Names, in the order of every array.
    groups : tuple of str
        Names of the groups, or none.
    group_of : int array, shape (n_clients,), or None
    rounds, empty_rounds : int
        Rounds with and without anybody.
    entries : int
        The cohorts' sizes together.
    span : pair of float, or None
        Times of the first and the last round; seconds since 1970 in UTC if ``behaviour.dated``.
    unknown : float
        Share of client-rounds whose state is not known.
    tolerance : float
        The gap up to which nothing needs to be done.
    by_client, by_group : Shares
        Who counts how much; by_group None without groups.
    gap : Estimate
        Total variation between the importance and what the plain average optimises.
    alignment : Alignment
        The weights to use, for the clients in this order.
    notes : tuple of str
        What was odd in the log, and what was left out for size.
    """

    source: str
    clients: tuple[str, ...]
    groups: tuple[str, ...]
    group_of: Integers | None
    rounds: int
    empty_rounds: int
    entries: int
    span: tuple[float, float] | None
    unknown: float
    tolerance: float
    by_client: Shares
    by_group: Shares | None
    gap: Estimate
    reach: Reach
    behaviour: Behaviour
    fit: Fit
    price: Price
    advice: Advice
    alignment: Alignment
    notes: tuple[str, ...]

    @property
    def mean_cohort(self) -> float:
        """Mean number of clients in a round with anybody."""
        return self.entries / self.rounds
