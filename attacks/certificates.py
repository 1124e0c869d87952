"""Attack certificates: every one that `certify` returns must verify, no falsified one may.

    python -m attacks.certificates --seed 0 --problems 20000 --tamperings 50000

Random problems (`certificate_problems`) are certified, and their certificates verified, some of
them in exact arithmetic too, and compared with references in exact arithmetic. Then certificates
are falsified (`tamperings`), or shown with another problem than their own. One that verifies after
that must be true by the reference. A problem follows from the seed and its number alone: `--start
NUMBER --problems 1` repeats one.
"""

import argparse
import math
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np

import fedavot as fa
from attacks.certificate_problems import KINDS, SHARES, generate, importance
from attacks.references import as_set
from attacks.tamperings import FIELDS, Case

TOL = 1e-9
"""The tolerance of `verify`, and of what counts as true."""
SLACK = Fraction(1001, 1000)
"""What rounding may add to the tolerance before a claim counts as false."""
EXACT_SHARE = 0.25
"""How many of the certificates of explicit cohorts are verified in exact arithmetic as well."""
SHOWN = 5
"""Examples of each defect."""
EXPLICIT = ("explicit", "successive")

DEFECTS = (
    *("not proven", "not verified", "not verified exactly", "untrue", "error in certify"),
    *("ACCEPTED THOUGH FALSE", "raw error"),
)


class Tally:
    """Counts by row and column, and examples of what must not be."""

    def __init__(self):
        self.counts, self.examples = defaultdict(Counter), defaultdict(list)

    def add(self, row, column, example=""):
        """Count, and keep an example if there is one."""
        self.counts[row][column] += 1
        if example and len(self.examples[column]) < SHOWN:
            self.examples[column].append(f"{row}: {example}")

    def table(self, rows, columns):
        """Return the counts as lines of text."""
        lines = [" " * 12 + "  " + "  ".join(columns)]
        for row in rows:
            cells = (f"{self.counts[row][column]:>{len(column)}}" for column in columns)
            lines.append(f"{row:<12}  " + "  ".join(cells))
        return "\n".join(lines)


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


def certified(tally, name, problem, rng):
    """Certify a problem, check what comes back, and return it if there is a reference."""
    exact = problem.kind in EXPLICIT and rng.random() < EXACT_SHARE
    wanted, law = problem.importance, problem.setting.law
    try:
        certificate = fa.certify(wanted, law)
        verified = certificate.verify(wanted, law, tol=TOL)
        exactly = not exact or certificate.verify(wanted, law, tol=TOL, exact=True)
    except Exception:
        tally.add(problem.kind, "error in certify", f"{name}: {traceback.format_exc(limit=-2)}")
        return None
    tally.add(problem.kind, "problems")
    tally.add(problem.kind, "feasible" if certificate.feasible else "infeasible")
    found = (
        f"{name}: feasible {certificate.feasible}, deficiency {certificate.deficiency:.12g}, "
        + (f"Hall ratio {certificate.hall_ratio:.12g}, {wanted.size} clients")
    )
    if exact:
        tally.add(problem.kind, "exactly too")
    if not certificate.proven:
        tally.add(problem.kind, "not proven", found)
    if not verified:
        tally.add(problem.kind, "not verified", found)
    if not exactly:
        tally.add(problem.kind, "not verified exactly", found)
    if problem.setting.referee is None:
        return None
    reference = problem.setting.referee(wanted)
    tally.add(problem.kind, "referenced")
    if not is_true(certificate, reference):
        tally.add(problem.kind, "untrue", f"{found}; by the reference {_words(reference)}")
    return Case(name, certificate, problem, reference, rng)


def _words(reference):
    answer = reference.answer
    ratio = math.inf if answer.hall_ratio is None else answer.hall_ratio
    shown = f"{float(ratio):.12g}" if ratio <= sys.float_info.max else "infinite"
    return f"deficiency {float(answer.deficiency):.12g}, Hall ratio {shown}"


def tampered(tally, case):
    """Falsify a certificate once, and see whether it is found out."""
    fields = [*FIELDS, "problem"]
    rng, setting = case.rng, case.problem.setting
    wanted, reference = case.problem.importance, case.reference
    changed, field, choice = None, "", 0
    while changed is None:
        field = fields[rng.integers(len(fields))]
        if field == "problem":
            wanted = rng.permutation(wanted) if rng.random() < 0.5 else importance(rng, setting.law)
            reference = case.problem.setting.referee(wanted)
            changed = case.certificate
        else:
            choice = int(rng.integers(len(FIELDS[field])))
            changed = FIELDS[field][choice](case)
    exact = case.problem.kind in EXPLICIT and rng.random() < EXACT_SHARE
    where = f"{case.name}, tampering {choice} of it: {vars(changed)}"
    try:
        accepted = changed.verify(wanted, setting.law, tol=TOL, exact=exact)
    except Exception:
        tally.add(field, "raw error", f"{where}: {traceback.format_exc(limit=-2)}")
        return
    if not accepted:
        tally.add(field, "rejected")
    elif is_true(changed, reference):
        tally.add(field, "still true")
    else:
        tally.add(field, "ACCEPTED THOUGH FALSE", f"{where}; {_words(reference)}")


def attack(options):
    """Run the attack."""
    tally = Tally()
    kinds = [options.only] if options.only else list(KINDS)
    shares = np.array([SHARES[kind] for kind in kinds])
    owed, case = 0.0, None
    for number in range(options.start, options.start + options.problems):
        rng = np.random.default_rng((options.seed, number))
        problem = generate(rng, str(rng.choice(kinds, p=shares / shares.sum())))
        # Whether a falsified certificate is true all the same, only a reference can say.
        case = certified(tally, f"problem {number}", problem, rng) or case
        owed += options.tamperings / options.problems
        last = number == options.start + options.problems - 1
        while case is not None and owed >= (0.5 if last else 1.0):
            tampered(tally, case)
            owed -= 1.0
    return tally


def main(arguments=None):
    """Run the attack from the command line; return 1 if it found anything."""
    parser = argparse.ArgumentParser(prog="python -m attacks.certificates", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--problems", type=int, default=20_000)
    parser.add_argument("--tamperings", type=int, default=50_000)
    parser.add_argument("--start", type=int, default=0, help="the number of the first problem")
    parser.add_argument("--only", choices=list(KINDS), help="problems of this kind alone")
    options = parser.parse_args(arguments)
    started = time.process_time()
    with warnings.catch_warnings():
        # A warning that reaches a caller is a defect as well.
        warnings.simplefilter("error")
        tally = attack(options)
    columns = ["problems", "feasible", "infeasible", "exactly too", "referenced", *DEFECTS[:5]]
    print(tally.table([options.only] if options.only else list(KINDS), columns))
    print()
    print(tally.table([*FIELDS, "problem"], ["rejected", "still true", *DEFECTS[5:]]))
    print(f"\nseed {options.seed}, {time.process_time() - started:.0f} CPU seconds")
    for defect in DEFECTS:
        for example in tally.examples[defect]:
            print(f"{defect}: {example}")
    return int(any(tally.examples[defect] for defect in DEFECTS))


if __name__ == "__main__":
    sys.exit(main())
