"""Effective potentials, to which one absence adds at most a bound.

An absent client's raw potential grows by η p_i a round; after a long absence it would win every
round it is in. Weights therefore come from *effective* potentials, to which one absence adds at
most ``bound``. A client at its bound is set aside: until it is back its importance goes to the
others in proportion, as if it had left. (Were it merely capped, the others would go on sinking
below it, charged for weights that nobody is owed.) Under a stationary feasible law an absence adds
η p_i / P(i ∈ A) ≤ η on average, with a geometric tail: the least bound, five steps, is met by less
than one absence in a hundred, ten steps by none to speak of, and then both potentials are equal.

Potentials stop at ±1e300, so that for every step they, their differences and the weights are
finite. That far apart they are all or nothing in any case.
"""

from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers, as_amount
from fedavot._state import STATE_SLACK, refuse_disagreeing

LEAST_BOUND_IN_STEPS = 5.0
"""Bound below which ordinary absences, not only long ones, would be cut short."""

LEAST_ACTIVE = 1e-6
"""Importance not set aside below which no more is shared out: it keeps the clock precise."""

LARGEST = 1e300
"""Where potentials stop: sums and differences of a few such numbers are still finite."""


class EffectivePotentials:
    """Effective potentials of all clients, brought up to date for those who report.

    Importance is the aligner's and may change, so the methods take it.

    Parameters
    ----------
    start : float array, shape (n_clients,)
        Where to start.
    step : float
        Step of the ascent.
    bound : float
        The most that one absence adds; infinite if there is no limit.
    """

    def __init__(self, start: Floats, *, step: float, bound: float) -> None:
        self.step = step
        self.bound = bound
        # Potentials when the clock stood at clock_at, and what the absence under way had by then
        # added to them. The clock counts rounds, and runs faster while clients are set aside:
        # importance times clock is then what the others are owed.
        self.standing = within_reach(start)
        self.credit = np.zeros(start.size)
        self.clock = 0.0
        self.clock_at = np.zeros(start.size)
        # Importance of the clients not set aside, and clients touched since that was counted.
        self.active = 1.0
        self.touches = 0

    @property
    def is_due(self) -> bool:
        """Whether all clients are to be settled, so as to find who is set aside."""
        return self.touches >= self.standing.size and self.bound < np.inf

    def of(self, members: Integers, importance: Floats) -> Floats:
        """Return the members' effective potentials now."""
        added = self._grown(members, importance) - self.credit[members]
        return within_reach(self.standing[members] + added)

    def of_all(self, importance: Floats) -> Floats:
        """Return all clients' effective potentials now."""
        return self.of(np.arange(importance.size), importance)

    def move(
        self, members: Integers, importance: Floats, *, effective: Floats, shares: Floats
    ) -> None:
        """Take one step from the members' effective potentials and the weights they were given."""
        due = importance[members]
        self.active += float(due[self.credit[members] >= self.bound].sum())
        rate = 1.0 / max(self.active, LEAST_ACTIVE)
        self.clock += rate
        self.touches += members.size
        with np.errstate(over="ignore"):
            moved = effective + self.step * (due * rate - shares)
        self.standing[members] = within_reach(moved)
        self.credit[members] = 0.0
        self.clock_at[members] = self.clock

    def settle(self, importance: Floats) -> None:
        """Bring every client up to now, and start the clock anew."""
        self.standing = self.of_all(importance)
        self.credit = self._grown(np.arange(importance.size), importance)
        self.clock = 0.0
        self.clock_at = np.zeros(importance.size)
        self.count_active(importance)

    def enrol(self, start: Floats) -> None:
        """Add clients who start from these potentials."""
        nothing = np.zeros(start.size)
        self.standing = np.concatenate([self.standing, within_reach(start)])
        self.credit = np.concatenate([self.credit, nothing])
        self.clock_at = np.concatenate([self.clock_at, nothing])

    def count_active(self, importance: Floats) -> None:
        """Count the importance of the clients who are not set aside."""
        aside = self.credit >= self.bound
        # Exactly one while nobody is aside, so that the clock then counts rounds exactly.
        self.active = float(importance[~aside].sum()) if aside.any() else 1.0
        self.touches = 0

    def refuse_inconsistent(self) -> None:
        """Refuse a state that no sequence of rounds leads to."""
        refuse_disagreeing(
            {
                "touches": self.is_due,
                "active": self.active > 1.0 + STATE_SLACK,
                "credit": not ((self.credit >= 0) & (self.credit <= self.bound)).all(),
                "clock_at": not ((self.clock_at >= 0) & (self.clock_at <= self.clock)).all(),
                "standing": not (np.abs(self.standing) <= LARGEST).all(),
            }
        )

    def _grown(self, members: Integers, importance: Floats) -> Floats:
        """Return what the absence under way has added by now."""
        elapsed = self.clock - self.clock_at[members]
        with np.errstate(over="ignore"):
            grown = self.credit[members] + self.step * importance[members] * elapsed
        return np.minimum(grown, min(self.bound, LARGEST))


def as_bound(bound: float | None, *, step: float) -> float:
    """Return a bound of at least five steps, infinite for None."""
    if bound is None:
        return np.inf
    wanted = as_amount(bound, what="bound", positive=True)
    return min(max(wanted, LEAST_BOUND_IN_STEPS * step), LARGEST)


def within_reach(potentials: Any) -> Floats:
    """Return potentials with those beyond ±1e300 moved there."""
    return np.asarray(np.clip(potentials, -LARGEST, LARGEST))
