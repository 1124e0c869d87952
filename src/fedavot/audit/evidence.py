"""What a recommendation rests on, and the questions it answers.

Is something clearly wrong, can weights put it right, do weights from the past carry over, and is
exactness worth its price. The thresholds are here; which answer follows is `advice`'s affair.
"""

from dataclasses import dataclass

from fedavot.audit.findings import Estimate, Point, Price, Reach, Standing

ROOM = 1.5
"""How many times as many clients must be available as take part, for a choice to matter."""
HALVED = 0.5
"""What would do if the whole cannot be had."""
KNOWN = 0.5
"""Less importance than this observed, and nothing is said."""
WORTHWHILE = 0.5
"""Weights that close less than this share of what is beyond the tolerance are not the answer."""
KEPT = 0.5
"""Exact weights that keep less than this share of what a cohort averages beyond one client are
dear ..."""
GAIN = 1.3
"""... and others are worth it if they keep this many times as much."""
NEARER = 0.8
"""Other weights are better if their gap is at most this share of the fixed ones', and as even if
their effective cohort size is at least this share."""


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
    never : float
        Importance of clients that never took part.
    known : float
        Share of the importance whose state is known, over the rounds.
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
    never: float
    known: float
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
    def selection(self) -> Standing | None:
        """Return where choosing whom to ask stands, where there was a choice."""
        return self.price.find("online selection")

    @property
    def online(self) -> Standing:
        """Return where weights learned on the way stand."""
        return self.price.of("online")

    @property
    def pressing(self) -> bool:
        """Say whether something is clearly wrong lately, whatever the log says as a whole."""
        if self.applied is not None and self.applied.low > self.tolerance:
            return True
        # Where availability drifts, the last part tells more of what is to come than all of it.
        return self.drift.low > 0 and self.plain.held_out.low >= self.tolerance

    @property
    def hopeless(self) -> bool:
        """Say whether weights cannot do it, or do so little that something else is needed."""
        lost, tolerance = self.reach.deficiency, self.tolerance
        gained = self.gap.value - lost.value
        little = gained < WORTHWHILE * (self.gap.value - tolerance)
        return lost.low > tolerance or (lost.value > tolerance and little)

    @property
    def settled(self) -> bool:
        """Say whether the gap is known as closely as it needs to be."""
        return self.gap.high - self.gap.low <= self.tolerance

    @property
    def within_reach_of_all(self) -> bool:
        """Say whether the clients that are missing are there, and not asked."""
        reach = self.reach
        enough = max(self.tolerance, HALVED * reach.deficiency.value)
        asked = reach.if_all_asked
        return asked is not None and asked <= enough and self.selection is not None

    @property
    def dear(self) -> bool:
        """Say whether exact weights keep little of what a cohort averages."""
        return self.exact.effective - 1 < KEPT * (self.plain.effective - 1)

    @property
    def learns(self) -> bool:
        """Say whether weights are better learned on the way than fixed by the log."""
        return self.misses or self.nearer

    @property
    def misses(self) -> bool:
        """Say whether weights fixed by the first part are clearly off in the last."""
        missed = self.exact.held_out
        return missed.low > self.reach.deficiency.value + self.tolerance

    @property
    def nearer(self) -> bool:
        """Say whether learned weights came nearer in the last part, where it matters."""
        exact, online, plain = self.exact, self.online, self.plain
        beyond = plain.held_out.value - self.tolerance
        useful = plain.held_out.value - exact.held_out.value >= WORTHWHILE * beyond
        even = online.held_out_effective >= NEARER * exact.held_out_effective
        return (
            exact.held_out.value > self.tolerance
            and online.held_out.value <= NEARER * exact.held_out.value
            and (even or not useful)
        )


def choose_softness(points: tuple[Point, ...], tolerance: float) -> float:
    """Return the largest softness with a gap within the tolerance; the least, if none has.

    Where exact alignment itself is beyond the tolerance, half of it more is allowed.
    """
    exact = points[0].gap
    most = tolerance if exact <= tolerance else exact + HALVED * tolerance
    fine = [point.softness for point in points[1:] if point.gap <= most]
    return max(fine, default=points[1].softness)
