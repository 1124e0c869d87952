"""The trade-off between a small gap and a large effective cohort size, for every rule.

A rule's gap is the distance of its mean weights from ``owed``, including any mass by which they sum
to less than one; its effective cohort size is (Σ_t Σ_i Y_ti)² / (T Σ_t ‖Y_t‖²). Over the whole log
a rule is fitted to the rounds it is measured on; in the held-out part it is not, which is the
fairer figure. Online rules learn from every round before the current one, so their held-out figure
is simply computed over the held-out rounds.

A law of availability is judged by its weights: each law's exact alignment is computed from the
first part, and the law whose mean weights come nearest to ``owed`` in the last part is chosen. Laws
whose solver does not converge are not considered.
"""

from collections.abc import Callable

import numpy as np

from fedavot._checks import Floats
from fedavot.alignment import Alignment, Status
from fedavot.audit.findings import Fit, LawName, LawScore, Point, Price, Standing
from fedavot.audit.statistics import rules
from fedavot.audit.statistics.case import Case
from fedavot.audit.statistics.estimates import Weighted, chance, distance
from fedavot.audit.statistics.fitting import Fitting
from fedavot.audit.statistics.window import Window

SOFTNESS = (
    *(0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0),
)
"""Softness values, each about half as large again as the one before, from almost exact to almost
equal weights; for a large log, every fourth of them."""


def effective(window: Window, weights: Floats) -> float:
    """Return how many equally weighted clients average as well; 0 if no client has weight.

    Weights that do not sum to one are taken relative to their mean sum.
    """
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / (window.n_rounds * squares) if squares > 0 else 0.0


def gap(window: Window, weights: Floats) -> float:
    """Return the distance of mean weights from ``owed`` over these rounds."""
    excess = window.mean_weights(weights) - window.owed
    return float(np.abs(excess).sum() + abs(excess.sum())) / 2


def curve(fitting: Fitting) -> tuple[Point, ...]:
    """Return gap and effective cohort size over softness, exact alignment first."""
    window, name = fitting.window, fitting.laws()[0]
    points = []
    for softness in (0.0, *(SOFTNESS if name == "explicit" else SOFTNESS[2::4])):
        aligned = fitting.align(name, softness=softness)
        points.append(_point(aligned, window))
    return tuple(points)


def _point(aligned: Alignment, window: Window) -> Point:
    """Return an alignment's point on the curve; its weights, one per entry, are not kept."""
    weights = rules.weights_of(aligned, window)
    return Point(aligned.softness, gap(window, weights), effective(window, weights))


def choose_softness(points: tuple[Point, ...], tolerance: float) -> float:
    """Return the largest softness with a gap within the tolerance, or the smallest if none has.

    If the gap of exact alignment itself exceeds the tolerance, the gap may be larger by half the
    tolerance.
    """
    exact = points[0].gap
    most = tolerance if exact <= tolerance else exact + tolerance / 2
    fine = [point.softness for point in points[1:] if point.gap <= most]
    return max(fine, default=points[1].softness)


def fitted_rules(law: LawName, softness: float) -> dict[str, Callable[[Fitting, Window], Floats]]:
    """Return how each rule weights the entries of some rounds, once it is fitted to others."""
    return {
        rules.FEDAVG: lambda fitting, window: window.plain(),
        rules.HORVITZ_THOMPSON: lambda fitting, window: rules.inverse(window, fitting.seen()),
        rules.SELF_NORMALISED_IPW: lambda fitting, window: rules.normalised(
            window, rules.inverse(window, fitting.seen())
        ),
        rules.FEDAVOT: lambda fitting, window: rules.weights_of(fitting.align(law), window),
        rules.SOFT: lambda fitting, window: rules.weights_of(
            fitting.align(law, softness=softness), window
        ),
    }


def price(case: Case, *, law: LawName, points: tuple[Point, ...], softness: float) -> Price:
    """Place every rule on the curve, over the log and in the held-out part.

    Parameters
    ----------
    case : Case
        The log and its parts.
    law : LawName
        The law that FedAVOT is fitted with.
    points : tuple of Point
        The curve.
    softness : float
        Softness of the soft alignment.
    """
    log, choice = case.window, case.choice()
    recorded = case.federation.participation
    parts = ((case.whole, log), (case.fitted, case.held_out))
    rows = [
        _standing(name, case, *(weigh(*part) for part in parts))
        for name, weigh in fitted_rules(law, softness).items()
    ]
    rows.append(_running(rules.ONLINE, case, log, rules.learned(log)))
    if choice is not None:
        rows.append(_running(rules.SELECT, case, *rules.chosen(log, choice, case.rng)))
    if recorded.examples is not None:
        rows.append(
            _running(rules.BY_EXAMPLES, case, log, rules.normalised(log, recorded.examples))
        )
    if recorded.applied is not None:
        rows.append(_running(rules.AS_APPLIED, case, log, recorded.applied))
    return Price(points, tuple(rows))


def _running(name: str, case: Case, log: Window, weights: Floats) -> Standing:
    """Place a rule whose weights in each round were made without any later rounds."""
    last = case.last_part(log)
    late = weights[weights.size - last.incidence.members.size :]
    return _placed(name, log, weights, Weighted(last, late, case.held_out_blocks))


def _standing(name: str, case: Case, weights: Floats, held_out: Floats) -> Standing:
    judged = Weighted(case.held_out, held_out, case.held_out_blocks)
    return _placed(name, case.window, weights, judged)


def _placed(name: str, log: Window, weights: Floats, held_out: Weighted) -> Standing:
    return Standing(
        rule=name,
        gap=gap(log, weights),
        effective_cohort_size=effective(log, weights),
        held_out_gap=distance(held_out),
        held_out_effective_cohort_size=effective(held_out.window, held_out.weights),
        largest_sum_of_weights=float(log.sum_by_round(weights).max()),
    )


def judge(case: Case) -> Fit:
    """Fit every law to the first part, and judge its weights on the last."""
    laws = case.fitted.laws()
    scores, judged = [], {}
    for name in [name for name in laws if _solved(case, name)] or laws[:1]:
        aligned = case.fitted.align(name)
        weights = rules.weights_of(aligned, case.held_out)
        judged[name] = Weighted(case.held_out, weights, case.held_out_blocks)
        scores.append(LawScore(name, aligned.gap, distance(judged[name])))
    best = min(scores, key=lambda score: score.held_out_gap.value)
    return Fit(
        scores=tuple(scores),
        law=best.law,
        parts_of_day=case.fitted.parts_of_day,
        fitted_rounds=case.fitted.window.n_rounds,
        held_out_rounds=case.held_out.n_rounds,
        oracle_gap=chance(judged[best.law]),
    )


def _solved(case: Case, law: LawName) -> bool:
    plans = (fitting.align(law) for fitting in (case.fitted, case.whole))
    return all(plan.status is not Status.UNCONVERGED for plan in plans)
