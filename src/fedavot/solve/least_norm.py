"""Levels of laws without a list of cohorts, by a method that ends: the base of least norm.

The attainable importances are the bases of the coverage f: x ≥ 0 with x(I) ≤ f(I) for every set
and x([N]) = 1. The nearest one, p̃, is the base of least Σ x_i²/p_i (Fujishige 1980), and its levels
are the clients of equal x_i/p_i. A linear function is least over the bases at the one that the
greedy algorithm builds (Edmonds 1970), which needs nothing but the coverage of prefixes. Wolfe's
algorithm (1976) finds the least norm from such bases: it adds one that lies nearer to the origin,
goes to the least norm in the flat that they span, and drops those that this point does not need.
The norm falls from each set of bases to the next, so none comes twice.
"""

from dataclasses import dataclass

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._law import SolvableLaw

_ROUNDING = 1e-14
"""Share of the squared norm by which another base must be nearer to the origin."""
_EQUAL = 1e-9
"""Relative difference of ratios up to which clients are of one level."""
_MOST_WORK = 1e11
"""Operations after which the point reached is used as it is: about ten seconds."""


@dataclass(frozen=True, eq=False)
class _Bases:
    """Bases x/√p as rows, the order of the clients that each was built along, and their shares."""

    rows: Floats
    orders: Integers
    shares: Floats

    @property
    def point(self) -> Floats:
        """The combination of the bases, shape (n_clients,)."""
        return np.asarray(self.shares @ self.rows)

    def joined(self, row: Floats, order: Integers) -> "_Bases":
        """Return these bases and another one, of share zero."""
        return _Bases(
            np.vstack((self.rows, row)),
            np.vstack((self.orders, order)),
            np.append(self.shares, 0.0),
        )

    def chosen(self, kept: Integers, shares: Floats) -> "_Bases":
        """Return some of the bases, with new shares."""
        return _Bases(self.rows[kept], self.orders[kept], shares[kept] / shares[kept].sum())


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
    bases = _Bases(base(first)[None], first[None], np.ones(1))
    work = 0.0
    while work < _MOST_WORK:
        point = bases.point
        order = np.argsort(point / root, kind="stable")
        row = base(order)
        if point @ (point - row) <= _ROUNDING * (point @ point):
            break
        try:
            bases, spent = _nearest(bases.joined(row, order))
        except np.linalg.LinAlgError:
            break  # up to rounding the new base is a combination of the others
        work += spent
    return np.concatenate((wanted[_by_level(bases, root)], rest))


def _nearest(bases: _Bases) -> tuple[_Bases, float]:
    """Return the bases whose flat has its least norm between them, and the operations spent."""
    work = 0.0
    while True:
        aim = _flat_minimum(bases.rows)
        work += 2.0 * bases.rows.size * len(bases.rows)
        if aim.min() > 0.0:
            return _Bases(bases.rows, bases.orders, aim), work
        # Go towards it until the first base is no longer needed.
        falling = aim < bases.shares
        limits = np.full(aim.size, np.inf)
        np.divide(bases.shares, bases.shares - aim, out=limits, where=falling & (aim <= 0.0))
        step = min(1.0, float(limits.min()))
        shares = bases.shares + step * (aim - bases.shares)
        shares[np.argmin(limits)] = 0.0
        bases = bases.chosen(np.flatnonzero(shares > 0.0), shares)


def _flat_minimum(rows: Floats) -> Floats:
    """Return the shares, summing to one, of the least norm in the flat through the rows."""
    from scipy.linalg import qr, solve_triangular

    # By an orthogonal factor, because products of the rows would square their condition.
    (upper,) = qr(rows.T, mode="r", check_finite=False)
    upper = upper[: len(rows)]
    inner = solve_triangular(upper, np.ones(len(rows)), trans="T", check_finite=False)
    shares = solve_triangular(upper, inner, check_finite=False)
    return np.asarray(shares / shares.sum())


def _by_level(bases: _Bases, root: Floats) -> Integers:
    """Order clients by the ratio of their level, and within it along one of the bases.

    Sets that are tight inside a level are so for every base, whose order puts them before those
    they meet.
    """
    ratios = bases.point / root
    order = np.argsort(ratios, kind="stable")
    rising = np.diff(ratios[order]) > _EQUAL * ratios[order][1:]
    level = np.empty(order.size, dtype=np.int64)
    level[order] = np.append(0, np.cumsum(rising))
    rank = np.empty(order.size, dtype=np.int64)
    rank[bases.orders[np.argmax(bases.shares)]] = np.arange(order.size)
    return np.lexsort((rank, level))
