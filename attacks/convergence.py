"""Look for problems that least variance or soft alignment leave unconverged, get wrong or stall on.

    python -m attacks.convergence --seed 0 --problems 10000

Three fifths of the problems ask for the plan of least variance on explicit cohorts, the others for
soft alignment on every kind of law; probabilities and importance range over up to 15 orders of
magnitude. Every answer is checked from its potentials and levels, cohort by cohort, by code that
shares nothing with the library: the marginal against what was attained, the attained importance
against the conditions of the nearest one, the gradient of the soft objective, and on small problems
the variance against an interior-point solver.
"""

import argparse
import itertools
import math
import sys
import time
from collections import Counter
from typing import NamedTuple

import numpy as np

import fedavot as fa

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

    label: str
    importance: np.ndarray
    law: object
    cohorts: list
    chances: np.ndarray
    options: dict


def main(arguments=None):
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="attacks.convergence", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--only", type=int, help="run this one problem of the seed")
    parser.add_argument("--kind", choices=("variance", "soft"), help="leave out the other kind")
    options = parser.parse_args(arguments)
    numbers = range(options.problems) if options.only is None else [options.only]
    counts, findings = Counter(), []
    for number in numbers:
        problem = generate(np.random.default_rng([options.seed, number]))
        label = problem.label
        if options.kind is not None and not label.startswith(options.kind):
            continue
        found = attack(problem)
        counts[label, "problems"] += 1
        for kind, detail in found:
            counts[label, kind] += 1
            findings.append(f"problem {number}: {label}: {kind}: {detail}")
    kinds = ("problems", "unconverged", "wrong", "slow")
    print(f"{'':<34}" + "".join(f"{kind:>13}" for kind in kinds))
    for label in sorted({label for label, _ in counts}):
        print(f"{label:<34}" + "".join(f"{counts[label, kind]:>13,}" for kind in kinds))
    print(*findings, sep="\n")
    return 1 if findings else 0


def attack(problem):
    """Solve and check one problem; return what was found, kind and detail."""
    start = time.process_time()
    alignment = fa.align(problem.importance, problem.law, tol=TOL, **problem.options)
    spent = time.process_time() - start
    found = []
    if alignment.status == "unconverged":
        found.append(("unconverged", f"residual {alignment.residual:.1e}"))
    found += [("wrong", fault) for fault in faults(problem, alignment)]
    if spent > SLOW:
        found.append(("slow", f"{spent:.1f} s"))
    return found


def generate(rng):
    """Draw a problem."""
    if rng.random() < 0.6:
        cohorts, chances, n_clients = explicit(rng, 80)
        importance, kind = wanted(rng, cohorts, chances, n_clients)
        law = fa.Cohorts(cohorts, chances, n_clients=n_clients)
        options = {"objective": "variance"}
        return Problem(f"variance, {kind}", importance, law, cohorts, chances, options)
    name, law, cohorts, chances, n_clients = any_law(rng)
    importance = spread_out(rng, n_clients, int(rng.choice([0, 3, 6, 10, 15])))
    options = {"softness": float(10.0 ** rng.uniform(-6, 2))}
    return Problem(f"soft, {name}", importance, law, cohorts, chances, options)


def explicit(rng, most_clients):
    """Draw distinct cohorts of many sizes, with probabilities over up to 15 orders."""
    n_clients = int(rng.integers(2, most_clients + 1))
    largest = min(n_clients, int(rng.choice([2, 3, 10, n_clients])))
    drawn = {
        tuple(np.sort(rng.permutation(n_clients)[: rng.integers(1, largest + 1)]).tolist())
        for _ in range(rng.integers(1, 120))
    }
    cohorts = [np.array(cohort) for cohort in sorted(drawn)]
    chances = spread_out(rng, len(cohorts), int(rng.choice([0, 0, 3, 10, 15])))
    return cohorts, chances, n_clients


def spread_out(rng, count, orders):
    """Draw a distribution whose entries differ by so many orders of magnitude."""
    values = 10.0 ** rng.uniform(-orders, 0, count) if orders else rng.random(count) + 1e-3
    return values / math.fsum(values)


def wanted(rng, cohorts, chances, n_clients):
    """Draw an importance, attainable or not, and say of which kind."""
    kinds = ("random", "many orders", "softmax", "tight", "nearly tight", "zeros", "below")
    kind = str(rng.choice(kinds))
    flat = np.zeros(n_clients, dtype=int)
    x = rng.normal(size=n_clients)
    levels = rng.integers(0, 5, n_clients)

    def expected(potentials, levels):
        weights = [softmax(cohort, potentials, levels) for cohort in cohorts]
        return add_up(cohorts, chances, weights, n_clients)

    if kind == "random":
        values = rng.random(n_clients)
    elif kind == "many orders":
        values = 10.0 ** rng.uniform(-15, 0, n_clients)
    elif kind == "softmax":
        values = expected(x * rng.choice([1, 4, 12]), flat)
    elif kind == "tight":
        values = expected(x, levels)
    elif kind == "nearly tight":
        values = expected(x, levels)
        step = 10.0 ** rng.uniform(-14, -6) * rng.choice([-1, 1])
        values = np.maximum(values + step * (expected(0 * x, flat) - values), 0.0)
    elif kind == "zeros":
        values = rng.choice([0.0, 1.0, 1.0, 2.0], n_clients)
    else:
        values = expected(0 * x, flat) * 10.0 ** rng.uniform(-3, 0, n_clients)
    if not values.any():
        values = np.ones(n_clients)
    return values / math.fsum(values), kind


def any_law(rng):
    """Draw a law of any kind, small enough to list its cohorts unless they are explicit."""
    name = str(rng.choice(["explicit", "uniform", "independent", "successive"]))
    if name == "explicit":
        cohorts, chances, n_clients = explicit(rng, 80)
        return name, fa.Cohorts(cohorts, chances, n_clients=n_clients), cohorts, chances, n_clients
    n_clients = int(rng.integers(2, 40 if name == "successive" else 10))
    everyone = range(n_clients)
    if name == "uniform":
        size = int(rng.integers(1, n_clients + 1))
        cohorts = [np.array(cohort) for cohort in itertools.combinations(everyone, size)]
        chances = np.full(len(cohorts), 1 / len(cohorts))
        return name, fa.UniformCohorts(n_clients, size), cohorts, chances, n_clients
    if name == "successive":
        rate = spread_out(rng, n_clients, int(rng.choice([0, 3])))
        cohorts = [np.array(cohort) for cohort in itertools.combinations(everyone, 2)]
        chances = np.array(
            [rate[a] * rate[b] * (1 / (1 - rate[a]) + 1 / (1 - rate[b])) for a, b in cohorts]
        )
        law = fa.SuccessiveDraws(rate, 2)
        return name, law, cohorts, chances / math.fsum(chances), n_clients
    present = 10.0 ** rng.uniform(-float(rng.choice([0.5, 3, 12])), 0, n_clients)
    bits = np.array(list(itertools.product([False, True], repeat=n_clients)))[1:]
    chances = np.where(bits, present, 1 - present).prod(axis=1)
    cohorts = [np.flatnonzero(row) for row in bits]
    law = fa.IndependentClients(present)
    return name, law, cohorts, chances / math.fsum(chances), n_clients


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
            least = least_square(problem, marginal)
            if least is not None and not abs(square - least) <= SQUARE:
                yield f"the variance is {square:.9f}, but {least:.9f} is possible"


def soft_gradient(problem, alignment, marginal):
    """Return the L1 norm of p − m − ρ p ∘ (x − Σ p x), in which p sums to one.

    Levels stand for potentials too far apart for one vector: a level whose clients get λ times
    their importance lies (1 − λ)/ρ above the mean. The levels must be so far apart that weight
    cannot cross.
    """
    importance, softness = problem.importance, problem.options["softness"]
    error, ends = 0.0, []
    for level in np.unique(alignment.levels):
        inside = alignment.levels == level
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


def least_square(problem, marginal):
    """Return the least expected square of all plans with this marginal, None if not found."""
    import clarabel
    from scipy import sparse

    clients = np.concatenate(problem.cohorts)
    rows = np.repeat(np.arange(len(problem.cohorts)), [c.size for c in problem.cohorts])
    chance = problem.chances[rows]
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
    if str(solution.status) != "Solved":
        return None
    return float(chance @ np.array(solution.x) ** 2)


if __name__ == "__main__":
    sys.exit(main())
