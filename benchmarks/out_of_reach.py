"""P5: the paper's regression setting, which no weights align, at 100 and 1,000 clients.

The question is which importance can be attained. There is one right answer: proportional to the
importance wanted on levels of rising ratio. What the library says is checked against that
definition, by counting cohorts, and everybody's marginal is compared with it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import fedavot as fa
from benchmarks import contenders, evaluate, outside, problems
from benchmarks.evaluate import Answer
from benchmarks.measure import Contender, Say, race
from benchmarks.outcome import Outcome, tabulate
from benchmarks.problems import ExplicitProblem
from benchmarks.suites import library, peer, product_pair

_SWEEPS = 400


def regression_small(repeat: int, say: Say) -> Outcome:
    """P5 at 100 clients, in iterations of IPFP."""
    problem = problems.paper_regression(100)
    outcome = Outcome(
        "P5: the paper's regression, text setting, 100 clients, all pairs, infeasible"
    )
    runners = [
        *_ours(problem),
        _sweeps(problem, _SWEEPS),
        _sweeps(problem, 2_000),
        peer("SciPy L-BFGS on the dual", contenders.lbfgs, problem),
        peer("SciPy Newton-CG on the dual", contenders.newton_cg, problem),
        library("HiGHS LP, least L1", outside.highs, problem),
    ]
    race("P5, 100 clients", runners, repeat, say)
    _judge(outcome, problem, runners)
    verified, sweeps = outcome.rows[0], outcome.rows[2]
    outcome.at_most(
        "IPFP iterations' time for the attained importance, verified",
        _SWEEPS * verified.seconds / sweeps.seconds,
        400.0,
    )
    return outcome


def regression_large(repeat: int, say: Say) -> Outcome:
    """P5 at 1,000 clients, in product pairs."""
    problem = problems.paper_regression(1_000)
    outcome = Outcome("P5: the same with 1,000 clients")
    runners = [
        *_ours(problem),
        product_pair(problem),
        _sweeps(problem, _SWEEPS),
        peer("SciPy L-BFGS on the dual", contenders.lbfgs, problem),
    ]
    race("P5, 1,000 clients", runners, repeat, say)
    _judge(outcome, problem, runners)
    verified, pair = outcome.rows[0], outcome.rows[2]
    outcome.at_most(
        "product pairs for the attained importance, verified",
        verified.seconds / pair.seconds,
        2_000.0,
    )
    return outcome


def _ours(problem: ExplicitProblem) -> list[Contender]:
    def verified(law: Any) -> tuple[fa.Alignment, bool]:
        alignment = fa.align(problem.importance, law, tol=problem.tol)
        certificate = fa.certify(problem.importance, law)
        return alignment, certificate.verify(problem.importance, law)

    def alone(law: Any) -> tuple[fa.Alignment, bool]:
        return fa.align(problem.importance, law, tol=problem.tol), True

    def contender(name: str, solve: Callable[[Any], Any]) -> Contender:
        return Contender(name, solve, "ours", problem.law, _read, lambda: solve(problem.law()))

    return [
        contender("fedavot align, certify, verify", verified),
        contender("fedavot align", alone),
    ]


def _read(found: tuple[fa.Alignment, bool]) -> Answer:
    alignment, verified = found
    if not verified:
        return Answer(np.zeros_like(alignment.potentials), note="did not verify")
    note = f"{alignment.status}, {alignment.iterations} evaluations"
    return Answer(alignment.potentials, alignment.levels, note=note)


def _sweeps(problem: ExplicitProblem, count: int) -> Contender:
    solve = partial(contenders.ipfp_in_logs, max_iter=count)
    return peer(f"NumPy IPFP in logs, {count:,} iterations", solve, problem)


def _judge(outcome: Outcome, problem: ExplicitProblem, runners: list[Contender]) -> None:
    """Check our answer against the definition, then everybody against it."""
    answer = runners[0].answer
    verified = answer is not None and answer.levels is not None
    outcome.checks["certificate verifies"] = verified
    levels = answer.levels if verified else np.zeros(problem.n_clients, dtype=np.int64)
    attained, rising = evaluate.attained_by_levels(
        problem.members, problem.probabilities, problem.importance, levels
    )
    outcome.checks["the ratios of attained to wanted importance rise with the levels"] = rising
    tabulate(outcome, problem, runners, attained)
    missed = np.abs(problem.importance - attained).sum()
    outcome.observations.append(f"L1 distance of the attained importance from p: {missed:.4f}")
