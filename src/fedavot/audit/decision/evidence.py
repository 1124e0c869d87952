"""The evidence for a recommendation, and the questions it answers.

Is something clearly wrong, can weights correct it, do weights from the past carry over, and is
exact alignment worth its price? The thresholds are here; `advice` turns the answers into a
recommendation.
"""

from dataclasses import dataclass

from fedavot.audit.decision.rules import FEDAVG, FEDAVOT, ONLINE, SELECT
from fedavot.audit.findings import Estimate, Point, Price, Reach, Standing

ROOM = 1.5
"""Ratio of available clients to participants from which on it matters whom the server selects."""
HALVED = 0.5
"""Share of the deficiency that it is enough to remove if all of it cannot be removed."""
KNOWN = 0.5
"""Share of the importance that must be observed for a judgement."""
WORTHWHILE = 0.5
"""Share of the gap beyond the tolerance that weights must close to be recommended."""
KEPT = 0.5
"""Exact weights are costly if they keep less than this share of the effective cohort size above
one."""
GAIN = 1.3
"""How many times as much other weights must keep to be preferred to costly ones."""
NEARER = 0.8
"""Other weights are better if their gap is at most this share of the fixed weights' gap, and as
even if their effective cohort size is at least this share of theirs."""


@dataclass(frozen=True)
class Evidence:
    """The figures that a recommendation is based on.

    Attributes
    ----------
    gap : Estimate
        Gap of the plain average over the whole log.
    applied : Estimate or None
        Gap of the weights that were applied, if the log has them.
    reach : Reach
    price : Price
    drift : Estimate
        Drift between the halves of the log.
    never : float
        Importance of the clients that never took part.
    known : float
        Share of the importance that is observed, over all rounds.
    softness : float
        Softness of the soft rule in ``price``.
    tolerance : float
        The largest gap that calls for no action.
    rounds, clients : int
        Number of rounds with participants, and of clients.
    cohort_size, available : float
        Mean number of clients that took part, and that were available (0 if unknown).
    rounds_per_observation : float
        Rounds per effectively independent observation of a client.
    """

    gap: Estimate
    applied: Estimate | None
    reach: Reach
    price: Price
    drift: Estimate
    never: float
    known: float
    softness: float
    tolerance: float
    rounds: int
    clients: int
    cohort_size: float
    available: float
    rounds_per_observation: float

    @property
    def plain(self) -> Standing:
        """The plain average's standing."""
        return self.price.of(FEDAVG)

    @property
    def exact(self) -> Standing:
        """The standing of weights fitted to the log."""
        return self.price.of(FEDAVOT)

    @property
    def selection(self) -> Standing | None:
        """The standing of server selection, if the server had a choice."""
        return self.price.find(SELECT)

    @property
    def online(self) -> Standing:
        """The standing of weights learned during training."""
        return self.price.of(ONLINE)

    @property
    def pressing(self) -> bool:
        """Whether something is clearly wrong in recent rounds, whatever the whole log says."""
        if self.applied is not None and self.applied.low > self.tolerance:
            return True
        # If availability drifts, the last part predicts the future better than the whole log.
        return self.drift.low > 0 and self.plain.held_out_gap.low >= self.tolerance

    @property
    def out_of_reach(self) -> bool:
        """Whether weights cannot close the gap, or close too little of it."""
        lost, tolerance = self.reach.deficiency, self.tolerance
        gained = self.gap.value - lost.value
        little = gained < WORTHWHILE * (self.gap.value - tolerance)
        return lost.low > tolerance or (lost.value > tolerance and little)

    @property
    def settled(self) -> bool:
        """Whether the gap is known to within the tolerance."""
        return self.gap.high - self.gap.low <= self.tolerance

    @property
    def selection_helps(self) -> bool:
        """Whether the deficient clients are available but not selected."""
        reach = self.reach
        enough = max(self.tolerance, HALVED * reach.deficiency.value)
        asked = reach.if_all_asked
        return asked is not None and asked <= enough and self.selection is not None

    @property
    def costly(self) -> bool:
        """Whether exact weights lose much of the effective cohort size."""
        return self.exact.effective_cohort_size - 1 < KEPT * (self.plain.effective_cohort_size - 1)

    @property
    def learns(self) -> bool:
        """Whether weights should be learned during training instead of fitted to the log."""
        return self.misses or self.nearer

    @property
    def misses(self) -> bool:
        """Whether weights fitted to the first part have a clear gap in the last."""
        missed = self.exact.held_out_gap
        return missed.low > self.reach.deficiency.value + self.tolerance

    @property
    def nearer(self) -> bool:
        """Whether learned weights came closer in the last part, if that matters."""
        exact, online, plain = self.exact, self.online, self.plain
        beyond = plain.held_out_gap.value - self.tolerance
        useful = plain.held_out_gap.value - exact.held_out_gap.value >= WORTHWHILE * beyond
        even = (
            online.held_out_effective_cohort_size >= NEARER * exact.held_out_effective_cohort_size
        )
        return (
            exact.held_out_gap.value > self.tolerance
            and online.held_out_gap.value <= NEARER * exact.held_out_gap.value
            and (even or not useful)
        )


def choose_softness(points: tuple[Point, ...], tolerance: float) -> float:
    """Return the largest softness with a gap within the tolerance, or the smallest if none has.

    If the gap of exact alignment itself exceeds the tolerance, the gap may be larger by half the
    tolerance.
    """
    exact = points[0].gap
    most = tolerance if exact <= tolerance else exact + HALVED * tolerance
    fine = [point.softness for point in points[1:] if point.gap <= most]
    return max(fine, default=points[1].softness)
