"""The audit: from a federation to findings, in one direction."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fedavot._checks import as_amount, as_seed
from fedavot.audit.decision.advice import advise
from fedavot.audit.decision.evidence import Evidence, choose_softness
from fedavot.audit.federation import Federation
from fedavot.audit.findings import Advice, Behaviour, Estimate, Findings, Fit, Price, Reach
from fedavot.audit.statistics.behaviour import behave
from fedavot.audit.statistics.case import Case, opened
from fedavot.audit.statistics.estimates import Weighted, distance, drift
from fedavot.audit.statistics.judging import judge, split_of
from fedavot.audit.statistics.online_weights import first_replayed
from fedavot.audit.statistics.price import curve, has_least_variance, price
from fedavot.audit.statistics.reach import reach
from fedavot.audit.statistics.shares import grouped, shares_of
from fedavot.audit.statistics.shortfall import Shortfall
from fedavot.audit.statistics.weighing import weights_of
from fedavot.errors import OptionError

LEAST_TOLERANCE = 1e-4
"""The smallest tolerance: no log is long enough to resolve a smaller gap."""
STAGES = (
    "the plain average",
    "how availability behaves",
    "what is attainable",
    "which law fits",
    "the price of a smaller gap",
    "the figures of all rules",
)


@dataclass(frozen=True, eq=False)
class _Found:
    """The findings of the stages, before the recommendation."""

    gap: Estimate
    behaviour: Behaviour
    reach: Reach
    shortfall: Shortfall
    fit: Fit
    price: Price
    softness: float
    tolerance: float


def audit(
    federation: Federation,
    *,
    source: str = "log",
    tolerance: float = 0.05,
    seed: int = 0,
    progress: Callable[[str, int, int], object] | None = None,
) -> Findings:
    """Find out what a federation really optimises, what it could optimise, and what to do.

    Parameters
    ----------
    federation : Federation
        The log and the importance of its clients.
    source : str
        Name of the log, for the report.
    tolerance : float
        The largest gap, in total variation, that calls for no action; at least 0.0001.
    seed : int
        Seed for the bootstrap.
    progress : function, optional
        Called with the name of the current stage, the number of stages done, and their total.

    Returns
    -------
    Findings
        All findings, from which every output is made.
    """
    limit = as_amount(tolerance, what="tolerance", positive=True)
    if limit < LEAST_TOLERANCE:
        raise OptionError(
            f"tolerance is {limit:g}; it must be at least {LEAST_TOLERANCE:g}: no log is long "
            "enough to resolve smaller gaps"
        )
    rng = np.random.default_rng(as_seed(seed))

    def under_way(stage: int) -> None:
        if progress is not None:
            progress(STAGES[min(stage, len(STAGES) - 1)], stage, len(STAGES))

    case = opened(federation, source, rng)
    under_way(0)
    gap = distance(Weighted(case.window, case.window.plain(), case.blocks))
    under_way(1)
    behaviour = _behaviour(case)
    under_way(2)
    available = case.available(case.window)
    reached, shortfall = reach(case.whole, case.blocks, available=available, rng=case.rng)
    under_way(3)
    split = split_of(case)
    fit = judge(split)
    under_way(4)
    points = curve(split.whole)
    softness = choose_softness(points, limit)
    under_way(5)
    standings = price(split, law=fit.law, points=points, softness=softness)
    found = _Found(gap, behaviour, reached, shortfall, fit, standings, softness, limit)
    advice = advise(_evidence(case, found))
    under_way(6)
    return _findings(case, found, source=source, advice=advice)


def _behaviour(case: Case) -> Behaviour:
    """Describe availability, including the drift between the halves of the log."""
    window = case.window
    # Relative to its own mean over the log, so that drift does not depend on the importance.
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


def _evidence(case: Case, found: _Found) -> Evidence:
    window, weights = case.window, case.federation.participation.applied
    applied = None
    if weights is not None:
        applied = distance(Weighted(window, weights, case.blocks))
    return Evidence(
        gap=found.gap,
        applied=applied,
        reach=found.reach,
        price=found.price,
        drift=found.behaviour.drift,
        never=float(window.importance[found.reach.never_seen].sum()),
        known=window.known,
        softness=found.softness,
        tolerance=found.tolerance,
        rounds=window.n_rounds,
        clients=window.n_clients,
        cohort_size=float(window.incidence.sizes.mean()),
        available=case.mean_available,
        rounds_per_observation=case.rounds_per_observation,
    )


def _findings(case: Case, found: _Found, *, source: str, advice: Advice) -> Findings:
    federation, window = case.federation, case.window
    log = federation.participation
    aligned = case.whole.align(found.fit.law, softness=advice.softness)
    # Under an explicit law it was fitted to what is owed while observed; it is used at all times.
    alignment = replace(aligned, importance=federation.importance, clients=log.clients)
    delivered = found.shortfall.delivered()
    if delivered is None:
        delivered = window.mean_weights(weights_of(alignment, window))
    shares = shares_of(window, delivered)
    pairs = log.n_rounds * log.n_clients
    return Findings(
        source=source,
        clients=log.clients,
        groups=federation.groups,
        group_of=federation.group_of,
        rounds=window.n_rounds,
        empty_rounds=log.n_rounds - window.n_rounds,
        entries=window.incidence.members.size,
        span=None if log.times is None else (float(log.times.min()), float(log.times.max())),
        unknown_share=0.0 if log.unknown is None else log.unknown.members.size / pairs,
        tolerance=found.tolerance,
        by_client=shares,
        by_group=grouped(federation, window, shares),
        gap=found.gap,
        reach=found.reach,
        behaviour=found.behaviour,
        fit=found.fit,
        price=found.price,
        advice=advice,
        alignment=alignment,
        notes=(*log.notes, *_notes(case, found.shortfall)),
    )


def _notes(case: Case, shortfall: Shortfall) -> list[str]:
    """Return notes on what was left out because of the size of the log."""
    window = case.window
    entries = window.incidence.members.size
    notes = []
    if window.large:
        notes.append(
            f"the log is large, {window.n_clients:,} clients and {entries:,} entries: weights are "
            "fitted to rates, not to single rounds"
        )
        if shortfall.nearest is None:
            notes.append("whether alignment is possible was tested on some sets of clients only")
    if not has_least_variance(case.whole):
        notes.append("least-variance weights were left out: the log is too large")
    if first := first_replayed(window):
        notes.append(
            f"online weights were replayed over the last {window.n_rounds - first:,} rounds"
        )
    if case.has_choice and not case.replays_choice:
        notes.append("selection by the server was not replayed: the log is too large")
    return notes
