"""Which law of availability to trust: fitted to the first part of the log, judged on the last.

A law is as good as its weights are: each law's exact alignment is made from the first part, and the
one whose mean weights come nearest to what the last part owes is chosen. Laws whose solver stops
short are not.
"""

import numpy as np

from fedavot.alignment import Status
from fedavot.audit.findings import Fit, LawName, LawScore
from fedavot.audit.statistics.case import Case
from fedavot.audit.statistics.estimates import Weighted, chance, distance
from fedavot.audit.statistics.price import Split
from fedavot.audit.statistics.weighing import weights_of

FITTED = 2 / 3
"""The share of rounds that laws are fitted to; the rest is held out to judge them."""


def split_of(case: Case) -> Split:
    """Cut the log in two."""
    window = case.window
    # Of a log of one round both parts are that round; the recommendation will be to go on.
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
