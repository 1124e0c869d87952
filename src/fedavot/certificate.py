"""Evidence that exact alignment is or is not possible, and its verification.

p is attainable iff p(I) ≤ f(I) = P(A ∩ I ≠ ∅) for every set I of clients. The evidence is one
lexicographic softmax, potentials within levels. Write m for its marginal, λ_b for m/p on level b.

* If m = p, then p is attainable: the weights are there to see.
* If λ is constant on each level and rises from level to level, then the deficient set
  I = {λ < 1} gets every cohort it can, so p(I) − f(I) = p(I) − m(I) = TV(p, m); no set has more,
  since p(J) − f(J) ≤ p(J) − m(J) for all J. Likewise p(J)/f(J) ≤ 1/λ_1, met by the first level.

Where a law has a worst order (`Law.worst_order`), scanning its prefixes decides the same without
potentials. Verification evaluates the law and compares; it imports no solver.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_importance
from fedavot.laws._law import Law

FEASIBLE_SLACK = 1e-12
"""A deficiency up to here is rounding in the inputs, and counts as none."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """Whether an importance is attainable under a law, with evidence either way.

    Attributes
    ----------
    feasible : bool
        Whether exact alignment is possible.
    deficient : int array
        The clients that together are wanted more than they can be had; empty if feasible.
    deficiency : float
        Importance of the deficient set minus its coverage, the largest over all sets; 0 if
        feasible. It is also the least total variation distance any weights can leave.
    hall_ratio : float
        The largest importance over coverage of any set: how many times too important the worst
        set is; 1 if feasible, infinite if a wanted client never takes part.
    potentials, levels : arrays, shape (n_clients,), or None
        The evidence; None where the law's worst order alone decides.
    """

    feasible: bool
    deficient: Integers
    deficiency: float
    hall_ratio: float
    potentials: Floats | None = None
    levels: Integers | None = None

    def verify(self, importance: ArrayLike, law: Law, *, tol: float = 1e-9) -> bool:
        """Check the claim against the law, without any solver.

        Parameters
        ----------
        importance : array-like, shape (n_clients,)
        law : Law
            The pair the certificate was made for.
        tol : float
            How much probability, in L1, may be off.
        """
        wanted = as_importance(importance, law.n_clients)
        if not self._consistent(wanted, law, tol):
            return False
        if self.potentials is None or self.levels is None:
            return self._verify_by_order(wanted, law, tol)
        attained = law.expected_weights(self.potentials, self.levels)
        if self.feasible:
            return bool(np.abs(attained - wanted).sum() <= tol)
        return self._verify_levels(wanted, attained, self.levels, tol)

    def _consistent(self, importance: Floats, law: Law, tol: float) -> bool:
        """Check that the deficient set violates Hall's inequality by what is claimed."""
        if self.feasible:
            return self.deficient.size == 0 and self.deficiency == 0.0 and self.hall_ratio == 1.0
        violation = float(importance[self.deficient].sum()) - law.coverage(self.deficient)
        return bool(violation > 0.0 and abs(violation - self.deficiency) <= tol)

    def _verify_by_order(self, importance: Floats, law: Law, tol: float) -> bool:
        order = law.worst_order(importance)
        if order is None:
            return False
        wanted, covered = np.cumsum(importance[order]), law.prefix_coverage(order)
        some = wanted > 0
        with np.errstate(divide="ignore"):
            worst = max(1.0, float(np.max(wanted[some] / covered[some])))
        largest = max(0.0, float(np.max(wanted - covered)))
        return abs(largest - self.deficiency) <= tol and _close(worst, self.hall_ratio, tol)

    def _verify_levels(
        self, importance: Floats, attained: Floats, levels: Integers, tol: float
    ) -> bool:
        """Check that ratios are constant on levels and rise, which makes the claim the worst."""
        wanted = importance > 0
        if not wanted.all() and levels[~wanted].min() <= levels[wanted].max():
            return False
        _, level = np.unique(levels[wanted], return_inverse=True)
        mass = np.bincount(level, importance[wanted])
        ratios = np.bincount(level, attained[wanted]) / mass
        proportional = np.abs(attained[wanted] - ratios[level] * importance[wanted]).sum() <= tol
        # Ratios rise up to the tolerance, measured in probability moved.
        rising = bool(np.all(np.diff(ratios) * np.minimum(mass[1:], mass[:-1]) >= -tol))
        largest = float(np.maximum(importance - attained, 0.0).sum())
        worst = np.inf if ratios[0] <= 0 else 1.0 / float(ratios[0])
        return bool(
            proportional
            and rising
            and abs(largest - self.deficiency) <= tol
            and _close(worst, self.hall_ratio, tol / min(1.0, float(mass[0])))
        )

    def __str__(self) -> str:
        """Say it in a sentence."""
        if self.feasible:
            return "every set of clients takes part often enough: exact alignment is possible"
        shown = ", ".join(str(client) for client in self.deficient[:10])
        more = f", … ({self.deficient.size} in all)" if self.deficient.size > 10 else ""
        return (
            f"clients {{{shown}{more}}} are wanted {self.deficiency:.3g} more than cohorts "
            f"containing any of them report; the worst set among them is wanted "
            f"{self.hall_ratio:.3g} times too much; lower their importance, have them take part "
            "more often, or accept the nearest importance that align() attains"
        )


def _close(found: float, claimed: float, tol: float) -> bool:
    """Compare two ratios, either of which may be infinite."""
    if np.isinf(found) or np.isinf(claimed):
        return found == claimed
    return abs(found - claimed) <= tol * max(found, claimed) ** 2
