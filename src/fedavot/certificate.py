"""Evidence that exact alignment is or is not possible, and its verification.

Write p for the importance and f(J) = P(A ∩ J ≠ ∅) for the coverage of a set J of clients: p is
attainable iff p(J) ≤ f(J) for every J. There are 2^N sets, and two numbers sum them up: the
*deficiency*, the largest p(J) − f(J), and the *Hall ratio*, the largest p(J)/f(J).

A set bounds both from below: it is one of those the maximum is over. Weights bound both from
above. Any potentials and levels define weights that sum to one over every cohort; let m be their
expectation. Weight given to J comes from cohorts that meet J, so m(J) ≤ f(J), and

    p(I) − f(I)  ≤  max over J of p(J) − f(J)  ≤  Σ_i max(p_i − m_i, 0),
    p(B) / f(B)  ≤  max over J of p(J) / f(J)  ≤  max over i of p_i / m_i,

for any sets I and B: the first because p(J) − f(J) ≤ Σ_{i∈J} (p_i − m_i), the second because
p_i ≤ h m_i for all i gives p(J) ≤ h m(J) ≤ h f(J). A claim for which both bounds agree is proved,
no matter how its evidence was found. They do agree for the nearest attainable importance m: m/p is
constant on each level and rises from level to level, the clients with m < p are the deficient set
I, and the first level is the worst set B. If m = p, no set is deficient.

Importance may be so small that the weight it asks for vanishes in floating point. For the clients T
with m_i = 0 < p_i, coverage itself bounds the ratio, because f(J) ≥ f({i}) for every i in J:

    max over J of p(J) / f(J)  ≤  max over i outside T of p_i / m_i  +  Σ_{i∈T} p_i / f({i}).

Verification evaluates the bounds from the law alone; it imports no solver. If a law has a worst
order (`SolvableLaw.worst_order`), one of its prefixes attains each maximum, and a scan of the
prefixes replaces the weights. Tolerances are for rounding: absolute for probabilities, relative for
the ratio.

With ``exact=True`` the bounds are fractions, free of rounding. Every float is one, so the
importance and the cohorts' probabilities are used as they are, divided by their exact sums. The
weights of a cohort start from a softmax in floating point; the difference of their sum from one is
added to the largest. They then sum to one exactly, so they are valid weights, and their expectation
is exactly attainable, whatever the rounding of the softmax.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import Floats, Integers, as_amount, as_importance, enumerated
from fedavot._clients import Clients, in_client_order
from fedavot._simplex import softmax
from fedavot.errors import UnavailableError
from fedavot.laws._law import Law, SolvableLaw, as_law, as_potentials
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.successive import explicit_cohorts

# Deficiency up to which an importance counts as feasible: it may be rounding in the inputs.
FEASIBLE_SLACK = 1e-12
# Violation up to which a set proves nothing: it may come from adding up floats, or from dividing
# the importance and the probabilities by their sums, which rounds them before they are verified. A
# violation above `FEASIBLE_SLACK` always counts.
_ROUNDING = 1e-13
# Total number of members of all cohorts that exact arithmetic handles in a few seconds.
_MOST_ENTRIES = 100_000


@dataclass(frozen=True, eq=False)
class Certificate:
    """Whether an importance is attainable under a law, with evidence either way.

    Attributes
    ----------
    feasible : bool
        Whether exact alignment is possible.
    deficient : int array
        The clients whose importance together exceeds their coverage by most; empty if feasible.
    deficiency : float
        Importance of the deficient set minus its coverage, the largest over all sets; 0 if
        feasible. It is also the least gap that any weights can have.
    hall_ratio : float
        The largest ratio of importance to coverage over all sets: how many times too important the
        worst set is. 1 if feasible, infinite if a client with importance never takes part.
    potentials, levels : arrays, shape (n_clients,), or None
        The evidence; None if the law's worst order alone decides.
    proven : bool
        Whether `certify` verified the evidence before returning it. If False, double precision was
        not enough, and the claim is the best found, not a proof.
    clients : tuple of str or None
        The clients' names, if they have any.
    """

    feasible: bool
    deficient: Integers
    deficiency: float
    hall_ratio: float
    potentials: Floats | None = None
    levels: Integers | None = None
    proven: bool = True
    clients: tuple[str, ...] | None = None

    @property
    def deficient_clients(self) -> list[str] | list[int]:
        """The deficient clients by name, or by index if the clients have no names."""
        return Clients(len(self.clients or ()), self.clients).labels(self.deficient)

    def __repr__(self) -> str:
        doubt = "" if self.proven else ", not proven"
        if self.feasible:
            return f"Certificate(feasible{doubt})"
        return (
            f"Certificate(infeasible{doubt}, {np.size(self.deficient):,} deficient, "
            f"deficiency {self.deficiency:.2%}, Hall ratio {_above_one(self.hall_ratio)})"
        )

    def verify(
        self,
        importance: ArrayLike | Mapping[str, float],
        law: Law,
        *,
        tol: float = 1e-9,
        exact: bool = False,
    ) -> bool:
        """Check the claim against the law, without any solver.

        The claim is accepted if its evidence bounds the deficiency and the Hall ratio from both
        sides, within ``tol`` of what is claimed. A claim that makes no sense, such as a set that
        has a client twice, is not accepted. ``proven`` is ignored.

        Parameters
        ----------
        importance : array-like of shape (n_clients,), or mapping from client name to float
        law : Law
            The importance and the law that the certificate was made for.
        tol : float
            Error allowed in the deficiency, or, if feasible, in the attained importance in L1; and
            relative error allowed in the Hall ratio.
        exact : bool
            Whether to evaluate in fractions instead of floating point, free of rounding; only for
            explicit cohorts (`Cohorts`, `SuccessiveDraws`) of up to 100,000 members in all.

        Raises
        ------
        UnavailableError
            If ``exact`` is True and the law is not such a list.
        """
        law = as_law(law)
        names = self.clients or getattr(law, "clients", None)
        mass = as_importance(in_client_order(importance, names), law.n_clients, names)
        allowed = as_amount(tol, what="tol", positive=True)
        cohorts = explicit_cohorts(law) if exact else None
        if exact and cohorts is None:
            raise UnavailableError(
                f"exact verification needs an explicit list of cohorts, found {type(law).__name__};"
                " leave out exact=True, or list the law's cohorts in Cohorts"
            )
        if cohorts is not None and (entries := cohorts.incidence.members.size) > _MOST_ENTRIES:
            raise UnavailableError(
                f"exact verification needs cohorts of at most {_MOST_ENTRIES:,} members in all, "
                f"found {entries:,}; leave out exact=True"
            )
        return self._makes_sense(law.n_clients) and holds(self, mass, law, allowed, cohorts)

    def _makes_sense(self, n_clients: int) -> bool:
        """Say whether the fields agree with one another and with the number of clients."""
        members = np.unique(self.deficient)
        if self.feasible:
            sound = members.size == 0 and (self.deficiency, self.hall_ratio) == (0.0, 1.0)
        else:
            sound = 0 < members.size == np.size(self.deficient) and members.dtype.kind in "iu"
            sound = sound and 0 <= members[0] <= members[-1] < n_clients
            sound = sound and 0.0 < self.deficiency < math.inf and self.hall_ratio >= 1.0
        if self.potentials is None or self.levels is None:
            return bool(sound and self.potentials is None and self.levels is None)
        fitting = np.shape(self.potentials) == np.shape(self.levels) == (n_clients,)
        return bool(sound and fitting and np.isfinite(self.potentials).all())

    def __str__(self) -> str:
        """Return the claim as a sentence."""
        doubt = "" if self.proven else "not proven, double precision is not enough: "
        if self.feasible:
            return f"{doubt}every set of clients comes often enough: exact alignment is possible"
        one, ratio = len(self.deficient) == 1, "some clients with importance never take part"
        if math.isfinite(self.hall_ratio):
            worst = _above_one(self.hall_ratio)
            ratio = f"the largest ratio of the two, over all sets of clients, is {worst}"
        return (
            f"{doubt}exact alignment is impossible: the importance of client{'s' * (not one)} "
            f"{enumerated(map(str, self.deficient_clients), 10)} is {self.deficiency:.3g} above "
            f"the probability that {'it' if one else 'any of them'} takes part; {ratio}. "
            "Lower that importance, raise that probability, or accept the nearest importance, "
            "which align() attains"
        )


def _above_one(ratio: float) -> str:
    """Return a ratio in so many digits that one just above 1 does not read as 1."""
    return f"{ratio:.{2 - math.floor(math.log10(ratio - 1.0)) if 1.0 < ratio < 2.0 else 3}g}"


class Bounds(NamedTuple):
    """Bounds on all sets, from a set I, some other sets and attainable expected weights m.

    Ratios are coverage over importance, the inverse of the Hall ratio: they are finite, and 0 where
    the Hall ratio is infinite.

    Attributes
    ----------
    violation : float or Fraction
        p(I) − f(I), at most the deficiency.
    excess : float or Fraction
        At least the deficiency, such as Σ max(p_i − m_i, 0).
    distance : float or Fraction
        At least the L1 distance from p to the nearest attainable importance, such as Σ |p_i − m_i|.
    share : float or Fraction
        The least f(J)/p(J) over the sets J that were tried.
    least : float or Fraction
        At most f(J)/p(J) for every set J: min m_i/p_i, or what is left of it where some m_i is 0.
    """

    violation: float | Fraction
    excess: float | Fraction
    distance: float | Fraction
    share: float | Fraction
    least: float | Fraction


def holds(
    claim: Certificate,
    importance: Floats,
    law: SolvableLaw,
    tol: float,
    cohorts: Cohorts | None = None,
) -> bool:
    """Verify a claim that makes sense; exactly, by the law's ``cohorts`` if they are passed."""
    if claim.potentials is None or claim.levels is None:
        evaluated = _scanned(importance, law, claim.deficient)
    else:
        levels = np.unique(claim.levels, return_inverse=True)[1]  # only their order matters
        potentials = as_potentials(claim.potentials, law.n_clients)
        if cohorts is None:
            evaluated = _weighed(importance, law, claim, potentials, levels)
        else:
            evaluated = exact_bounds(importance, cohorts, claim.deficient, potentials, levels)
    if not all(map(math.isfinite, evaluated)):
        return False  # the law cannot be evaluated at this evidence
    violation, excess, distance, share, least = (Fraction(one) for one in evaluated)
    limit = Fraction(tol)
    if claim.feasible:
        return distance <= limit
    if math.isinf(claim.hall_ratio):
        attains = share * Fraction(sys.float_info.max) < 1
    else:
        ratio = Fraction(claim.hall_ratio)
        attains = abs(1 - ratio * share) <= limit * ratio * share
        attains &= ratio * least * (1 + limit) >= 1
    deficiency = Fraction(claim.deficiency)
    return (
        attains
        and violation > _ROUNDING
        and abs(violation - deficiency) <= limit
        and excess - deficiency <= limit
    )


def _weighed(
    importance: Floats, law: SolvableLaw, claim: Certificate, potentials: Floats, levels: Integers
) -> Bounds:
    """Return bounds from the weights that the evidence defines, and from its order of clients."""
    attained = law.system(levels if levels.any() else None).marginal(potentials)
    # The empty set and the set of all clients are never deficient; a feasible claim has no other.
    violation, share = 0.0, 1.0
    if not claim.feasible:
        order = np.lexsort((-potentials, levels, importance == 0))
        violation = float(importance[claim.deficient].sum()) - law.coverage(claim.deficient)
        share = _least_ratio(np.cumsum(law.prefix_gains(order)), np.cumsum(importance[order]))
    return _bounds(importance, attained, law.inclusion(), violation, share)


def _bounds(importance: Any, attained: Any, inclusion: Any, violation: Any, share: Any) -> Bounds:
    """Return bounds from expected weights, as floats or as fractions."""
    short = importance - attained
    served = attained > 0
    unserved = (importance > 0) & ~served
    least = 0
    if (inclusion[unserved] > 0).all():
        with np.errstate(over="ignore"):
            most = np.max(importance[served] / attained[served], initial=0)
            least = 1 / (most + (importance[unserved] / inclusion[unserved]).sum())
    return Bounds(violation, np.maximum(short, 0).sum(), np.abs(short).sum(), share, least)


def _scanned(importance: Floats, law: SolvableLaw, deficient: Integers) -> Bounds:
    """Return bounds from the prefixes of a worst order, which include the worst of all sets."""
    order = law.worst_order(importance)
    if order is None:
        return Bounds(*[math.nan] * 5)
    mass, covered = np.cumsum(importance[order]), np.cumsum(law.prefix_gains(order))
    excess = max(0.0, float(np.max(mass - covered)))
    share = _least_ratio(covered, mass)
    # The total variation distance to the nearest attainable importance is the deficiency.
    violation = float(importance[deficient].sum()) - law.coverage(deficient)
    return Bounds(violation, excess, 2.0 * excess, share, share)


def _least_ratio(above: Any, below: Any) -> Any:
    some = below > 0
    with np.errstate(over="ignore"):
        return np.min(above[some] / below[some], initial=np.inf)


def exact_bounds(
    importance: Floats, law: Cohorts, deficient: Integers, potentials: Floats, levels: Integers
) -> Bounds:
    """Return a certificate's bounds in exact arithmetic, for explicit cohorts."""
    mass, chances = _fractions(importance), _fractions(law.probabilities)
    mass, chances = mass / mass.sum(), chances / chances.sum()
    order = np.lexsort((-potentials, levels, importance == 0))
    first = law.incidence.minimum(np.argsort(order))
    inside = law.incidence.maximum(np.isin(np.arange(law.n_clients), deficient))
    lowest = law.incidence.within(levels)
    shares = softmax(potentials[lowest.members], lowest.offsets)
    attained, included, gains = np.full((3, law.n_clients), Fraction(0))
    for row, chance in enumerate(chances):
        weights = _fractions(shares[lowest.offsets[row] : lowest.offsets[row + 1]])
        weights[weights.argmax()] += 1 - weights.sum()
        attained[lowest.row(row)] += chance * weights
        included[law.incidence.row(row)] += chance
        gains[first[row]] += chance
    violation = mass[deficient].sum() - chances[inside].sum()
    share = _least_ratio(np.cumsum(gains), np.cumsum(mass[order]))
    return _bounds(mass, attained, included, violation, share)


def _fractions(values: Floats) -> NDArray[np.object_]:
    return np.array([*map(Fraction, values.tolist())], dtype=object)
