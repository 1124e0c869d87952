"""The audit: from a federation to findings, in one direction."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from fedavot._checks import as_amount, as_seed, as_size, require, shown
from fedavot._files import PathLike
from fedavot.alignment import Alignment
from fedavot.audit.federation import Federation
from fedavot.audit.findings import Findings, Fit
from fedavot.audit.participation import Participation
from fedavot.audit.recommending import (
    NEEDS,
    Estimate,
    Facts,
    Need,
    Recommendation,
    recommend,
)
from fedavot.audit.replay.replaying import Options, replay
from fedavot.audit.replay.scene import scene_of
from fedavot.audit.statistics.behaviour import behave
from fedavot.audit.statistics.case import Case, opened
from fedavot.audit.statistics.estimates import Weighted, distance
from fedavot.audit.statistics.price import choose_softness, curve, judge, price
from fedavot.audit.statistics.reach import grouped, reach, shares_of
from fedavot.audit.statistics.rules import (
    AS_APPLIED,
    BY_EXAMPLES,
    FEDAVG,
    SOFT,
    STEADY,
    first_replayed,
)
from fedavot.audit.statistics.shortfall import Shortfall
from fedavot.errors import Option, OptionError

LEAST_TOLERANCE = 1e-4
"""The smallest tolerance: no log is long enough to resolve a smaller gap."""
STAGES = (
    "the plain average",
    "how availability behaves",
    "what is attainable",
    "which law fits",
    "the price of a smaller gap",
    "the figures of all rules",
    "training with every rule",
)
IN_USE = {"equal": FEDAVG, "examples": BY_EXAMPLES, "applied": AS_APPLIED}


@dataclass(frozen=True)
class ReplayOptions:
    """How an audit trains on the log.

    Attributes
    ----------
    local_steps : int
        Number of local steps that a client takes in a round.
    task : path, optional
        A task to train on instead of the audit's small problems: an .npz of ``features``,
        ``targets`` and ``clients``, as `fedavot simulate` takes it. It alone needs JAX.
    """

    local_steps: int = 5
    task: PathLike | None = None


def audit(
    federation: Federation,
    *,
    source: str = "log",
    tolerance: float = 0.05,
    weights: Literal["equal", "examples", "applied"] | None = None,
    can: Collection[Need] = NEEDS,
    training: ReplayOptions | None = None,
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
    weights : "equal", "examples" or "applied", optional
        The weights in use today: equal weights, weights in proportion to the numbers of examples in
        the log, or the weights recorded in the log. The default is whatever the log records, or
        equal weights if it records neither; memory, if the log says that it was used.
    can : collection of "memory" and "select"
        What the deployment can do; a rule that needs anything else is not recommended.
    training : ReplayOptions, optional
        How to train on the log.
    seed : int
        Seed for the bootstrap and the replay.
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
    how = training or ReplayOptions()
    if how.task is not None:
        require("training", "jax", by="an audit with a task of your own")
    steps = as_size(how.local_steps, what="local_steps", low=1)
    able = _as_needs(can)
    in_use = _in_use(federation, weights)
    rng = np.random.default_rng(as_seed(seed))

    def under_way(stage: int) -> None:
        if progress is not None:
            progress(STAGES[min(stage, len(STAGES) - 1)], stage, len(STAGES))

    case = opened(federation, source, rng)
    log = federation.participation
    under_way(0)
    gap = _gap(case)
    under_way(1)
    behaviour = behave(case)
    under_way(2)
    available = case.available(case.window)
    reached, shortfall = reach(case.without_hidden, case.blocks, available=available, rng=rng)
    under_way(3)
    fit = judge(case)
    under_way(4)
    points = curve(case.whole)
    softness = choose_softness(points, limit)
    under_way(5)
    standings = price(case, law=fit.law, points=points, softness=softness)
    under_way(6)
    scene = scene_of(case, rng)
    task = None
    if how.task is not None:
        from fedavot.audit.replay.own_task import read_task

        task = read_task(Path(how.task), [log.clients[client] for client in scene.clients])
    replayed = replay(scene, Options(fit.law, softness, in_use, steps, seed), task)
    advice = recommend(replayed, _facts(case, gap, limit), able)
    alignment = _alignment(case, fit, advice)
    shares = shares_of(case, shortfall, alignment)
    under_way(7)
    return Findings(
        source=source,
        clients=log.clients,
        groups=federation.groups,
        group_of=federation.group_of,
        rounds=case.totals.n_filled,
        empty_rounds=case.totals.n_rounds - case.totals.n_filled,
        entries=case.totals.n_entries,
        span=case.totals.span,
        unknown_share=_unknown_share(log),
        tolerance=limit,
        by_client=shares,
        by_group=grouped(case, shares),
        gap=gap,
        reach=reached,
        behaviour=behaviour,
        fit=fit,
        price=standings,
        in_use=in_use,
        replay=replayed,
        recommendation=advice,
        alignment=alignment,
        notes=(*log.notes, *_notes(case, shortfall)),
    )


def _as_needs(can: Collection[str]) -> tuple[Need, ...]:
    """Return what the deployment can do, or refuse a value that is not a need."""
    unknown = [one for one in can if one not in NEEDS]
    if unknown:
        raise OptionError(
            f"can has {shown(unknown[0])}; give any of {', '.join(map(repr, NEEDS))}, or nothing"
        )
    return tuple(one for one in NEEDS if one in can)


def _in_use(federation: Federation, weights: str | None) -> str:
    """Return the rule in use: the one that the caller named, or the one that the log implies."""
    log = federation.participation
    if weights is None:
        if log.applied is not None:
            return STEADY if log.remembers else AS_APPLIED
        return FEDAVG if log.examples is None else BY_EXAMPLES
    if weights not in IN_USE:
        raise OptionError(
            f"weights is {shown(weights)}; give one of {', '.join(map(repr, IN_USE))}"
        )
    if weights != "equal" and (log.examples if weights == "examples" else log.applied) is None:
        column = "examples" if weights == "examples" else "weight"
        raise OptionError(
            f"weights is {weights!r}, but the log has no column of {column}; name it, as in ",
            Option("columns", {column: "n_train"}),
            ", or give ",
            Option("weights", "equal"),
        )
    return IN_USE[weights]


def _facts(case: Case, gap: Estimate, tolerance: float) -> Facts:
    window = case.window
    return Facts(
        gap=gap,
        known=window.known,
        tolerance=tolerance,
        rounds=window.n_rounds,
        clients=window.n_clients,
        cohort_size=float(window.incidence.sizes.mean()),
        rounds_per_observation=case.rounds_per_observation,
    )


def _gap(case: Case) -> Estimate:
    """Estimate the plain average's gap; its value is over all rounds, even those not kept."""
    window, totals = case.window, case.federation.participation.totals
    gap = distance(Weighted(window, window.plain(), case.blocks))
    if totals is None:
        return gap
    # No state is unknown in such a log, so that ``owed`` equals the importance.
    value = float(np.abs(totals.implied - window.importance).sum()) / 2
    return Estimate(value, min(gap.low, value), max(gap.high, value))


def _alignment(case: Case, fit: Fit, advice: Recommendation) -> Alignment:
    """Return the weights to use, with the clients' names."""
    best = advice.best
    softness = best.softness if best is not None and best.rule == SOFT else 0.0
    aligned = case.whole.align(fit.law, softness=softness)
    # Under an explicit law the weights were fitted to the importance counted over known states
    # only, but they are used in every round.
    federation = case.federation
    clients = federation.participation.clients
    return replace(aligned, importance=federation.importance, clients=clients)


def _unknown_share(log: Participation) -> float:
    pairs = log.n_rounds * log.n_clients
    return 0.0 if log.unknown is None else log.unknown.members.size / pairs


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
    if unseen := case.hidden.size:
        notes.append(
            f"clients that took part in none of the rounds that are kept: {unseen:,}, left out of "
            "whether alignment is possible"
        )
    if first := first_replayed(window):
        notes.append(
            f"online weights were replayed over the last {window.n_rounds - first:,} rounds"
        )
    if case.has_choice and not case.replays_choice:
        notes.append("selection by the server was not replayed: the log is too large")
    return notes
