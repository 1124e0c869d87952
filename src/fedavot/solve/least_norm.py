"""Levels of laws without a list of cohorts, by a method that ends: the base of least norm.

The attainable importances are the bases of the coverage f: x ≥ 0 with x(I) ≤ f(I) for every set
and x([N]) = 1. The nearest one, p̃, is the base of least Σ x_i²/p_i (Fujishige 1980), and its levels
are the clients of equal x_i/p_i. A linear function is least over the bases at the one that the
greedy algorithm builds (Edmonds 1970), which needs nothing but the coverage of prefixes. Wolfe's
algorithm (1976) finds the least norm from such bases: it adds one that lies nearer to the origin,
goes to the least norm in the flat that they span, and drops those that this point does not need.
The norm falls from each set of bases to the next, so none comes twice.
"""

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._law import SolvableLaw

# Share of the squared norm by which another base must be nearer to the origin.
_ROUNDING = 1e-14
# Relative difference of ratios up to which clients are of one level.
_EQUAL = 1e-9
# Operations after which the point reached is used as it is: about ten seconds.
_MOST_WORK = 1e11


def least_norm_order(importance: Floats, law: SolvableLaw, start: Integers) -> Integers:
    """Return an order of all clients in which every level is a run, the most deficient first.

    The search starts from the base along ``start``. Clients without importance come last.
    """
    wanted = np.flatnonzero(importance > 0)
    rest = np.flatnonzero(importance == 0)
    place = np.full(importance.size, -1)
    place[wanted] = np.arange(wanted.size)
    root = np.sqrt(importance[wanted])

    def base(order: Integers) -> Floats:
        """Return the greedy base along an order of the clients with importance."""
        row = np.empty(order.size)
        row[order] = law.prefix_gains(np.concatenate((wanted[order], rest)))[: order.size]
        return row / root

    first = place[start]
    first = first[first >= 0]
    # Bases x/√p as rows, the order of the clients that each was built along, and their shares.
    rows, orders, shares = base(first)[None], first[None], np.ones(1)
    work = 0.0
    while True:
        point = shares @ rows
        order = np.argsort(point / root, kind="stable")
        row = base(order)
        if work >= _MOST_WORK or point @ (point - row) <= _ROUNDING * (point @ point):
            break
        before = rows, orders, shares
        rows, orders = np.vstack((rows, row)), np.vstack((orders, order))
        shares = np.append(shares, 0.0)
        try:
            while (aim := _flat_minimum(rows)).min() <= 0.0:
                # Go towards it until the first base is no longer needed.
                work += 2.0 * rows.size * len(rows)
                falling = aim < shares
                limits = np.full(aim.size, np.inf)
                np.divide(shares, shares - aim, out=limits, where=falling & (aim <= 0.0))
                shares = shares + min(1.0, float(limits.min())) * (aim - shares)
                shares[np.argmin(limits)] = 0.0
                needed = shares > 0.0
                rows, orders, shares = rows[needed], orders[needed], shares[needed]
                shares = shares / shares.sum()
        except np.linalg.LinAlgError:
            rows, orders, shares = before
            break  # up to rounding the new base is a combination of the others
        work += 2.0 * rows.size * len(rows)
        shares = aim
    # Order clients by the ratio of their level, and within it along one of the bases: sets that
    # are tight inside a level are so for every base, whose order puts them before those they meet.
    ratios = (shares @ rows) / root
    order = np.argsort(ratios, kind="stable")
    rising = np.diff(ratios[order]) > _EQUAL * ratios[order][1:]
    level, rank = np.empty_like(order), np.empty_like(order)
    level[order] = np.append(0, np.cumsum(rising))
    rank[orders[np.argmax(shares)]] = np.arange(order.size)
    return np.concatenate((wanted[np.lexsort((rank, level))], rest))


def _flat_minimum(rows: Floats) -> Floats:
    """Return the shares, summing to one, of the least norm in the flat through the rows."""
    from scipy.linalg import qr, solve_triangular

    # By an orthogonal factor, because products of the rows would square their condition.
    (upper,) = qr(rows.T, mode="r", check_finite=False)
    upper = upper[: len(rows)]
    inner = solve_triangular(upper, np.ones(len(rows)), trans="T", check_finite=False)
    shares = solve_triangular(upper, inner, check_finite=False)
    return np.asarray(shares / shares.sum())
