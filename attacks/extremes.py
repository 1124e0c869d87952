"""Solve problems at the edge of what numbers can say, and check what must hold whatever they are.

    python -m attacks.extremes --seed 0 --problems 3000 [--only 17]

Importance down to 1e-300, all of it on one client, ties and zeros; one client; probabilities of 0,
1, 1e-12 and 1e-300; cohorts of one and of everybody; every law. Each problem is certified, aligned
in every way that its law allows, learnt online, and its weights are sampled from. Checks have code
of their own: the certificate agrees with all 2^N sets in exact arithmetic, and attained weights,
residual and status with sums over all cohorts.
"""

import argparse
import sys
import time
import warnings
from collections import Counter
from fractions import Fraction

import numpy as np

import fedavot as fa
from attacks import references
from attacks.isolation import Fault, settled, verdict
from attacks.log_forms import some
from attacks.references import Listed, members

TOL = 1e-9
"""What `align` and `verify` allow, by default."""
SLACK = 1e-8
"""What rounding may add over all cohorts."""
MOST_CLIENTS = 6
CHANCES = (1.0, 1e-12, 1e-300, 0.5, 0.5, 0.9, 1 - 1e-12)
SHARES = (1.0, 1.0, 1e-12, 1e-300, 0.0, 1e-3, 0.5)
ROUNDS = 60


def problem(seed, number):
    """Return an importance, a law, and the masses of the law's cohorts."""
    rng = np.random.default_rng([seed, number])
    n_clients = 1 if rng.random() < 0.05 else int(rng.integers(2, MOST_CLIENTS + 1))
    law, masses = some(LAWS, rng)(n_clients, rng)
    while True:
        shares = np.array([some(SHARES, rng) for _ in range(n_clients)])
        if rng.random() < 0.2:
            shares = 10.0 ** -np.linspace(0, 300, n_clients)
        if shares.sum() > 0:
            return shares / shares.sum(), law, masses, rng


def _independent(n_clients, rng):
    chances = np.array([some(CHANCES, rng) for _ in range(n_clients)])
    if rng.random() < 0.3:
        chances[1:] = np.where(rng.random(n_clients - 1) < 0.5, 0.0, chances[1:])
    return fa.IndependentClients(chances), references.independent(chances.tolist())[0]


def _uniform(n_clients, rng):
    size = some((1, n_clients, int(rng.integers(1, n_clients + 1))), rng)
    return fa.UniformCohorts(n_clients, size), references.uniform(n_clients, size)


def _cohorts(n_clients, rng):
    sets = rng.integers(1, 1 << n_clients, size=int(rng.integers(1, 6)))
    chosen = [members(int(one)) for one in sets]
    chances = np.array([some((*CHANCES, 0.0), rng) for _ in chosen])
    chances[0] = 1.0
    chances = chances / chances.sum()
    law = fa.Cohorts(chosen, chances, n_clients=n_clients)
    return law, references.listed(chosen, chances.tolist())


def _successive(n_clients, rng):
    if n_clients < 2:
        return _uniform(n_clients, rng)
    rates = np.array([some((1.0, 1e-12, 0.5, 1e6), rng) for _ in range(n_clients)])
    return fa.SuccessiveDraws(rates, 2), references.successive_pairs(rates.tolist())


def _mixture(n_clients, rng):
    (first, ones), (second, twos) = _uniform(n_clients, rng), _cohorts(n_clients, rng)
    share = some((0.5, 1e-12, 1 - 1e-12), rng)
    parts = [(ones, sum(ones.values())), (twos, sum(twos.values()))]
    weights = [share, 1 - share]
    return fa.Mixture([first, second], weights), references.mixture(parts, weights)


LAWS = (_independent, _uniform, _cohorts, _successive, _mixture)


def judged(seed, number):
    """Solve one problem in every way; return "feasible" or "infeasible", or a fault."""
    importance, law, masses, rng = problem(seed, number)
    exact = Listed(importance.tolist(), masses)
    cohorts = [(members(cohort), mass / exact.total) for cohort, mass in masses.items()]
    certificate = fa.certify(importance, law)
    if wrong := _wrong_certificate(certificate, exact, importance, law):
        return Fault(f"{type(law).__name__}: {wrong}")
    ways = [{}, {"softness": 0.1}, {"softness": 1e-6}, {"method": "ipfp", "max_iter": 50}]
    ways += [{"objective": "variance"}] * isinstance(law, fa.Cohorts)
    for options in ways:
        alignment = fa.align(importance, law, **options)
        if wrong := _wrong_alignment(alignment, certificate, cohorts):
            return Fault(f"{type(law).__name__}, {options}: {wrong}")
        if wrong := _wrong_selection(alignment, cohorts, rng):
            return Fault(f"{type(law).__name__}, {options}: {wrong}")
    if wrong := _wrong_online(importance, law, rng):
        return Fault(f"{type(law).__name__}: {wrong}")
    return "feasible" if certificate.feasible else "infeasible"


def _wrong_certificate(certificate, exact, importance, law):
    deficiency = float(exact.answer.deficiency)
    if not certificate.verify(importance, law):
        return "the certificate does not verify"
    if not abs(certificate.deficiency - max(deficiency, 0.0)) <= TOL:
        return f"the deficiency is {deficiency}, and was said to be {certificate.deficiency}"
    # Between 0 and the tolerance either answer is right.
    if not 0 < exact.answer.deficiency <= Fraction(TOL) and certificate.feasible != (
        exact.answer.deficiency <= 0
    ):
        return f"feasible is {certificate.feasible} at a deficiency of {deficiency}"
    return ""


def _wrong_alignment(alignment, certificate, cohorts):
    """Return what is wrong with an alignment by sums over all cohorts, "" if nothing is."""
    size = alignment.importance.size
    mean = np.zeros(size)
    for cohort, mass in cohorts:
        weights = alignment.weights(cohort)
        if not _is_distribution(weights):
            return f"weights {weights} of cohort {cohort}"
        mean[cohort] += mass * weights
    if not np.all(np.isfinite(alignment.potentials)):
        return "potentials are not finite"
    if not _is_distribution(alignment.attained):
        return f"attained {alignment.attained}"
    if np.abs(mean - alignment.attained).sum() > SLACK:
        return f"attained {alignment.attained}, and the cohorts give {mean}"
    away = np.abs(mean - alignment.importance).sum()
    honest = {
        "exact": away <= SLACK,
        "nearest": certificate.deficiency > 0 and alignment.residual <= SLACK,
        "soft": alignment.softness > 0 and alignment.residual <= SLACK,
        "unconverged": alignment.residual > 0,
    }
    return "" if honest[str(alignment.status)] else f"{alignment.status} at a distance of {away}"


def _wrong_selection(alignment, cohorts, rng):
    cohort, _ = cohorts[int(rng.integers(len(cohorts)))]
    weights = alignment.weights(cohort)
    size = int(rng.integers(1, len(cohort) + 1))
    chosen, given = fa.select(weights, size, rng)
    if len(set(chosen.tolist())) != min(size, np.count_nonzero(weights)):
        return f"{len(chosen)} of {size} selected from {weights}"
    return "" if _is_distribution(given) else f"selected weights {given}"


def _wrong_online(importance, law, rng):
    """Learn for some rounds; return what is wrong with the weights, "" if nothing is."""
    sampled = law.sample(rng, ROUNDS)
    for aligner in (
        fa.OnlineAligner(importance, softness=0, step=0.5),
        fa.OnlineAligner(importance, softness=0.1, step=0.5),
    ):
        for cohort in sampled:
            if not _is_distribution(aligner.observe(cohort)):
                return f"weights of {type(aligner).__name__} in round {aligner.rounds}"
        if not _is_distribution(aligner.realised):
            return f"{type(aligner).__name__} realised {aligner.realised}"
        again = type(aligner).from_state(aligner.state_dict())
        if again.weights(sampled[0]).tobytes() != aligner.weights(sampled[0]).tobytes():
            return f"{type(aligner).__name__} has other weights after its state is restored"
    return ""


def _is_distribution(values):
    values = np.asarray(values)
    return bool(np.all(values >= 0) and abs(values.sum() - 1) <= SLACK)


def main(arguments=None):
    """Solve so many problems, and print what came of them."""
    parser = argparse.ArgumentParser(prog="python -m attacks.extremes", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--problems", type=int, default=3000)
    parser.add_argument("--only", type=int, help="the number of one problem")
    options = parser.parse_args(arguments)
    numbers = range(options.problems) if options.only is None else [options.only]
    warnings.simplefilter("error")
    begin, counts, found = time.process_time(), Counter(), []
    for number in numbers:
        outcome = settled(judged, options.seed, number)
        if isinstance(outcome, Fault) or outcome == "refused":
            found.append(f"problem {number}: {outcome}")
        else:
            counts[outcome] += 1
    shown = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
    seconds = time.process_time() - begin
    return verdict(found, f"{len(numbers):,} problems in {seconds:.0f} CPU s: {shown}")


if __name__ == "__main__":
    sys.exit(main())
