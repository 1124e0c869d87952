"""The audit: from a federation to findings, in one direction."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fedavot._checks import Floats, as_amount, as_size
from fedavot.alignment import Alignment, Status
from fedavot.audit.advice import advise
from fedavot.audit.behaviour import behave
from fedavot.audit.case import Case, opened
from fedavot.audit.estimates import Weighted, distance, drift
from fedavot.audit.evidence import Evidence, choose_softness
from fedavot.audit.federation import Federation
from fedavot.audit.findings import (
    Advice,
    Behaviour,
    Findings,
    Fit,
    LawScore,
    Shares,
)
from fedavot.audit.fitting import MOST_EXPLICIT, counts
from fedavot.audit.price import MOST_FOR_VARIANCE, Split, curve, price
from fedavot.audit.reach import reach
from fedavot.audit.shortfall import Shortfall, touched
from fedavot.audit.weighing import MOST_REPLAYED, Weights, weights_of
from fedavot.audit.window import Window
from fedavot.laws._incidence import total_by

FITTED = 2 / 3
"""The share of rounds that laws are fitted to; the rest is held out to judge them."""
STAGES = (
    "the plain average",
    "how availability behaves",
    "what is attainable",
    "which law fits",
    "what closeness costs",
    "where the rules stand",
)


def audit(
    federation: Federation,
    *,
    source: str = "log",
    tolerance: float = 0.05,
    seed: int = 0,
    progress: Callable[[str, int, int], object] | None = None,
) -> Findings:
    """Say what a federation really optimises, what it could, and what to do.

    Parameters
    ----------
    federation : Federation
        The log, and what each client should count.
    source : str
        What the log is called, for the report.
    tolerance : float
        The gap, in total variation, up to which nothing needs to be done; above 0.
    seed : int
        Of the bootstrap.
    progress : function, optional
        Called with the stage under way in words, how many are done, and how many there are.

    Returns
    -------
    Findings
        Everything the report shows.
    """
    limit = as_amount(tolerance, what="tolerance", positive=True)
    rng = np.random.default_rng(as_size(seed, what="seed", low=0))

    def under_way(stage: int) -> None:
        if progress is not None:
            progress(STAGES[min(stage, len(STAGES) - 1)], stage, len(STAGES))

    under_way(0)
    case = opened(federation, source, rng)
    plain = Weighted(case.window, case.window.plain(), case.blocks)
    gap = distance(plain)
    under_way(1)
    behaviour = _behaviour(case)
    under_way(2)
    reached, found = reach(
        case.fitting(case.window),
        case.blocks,
        available=case.available(case.window),
        rng=case.rng,
    )
    under_way(3)
    split, fit = _fit(case)
    under_way(4)
    points = curve(split.whole)
    softness = choose_softness(points, limit)
    under_way(5)
    standings = price(split, law=fit.law, points=points, softness=softness)
    advice = advise(
        _evidence(
            case,
            gap=gap,
            reach=reached,
            price=standings,
            drift=behaviour.drift,
            never=float(case.window.owed[reached.never].sum()),
            known=case.window.known,
            softness=softness,
            tolerance=limit,
        )
    )
    under_way(6)
    return _findings(
        case,
        found,
        source=source,
        tolerance=limit,
        gap=gap,
        reach=reached,
        behaviour=behaviour,
        fit=fit,
        price=standings,
        advice=advice,
    )


def _behaviour(case: Case) -> Behaviour:
    """Describe availability, with the drift between the halves of the log."""
    window = case.window
    # Against its own mean over the log, so that drift is not a matter of the importance.
    steady = replace(window, importance=window.mean_weights(window.plain()))
    middle = max(1, window.n_rounds // 2)
    halves = [steady.part(np.arange(middle)), steady.part(np.arange(middle, window.n_rounds))]
    if not halves[1].n_rounds:
        halves[1] = halves[0]
    early, late = (Weighted(half, half.plain(), case.resampling(half)) for half in halves)
    shares = (
        early.window.mean_weights(early.weights),
        late.window.mean_weights(late.weights),
    )
    return behave(
        case.federation,
        window,
        drift=drift(early, late),
        halves=shares,
        block=case.blocks.block,
    )


def _fit(case: Case) -> tuple[Split, Fit]:
    """Fit every law to the first part, and judge its weights on the last."""
    window = case.window
    # Of a log of one round both parts are that round; the recommendation will be to go on.
    cut = min(round(FITTED * window.n_rounds), window.n_rounds - 1)
    first = window.part(np.arange(max(cut, 1)))
    last = window.part(np.arange(cut, window.n_rounds))
    split = Split(
        fitted=case.fitting(first),
        whole=case.fitting(window),
        log=window,
        held_out=last,
        resampling=case.resampling(last),
        applied=case.federation.participation.applied,
        choice=case.choice(),
        rng=case.rng,
    )
    scores = []
    for name in split.fitted.laws():
        aligned = split.fitted.align(name)
        weights = weights_of(aligned, last)
        judged = distance(Weighted(last, weights, split.resampling))
        scores.append(LawScore(name, aligned.gap, judged))
    best = min(scores, key=lambda score: score.held_out.value)
    return split, Fit(
        scores=tuple(scores),
        law=best.law,
        states=split.fitted.states,
        fitted=first.n_rounds,
        held_out=last.n_rounds,
    )


def _evidence(case: Case, **known: Any) -> Evidence:
    """Add to what is known what the log alone tells."""
    weights = case.federation.participation.applied
    applied = None
    if weights is not None:
        applied = distance(Weighted(case.window, weights, case.blocks))
    return Evidence(
        applied=applied,
        rounds=case.window.n_rounds,
        clients=case.window.n_clients,
        cohort=float(case.window.incidence.sizes.mean()),
        available=case.mean_available,
        look=case.look,
        **known,
    )


def _findings(
    case: Case, found: Shortfall, *, source: str, advice: Advice, fit: Fit, **known: Any
) -> Findings:
    log, window = case.federation.participation, case.window
    alignment = _alignment(case, fit.law, advice)
    shares = _shares(case, found.nearest or alignment)
    pairs = log.n_rounds * log.n_clients
    return Findings(
        source=source,
        clients=log.clients,
        groups=case.federation.groups,
        group_of=case.federation.group_of,
        rounds=window.n_rounds,
        empty_rounds=log.n_rounds - window.n_rounds,
        entries=window.incidence.members.size,
        span=None if log.times is None else (float(log.times.min()), float(log.times.max())),
        unknown=0.0 if log.unknown is None else log.unknown.members.size / pairs,
        by_client=shares,
        by_group=_grouped(case, shares),
        fit=fit,
        advice=advice,
        alignment=alignment,
        notes=(*log.notes, *_notes(case)),
        **known,
    )


def _shares(case: Case, best: Weights) -> Shares:
    window = case.window
    return Shares(
        importance=case.federation.importance,
        owed=window.owed,
        implied=window.mean_weights(window.plain()),
        attained=window.mean_weights(weights_of(best, window)),
        inclusion=_inclusion(window),
    )


def _inclusion(window: Window) -> Floats:
    """Return the share of the rounds each is known in that it took part in; NaN for none."""
    taken, known = counts(window)
    shares = np.full(window.n_clients, np.nan)
    np.divide(taken, known, out=shares, where=known > 0)
    return shares


def _grouped(case: Case, shares: Shares) -> Shares | None:
    group_of, groups = case.federation.group_of, case.federation.groups
    if group_of is None:
        return None

    def summed(values: Floats) -> Floats:
        return total_by(group_of, values, len(groups))

    reached = [
        float(touched(case.window.incidence, np.flatnonzero(group_of == group)).mean())
        for group in range(len(groups))
    ]
    return Shares(
        importance=summed(shares.importance),
        owed=summed(shares.owed),
        implied=summed(shares.implied),
        attained=summed(shares.attained),
        inclusion=np.array(reached),
    )


def _alignment(case: Case, law: str, advice: Advice) -> Alignment:
    """Return the weights to use, over all clients at all times."""
    fitting = case.fitting(case.window)
    aligned = fitting.align(law, softness=advice.softness)
    if aligned.status is Status.UNCONVERGED:
        # Explicit cohorts have a max-flow to fall back on, mixtures have not.
        aligned = fitting.align("explicit", softness=advice.softness)
    return replace(aligned, importance=case.federation.importance)


def _notes(case: Case) -> list[str]:
    """Say what was left out for size."""
    window = case.window
    entries = window.incidence.members.size
    notes = []
    if entries > MOST_EXPLICIT:
        notes.append(
            f"the log has {entries:,} entries: beyond {MOST_EXPLICIT:,} plans are fitted to rates, "
            "not to single rounds, and whether alignment is possible is tested on some sets of "
            "clients, not on all"
        )
    if entries > MOST_FOR_VARIANCE:
        notes.append("the plan of least variance was left out: the log is too large for it")
    if window.n_rounds > MOST_REPLAYED:
        notes.append(f"online weights were replayed over the last {MOST_REPLAYED:,} rounds")
    return notes
