"""Tangents of the coverage: upper bounds that are sums over clients.

The coverage of independent clients, of uniform cohorts and of each listed cohort is a concave
function of a sum over clients, f(I) = g(a(I)), and lies below its tangents: for any slope s of g at
a(I),

    f(J) ≤ f(I) + Σ_{i∈J∖I} s a_i − Σ_{i∈I∖J} s a_i      for every set J.

The bound of a mixture is the average over its states. Other laws have no tangents here.
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
"""Largest exponent a_i: such a client misses one round in e^50, and sums of a stay finite."""

Slopes = Callable[[Integers], Floats]


def slopes_along(law: SolvableLaw, levels: Integers) -> Slopes | None:
    """Return the tangents at the unions of the first levels, or None for a law without tangents.

    They are a function from a number of levels per client to the slope of each client at the union
    of the first so many, which falls as the number rises.
    """
    if isinstance(law, Mixture):
        parts = [part for part in (slopes_along(one, levels) for one in law.laws) if part]
        weights = law.probabilities
        if len(parts) < weights.size:
            return None
        return lambda counts: weights @ [part(counts) for part in parts]
    if isinstance(law, IndependentClients):
        exponents = np.minimum(law.exponents, _MOST_EXPONENT)
        missed = np.exp(-np.append(0.0, np.cumsum(np.bincount(levels, exponents))))
        return lambda counts: missed[counts] * (exponents / law.nonempty)
    if isinstance(law, UniformCohorts):
        gains = law.prefix_gains(np.arange(law.n_clients))
        # The mean of what the last client added and what the next one will add.
        slopes = (np.append(gains[0], gains) + np.append(gains, gains[-1])) / 2
        by_level = slopes[np.append(0, np.cumsum(np.bincount(levels)))]
        return lambda counts: by_level[counts]
    return _of_cohorts(law, levels) if isinstance(law, Cohorts) else None


def _of_cohorts(law: Cohorts, levels: Integers) -> Slopes:
    """Take slope 1 while no member of a cohort is in I, 1/2 with one member, 0 with more."""
    incidence = law.incidence
    owners = incidence.spread_over_members(np.arange(incidence.n_cohorts))
    members = incidence.members
    ordered = levels[members[np.lexsort((levels[members], owners))]]
    firsts = incidence.offsets[:-1]
    alone = incidence.sizes == 1
    # The only member of a cohort always adds all of it.
    never = int(levels.max()) + 2
    first = np.where(alone, never, ordered[firsts])[owners]
    second = np.where(alone, never, ordered[np.where(alone, firsts, firsts + 1)])[owners]
    half = law.probabilities[owners] / 2

    def slopes(counts: Integers) -> Floats:
        own = counts[members]
        entries = half * ((own <= first) + 1.0 * (own <= second))
        return np.asarray(np.bincount(members, entries, minlength=law.n_clients))

    return slopes
