"""Attack certificates: every one that `certify` returns must verify, no falsified one may.

    python -m attacks.certificates --seed 0 [--inputs 1000] [--entry explicit ...] [--only NUMBER]

Random problems (`problems`) of every law are certified, and their certificates verified, those of
explicit cohorts in exact arithmetic too, and compared with references in exact arithmetic. In the
entry "falsified" one field of a certificate is changed, or several that belong together, or it is
shown with another importance than its own; amounts change by ten times the tolerance of `verify` or
more. One that verifies after that must be true by the reference.
"""

import functools
import math
import sys
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

import fedavot as fa
from attacks.campaign import Fault, main, never_refused, some
from attacks.problems import KINDS, Style, generate, importance
from attacks.references import as_set

TOL = 1e-9
"""The tolerance of `verify`, and of what counts as true."""
SLACK = Fraction(1001, 1000)
"""What rounding may add to the tolerance before a claim counts as false."""
EXACT_SHARE = 0.25
"""How many of the certificates of explicit cohorts are verified in exact arithmetic as well."""
EXPLICIT = ("explicit", "successive")
STYLE = Style(orders=200)
EMPTY = np.empty(0, dtype=np.int64)


def makes_sense(certificate, n_clients):
    """Say whether the fields fit the clients, without which neither claim nor evidence counts."""
    clients, potentials, levels = (
        getattr(certificate, name) for name in ("deficient", "potentials", "levels")
    )
    if len(set(clients)) < clients.size or not all(0 <= one < n_clients for one in clients):
        return False
    if potentials is None or levels is None:
        return potentials is levels
    fitting = potentials.shape == levels.shape == (n_clients,)
    return bool(fitting and np.isfinite(potentials).all())


def is_true(certificate, reference):
    """Say whether a claim is true to the tolerance, by exact arithmetic that knows no evidence."""
    if not makes_sense(certificate, len(reference.wanted)):
        return False
    answer, tol = reference.answer, Fraction(TOL) * SLACK
    if certificate.feasible:
        plain = certificate.deficiency == 0.0 and certificate.hall_ratio == 1.0
        return plain and not certificate.deficient.size and 2 * answer.deficiency <= tol
    worst = as_set(certificate.deficient)
    violation = reference.importance(worst) - reference.coverage(worst)
    if not (violation > 0 and math.isfinite(certificate.deficiency)):
        return False
    claimed = Fraction(certificate.deficiency)
    if max(abs(violation - claimed), abs(answer.deficiency - claimed)) > tol:
        return False
    ratio, largest = certificate.hall_ratio, answer.hall_ratio
    if largest is None or largest > sys.float_info.max:
        return ratio == math.inf
    return math.isfinite(ratio) and abs(largest - Fraction(ratio)) <= tol * max(largest, 1)


def certified(folder, *, kind):
    """Return the judge of certificates for one kind of law."""

    def judge(seed, number):
        rng = np.random.default_rng([seed, number])
        problem = generate(rng, kind, STYLE)
        wanted, law = problem.importance, problem.setting.law
        certificate = fa.certify(wanted, law)
        if not certificate.proven:
            return Fault(f"not proven: {certificate}")
        if not certificate.verify(wanted, law, tol=TOL):
            return Fault(f"not verified: {certificate}")
        exact = kind in EXPLICIT and rng.random() < EXACT_SHARE
        if exact and not certificate.verify(wanted, law, tol=TOL, exact=True):
            return Fault(f"not verified exactly: {certificate}")
        reference = problem.setting.reference(wanted)
        if reference is not None and not is_true(certificate, reference):
            return Fault(f"untrue: {certificate}; by the reference {reference.answer}")
        return "feasible" if certificate.feasible else "infeasible"

    return never_refused(judge)


class Case(NamedTuple):
    """A certificate, the importance and the law it was made for, and a source of chance."""

    certificate: Any
    wanted: np.ndarray
    law: Any
    rng: np.random.Generator


def falsified(folder):
    """Return the judge of certificates that were changed."""

    def judge(seed, number):
        rng = np.random.default_rng([seed, number])
        problem, reference = None, None
        while reference is None:
            problem = generate(rng, some(list(KINDS), rng), STYLE)
            reference = problem.setting.reference(problem.importance)
        wanted, law = problem.importance, problem.setting.law
        case = Case(fa.certify(wanted, law), wanted, law, rng)
        changed = None
        while changed is None:
            field = some((*FIELDS, *WHOLE, "problem"), rng)
            changed = falsify(case, field)
        if field == "problem":
            wanted = rng.permutation(wanted) if rng.random() < 0.5 else importance(rng, law, STYLE)
            reference = problem.setting.reference(wanted)
        exact = problem.kind in EXPLICIT and rng.random() < EXACT_SHARE
        if not changed.verify(wanted, law, tol=TOL, exact=exact):
            return "rejected"
        if is_true(changed, reference):
            return "still true"
        return Fault(f"{field} accepted though false: {changed!r}; {reference.answer}")

    return never_refused(judge)


def falsify(case, field):
    """Return the certificate after a change, or None where the one drawn does not apply."""
    if field == "problem":
        return case.certificate
    if field in WHOLE:
        return some(WHOLE[field], case.rng)(case)
    before = getattr(case.certificate, field)
    after = None if before is None else some(FIELDS[field], case.rng)(before, case.rng)
    return None if after is None else replace(case.certificate, **{field: after})


def amount(rng):
    """Return how much to change a number by."""
    return float(10.0 ** rng.uniform(-8, 0)) * rng.choice([-1, 1])


def with_entry(values, rng, change):
    """Return an array with a function of one entry in its place."""
    after, at = values.copy(), int(rng.integers(values.size))
    after[at] = change(after[at])
    return after


def claim(case, clients, *, ratio_too):
    """Claim infeasible by a set, with its own violation and, perhaps, its own Hall ratio."""
    if clients is None or not clients.size:
        return None
    mine, coverage = float(case.wanted[clients].sum()), case.law.coverage(clients)
    ratio = max(mine / coverage if coverage > 0 else math.inf, 1.0)
    return replace(
        case.certificate,
        feasible=False,
        deficient=clients,
        deficiency=max(mine - coverage, 1e-15),
        hall_ratio=ratio if ratio_too else case.certificate.hall_ratio,
    )


def another_set(case):
    """Claim another set to be the worst: any, a neighbour of the right one, or the first levels."""
    right, levels, rng = case.certificate.deficient, case.certificate.levels, case.rng
    rest = np.setdiff1d(np.arange(case.wanted.size), right)
    sets = [
        np.flatnonzero(rng.random(case.wanted.size) < rng.random()),
        rng.permutation(right)[1:],
        np.append(right, rng.permutation(rest)[:1]) if rest.size else None,
        None if levels is None else np.flatnonzero(levels <= rng.choice(levels)),
    ]
    return claim(case, some(sets, rng), ratio_too=rng.random() < 0.5)


def levels_and_ratio(case):
    """Merge or split the first levels, and adjust the Hall ratio to match."""
    levels, rng = case.certificate.levels, case.rng
    if levels is None or case.certificate.feasible:
        return None
    chosen = levels <= rng.choice(levels)
    if rng.random() < 0.5:
        chosen = (levels == levels.min()) & (rng.random(levels.size) < 0.5)
    if not chosen.any():
        return None
    ratio = claim(case, np.flatnonzero(chosen), ratio_too=True).hall_ratio
    after = np.where(chosen, levels.min(), levels + 1)
    return replace(case.certificate, levels=after, hall_ratio=ratio)


def scaled(case):
    """Enlarge deficiency and Hall ratio alike."""
    factor, right = 1.0 + abs(amount(case.rng)), case.certificate
    return replace(
        right, deficiency=right.deficiency * factor + 1e-8, hall_ratio=right.hall_ratio * factor
    )


def attainable(case):
    """Claim feasible, with the evidence there is or with one made up."""
    yes = replace(case.certificate, feasible=True, deficient=EMPTY, deficiency=0.0, hall_ratio=1.0)
    size = case.rng.choice([-1.0, 0.0, 1.0, 1e307])
    if size < 0:
        return yes
    count = case.wanted.size
    potentials, levels = size * case.rng.normal(size=count), case.rng.integers(0, 3, count)
    return replace(yes, potentials=potentials, levels=levels)


FIELDS = {
    "feasible": [lambda was, rng: not was],
    "deficiency": [
        lambda was, rng: was + amount(rng),
        lambda was, rng: was * 2 + 1e-8,
        lambda was, rng: -was - 1e-8,
        lambda was, rng: some((np.nan, np.inf, -np.inf), rng),
    ],
    "hall_ratio": [
        lambda was, rng: was * some((0.5, 2.0, 1 - 1e-6, 1 + 1e-6), rng),
        lambda was, rng: float(10.0 ** rng.uniform(9, 200)),
        lambda was, rng: some((np.nan, 0.0, 0.999, -np.inf, np.inf), rng),
    ],
    "deficient": [
        lambda was, rng: was[1:] if was.size else None,
        lambda was, rng: np.append(was, was) if was.size else None,
        lambda was, rng: np.array(some(([-1], [0, 10**6], [0, 0], [0]), rng)),
    ],
    "potentials": [
        lambda was, rng: rng.permutation(was),
        lambda was, rng: rng.normal(size=was.size),
        lambda was, rng: np.append(was, 0.0),
        lambda was, rng: -was,
        lambda was, rng: with_entry(was, rng, lambda one: one + 1e6 * amount(rng)),
        lambda was, rng: with_entry(was, rng, lambda one: rng.choice([np.nan, np.inf, 1e308])),
    ],
    "levels": [
        lambda was, rng: np.zeros_like(was),
        lambda was, rng: np.arange(was.size),
        lambda was, rng: was.max() - was,
        lambda was, rng: rng.integers(-3, 3, was.size),
        lambda was, rng: np.maximum(was, rng.choice(was)),
        lambda was, rng: was[1:],
        lambda was, rng: with_entry(was, rng, lambda one: rng.choice(was)),
    ],
}
WHOLE = {
    "evidence": [
        lambda case: replace(case.certificate, potentials=None, levels=None),
        lambda case: replace(case.certificate, potentials=None),
        lambda case: replace(case.certificate, levels=None),
        attainable,
    ],
    "combination": [another_set, another_set, another_set, levels_and_ratio, scaled],
}
ENTRIES = {
    "explicit": (functools.partial(certified, kind="explicit"), 10_000),
    "mixture": (functools.partial(certified, kind="mixture"), 4_000),
    "uniform": (functools.partial(certified, kind="uniform"), 2_000),
    "independent": (functools.partial(certified, kind="independent"), 3_000),
    "successive": (functools.partial(certified, kind="successive"), 1_000),
    "falsified": (falsified, 50_000),
}
"""How the judge of every entry is made, and how many inputs it gets."""


if __name__ == "__main__":
    sys.exit(main("certificates", __doc__, ENTRIES))
