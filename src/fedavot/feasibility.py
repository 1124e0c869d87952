"""Decide whether an importance is attainable, with a certificate either way.

Laws with a worst order are decided by one scan of its prefixes, N log N. For the others, levels and
potentials are found first and handed over as evidence: `certificate` checks them against the law.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, as_importance
from fedavot.certificate import FEASIBLE_SLACK, Certificate
from fedavot.laws._law import Law, as_law
from fedavot.solve.decompose import Effort, decompose
from fedavot.solve.levels import Partition, partition

_FEASIBLE = Certificate(True, np.empty(0, dtype=np.int64), 0.0, 1.0)
_EFFORT = Effort(tol=1e-10, max_iter=2000, method="auto")


def certify(importance: ArrayLike, law: Law) -> Certificate:
    """Decide whether weights exist whose expectation is the importance.

    Parameters
    ----------
    importance : array-like, shape (n_clients,)
        The importance wanted of each client, summing to one.
    law : Law
        The availability law.

    Returns
    -------
    Certificate
        Its ``verify`` checks it with code that shares nothing with the solver.

    Examples
    --------
    >>> from fedavot import Cohorts
    >>> certificate = certify([0.6, 0.2, 0.2], Cohorts([[0, 1], [1, 2]]))
    >>> certificate.feasible, certificate.deficient.tolist(), round(certificate.deficiency, 3)
    (False, [0], 0.1)
    """
    wanted = as_importance(importance, as_law(law).n_clients)
    order = law.worst_order(wanted)
    if order is not None:
        slack = law.prefix_coverage(order) - np.cumsum(wanted[order])
        if slack.min() >= -FEASIBLE_SLACK:
            return _FEASIBLE
        return _claim(wanted, partition(wanted, law, order), None)
    solution = decompose(wanted, law, _EFFORT)
    return _claim(wanted, solution.parts, solution.run.potentials)


def _claim(importance: Floats, parts: Partition, potentials: Floats | None) -> Certificate:
    levels = None if potentials is None else parts.levels
    deficiency = float(np.maximum(importance - parts.target, 0.0).sum())
    if deficiency <= FEASIBLE_SLACK:
        return replace(_FEASIBLE, potentials=potentials, levels=levels)
    short = parts.ratios[parts.levels] < 1.0 - FEASIBLE_SLACK
    worst = float(parts.ratios[0])
    return Certificate(
        False,
        np.flatnonzero(short & (importance > 0)),
        deficiency,
        np.inf if worst <= 0 else 1.0 / worst,
        potentials,
        levels,
    )
