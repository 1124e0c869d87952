"""Effective potentials, to which one absence adds at most a bound.

The raw potential of an absent client grows by η p_i per round; after a long absence it would take
all the weight of every round it is in. Weights therefore come from *effective* potentials, to which
one absence adds at most ``bound``. A client at its bound is set aside: until it returns, its
importance goes to the others in proportion, as if it had left. (If it were only capped, the others
would keep falling below it, because their weights would sum to more than their importance.) Under a
stationary feasible law an absence adds η p_i / P(i ∈ A) ≤ η on average, with a geometric tail: less
than one absence in a hundred reaches the least bound, five steps, and practically none reaches ten
steps. As long as none does, raw and effective potentials are equal.

Potentials are clipped to ±1e300, so that they, their differences and the weights are finite for
every step. Potentials that far apart give one client all the weight in any case.
"""

from contextlib import AbstractContextManager, nullcontext

import numpy as np

from fedavot._checks import LARGEST_POTENTIAL, Floats, Integers, as_amount
from fedavot._state import MOST_ROUNDS, STATE_SLACK, refuse_disagreeing, within_reach

LEAST_BOUND_IN_STEPS = 5.0
"""Bound below which ordinary absences, not only long ones, would be cut short."""

LEAST_ACTIVE = 1e-6
"""Least importance that counts as not set aside: it keeps the clock from running too fast."""

MODERATE_STEP = 1e200
"""Largest step that cannot overflow, nor move a potential beyond ±1e300: changes are at most step
times clock, below 1e223, and sums that large are rounded to multiples of 1e284."""

_NOTHING = nullcontext()


class EffectivePotentials:
    """Effective potentials of all clients, updated only for those who report.

    The methods take the present importance, which may change: that of the members (due), or of all.

    Parameters
    ----------
    start : float array, shape (n_clients,)
        Potentials to start from.
    step : float
        Step of the ascent.
    bound : float
        The most that one absence adds; infinite if there is no limit.
    """

    def __init__(self, start: Floats, *, step: float, bound: float) -> None:
        self.step = step
        self.bound = bound
        # Potentials at the time clock_at, and what the present absence had added to them by then.
        # The clock counts rounds, and runs faster while clients are set aside, so that importance
        # times clock is what the others are owed.
        self.standing = within_reach(start)
        self.credit = np.zeros(start.size)
        self.clock = 0.0
        self.clock_at = np.zeros(start.size)
        # Importance of the clients not set aside, and number of reports since that was counted.
        self.active = 1.0
        self.touches = 0

    @property
    def is_due(self) -> bool:
        """Whether it is time to settle all clients, which finds those to be set aside."""
        return self.touches >= self.standing.size and self.bound < np.inf

    def of(self, members: Integers, due: Floats) -> Floats:
        """Return the present effective potentials of some clients."""
        return self._present(members, due)[0]

    def move(self, members: Integers, due: Floats, *, effective: Floats, shares: Floats) -> None:
        """Take one step from the members' effective potentials, given their weights."""
        rate = 1.0
        if self.active != 1.0:
            aside = self.credit[members] >= self.bound
            if np.count_nonzero(aside):
                self.active += float(due[aside].sum())
            rate = 1.0 / max(self.active, LEAST_ACTIVE)
            due = due * rate
        self.clock += rate
        self.touches += members.size
        with self._quiet():
            moved = effective + self.step * (due - shares)
        self.standing[members] = self._clipped(moved)
        self.credit[members] = 0.0
        self.clock_at[members] = self.clock

    def settle(self, importance: Floats) -> None:
        """Bring every client up to date, and reset the clock."""
        self.standing, self.credit = self._present(slice(None), importance)
        self.clock = 0.0
        self.clock_at = np.zeros(importance.size)
        self.count_active(importance)

    def shift(self, added: Floats) -> None:
        """Add to the potentials of all clients."""
        self.standing = within_reach(self.standing + added)

    def enrol(self, start: Floats) -> None:
        """Add clients who start from these potentials."""
        nothing = np.zeros(start.size)
        self.standing = np.concatenate([self.standing, within_reach(start)])
        self.credit = np.concatenate([self.credit, nothing])
        self.clock_at = np.concatenate([self.clock_at, nothing])

    def count_active(self, importance: Floats) -> None:
        """Sum the importance of the clients that are not set aside."""
        aside = self.credit >= self.bound
        # Exactly one if nobody is set aside, so that the clock counts rounds exactly.
        self.active = float(importance[~aside].sum()) if aside.any() else 1.0
        self.touches = 0

    def refuse_inconsistent(self) -> None:
        """Refuse a state that no sequence of rounds leads to."""
        refuse_disagreeing(
            {
                "touches": self.is_due,
                "clock": self.clock > MOST_ROUNDS / LEAST_ACTIVE,
                "active": self.active > 1.0 + STATE_SLACK,
                "credit": not ((self.credit >= 0) & (self.credit <= self.bound)).all(),
                "clock_at": not ((self.clock_at >= 0) & (self.clock_at <= self.clock)).all(),
                "standing": not (np.abs(self.standing) <= LARGEST_POTENTIAL).all(),
            }
        )

    def _present(self, members: Integers | slice, due: Floats) -> tuple[Floats, Floats]:
        """Return effective potentials, and what the present absence has added to them so far."""
        credit, elapsed = self.credit[members], self.clock - self.clock_at[members]
        with self._quiet():
            grown = credit + self.step * due * elapsed
        grown = np.minimum(grown, min(self.bound, LARGEST_POTENTIAL))
        return self._clipped(self.standing[members] + (grown - credit)), grown

    def _quiet(self) -> AbstractContextManager[object]:
        return _NOTHING if self.step <= MODERATE_STEP else np.errstate(over="ignore")

    def _clipped(self, potentials: Floats) -> Floats:
        return potentials if self.step <= MODERATE_STEP else within_reach(potentials)


def as_bound(bound: float | None, *, step: float) -> float:
    """Return a bound of at least five steps, infinite for None."""
    if bound is None:
        return np.inf
    wanted = as_amount(bound, what="bound", positive=True)
    return min(max(wanted, LEAST_BOUND_IN_STEPS * step), LARGEST_POTENTIAL)
