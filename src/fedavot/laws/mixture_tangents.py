"""Bound a mixture's coverage from above by what each client adds on its own.

The coverage of independent clients, of uniform cohorts and of each listed cohort is a concave
function of a sum over clients, f(I) = g(a(I)). A tangent lies above it: with s any slope of g at
a(I),

    f(J) ≤ f(I) + Σ_{i∈J∖I} s a_i − Σ_{i∈I∖J} s a_i      for every set J.

A mixture's bound is the average of its states'. Laws that are not of this form have none here.
"""

from collections.abc import Callable

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._law import SolvableLaw
from fedavot.laws.cohorts import Cohorts
from fedavot.laws.independent import IndependentClients
from fedavot.laws.mixture import Mixture
from fedavot.laws.uniform import UniformCohorts

_MOST_EXPONENT = 50.0
"""A client that misses a round in e^50 is always there, and sums with it are still floats."""

Slopes = Callable[[Integers], Floats]
"""From a number of levels for each client to s a_i where I is that many levels together."""


def slopes_along(law: SolvableLaw, levels: Integers) -> Slopes | None:
    """Return the bounds at the unions of the first levels, or None for a law without any.

    Parameters
    ----------
    law : SolvableLaw
    levels : int array, shape (n_clients,)
        From 0; I is the union of none, one, two, … of them.

    Returns
    -------
    callable or None
        Given one number of levels per client, what the bound says each client adds to them, or
        takes away with it; falling in that number.
    """
    if isinstance(law, Mixture):
        parts = [slopes_along(part, levels) for part in law.laws]
        known = [part for part in parts if part is not None]
        return _averaged(known, law.probabilities) if len(known) == len(parts) else None
    if isinstance(law, IndependentClients):
        return _of_independent(law, levels)
    if isinstance(law, UniformCohorts):
        return _of_uniform(law, levels)
    return _of_cohorts(law, levels) if isinstance(law, Cohorts) else None


def _averaged(parts: list[Slopes], weights: Floats) -> Slopes:
    def slopes(counts: Integers) -> Floats:
        total = np.zeros(counts.size)
        for weight, part in zip(weights, parts, strict=True):
            total += weight * part(counts)
        return total

    return slopes


def _of_independent(law: IndependentClients, levels: Integers) -> Slopes:
    exponents = np.minimum(law.exponents, _MOST_EXPONENT)
    missed = np.exp(-_cumulated(np.bincount(levels, exponents)))
    return lambda counts: missed[counts] * (exponents / law.nonempty)


def _of_uniform(law: UniformCohorts, levels: Integers) -> Slopes:
    gains = law.prefix_gains(np.arange(law.n_clients))
    # Between what the last client added and what the next one will.
    slopes = (np.append(gains[0], gains) + np.append(gains, gains[-1])) / 2
    by_level = slopes[_cumulated(np.bincount(levels)).astype(np.int64)]
    return lambda counts: by_level[counts]


def _of_cohorts(law: Cohorts, levels: Integers) -> Slopes:
    """Take slope 1 as long as none of a cohort is there, 1/2 with one member, 0 with more."""
    incidence = law.incidence
    owners = incidence.spread_over_members(np.arange(incidence.n_cohorts))
    members = incidence.members
    ordered = levels[members[np.lexsort((levels[members], owners))]]
    firsts = incidence.offsets[:-1]
    alone = incidence.sizes == 1
    # A single member adds all of its cohort whatever else is there.
    never = int(levels.max()) + 2
    first = np.where(alone, never, ordered[firsts])[owners]
    second = np.where(alone, never, ordered[np.where(alone, firsts, firsts + 1)])[owners]
    half = law.probabilities[owners] / 2

    def slopes(counts: Integers) -> Floats:
        own = counts[members]
        entries = half * ((own <= first) + 1.0 * (own <= second))
        return np.asarray(np.bincount(members, entries, minlength=law.n_clients))

    return slopes


def _cumulated(values: Floats | Integers) -> Floats:
    return np.concatenate(([0.0], np.cumsum(values)))
