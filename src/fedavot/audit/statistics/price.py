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

from dataclasses import dataclass

import numpy as np

from fedavot._checks import Floats
from fedavot._incidence import Incidence
from fedavot.alignment import Alignment, Status
from fedavot.audit.findings import Fit, LawName, LawScore, Point, Price, Standing
from fedavot.audit.statistics.case import Case, Fitting
from fedavot.audit.statistics.estimates import Resampling, Weighted, chance, distance
from fedavot.audit.statistics.rules import (
    AS_APPLIED,
    BY_EXAMPLES,
    FEDAVG,
    FEDAVOT,
    HORVITZ_THOMPSON,
    ONLINE,
    SELECT,
    SELF_NORMALISED_IPW,
    SOFT,
)
from fedavot.audit.statistics.weighing import chosen, inverse, learned, normalised, weights_of
from fedavot.audit.statistics.window import Window

SOFTNESS = (
    *(0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0),
)
"""Softness values, each about half as large again as the one before, from almost exact to almost
equal weights; for a large log, every fourth of them."""
FITTED = 2 / 3
"""The share of rounds that laws are fitted to; the rest is held out to judge them."""


@dataclass(frozen=True, eq=False)
class Split:
    """The log, and its two parts: laws are fitted to the first and judged on the second.

    Attributes
    ----------
    fitted, whole : Fitting
        The first part, and the whole log.
    held_out : Window
        The last part.
    resampling : Resampling
        Resampling of the held-out part.
    applied, examples : float array, shape (n_entries,), or None
        The weights that were actually used, and the number of examples of each update, if the log
        has them.
    choice : Incidence or None
        The clients that could have taken part in each round of the log, if the server had a choice.
    rng : Generator
        Generator for that choice.
    """

    fitted: Fitting
    whole: Fitting
    held_out: Window
    resampling: Resampling
    applied: Floats | None
    examples: Floats | None
    choice: Incidence | None
    rng: np.random.Generator

    @property
    def log(self) -> Window:
        """All rounds."""
        return self.whole.window

    def last_part(self, log: Window) -> Window:
        """Return the held-out rounds of a log with the same number of rounds."""
        return log.part(np.arange(log.n_rounds - self.held_out.n_rounds, log.n_rounds))


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
    weights = weights_of(aligned, window)
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


def price(split: Split, *, law: LawName, points: tuple[Point, ...], softness: float) -> Price:
    """Place every rule on the curve, over the log and in the held-out part.

    Parameters
    ----------
    split : Split
        The log and its parts.
    law : LawName
        The law that FedAVOT is fitted with.
    points : tuple of Point
        The curve.
    softness : float
        Softness of the soft alignment.
    """
    fittings = (split.whole, split.fitted)
    windows = (split.log, split.held_out)
    seen = [fitting.seen() for fitting in fittings]

    def ipw(part: int) -> Floats:
        return inverse(windows[part], seen[part])

    rows = [
        _standing(FEDAVG, split, split.log.plain(), split.held_out.plain()),
        _standing(HORVITZ_THOMPSON, split, ipw(0), ipw(1)),
        _standing(
            SELF_NORMALISED_IPW, split, *(normalised(windows[part], ipw(part)) for part in (0, 1))
        ),
    ]
    for name, amount in ((FEDAVOT, 0.0), (SOFT, softness)):
        rows.append(_aligned(name, split, *(f.align(law, softness=amount) for f in fittings)))
    rows.append(_running(ONLINE, split, split.log, learned(split.log)))
    if split.choice is not None:
        asked, weights = chosen(split.log, split.choice, split.rng)
        rows.append(_running(SELECT, split, asked, weights))
    if split.examples is not None:
        by_examples = normalised(split.log, split.examples)
        rows.append(_running(BY_EXAMPLES, split, split.log, by_examples))
    if split.applied is not None:
        rows.append(_running(AS_APPLIED, split, split.log, split.applied))
    return Price(points, tuple(rows))


def _aligned(name: str, split: Split, now: Alignment, before: Alignment) -> Standing:
    return _standing(name, split, weights_of(now, split.log), weights_of(before, split.held_out))


def _running(name: str, split: Split, log: Window, weights: Floats) -> Standing:
    """Place a rule whose weights in each round were made without any later rounds."""
    last = split.last_part(log)
    late = weights[weights.size - last.incidence.members.size :]
    return _placed(name, log, weights, Weighted(last, late, split.resampling))


def _standing(name: str, split: Split, weights: Floats, held_out: Floats) -> Standing:
    return _placed(name, split.log, weights, Weighted(split.held_out, held_out, split.resampling))


def _placed(name: str, log: Window, weights: Floats, held_out: Weighted) -> Standing:
    return Standing(
        rule=name,
        gap=gap(log, weights),
        effective_cohort_size=effective(log, weights),
        held_out_gap=distance(held_out),
        held_out_effective_cohort_size=effective(held_out.window, held_out.weights),
        largest_sum_of_weights=float(log.sum_by_round(weights).max()),
    )


def split_of(case: Case) -> Split:
    """Cut the log in two."""
    window = case.window
    # If the log has one round, it is both parts; the recommendation will be to collect more.
    cut = min(round(FITTED * window.n_rounds), window.n_rounds - 1)
    last = window.part(np.arange(cut, window.n_rounds))
    return Split(
        fitted=case.fitting(window.part(np.arange(max(cut, 1)))),
        whole=case.whole,
        held_out=last,
        resampling=case.resampling(last),
        applied=case.federation.participation.applied,
        examples=case.federation.participation.examples,
        choice=case.choice(),
        rng=case.rng,
    )


def judge(split: Split) -> Fit:
    """Fit every law to the first part, and judge its weights on the last."""
    laws = split.fitted.laws()
    solved = [name for name in laws if _solved(split, name)]
    scores = []
    for name in solved or laws[:1]:
        aligned = split.fitted.align(name)
        weights = weights_of(aligned, split.held_out)
        judged = distance(Weighted(split.held_out, weights, split.resampling))
        scores.append(LawScore(name, aligned.gap, judged))
    best = min(scores, key=lambda score: score.held_out_gap.value)
    best_weights = weights_of(split.fitted.align(best.law), split.held_out)
    return Fit(
        scores=tuple(scores),
        law=best.law,
        parts_of_day=split.fitted.parts_of_day,
        fitted_rounds=split.fitted.window.n_rounds,
        held_out_rounds=split.held_out.n_rounds,
        oracle_gap=chance(Weighted(split.held_out, best_weights, split.resampling)),
    )


def _solved(split: Split, law: LawName) -> bool:
    plans = (fitting.align(law) for fitting in (split.fitted, split.whole))
    return all(plan.status is not Status.UNCONVERGED for plan in plans)
