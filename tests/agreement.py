"""Compare a law with a table of its cohorts, one promise of the law at a time."""

import numpy as np

import brute
from fedavot.laws._laplacian import Factored

EXACT = 1e-12
"""What the library promises of every expectation; sums of 1,000 terms round to less."""


def close(found, wanted, tol=EXACT):
    """Say whether two arrays agree, entry by entry; NaN agrees with nothing."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    return found.shape == wanted.shape and bool(np.all(np.abs(found - wanted) <= tol))


def same_table(found, wanted, tol=EXACT):
    """Say whether two tables give every cohort the same probability."""
    return all(
        abs(found.get(cohort, 0) - wanted.get(cohort, 0)) <= tol for cohort in found | wanted
    )


def check_weights(law, cohorts, potentials, levels):
    found = law.expected_weights(potentials, levels)
    assert close(found, brute.expected_weights(cohorts, potentials, levels))


def check_coverages(law, cohorts):
    sets = brute.all_sets(law.n_clients)
    found = [law.coverage(np.flatnonzero(clients)) for clients in sets]
    assert close(found, brute.all_coverages(cohorts, law.n_clients).astype(np.float64))


def check_inclusion(law, cohorts):
    assert close(law.inclusion(), brute.inclusion(cohorts, law.n_clients))


def check_prefixes(law, cohorts, order):
    wanted = [brute.coverage(cohorts, order[: k + 1]) for k in range(order.size)]
    assert close(np.cumsum(law.prefix_gains(order)), wanted)


def check_curvature(law, cohorts, potentials, levels):
    """Compare the curvature with E[Y], E[Y²] and E[diag(Y) − Y Yᵀ].

    Laws in closed form have products by their factors alone, which are approximate.
    """
    point = law.system(levels).curvature(potentials)
    hessian = brute.hessian(cohorts, potentials, levels)
    assert close(point.marginal, brute.expected_weights(cohorts, potentials, levels))
    assert close(point.squares, brute.expected_squares(cohorts, potentials, levels))
    assert close(point.dense(), hessian)
    if not isinstance(point, Factored):
        direction = np.cos(np.arange(law.n_clients) * 1.7)
        assert close(point.product(direction), hessian @ direction)


def check_worst_order(law, cohorts, importance):
    """Check that some prefix of the worst order is as bad as any of the 2^N sets."""
    order = law.worst_order(importance)
    assert sorted(order.tolist()) == list(range(law.n_clients))
    wanted = np.cumsum(importance[order])
    covered = np.array([brute.coverage(cohorts, order[: k + 1]) for k in range(order.size)])
    worst = brute.hall(importance, cohorts)
    assert abs(max(0.0, np.max(wanted - covered)) - worst.deficiency) <= EXACT
    some = wanted > 0
    with np.errstate(divide="ignore"):
        ratio = np.max(wanted[some] / covered[some])
    # Ratios reach 1e12 where a wanted client hardly ever takes part: compare them relatively.
    assert ratio == worst.ratio or abs(ratio / worst.ratio - 1.0) <= 1e-9
