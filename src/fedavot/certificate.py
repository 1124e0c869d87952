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
the ratio. With ``exact=True`` the bounds are fractions (`_exact`), free of rounding.
"""

import math
import numbers
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedavot._checks import Floats, Integers, as_amount, as_importance, enumerated
from fedavot._clients import Clients, in_client_order
from fedavot._exact import Bounds, exact_bounds, explicit
from fedavot.laws._law import Law, SolvableLaw, as_law

FEASIBLE_SLACK = 1e-12
"""Deficiency up to which an importance counts as feasible: it may be rounding in the inputs."""
_ROUNDING = 1e-13
"""Violation up to which a set proves nothing: it may come from adding up floats, or from dividing
the importance and the probabilities by their sums, which rounds them before they are verified. A
violation above `FEASIBLE_SLACK` always counts."""


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
        deficiency, ratio = _number(self.deficiency), _number(self.hall_ratio)
        return (
            f"Certificate(infeasible{doubt}, {np.size(self.deficient):,} deficient, "
            f"deficiency {deficiency:.2%}, Hall ratio {_above_one(ratio)})"
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
            Whether to evaluate in integers instead of floating point, free of rounding; only for
            explicit cohorts (`Cohorts`, `SuccessiveDraws`) of up to 100,000 members in all.

        Raises
        ------
        UnavailableError
            If ``exact`` is True and the law is not such a list.
        """
        law = as_law(law)
        names = self.clients or getattr(law, "clients", None)
        wanted = as_importance(in_client_order(importance, names), law.n_clients, names)
        allowed = as_amount(tol, what="tol", positive=True)
        cohorts = explicit(law) if exact else None
        claim = _read_claim(self, law.n_clients)
        if claim is None:
            return False
        if self.potentials is None and self.levels is None:
            bounds = _scanned(wanted, law, claim)
        else:
            evidence = _read_evidence(self, law.n_clients)
            if evidence is None:
                return False
            bounds = (
                _weighed(wanted, law, claim, *evidence)
                if cohorts is None
                else exact_bounds(wanted, cohorts, claim.deficient, *evidence)
            )
        return bounds is not None and _holds(claim, bounds, Fraction(allowed))

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


class _Claim(NamedTuple):
    """What a certificate claims, after checking that it makes sense."""

    feasible: bool
    deficient: Integers
    deficiency: float
    hall_ratio: float


def _holds(claim: _Claim, bounds: Bounds, tol: Fraction) -> bool:
    """Compare a claim with its lower and upper bounds, in exact arithmetic."""
    if claim.feasible:
        return bounds.distance <= tol
    deficiency = Fraction(claim.deficiency)
    return (
        bounds.violation > _ROUNDING
        and abs(bounds.violation - deficiency) <= tol
        and bounds.excess - deficiency <= tol
        and _attains(claim.hall_ratio, bounds, tol)
    )


def _attains(ratio: float, bounds: Bounds, tol: Fraction) -> bool:
    if math.isinf(ratio):
        return bounds.share * Fraction(sys.float_info.max) < 1
    claimed = Fraction(ratio)
    met, most = claimed * bounds.share, claimed * bounds.least * (1 + tol)
    return abs(1 - met) <= tol * met and most >= 1


def _weighed(
    importance: Floats, law: SolvableLaw, claim: _Claim, potentials: Floats, levels: Integers
) -> Bounds | None:
    """Return bounds from the weights that the evidence defines, and from its order of clients."""
    attained = law.expected_weights(potentials, levels)
    # The empty set and the set of all clients are never deficient; a feasible claim has no other.
    violation, share = 0.0, 1.0
    if not claim.feasible:
        order = np.lexsort((-potentials, levels, importance == 0))
        violation = _violation(importance, law, claim.deficient)
        share = _least_ratio(np.cumsum(law.prefix_gains(order)), np.cumsum(importance[order]))
    return _bounds(
        violation,
        np.maximum(importance - attained, 0.0).sum(),
        np.abs(importance - attained).sum(),
        share,
        _least_attained(attained, importance, law),
    )


def _least_attained(attained: Floats, importance: Floats, law: SolvableLaw) -> float:
    """Return a lower bound on f(J)/p(J) for every set J, from attainable expected weights."""
    nothing = (importance > 0) & (attained <= 0)
    if not nothing.any():
        return _least_ratio(attained, importance)
    given = attained > 0
    with np.errstate(over="ignore", divide="ignore"):
        most = np.max(importance[given] / attained[given], initial=0.0)
        return float(1.0 / (most + (importance[nothing] / law.inclusion()[nothing]).sum()))


def _scanned(importance: Floats, law: SolvableLaw, claim: _Claim) -> Bounds | None:
    """Return bounds from the prefixes of a worst order, which include the worst of all sets."""
    order = law.worst_order(importance)
    if order is None:
        return None
    wanted, covered = np.cumsum(importance[order]), np.cumsum(law.prefix_gains(order))
    excess = max(0.0, float(np.max(wanted - covered)))
    share = _least_ratio(covered, wanted)
    # The total variation distance to the nearest attainable importance is the deficiency.
    violation = _violation(importance, law, claim.deficient)
    return _bounds(violation, excess, 2.0 * excess, share, share)


def _bounds(*evaluated: float) -> Bounds | None:
    """Return floats as bounds, or None if the law could not be evaluated at this evidence."""
    return Bounds(*map(Fraction, evaluated)) if np.isfinite(evaluated).all() else None


def _violation(importance: Floats, law: SolvableLaw, clients: Integers) -> float:
    return float(importance[clients].sum()) - law.coverage(clients)


def _least_ratio(above: Floats, below: Floats) -> float:
    some = below > 0
    with np.errstate(over="ignore"):
        return float(np.min(above[some] / below[some]))


def _read_claim(certificate: Certificate, n_clients: int) -> _Claim | None:
    """Return what a certificate claims, or None if that makes no sense."""
    given = _array(certificate.deficient, "iu")
    deficiency, ratio = _number(certificate.deficiency), _number(certificate.hall_ratio)
    if given is None or not isinstance(certificate.feasible, bool | np.bool_):
        return None
    members = np.unique(given)
    if members.size != given.size:
        return None
    if certificate.feasible:
        sound = members.size == 0 and deficiency == 0.0 and ratio == 1.0
    else:
        known = bool(members.size and members[0] >= 0 and members[-1] < n_clients)
        sound = known and 0.0 < deficiency < math.inf and ratio >= 1.0
    claim = _Claim(bool(certificate.feasible), members.astype(np.int64), deficiency, ratio)
    return claim if sound else None


def _read_evidence(certificate: Certificate, n_clients: int) -> tuple[Floats, Integers] | None:
    """Return a certificate's potentials and levels, or None if they do not define weights."""
    potentials, levels = _array(certificate.potentials, "fiu"), _array(certificate.levels, "iu")
    if potentials is None or levels is None or not potentials.size == levels.size == n_clients:
        return None
    if not np.isfinite(potentials).all():
        return None
    # Only the order of the levels matters.
    ranks = np.unique(levels, return_inverse=True)[1]
    return potentials.astype(np.float64), ranks.astype(np.int64)


def _array(values: Any, kinds: str) -> NDArray[Any] | None:
    """Return a flat array with numbers of these kinds, or None if the values are not one."""
    if isinstance(values, np.ma.MaskedArray):
        return None
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        return None
    return array if array.ndim == 1 and (array.dtype.kind in kinds or not array.size) else None


def _above_one(ratio: float) -> str:
    """Return a ratio in so many digits that one just above 1 does not read as 1."""
    return f"{ratio:.{2 - math.floor(math.log10(ratio - 1.0)) if 1.0 < ratio < 2.0 else 3}g}"


def _number(value: Any) -> float:
    """Return a real number as a float, or NaN, which no comparison accepts."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan
