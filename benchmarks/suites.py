"""Who runs on which problem, and what is required of the figures."""

from collections.abc import Callable
from typing import Any

import numpy as np

import fedavot as fa
from benchmarks import closed_form, contenders, outside, problems
from benchmarks.evaluate import Answer
from benchmarks.measure import Contender, Role, Say, peak_memory, race, seconds_of
from benchmarks.outcome import Outcome, best_peer, tabulate
from benchmarks.problems import ExplicitProblem, IndependentProblem

Problem = ExplicitProblem | IndependentProblem
_BILLION = 1e9


def small_pairs(repeat: int, say: Say) -> Outcome:
    """P1: a hundred clients, all pairs."""
    problem = problems.linear_pairs()
    outcome = Outcome("P1: 100 clients, all 4,950 pairs uniform, p ∝ N+1−i, L1 1e-9")
    runners = [
        _align(problem),
        _certify(problem),
        library("POT sinkhorn, dense mask", outside.pot_sinkhorn, problem),
        peer("NumPy IPFP in logs", contenders.ipfp_in_logs, problem),
        peer("NumPy IPFP, tuned", contenders.ipfp_tuned, problem, role="reference"),
        library("HiGHS LP", outside.highs, problem),
        peer("SciPy L-BFGS on the dual", contenders.lbfgs, problem),
        library("choix ilsr_pairwise_dense", outside.choix_ilsr, problem),
    ]
    race("P1", runners, repeat, say)
    tabulate(outcome, problem, runners)
    _, _, pot, *_, choix = outcome.rows
    outcome.at_least("times faster than POT", pot.ratio, 100.0)
    outcome.at_least("times faster than choix", choix.ratio, 2.0)
    _check_statement(outcome, problem)
    return outcome


def large_pairs(repeat: int, say: Say) -> Outcome:
    """P2: a thousand clients, all pairs."""
    problem = problems.smooth_pairs()
    outcome = Outcome("P2: 1,000 clients, all 499,500 pairs uniform, p ∝ exp(−i/N), L1 1e-9")
    runners = [
        _align(problem),
        _certify(problem),
        _both(problem),
        product_pair(problem),
        peer("NumPy IPFP in logs", contenders.ipfp_in_logs, problem),
        peer("NumPy IPFP, tuned", contenders.ipfp_tuned, problem, role="reference"),
        peer("SciPy L-BFGS on the dual", contenders.lbfgs, problem),
        library("choix ilsr_pairwise_dense", outside.choix_ilsr, problem),
        library("OR-Tools max-flow alone", outside.max_flow, problem),
    ]
    race("P2", runners, repeat, say)
    tabulate(outcome, problem, runners)
    best = best_peer(outcome)
    outcome.at_least(f"times faster than the best peer, {best.contender}", best.ratio, 4.0)
    _, _, both, pair = outcome.rows[:4]
    outcome.at_most(
        "product pairs for certificate and alignment together", both.seconds / pair.seconds, 200.0
    )
    _check_statement(outcome, problem)
    return outcome


def sparse_cohorts(repeat: int, say: Say) -> Outcome:
    """P3: a hundred thousand clients in a million cohorts."""
    say("P3: drawing a million cohorts")
    problem = problems.many_cohorts()
    outcome = Outcome(
        "P3: 100,000 clients, 1,000,000 cohorts of 10, p of x ~ Normal(0, .5), L1 1e-9"
    )
    runners = [
        _align(problem),
        _certify(problem),
        product_pair(problem),
        peer("NumPy IPFP in logs", contenders.ipfp_in_logs, problem),
        peer("NumPy IPFP, tuned", contenders.ipfp_tuned, problem, role="reference"),
        peer("SciPy L-BFGS on the dual", contenders.lbfgs, problem),
        peer("SciPy Newton-CG on the dual", contenders.newton_cg, problem),
        library("OR-Tools max-flow alone", outside.max_flow, problem),
    ]
    race("P3", runners, repeat, say)
    tabulate(outcome, problem, runners)
    ours, _, pair, _, tuned = outcome.rows[:5]
    best = best_peer(outcome)
    outcome.at_least(f"times faster than the best peer, {best.contender}", best.ratio, 5.0)
    outcome.at_least("times faster than the tuned IPFP", tuned.ratio, 5.0)
    outcome.at_most("product pairs", ours.seconds / pair.seconds, 40.0)
    say("P3: measuring memory")
    figures = peak_memory(
        "cohorts",
        {
            "importance": problem.importance,
            "members": problem.members.astype(np.int32),
            "probabilities": problem.probabilities,
            "tol": problem.tol,
        },
    )
    whole = (figures["align"] - figures["code"]) / problem.matrix_bytes
    beyond = (figures["align"] - figures["problem"]) / problem.matrix_bytes
    outcome.at_most("times the cohort matrix in memory, the law included", whole, 3.0)
    outcome.observations.append(f"align alone takes {beyond:.2f} times the cohort matrix")
    _check_statement(outcome, problem)
    return outcome


def independent_clients(repeat: int, say: Say) -> Outcome:
    """P4: a million independent clients."""
    say("P4: evaluating a million clients for the importance")
    problem, small = problems.million_clients(), problems.million_clients(1_000)
    outcome = Outcome("P4: 1,000,000 independent clients, mean cohort 5, gap 1e-9")
    ours = _align(problem)
    cold: list[float] = []
    ours.warm_up = lambda: cold.append(seconds_of(ours))
    plainly = Contender(
        "NumPy IPFP, same closed form",
        lambda _: closed_form.ipfp(problem),
        warm_up=lambda: closed_form.ipfp(small),
    )
    runners = [ours, _certify(problem), plainly]
    race("P4", runners, repeat, say)
    tabulate(outcome, problem, runners)
    _, certified, plain = outcome.rows
    outcome.at_least("times faster than plain IPFP in NumPy", plain.ratio, 15.0)
    outcome.at_most("of the alignment's time for the certificate", certified.ratio, 0.1)
    outcome.at_most(
        "of a fifteenth of the peer's time for the certificate",
        certified.seconds / (plain.seconds / 15.0),
        0.1,
    )
    say("P4: measuring memory")
    arrays = {"importance": problem.importance, "probabilities": problem.probabilities}
    figures = peak_memory("independent", arrays | {"tol": problem.tol})
    outcome.at_most("GB for the whole process at its peak", figures["process"] / _BILLION, 1.0)
    outcome.observations.append(f"the first alignment, compilation included: {cold[0]:.2f} s")
    _check_statement(outcome, problem)
    return outcome


def _check_statement(outcome: Outcome, problem: Problem) -> None:
    """Check that the certificate says feasible and verifies: every importance here is."""
    law = problem.law()
    certificate = fa.certify(problem.importance, law)
    outcome.checks["certificate says feasible"] = certificate.feasible
    outcome.checks["certificate verifies"] = certificate.verify(problem.importance, law)


def _laid_out(problem: Problem) -> Any:
    """Return a law that holds its matrices already, as the peers are handed theirs."""
    law = problem.law()
    # At unequal potentials: equal ones would also compute what the inclusion is.
    law.expected_weights(np.linspace(0.0, 1.0, law.n_clients))
    if isinstance(law, fa.Cohorts):
        law.incidence.sum_by_client(np.zeros(law.n_cohorts))
    return law


def _align(problem: Problem) -> Contender:
    def solve(law: Any) -> fa.Alignment:
        return fa.align(problem.importance, law, tol=problem.tol)

    return Contender(
        "fedavot align",
        solve,
        "ours",
        lambda: _laid_out(problem),
        _read,
        lambda: solve(problem.law()),
    )


def _certify(problem: Problem) -> Contender:
    def solve(law: Any) -> fa.Certificate:
        return fa.certify(problem.importance, law)

    return Contender(
        "fedavot certify",
        solve,
        "ours",
        lambda: _laid_out(problem),
        lambda certificate: None,
        lambda: solve(problem.law()),
    )


def _both(problem: Problem) -> Contender:
    def solve(law: Any) -> fa.Alignment:
        fa.certify(problem.importance, law)
        return fa.align(problem.importance, law, tol=problem.tol)

    return Contender("fedavot certify and align", solve, "ours", lambda: _laid_out(problem), _read)


def _read(alignment: fa.Alignment) -> Answer:
    note = f"{alignment.status}, {alignment.iterations} evaluations"
    return Answer(alignment.potentials, alignment.levels, note=note)


def product_pair(problem: ExplicitProblem) -> Contender:
    """Return the yardstick: S u and Sᵀ c, as SciPy does them on one core."""
    matrix = problem.matrix
    by_client, by_cohort = np.ones(matrix.shape[1]), np.ones(matrix.shape[0])

    def solve(_: None) -> None:
        matrix @ by_client
        matrix.T @ by_cohort

    return Contender(
        "bare CSR product pair",
        solve,
        "reference",
        read=lambda _: None,
        warm_up=lambda: solve(None),
    )


def peer(
    name: str,
    solve: Callable[[ExplicitProblem], Answer],
    problem: ExplicitProblem,
    role: Role = "peer",
) -> Contender:
    """Return a contender on explicit cohorts, warmed up on a dozen clients."""
    return Contender(
        name,
        solve,
        role,
        prepare=problem.laid_out,
        warm_up=lambda: solve(problems.linear_pairs(12)),
    )


def library(
    name: str,
    make: Callable[[ExplicitProblem], tuple[outside.Solver, outside.Reader]],
    problem: ExplicitProblem,
) -> Contender:
    """Return a contender from another library, its data made here."""
    solve, read = make(problem)
    small_solve = make(problems.linear_pairs(12))[0]
    return Contender(name, lambda _: solve(), "peer", read=read, warm_up=small_solve)
