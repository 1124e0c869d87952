"""What an audit finds, as data. Every output is made from this and from nothing else.

An `Estimate` is a figure of this log with a 95 % interval for its long-run value. Shares of rounds
refer to the rounds in which at least one client took part. The keys of findings.json and the
columns of clients.csv are the names of these attributes.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.alignment import Alignment
from fedavot.audit.recommending import Estimate, Recommendation, Replay, to_two_digits
from fedavot.errors import UnavailableError

LawName = Literal["explicit", "independent", "mixture"]
ROUNDING = 1e-8
"""A share below this is only rounding error."""


@dataclass(frozen=True, eq=False)
class Shares:
    """Shares of the total weight, one entry per client or per group.

    Attributes
    ----------
    importance : float array
        The share that each should have.
    owed : float array
        The importance, counted only in rounds in which the client's state is known. Equal to the
        importance if nothing is unknown.
    implied : float array
        The mean weight in the plain average of each round: the importance that FedAvg optimises.
    attained : float array
        The mean weight under the weights that come closest to the importance.
    inclusion : float array
        The share of rounds in which the client took part, out of those in which its state is
        known; NaN if there are none. For a group: the share of rounds with at least one of its
        clients.
    """

    importance: Floats
    owed: Floats
    implied: Floats
    attained: Floats
    inclusion: Floats


class Reached(NamedTuple):
    """A set of clients, its importance, and the share of rounds with at least one of them."""

    clients: Integers
    importance: float
    coverage: float


@dataclass(frozen=True, eq=False)
class Reach:
    """Whether weights exist that give every client its importance, and what is missing if not.

    Attributes
    ----------
    feasible : bool
        Whether such weights exist for the rounds of this log.
    proven : bool
        Whether ``feasible`` is proven. It may not be for a very large log in which none of the sets
        that were tested is deficient.
    sure : bool
        Whether the log is long enough for ``feasible`` to hold in the long run.
    deficiency : Estimate
        The importance that no weights can deliver; 0 if feasible.
    hall_ratio : Estimate
        The largest ratio of a set's importance to its coverage; infinite if a set with importance
        never took part.
    deficient : Reached
        The set of clients with the largest deficiency; empty if feasible.
    worst : Reached
        The set of clients with the largest Hall ratio; empty if feasible.
    never_seen : int array
        Clients with importance that never took part although their state is known in some round.
    larger_cohorts : int or None
        The factor by which cohorts would have to grow to make alignment feasible: with more of the
        available clients if the log has them, otherwise by merging as many consecutive rounds.
        None if already feasible, or if no factor that was tried is enough.
    tried_cohorts : int
        The largest factor that was tried.
    if_all_asked : float or None
        The deficiency if all available clients took part; None if the log does not say which
        clients were available.
    """

    feasible: bool
    proven: bool
    sure: bool
    deficiency: Estimate
    hall_ratio: Estimate
    deficient: Reached
    worst: Reached
    never_seen: Integers
    larger_cohorts: int | None
    tried_cohorts: int
    if_all_asked: float | None


@dataclass(frozen=True, eq=False)
class Behaviour:
    """How availability behaves.

    Attributes
    ----------
    of_available : bool
        Whether available clients are counted; otherwise those that took part.
    by_hour : float array, shape (24,), or None
        Mean number of clients by hour of day, NaN for hours without rounds; None if the log has no
        times.
    by_weekday : float array, shape (7,), or None
        Mean number of clients from Monday to Sunday; None if the log has no dates.
    groups_by_hour : float array, shape (n_groups, 24), or None
        Mean number of clients of each group by hour of day.
    dated : bool
        Whether hours are in UTC; otherwise they follow the log's own clock.
    rounds_per_observation : float
        Rounds per effectively independent observation of a client: 1 if presence in one round says
        nothing about presence in the next.
    group_after_presence, group_after_absence : float array, shape (n_groups,), or None
        The share of rounds with any client of a group, out of those that follow a round with and
        without any; NaN if there are none. None without groups.
    joint_persistence : Estimate
        Correlation of the mix of clients from one round to the next: 0 if no round helps to predict
        the next, whichever clients are considered together.
    dispersion : float
        Variance of the number of clients in a round, relative to independent clients: 1 if they are
        independent, more if they tend to appear together, less if cohorts are capped.
    drift : Estimate
        Total variation distance between the implied shares of the first and the last half.
    implied_first_half, implied_last_half : float array, shape (n_clients,)
        The implied shares in either half of the log.
    """

    of_available: bool
    by_hour: Floats | None
    by_weekday: Floats | None
    groups_by_hour: Floats | None
    dated: bool
    rounds_per_observation: float
    group_after_presence: Floats | None
    group_after_absence: Floats | None
    joint_persistence: Estimate
    dispersion: float
    drift: Estimate
    implied_first_half: Floats
    implied_last_half: Floats


class LawScore(NamedTuple):
    """A law fitted to the first part of the log, and the gap of its weights in the last part."""

    law: LawName
    fitted_gap: float
    held_out_gap: Estimate


@dataclass(frozen=True)
class Fit:
    """Which law describes availability best.

    Attributes
    ----------
    scores : tuple of LawScore
        The laws that were tried.
    law : str
        The law whose weights have the smallest gap in the held-out part.
    parts_of_day : int
        Number of parts into which a mixture divides the day; 0 without a mixture.
    fitted_rounds, held_out_rounds : int
        Number of rounds in the first and in the last part of the log.
    oracle_gap : float
        The mean gap that weights with no long-run gap would show by chance over as many rounds as
        are held out; NaN if there are too few rounds to estimate it.
    """

    scores: tuple[LawScore, ...]
    law: LawName
    parts_of_day: int
    fitted_rounds: int
    held_out_rounds: int
    oracle_gap: float


class Point(NamedTuple):
    """The gap and the effective cohort size at one softness, over the whole log."""

    softness: float
    gap: float
    effective_cohort_size: float


class Standing(NamedTuple):
    """How a rule performs over the whole log, and in the part that it was not fitted to.

    ``rule`` is its name, as in `fedavot.rules`. ``largest_sum_of_weights`` is the largest sum of
    its weights in a round: 1 except for Horvitz–Thompson.
    """

    rule: str
    gap: float
    effective_cohort_size: float
    held_out_gap: Estimate
    held_out_effective_cohort_size: float
    largest_sum_of_weights: float


@dataclass(frozen=True)
class Price:
    """The effective cohort size that a smaller gap costs: over softness, and for every rule."""

    curve: tuple[Point, ...]
    standings: tuple[Standing, ...]

    def find(self, rule: str) -> Standing | None:
        """Return a rule's standing, or None if the rule was not evaluated on this log."""
        return next((one for one in self.standings if one.rule == rule), None)

    def of(self, rule: str) -> Standing:
        """Return the standing of a rule that is evaluated on every log."""
        found = self.find(rule)
        if found is None:
            raise UnavailableError(
                f"there is no rule {rule!r} in this audit; use find(), which returns None then"
            )
        return found


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything that an audit found.

    Attributes
    ----------
    source : str
        Name of the log.
    clients : tuple of str
        The clients' names, in the order of every array.
    groups : tuple of str
        The groups' names; empty without groups.
    group_of : int array, shape (n_clients,), or None
        Each client's group, as a position in ``groups``.
    rounds, empty_rounds : int
        Number of rounds with and without participants.
    entries : int
        Sum of the cohorts' sizes.
    span : pair of float, or None
        Times of the first and the last round; seconds since 1970 in UTC if ``behaviour.dated``.
    unknown_share : float
        Share of all pairs of client and round in which the client's state is unknown.
    tolerance : float
        The largest gap that calls for no action.
    by_client, by_group : Shares
        Shares per client and per group; ``by_group`` is None without groups.
    gap : Estimate
        Total variation distance between the importance and what the plain average optimises.
    reach : Reach
        Whether exact alignment is possible.
    behaviour : Behaviour
        How availability behaves.
    fit : Fit
        Which law describes availability best.
    price : Price
        What a smaller gap costs.
    alignment : Alignment
        The weights to use, with the clients' names.
    notes : tuple of str
        What was unusual in the log, and what was left out because of its size.
    in_use : str
        The rule in use today, one of those in ``price`` and ``replay``.
    replay : Replay
        How training goes with every rule.
    recommendation : Recommendation
        What to do, from the replay.
    """

    source: str
    clients: tuple[str, ...]
    groups: tuple[str, ...]
    group_of: Integers | None
    rounds: int
    empty_rounds: int
    entries: int
    span: tuple[float, float] | None
    unknown_share: float
    tolerance: float
    by_client: Shares
    by_group: Shares | None
    gap: Estimate
    reach: Reach
    behaviour: Behaviour
    fit: Fit
    price: Price
    alignment: Alignment
    notes: tuple[str, ...]
    in_use: str
    replay: Replay
    recommendation: Recommendation

    @property
    def mean_cohort_size(self) -> float:
        """Mean cohort size over the rounds with participants."""
        return self.entries / self.rounds

    @property
    def has_held_out(self) -> bool:
        """Whether some rounds were held out from fitting the weights."""
        fit = self.fit
        return fit.held_out_rounds > 0 and fit.fitted_rounds + fit.held_out_rounds <= self.rounds

    @property
    def owes_otherwise(self) -> bool:
        """Whether the share that some clients should have differs from their importance."""
        shares = self.by_client
        return bool(np.abs(shares.owed - shares.importance).max(initial=0.0) > ROUNDING)

    @property
    def rounds_to_judge(self) -> int | None:
        """Roughly how many rounds would show whether fitted weights carry over; None if these do.

        Enough for chance alone to leave a held-out gap of half the tolerance, to two digits.
        """
        # For a very large log, only some of the rounds are used for fitting and holding out.
        judged = self.fit.fitted_rounds + self.fit.held_out_rounds
        needed = judged * (2 * self.fit.oracle_gap / self.tolerance) ** 2
        return to_two_digits(needed) if needed > judged else None
