"""Decide whether an importance is attainable, with a certificate either way.

Laws with a worst order are decided by one scan of its prefixes, in O(N log N); for many independent
clients with slack to spare, a histogram of p_i/a_i is enough, without sorting. For the other laws,
levels and potentials are found first, as evidence. No certificate is returned as proven before its
own `verify` has accepted it; if it refuses, the evidence is computed again, by the method that does
not depend on potentials to find the levels.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, as_importance
from fedavot._clients import agreed_names, in_client_order
from fedavot.certificate import FEASIBLE_SLACK, Certificate, holds
from fedavot.laws._law import Law, SolvableLaw, as_law
from fedavot.laws.independent import IndependentClients
from fedavot.solve.dual import Solution, StoppingRule
from fedavot.solve.levels import Partition, one_level, partition
from fedavot.solve.search import decompose, refine, resolve

# Number of clients from which on a second method pays that avoids sorting.
_MANY = 100_000
_FEASIBLE = Certificate(True, np.empty(0, dtype=np.int64), 0.0, 1.0)
# The ratios of the clients prove a Hall ratio, so every client must be close to its target.
_STOP = StoppingRule(tol=1e-10, max_iter=2000, method="auto", relative=2e-10)
_VANISHING, _TOL = 1e-13, 1e-9


def certify(
    importance: ArrayLike | Mapping[str, float],
    law: Law,
    *,
    clients: Sequence[str] | None = None,
) -> Certificate:
    """Decide whether weights exist whose expectation is the importance.

    Parameters
    ----------
    importance : array-like of shape (n_clients,), or mapping from client name to float
        Importance of each client, summing to one.
    law : Law
        The availability law: one of this package, or an object with the members of `Law`.
    clients : sequence of str, optional
        The clients' names, in the order of their indices; the law's by default.

    Returns
    -------
    Certificate
        Its ``verify`` checks it against the law with code that imports no solver, and has already
        accepted it unless ``proven`` is False.

    Examples
    --------
    >>> from fedavot import Cohorts
    >>> certificate = certify([0.6, 0.2, 0.2], Cohorts([[0, 1], [1, 2]]))
    >>> certificate.feasible, certificate.deficient.tolist(), round(certificate.deficiency, 3)
    (False, [0], 0.1)
    """
    law = as_law(law)
    names = getattr(law, "clients", None)
    if clients is not None:
        names = agreed_names(law.n_clients, clients, names)
    shares = as_importance(in_client_order(importance, names), law.n_clients, names)
    order = None
    clear = isinstance(law, IndependentClients) and law.n_clients >= _MANY and _clear(shares, law)
    if not clear and (order := law.worst_order(shares)) is not None:
        slack = np.cumsum(law.prefix_gains(order)) - np.cumsum(shares[order])
        clear = bool(slack.min() >= -FEASIBLE_SLACK)
    if clear:
        return replace(_FEASIBLE, clients=names)
    if order is not None:
        claims = iter((_claim(shares, partition(shares, law, order), None),))
    else:
        claims = (
            _claim(shares, solution.partition, solution.iterate.potentials)
            for solution in _solutions(shares, law)
        )
    for claim in claims:
        if holds(claim, shares, law, _TOL):
            return replace(claim, clients=names)
    return replace(claim, clients=names, proven=False)


def _solutions(importance: Floats, law: SolvableLaw) -> Iterator[Solution]:
    """Yield evidence to be checked, the cheapest first."""
    quick = replace(_STOP, relative=np.inf)
    yield refine(importance, law, decompose(importance, law, quick), quick)
    solution = decompose(importance, law, _STOP)
    # A deficiency below the solver's tolerance does not show in the residual, but it does in the
    # order of the potentials: read the levels once more.
    yield refine(importance, law, solution, _STOP)
    yield solution
    begin = replace(solution.iterate, evaluations=0)
    sure = resolve(importance, law, _STOP, Solution(one_level(importance, law), begin))
    yield refine(importance, law, sure, _STOP)
    yield sure
    # Potentials may be unable to follow importance that vanishes beside the tolerance.
    large = np.where(importance < _VANISHING, 0.0, importance)
    yield decompose(large / large.sum(), law, _STOP)


def _claim(importance: Floats, split: Partition, potentials: Floats | None) -> Certificate:
    levels = None if potentials is None else split.levels
    deficiency = float(np.maximum(importance - split.target, 0.0).sum())
    if deficiency <= FEASIBLE_SLACK:
        return replace(_FEASIBLE, potentials=potentials, levels=levels)
    short = split.ratios[split.levels] < 1.0 - FEASIBLE_SLACK
    worst = float(split.ratios[0])
    return Certificate(
        False,
        np.flatnonzero(short & (importance > 0)),
        deficiency,
        np.inf if worst <= 0 else 1.0 / worst,
        potentials,
        levels,
    )


def _clear(importance: Floats, law: IndependentClients) -> bool:
    """Say whether a histogram of p_i/a_i proves feasibility; False decides nothing.

    Between two edges of the histogram the sorted curve of (a, p) has slopes within the bucket's, so
    it stays below the two lines with the steeper slope from the left edge and the flatter one into
    the right edge; the coverage is concave in a and stays above its chord. So if the chord passes
    above the point where the two lines cross, no prefix inside the bucket can violate.
    """
    exponents = law.exponents
    if not (importance.min() > 0 and exponents.min() > 0 and np.isfinite(exponents.max())):
        return False
    # The upper half of a float32's bits: buckets of relative width 1/128, in rising order.
    keys = (importance / exponents).astype(np.float32).view(np.uint32) >> 16
    rise, width = np.bincount(keys, importance), np.bincount(keys, exponents)
    used = np.flatnonzero(rise)[::-1]
    rise, width = rise[used], width[used]
    low = (used.astype(np.uint32) << 16).view(np.float32).astype(np.float64) * (1 - 1e-7)
    high = ((used + 1).astype(np.uint32) << 16).view(np.float32) * (1 + 1e-7)
    right = np.cumsum(width)
    covered = -np.expm1(-right) / -np.expm1(-right[-1])
    slack = covered - np.cumsum(rise)
    steps = np.diff(covered, prepend=0.0)
    place = np.clip((rise - low * width) / ((high - low) * width), 0.0, 1.0)
    crossing = np.append(0.0, slack[:-1]) + steps * place - high * width * place
    # Rounding is allowed for as elsewhere; closer cases are left to the exact scan.
    return bool(min(crossing.min(), slack.min()) >= -FEASIBLE_SLACK)
