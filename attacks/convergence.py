"""Look for problems that least variance or soft alignment leave unconverged, get wrong or stall on.

    python -m attacks.convergence --seed 0 [--inputs 1000] [--entry soft] [--only NUMBER]

The plan of least variance is asked for on explicit cohorts, soft alignment on every kind of law;
probabilities and importance range over up to 15 orders of magnitude. Every answer is checked from
its potentials and levels, cohort by cohort, by code that shares nothing with the library: the
marginal against what was attained, the attained importance against the conditions of the nearest
one, the gradient of the soft objective, and on small problems the variance against an
interior-point solver.
"""

import functools
import itertools
import math
import sys
import time
from typing import NamedTuple

import numpy as np

import fedavot as fa
from attacks.campaign import Fault, main, never_refused, some
from attacks.problems import KINDS, Style, generate

TOL = 1e-9
"""The tolerance asked of the library, in L1."""
ROUNDING = 1e-11
"""How far two ways of adding up the same marginal may differ."""
NEAREST = 3e-9
"""How far ratios may be out of order, as importance: the tolerance, met from both sides."""
SQUARE = 1e-7
"""How well the interior-point solver, at 1e-10, knows an expected square between 0 and 1."""
SLOW = 5.0
"""Processor seconds."""
SMALL = 12
"""Clients up to which the variance itself is compared."""
APART = 40.0
"""Potentials this far apart leave the lower one a share of 1e-17."""


class Problem(NamedTuple):
    """A question to the library, and the law's cohorts with their probabilities."""

    importance: np.ndarray
    law: object
    cohorts: list
    chances: np.ndarray
    options: dict


def aligned(folder, *, objective):
    """Return the judge of alignments of least variance, or of soft ones."""

    def judge(seed, number):
        rng = np.random.default_rng([seed, number])
        drawn = None
        while drawn is None or drawn.setting.masses is None:
            kind = "explicit" if objective == "variance" else some(list(KINDS), rng)
            drawn = generate(rng, kind, Style())
        options = {"softness": float(10.0 ** rng.uniform(-6, 2))}
        options = {"objective": "variance"} if objective == "variance" else options
        return attack(
            Problem(drawn.importance, drawn.setting.law, *drawn.setting.cohorts(), options)
        )

    return never_refused(judge)


def attack(problem):
    """Solve and check one problem; return its status, or a fault."""
    start = time.process_time()
    alignment = fa.align(problem.importance, problem.law, tol=TOL, **problem.options)
    spent = time.process_time() - start
    if alignment.status == "unconverged":
        return Fault(f"unconverged, with residual {alignment.residual:.1e}")
    if spent > SLOW:
        return Fault(f"slow: {spent:.1f} s")
    return next(
        (Fault(f"wrong: {words}") for words in faults(problem, alignment)), str(alignment.status)
    )


def softmax(cohort, potentials, levels):
    """Return the weights of a cohort's members: softmax within the lowest level."""
    first = levels[cohort] == levels[cohort].min()
    values = potentials[cohort]
    scaled = np.where(first, np.exp(np.minimum(values - values[first].max(), 0.0)), 0.0)
    return scaled / scaled.sum()


def projection(cohort, potentials, levels):
    """Return the weights of a cohort's members: the nearest point of the lowest level's simplex."""
    first = levels[cohort] == levels[cohort].min()
    values = potentials[cohort][first]
    falling = np.sort(values - values.max())[::-1]
    thresholds = (np.cumsum(falling) - 1.0) / np.arange(1, falling.size + 1)
    weights = np.zeros(cohort.size)
    weights[first] = np.maximum(values - values.max() - thresholds[falling > thresholds][-1], 0.0)
    return weights


def add_up(cohorts, chances, weights, n_clients):
    """Return the expected weight of each client, every sum rounded once."""
    terms = [[] for _ in range(n_clients)]
    for cohort, chance, shares in zip(cohorts, chances, weights, strict=True):
        for client, share in zip(cohort, shares, strict=True):
            terms[client].append(chance * share)
    return np.array([math.fsum(each) for each in terms])


def faults(problem, alignment):
    """Yield what is wrong with an answer."""
    importance = problem.importance
    share = projection if "objective" in problem.options else softmax
    weights = [share(c, alignment.potentials, alignment.levels) for c in problem.cohorts]
    marginal = add_up(problem.cohorts, problem.chances, weights, importance.size)
    off = np.abs(marginal - alignment.attained).sum()
    if not off <= ROUNDING:
        yield f"the weights attain something else, by {off:.1e}"
    if alignment.status == "exact" and not np.abs(marginal - importance).sum() <= 2 * TOL:
        yield "exact, but the importance is missed"
    if alignment.status == "soft":
        gradient = soft_gradient(problem, alignment, marginal)
        if not gradient <= 2 * TOL:
            yield f"soft, but the gradient is {gradient:.1e}"
    elif alignment.status in ("exact", "nearest"):
        disorder = out_of_order(problem, marginal, weights)
        if not disorder <= NEAREST:
            yield f"not the nearest importance, by {disorder:.1e}"
        if importance.size <= SMALL:
            square = float(sum(q * (w @ w) for q, w in zip(problem.chances, weights, strict=True)))
            least, status = least_square(problem.cohorts, problem.chances, marginal)
            if status == "Solved" and not abs(square - least) <= SQUARE:
                yield f"the variance is {square:.9f}, but {least:.9f} is possible"


def soft_gradient(problem, alignment, marginal):
    """Return the L1 norm of p − m − ρ p ∘ (x − Σ p x), in which p sums to one.

    Levels stand for potentials too far apart for one vector: a level whose clients get λ times
    their importance lies (1 − λ)/ρ above the mean. The levels must be so far apart that weight
    cannot cross. Clients of no importance get only the cohorts that have no others.
    """
    importance, softness = problem.importance, problem.options["softness"]
    asked = importance > 0
    pairs = zip(problem.cohorts, problem.chances, strict=True)
    unasked = math.fsum(chance for cohort, chance in pairs if not asked[cohort].any())
    error, ends = float(marginal[~asked].sum()) - unasked, []
    for level in np.unique(alignment.levels[asked]):
        inside = asked & (alignment.levels == level)
        wanted, had, own = importance[inside], marginal[inside], alignment.potentials[inside]
        ratio = math.fsum(had) / math.fsum(wanted)
        own = own - math.fsum(wanted * own) / math.fsum(wanted)
        error += float(np.abs(ratio * wanted - had - softness * wanted * own).sum())
        ends.append(((1 - ratio) / softness + own.min(), (1 - ratio) / softness + own.max()))
    apart = all(low - high >= APART for (low, _), (_, high) in itertools.pairwise(ends))
    return error if apart else math.inf


def out_of_order(problem, marginal, weights):
    """Return by how much importance somebody of a higher ratio gets what one of a lower lacks."""
    importance = problem.importance
    asked = importance > 0
    ratio = np.where(asked, marginal / np.where(asked, importance, 1.0), np.inf)
    worst = 0.0
    for cohort, shares in zip(problem.cohorts, weights, strict=True):
        taking = cohort[shares > TOL]
        giver = taking[np.argmax(ratio[taking])]
        lacking = cohort[np.argmin(ratio[cohort])]
        if asked[lacking]:
            amount = min(importance[giver], importance[lacking]) if asked[giver] else 1.0
            excess = ratio[giver] - ratio[lacking] if asked[giver] else 1.0
            worst = max(worst, excess * amount)
    return worst


def least_square(cohorts, chances, marginal):
    """Return the least expected square of all plans with this marginal, and how it was solved."""
    import clarabel
    from scipy import sparse

    clients = np.concatenate(cohorts)
    rows = np.repeat(np.arange(len(cohorts)), [c.size for c in cohorts])
    chance = chances[rows]
    entries = np.arange(rows.size)
    constraints = sparse.vstack(
        [
            sparse.csc_array((chance, (clients, entries)), (marginal.size, rows.size)),
            sparse.csc_array((np.ones(rows.size), (rows, entries)), (rows.max() + 1, rows.size)),
            -sparse.eye_array(rows.size),
        ],
        format="csc",
    )
    right = np.concatenate([marginal, np.ones(rows.max() + 1), np.zeros(rows.size)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    equal = clarabel.ZeroConeT(marginal.size + int(rows.max()) + 1)
    solution = clarabel.DefaultSolver(
        sparse.csc_matrix(sparse.diags_array(2 * chance)),
        np.zeros(rows.size),
        sparse.csc_matrix(constraints),
        right,
        [equal, clarabel.NonnegativeConeT(rows.size)],
        settings,
    ).solve()
    return float(chance @ np.array(solution.x) ** 2), str(solution.status)


ENTRIES = {
    "variance": (functools.partial(aligned, objective="variance"), 6_000),
    "soft": (functools.partial(aligned, objective="soft"), 4_000),
}
"""How the judge of every entry is made, and how many inputs it gets."""


if __name__ == "__main__":
    sys.exit(main("convergence", __doc__, ENTRIES))
