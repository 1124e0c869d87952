"""Find the levels of laws without a list of cohorts, by soft alignment.

With softness ρ and a pull weighted by the logarithmic mean of target and present weight, the
potential of a client in a level of ratio λ is −log(λ)/ρ above the mean: ever smaller ρ separates
ever closer levels. Each pass aligns softly within the present levels and reads them again; once
they stay the same, the exact target has to be met within them, which proves them right. Potentials
only move a client from one level to the next, so where the law allows it, clients are first
exchanged between all levels by their own ratios. Where all this fails, the base of least norm has
the levels.

*Exchange.* Levels come from a chain of sets: for each ratio λ the set I_λ of all levels up to it,
which should minimise f(I) − λ p(I). The tangents of the coverage (`laws.tangents`) bound
f(J) − λ p(J) from above by a sum over clients that is exact at J = I_λ and least for the set of
clients whose slope is below λ p_i. Taking that set never raises f − λ p, at any λ; and as slopes
fall along the chain, the new sets form a chain again. So a client in the wrong level moves to the
right one in a single step, however many levels lie in between. What no single move improves, such
as the separation of tight sets, is left to the potentials.

*Least norm.* The attainable importances are the bases of the coverage f: x ≥ 0 with x(I) ≤ f(I) for
every set and x([N]) = 1. The nearest one, p̃, is the base of least Σ x_i²/p_i (Fujishige 1980), and
its levels are the clients of equal x_i/p_i. A linear function is least over the bases at the one
that the greedy algorithm builds (Edmonds 1970), which needs nothing but the coverage of prefixes.
Wolfe's algorithm (1976) finds the least norm from such bases: it adds one that lies nearer to the
origin, goes to the least norm in the flat that they span, and drops those that this point does not
need. The norm falls from each set of bases to the next, so none comes twice.
"""

from dataclasses import replace

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.laws._law import SolvableLaw
from fedavot.laws.tangents import slopes_along
from fedavot.solve.direction import logarithmic_mean
from fedavot.solve.dual import DualProblem, Iterate, Pull, Solution, StoppingRule
from fedavot.solve.levels import Partition, gathered, partition, reread
from fedavot.solve.newton import CLIMBS, climb_until, newton

# Softness of the first and of the last pass, and the factor by which it falls between two.
_FIRST_SOFTNESS, _LEAST_SOFTNESS, _FALL = 0.3, 1e-13, 5.0
# Relative error of a soft alignment that is used for its order alone.
_ORDERED = 0.01
# Evaluations after which a climb within levels must have come three times closer.
_PROBE = 6
# Relative difference of ratios from which on a client counts as being in the wrong level.
_CLEARLY = 1e-9
_MOST_EXCHANGES = 30
# Share of the squared norm by which another base must be nearer to the origin.
_ROUNDING = 1e-14
# Relative difference of ratios up to which clients are of one level.
_EQUAL = 1e-9
# Operations after which the point reached is used as it is: about ten seconds.
_MOST_WORK = 1e11


def by_softening(
    importance: Floats, law: SolvableLaw, stop: StoppingRule, evaluations: int
) -> Solution:
    """Separate levels by ever smaller softness; where that fails, by the base of least norm."""
    best = _softening(importance, law, stop, evaluations)
    spent = best.iterate.evaluations
    problem = DualProblem.within(importance, law, best.partition)
    if problem.met(best.iterate, stop) or spent >= stop.max_iter:
        return best
    order = np.argsort(best.partition.levels, kind="stable")
    split = partition(importance, law, least_norm_order(importance, law, order))
    start = Iterate.start(np.zeros(importance.size), spent)
    iterate = climb_until(DualProblem.within(importance, law, split), start, stop)
    if iterate.residual <= best.iterate.residual:
        return Solution(split, iterate)
    return replace(best, iterate=replace(best.iterate, evaluations=iterate.evaluations))


def _softening(
    importance: Floats, law: SolvableLaw, stop: StoppingRule, evaluations: int
) -> Solution:
    """Align softly within the present levels and read them again, until the target is met."""
    split = first_levels(importance, law)
    problem = DualProblem.within(importance, law, split)
    iterate = newton(problem, Iterate.start(np.zeros(importance.size), evaluations), stop, budget=1)
    best, softness = Solution(split, iterate), _FIRST_SOFTNESS
    while True:
        # With this pull a client is −log(λ)/ρ above the mean, whatever the order of magnitude of λ.
        weights = np.where(problem.free, logarithmic_mean(problem.target, iterate.marginal), 0.0)
        rough = replace(stop, tol=_ORDERED * softness, relative=_ORDERED * softness)
        pull = Pull(softness, weights, problem.parts)
        iterate = newton(problem, iterate, rough, budget=CLIMBS[0], pull=pull)
        if softness < _LEAST_SOFTNESS or iterate.evaluations >= stop.max_iter:
            return replace(best, iterate=replace(best.iterate, evaluations=iterate.evaluations))
        again = reread(importance, law, split.levels, iterate.potentials)
        again = exchanged(importance, law, again, iterate.potentials)
        if np.array_equal(again.levels, split.levels):
            # Climb without a pull as long as the residual falls quickly.
            before, iterate = np.inf, newton(problem, iterate, stop, budget=_PROBE)
            while iterate.residual < 0.3 * before and not problem.met(iterate, stop):
                before, iterate = iterate.residual, newton(problem, iterate, stop, budget=_PROBE)
            if iterate.residual < best.iterate.residual:
                best = Solution(split, iterate)
            if problem.met(iterate, stop):
                return best
            # In a level that cannot meet its target potentials diverge, which may show its split.
            again = reread(importance, law, split.levels, iterate.potentials)
            again = exchanged(importance, law, again, iterate.potentials)
        softness /= _FALL
        iterate = replace(iterate, potentials=gathered(iterate.potentials, again.levels))
        split, problem = again, DualProblem.within(importance, law, again)


def first_levels(importance: Floats, law: SolvableLaw) -> Partition:
    """Return levels to start from, by the ratio P(i ∈ A)/p_i that each client has by itself."""
    ratios = np.full(importance.size, np.inf)
    with np.errstate(over="ignore"):
        np.divide(law.inclusion(), importance, out=ratios, where=importance > 0)
    split = partition(importance, law, np.argsort(ratios))
    return exchanged(importance, law, split, np.zeros_like(importance))


def exchanged(
    importance: Floats, law: SolvableLaw, split: Partition, potentials: Floats
) -> Partition:
    """Move clients between levels until nobody is clearly in the wrong one.

    Clients of one level are ordered by falling potentials. Levels of laws without tangents are
    returned as they are.
    """
    mass = np.where(importance > 0, importance, 1.0)
    for _ in range(_MOST_EXCHANGES):
        slopes = slopes_along(law, split.levels)
        if slopes is None:
            break
        levels, ratios = split.levels, split.ratios
        stays = (importance == 0) | (
            (slopes(levels + 1) <= split.target * (1.0 + _CLEARLY))
            & (slopes(levels) >= split.target * (1.0 - _CLEARLY))
        )
        if stays.all():
            break
        # The fewest levels after which a client's slope is below the next ratio: slopes fall,
        # ratios rise, so halving finds it.
        above = np.append(ratios, np.inf)
        low, high = np.zeros_like(levels), np.full_like(levels, ratios.size)
        while np.any(low < high):
            middle = (low + high) // 2
            joins = slopes(middle) < above[middle] * mass
            low, high = np.where(joins, low, middle + 1), np.where(joins, middle, high)
            low = np.minimum(low, high)
        with np.errstate(over="ignore"):
            joined = np.maximum(slopes(low) / mass, np.append(0.0, ratios)[low])
        places = np.where(stays, ratios[levels], joined)
        split = partition(importance, law, np.lexsort((-potentials, levels, places)))
    return split


def least_norm_order(importance: Floats, law: SolvableLaw, start: Integers) -> Integers:
    """Return an order of all clients in which every level is a run, the most deficient first.

    The search starts from the base along ``start``. Clients without importance come last.
    """
    clients = np.flatnonzero(importance > 0)
    rest = np.flatnonzero(importance == 0)
    place = np.full(importance.size, -1)
    place[clients] = np.arange(clients.size)
    root = np.sqrt(importance[clients])

    def base(order: Integers) -> Floats:
        """Return the greedy base along an order of the clients with importance."""
        row = np.empty(order.size)
        row[order] = law.prefix_gains(np.concatenate((clients[order], rest)))[: order.size]
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
    return np.concatenate((clients[np.lexsort((rank, level))], rest))


def _flat_minimum(rows: Floats) -> Floats:
    """Return the shares, summing to one, of the least norm in the flat through the rows."""
    from scipy.linalg import qr, solve_triangular

    # By an orthogonal factor, because products of the rows would square their condition.
    (upper,) = qr(rows.T, mode="r", check_finite=False)
    upper = upper[: len(rows)]
    inner = solve_triangular(upper, np.ones(len(rows)), trans="T", check_finite=False)
    shares = solve_triangular(upper, inner, check_finite=False)
    return np.asarray(shares / shares.sum())
