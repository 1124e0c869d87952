"""The audit: from a federation to findings, in one direction."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedavot._checks import Floats, as_amount, as_size
from fedavot.alignment import Alignment, Status
from fedavot.audit.advice import Evidence, advise, choose_softness
from fedavot.audit.behaviour import behave
from fedavot.audit.case import Case, opened
from fedavot.audit.estimates import Weighted, distance, drift
from fedavot.audit.federation import Federation
from fedavot.audit.findings import (
    Advice,
    Behaviour,
    Estimate,
    Findings,
    Fit,
    LawScore,
    Price,
    Reach,
    Shares,
)
from fedavot.audit.price import MOST_FOR_VARIANCE, Split, curve, price
from fedavot.audit.reach import Deliverable, deliverable, reach, touched
from fedavot.audit.weighing import MOST_REPLAYED, weights_of
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
    found = deliverable(case.thin)
    available = case.available(case.thin)
    reached = reach(
        case.thin, found, case.resampling(case.thin), look=case.look, available=available
    )
    under_way(3)
    split, fit = _fit(case)
    under_way(4)
    points = curve(case.thin)
    softness = choose_softness(points, limit)
    under_way(5)
    standings = price(split, law=fit.law, points=points, softness=softness)
    advice = advise(_evidence(case, gap, reached, standings, softness=softness, tolerance=limit))
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
    middle = max(1, window.n_rounds // 2)
    halves = [window.part(np.arange(middle)), window.part(np.arange(middle, window.n_rounds))]
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
    first = case.thin.part(np.flatnonzero(case.thin.rounds < window.rounds[cut]))
    if not first.n_rounds:
        first = case.thin
    last = window.part(np.arange(cut, window.n_rounds))
    split = Split(
        fitted=case.fitting(first),
        whole=case.fitting(case.thin),
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


def _evidence(
    case: Case,
    gap: Estimate,
    reached: Reach,
    standings: Price,
    *,
    softness: float,
    tolerance: float,
) -> Evidence:
    log = case.federation.participation
    applied = None
    if log.applied is not None:
        applied = distance(Weighted(case.window, log.applied, case.blocks))
    return Evidence(
        gap=gap,
        applied=applied,
        reach=reached,
        price=standings,
        softness=softness,
        tolerance=tolerance,
        rounds=case.window.n_rounds,
        clients=case.window.n_clients,
        cohort=float(case.window.incidence.sizes.mean()),
        available=case.mean_available,
        look=case.look,
    )


def _findings(
    case: Case, found: Deliverable, *, source: str, advice: Advice, fit: Fit, **known: object
) -> Findings:
    log, window = case.federation.participation, case.window
    shares = _shares(case, found)
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
        alignment=_alignment(case, fit.law, advice),
        notes=(*log.notes, *_notes(case)),
        **known,  # type: ignore[arg-type]
    )


def _shares(case: Case, found: Deliverable) -> Shares:
    window, thin = case.window, case.thin
    nearest = weights_of(found, thin)
    return Shares(
        importance=case.federation.importance,
        owed=window.owed,
        implied=window.mean_weights(window.plain()),
        attained=thin.mean_weights(nearest),
        inclusion=case.federation.participation.inclusion(),
    )


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
    fitting = case.fitting(case.thin)
    aligned = fitting.align(law, softness=advice.softness)
    if aligned.status is Status.UNCONVERGED:
        # Explicit cohorts have a max-flow to fall back on, mixtures have not.
        aligned = fitting.align("explicit", softness=advice.softness)
    return replace(aligned, importance=case.federation.importance)


def _notes(case: Case) -> list[str]:
    """Say what was left out for size."""
    window, thin = case.window, case.thin
    entries = window.incidence.members.size
    notes = []
    if thin is not window:
        notes.append(
            f"certificates and plans are of {thin.n_rounds:,} evenly spaced rounds of "
            f"{window.n_rounds:,}; the log has {entries:,} entries, and all of them count for the "
            "plain average's shares and for the rules' gaps"
        )
    if entries > MOST_FOR_VARIANCE:
        notes.append("the plan of least variance was left out: the log is too large for it")
    if window.n_rounds > MOST_REPLAYED:
        notes.append(f"online weights were replayed over the last {MOST_REPLAYED:,} rounds")
    return notes
