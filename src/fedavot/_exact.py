"""The bounds of a certificate in exact arithmetic, for explicit cohorts.

Every float is an integer over a power of two. So the importance p and the cohorts' probabilities q
are used as they are, divided by their exact sums. The weights of a cohort start from a softmax in
floating point, as integers over a common power of two 2^s; the difference of their sum from 2^s is
added to the largest. They then sum to one exactly, so they are valid weights, and their
expectation m is exactly attainable, whatever the rounding of the softmax. From there on only
integers are added, multiplied and compared.
"""

from collections.abc import Iterable
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot._simplex import softmax
from fedavot.errors import UnavailableError
from fedavot.laws._law import SolvableLaw, as_potentials
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.successive import explicit_cohorts

_MANTISSA = 53
"""Bits of a float's mantissa."""
MOST_ENTRIES = 100_000
"""Total number of members of all cohorts that exact arithmetic handles in a second or two."""


class Bounds(NamedTuple):
    """Bounds on all sets, from a set I, some other sets and attainable expected weights m.

    Ratios are coverage over importance, the inverse of the Hall ratio: they are finite, and 0 where
    the Hall ratio is infinite.

    Attributes
    ----------
    violation : Fraction
        p(I) − f(I), at most the deficiency.
    excess : Fraction
        At least the deficiency, such as Σ max(p_i − m_i, 0).
    distance : Fraction
        At least the L1 distance from p to the nearest attainable importance, such as Σ |p_i − m_i|.
    share : Fraction
        The least f(J)/p(J) over the sets J that were tried.
    least : Fraction
        At most f(J)/p(J) for every set J: min m_i/p_i, or what is left of it where some m_i is 0.
    """

    violation: Fraction
    excess: Fraction
    distance: Fraction
    share: Fraction
    least: Fraction


def explicit(law: SolvableLaw) -> Cohorts:
    """Return the law's list of cohorts, or raise an error if exact arithmetic does not apply."""
    cohorts = explicit_cohorts(law)
    if cohorts is None:
        raise UnavailableError(
            f"exact verification needs an explicit list of cohorts, found {type(law).__name__}; "
            "leave out exact=True, or list the law's cohorts in Cohorts"
        )
    entries = cohorts.incidence.members.size
    if entries > MOST_ENTRIES:
        raise UnavailableError(
            f"exact verification needs cohorts of at most {MOST_ENTRIES:,} members in all, "
            f"found {entries:,}; leave out exact=True"
        )
    return cohorts


def exact_bounds(
    importance: Floats, law: Cohorts, deficient: Integers, potentials: Floats, levels: Integers
) -> Bounds:
    """Return a certificate's bounds as fractions; ``deficient`` has distinct clients."""
    (wanted, _), (chances, _) = _integers(importance), _integers(law.probabilities)
    attained, shift = _attained(law, chances, potentials, levels)
    wanted_total, chance_total = sum(wanted), sum(chances)
    # p_i and m_i over one denominator.
    of_wanted, of_attained = chance_total << shift, wanted_total
    whole = wanted_total * of_wanted
    differences = [
        mine * of_wanted - given * of_attained for mine, given in zip(wanted, attained, strict=True)
    ]
    met = np.flatnonzero(law.incidence.minimum(~np.isin(np.arange(law.n_clients), deficient)) == 0)
    violation = Fraction(sum(wanted[client] for client in deficient), wanted_total)
    violation -= Fraction(sum(chances[cohort] for cohort in met), chance_total)
    order = np.lexsort((-potentials, levels, importance == 0))
    prefixes = accumulate(wanted[client] for client in order)
    return Bounds(
        violation,
        Fraction(sum(each for each in differences if each > 0), whole),
        Fraction(sum(abs(each) for each in differences), whole),
        _least_ratio(_covered(law, chances, order), prefixes)
        * Fraction(wanted_total, chance_total),
        _least_attained(
            [given * wanted_total for given in attained],
            [mine * of_wanted for mine in wanted],
            [chance * wanted_total << shift for chance in _included(law, chances)],
        ),
    )


def _integers(values: Floats) -> tuple[list[int], int]:
    """Return non-negative floats times a common 2^shift, as integers, and the shift."""
    mantissas, exponents = np.frexp(values)
    least = int(exponents[values > 0].min())
    whole = np.ldexp(mantissas, _MANTISSA).astype(np.int64).tolist()
    places = np.maximum(exponents - least, 0).tolist()
    return [number << by for number, by in zip(whole, places, strict=True)], _MANTISSA - least


def _attained(
    law: Cohorts, chances: list[int], potentials: Floats, levels: Integers
) -> tuple[list[int], int]:
    """Return expected weights times the total of the chances and 2^shift, and the shift."""
    used = law.incidence.within(levels)
    weights = softmax(as_potentials(potentials, law.n_clients)[used.members], used.offsets)
    scaled, shift = _integers(weights)
    members, offsets = used.members.tolist(), used.offsets.tolist()
    attained = [0] * law.n_clients
    for cohort, chance in enumerate(chances):
        first, last = offsets[cohort], offsets[cohort + 1]
        row = scaled[first:last]
        row[row.index(max(row))] += (1 << shift) - sum(row)
        for client, weight in zip(members[first:last], row, strict=True):
            attained[client] += chance * weight
    return attained, shift


def _covered(law: Cohorts, chances: list[int], order: Integers) -> Iterable[int]:
    """Return the coverage of each prefix of the order, times the total of the chances."""
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    gained = [0] * order.size
    for first, chance in zip(law.incidence.minimum(rank).tolist(), chances, strict=True):
        gained[first] += chance
    return accumulate(gained)


def _included(law: Cohorts, chances: list[int]) -> list[int]:
    """Return the inclusion probability of each client, times the total of the chances."""
    included = [0] * law.n_clients
    sizes = np.diff(law.incidence.offsets)
    cohorts = np.repeat(np.arange(sizes.size), sizes).tolist()
    for client, cohort in zip(law.incidence.members.tolist(), cohorts, strict=True):
        included[client] += chances[cohort]
    return included


def _least_attained(attained: list[int], wanted: list[int], included: list[int]) -> Fraction:
    """Return a bound on all ratios from m, p and the inclusion probabilities, at one scale.

    Clients that get nothing add p_i/f({i}) to the largest p_i/m_i of the others.
    """
    nothing = [i for i, given in enumerate(attained) if given == 0 < wanted[i]]
    if not nothing:
        return _least_ratio(attained, wanted)
    if any(included[i] == 0 for i in nothing):
        return Fraction(0)
    pairs = zip(wanted, attained, strict=True)
    most = max(Fraction(mine, given) for mine, given in pairs if given > 0)
    return 1 / (most + sum(Fraction(wanted[i], included[i]) for i in nothing))


def _least_ratio(above: Iterable[int], below: Iterable[int]) -> Fraction:
    """Return the least ratio among those with a positive denominator."""
    pairs = ((high, low) for high, low in zip(above, below, strict=True) if low > 0)
    least, over = next(pairs)
    for high, low in pairs:
        if high * over < least * low:
            least, over = high, low
    return Fraction(least, over)
