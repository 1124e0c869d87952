"""Solve problems at the edge of what numbers can say, and check what must hold whatever they are.

    python -m attacks.extremes --seed 0 [--inputs 3000] [--only NUMBER]

Importance down to 1e-300, all of it on one client, ties and zeros; one client; probabilities of 0,
1, 1e-12 and 1e-300; cohorts of one and of everybody; every law. Each problem is certified, aligned
in every way that its law allows, learnt online, and its weights are sampled from. Checks have code
of their own: the certificate verifies and agrees with all 2^N sets in exact arithmetic, and
attained weights, residual and status with sums over all cohorts.
"""

import sys
from fractions import Fraction

import numpy as np

import fedavot as fa
from attacks.campaign import Fault, main, never_refused, some
from attacks.problems import KINDS, Style, generate

TOL = 1e-9
"""What `align` and `verify` allow, by default."""
SLACK = 1e-8
"""What rounding may add over all cohorts."""
ROUNDS = 60


def extremes(folder):
    """Return the judge of problems at the edges."""

    def judge(seed, number):
        rng = np.random.default_rng([seed, number])
        return solved(generate(rng, some(list(KINDS), rng), Style(edges=True)), rng)

    return never_refused(judge)


def solved(problem, rng):
    """Solve one problem in every way; return "feasible" or "infeasible", or a fault."""
    importance, law = problem.importance, problem.setting.law
    exact = problem.setting.reference(importance)
    cohorts = list(zip(*problem.setting.cohorts(), strict=True))
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
    chosen, shares = fa.select(weights, size, rng)
    if len(set(chosen.tolist())) != min(size, np.count_nonzero(weights)):
        return f"{len(chosen)} of {size} selected from {weights}"
    return "" if _is_distribution(shares) else f"selected weights {shares}"


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


ENTRIES = {"extremes": (extremes, 3000)}
"""How the judge is made, and how many inputs it gets."""


if __name__ == "__main__":
    sys.exit(main("extremes", __doc__, ENTRIES))
