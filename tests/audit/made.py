"""Findings made without an audit: twelve clients in three groups, 300 rounds of up to four.

What can be computed from the rounds is, so that figures agree with each other; intervals and what
is judged on a held-out part are made up around them.
"""

from dataclasses import replace
from functools import cache

import numpy as np

import fedavot as fa
from fedavot.audit.findings import (
    Behaviour,
    Findings,
    Fit,
    LawScore,
    Point,
    Price,
    Reach,
    Reached,
    Shares,
    Standing,
)
from fedavot.audit.recommending import Choice, Estimate, Recommendation, Replay, Trained

GROUPS = ("clinics", "phones", "tablets")
GROUP_OF = np.repeat([0, 1, 2], [2, 7, 3])
CLIENTS = tuple(
    f"{GROUPS[group][:-1]}-{number}"
    for group, count in enumerate(np.bincount(GROUP_OF))
    for number in range(1, count + 1)
)
ROUNDS = 300
FEASIBLE = np.array([0.06] * 2 + [0.07] * 7 + [0.13] * 3)
"""A group's share is split equally: clinics 12 %, phones 49 %, tablets 39 %."""
SCARCE = np.array([0.28] * 2 + [0.04] * 7 + [0.16 / 3] * 3)
"""Clinics hold 56 % and take part in far fewer rounds."""
NONE = np.empty(0, dtype=np.int64)


def estimate(value, spread=0.03):
    """Return an interval around a value, not below 0."""
    return Estimate(value, max(0.0, value - spread), value + spread)


@cache
def law(absent=()):
    """Return the rounds as a law; ``absent`` clients never take part."""
    rng = np.random.default_rng(5)
    rates = np.array([0.10, 0.12] + [0.5] * 7 + [0.25] * 3)
    rates[list(absent)] = 0.0
    rounds = []
    while len(rounds) < ROUNDS:
        there = np.flatnonzero(rng.random(rates.size) < rates)
        if there.size:
            rounds.append(np.sort(rng.permutation(there)[:4]))
    return fa.Cohorts(rounds, n_clients=rates.size)


def shares(importance, cohorts, attained):
    """Return every client's part."""
    return Shares(
        importance,
        importance,
        cohorts.expected_weights(np.zeros(importance.size)),
        attained,
        cohorts.inclusion(),
    )


def grouped(by_client, cohorts):
    """Return every group's part."""
    sums = [
        np.bincount(GROUP_OF, weights=values)
        for values in (
            *(by_client.importance, by_client.owed),
            *(by_client.implied, by_client.attained),
        )
    ]
    covered = [cohorts.coverage(np.flatnonzero(at == GROUP_OF)) for at in range(3)]
    return Shares(*[*sums, np.array(covered)])


def reach_of(importance, cohorts):
    """Return whether exact alignment is possible."""
    found = fa.certify(importance, cohorts)
    weak = found.deficient
    held = Reached(weak, float(importance[weak].sum()), cohorts.coverage(weak))
    absent = np.flatnonzero((cohorts.inclusion() == 0) & (importance > 0))
    worst = Reached(absent, float(importance[absent].sum()), 0.0) if absent.size else held
    ratio = found.hall_ratio
    return Reach(
        feasible=found.feasible,
        proven=True,
        sure=True,
        deficiency=estimate(found.deficiency) if weak.size else Estimate(0.0, 0.0, 0.0),
        hall_ratio=estimate(ratio, 0.2) if np.isfinite(ratio) else Estimate(*[np.inf] * 3),
        deficient=held,
        worst=worst if weak.size else Reached(NONE, 0.0, 0.0),
        never_seen=absent,
        larger_cohorts=3 if weak.size and not absent.size else None,
        tried_cohorts=8,
        if_all_asked=0.08 if weak.size else 0.0,
    )


def behaviour():
    """Return clients that charge at night, drift little, and come together."""
    hours = 2.5 + 1.5 * np.cos(np.arange(24) / 12 * np.pi)
    parts = np.array([[0.1], [0.7], [0.2]])
    return Behaviour(
        of_available=True,
        by_hour=hours,
        by_weekday=np.array([2.6, 2.5, 2.5, 2.4, 2.5, 2.8, 2.9]),
        groups_by_hour=parts * hours,
        dated=True,
        rounds_per_observation=2.4,
        group_after_presence=np.array([0.7, 0.95, 0.5]),
        group_after_absence=np.array([0.1, 0.94, 0.48]),
        joint_persistence=Estimate(0.4, 0.33, 0.47),
        dispersion=1.6,
        drift=estimate(0.05),
        implied_first_half=_halves()[0],
        implied_last_half=_halves()[1],
    )


def _halves():
    implied = law().expected_weights(np.zeros(12))
    tilt = np.where(np.arange(12) % 2, 1.1, 0.9)
    first, last = implied * tilt, implied / tilt
    return first / first.sum(), last / last.sum()


def price_of(importance, cohorts, softness):
    """Return a curve from exact to the plain average, and six rules."""
    steps = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    aligned = {step: fa.align(importance, cohorts, softness=step) for step in steps}
    points = [Point(step, one.gap, one.effective_cohort_size) for step, one in aligned.items()]
    soft = fa.align(importance, cohorts, softness=softness or 0.1)
    plain = fa.align(importance, cohorts, softness=1e6)
    exact = points[0]
    rows = [
        ("fedavg", plain.gap, plain.effective_cohort_size, 1.0),
        ("horvitz-thompson", 0.9 * exact.gap, 0.5 * exact.effective_cohort_size, 4.2),
        (
            "self-normalised-ipw",
            0.4 * plain.gap + 0.6 * exact.gap,
            0.9 * exact.effective_cohort_size,
            1.0,
        ),
        ("fedavot", exact.gap, exact.effective_cohort_size, 1.0),
        ("fedavot-soft", soft.gap, soft.effective_cohort_size, 1.0),
        ("fedavot-online", exact.gap + 0.01, 0.97 * exact.effective_cohort_size, 1.0),
    ]
    return Price(
        tuple(points),
        tuple(
            Standing(rule, gap, size, estimate(gap + 0.02), 0.98 * size, most)
            for rule, gap, size, most in rows
        ),
    )


LOSSES = {
    "full": 0.4,
    "fedavot-steady": 0.45,
    "fedavot-online": 0.7,
    "fedavot-soft": 0.75,
    "fedavot": 0.8,
    "self-normalised-ipw": 0.9,
    "importance-average": 0.95,
    "fedavg": 1.0,
    "horvitz-thompson": 40.0,
}
"""Excess losses of the replay relative to the plain average's; one rule diverges."""
NEEDS = {
    "fedavot-steady": "memory",
    "fedavot-select": "select",
}


def trained(rule, loss, in_use=1.0):
    """Return a rule's training whose loss is so many times the plain average's at the end."""
    recorded = np.linspace(0.1, 1.0, 10)
    middle = np.exp(recorded * np.log(0.2 * loss))
    ratio, full = (Estimate(one, 0.9 * one, 1.2 * one) for one in (loss, loss / 0.4))
    used = Estimate(loss / in_use, 0.95 * loss / in_use, 1.05 * loss / in_use)
    return Trained(
        rule,
        NEEDS.get(rule),
        1.0,
        ratio,
        full,
        ratio,
        full,
        used,
        0.8 * middle,
        middle,
        1.3 * middle,
        loss < 1,
    )


def replay(**changes):
    """Return a replay of all rules."""
    made = Replay(
        trained=tuple(trained(rule, loss) for rule, loss in LOSSES.items()),
        recorded=np.arange(30, 301, 30),
        fitted_rounds=200,
        held_out_rounds=100,
        variants=6,
        seeds=3,
        local_steps=5,
        n_clients=12,
    )
    return replace(made, **changes)


def choice(rule, low=None, high=None, softness=0.0):
    """Return the choice of a rule, with the gain of the replay or with that given."""
    gain = 1 - LOSSES.get(rule, 0.5)
    ends = (gain - 0.05 if low is None else low, gain + 0.05 if high is None else high)
    return Choice(rule, NEEDS.get(rule), Estimate(gain, *ends), softness)


def advise(action, best=None, second=None, **options):
    """Return a recommendation."""
    reason = options.pop("reason", "trains better")
    softness = options.pop("softness", 0.0)
    chosen = None if best is None else choice(best, softness=softness)
    return Recommendation(
        action, reason, chosen, None if second is None else choice(second), **options
    )


KEEP = advise("nothing to do", reason="within noise")
SHORT = advise("collect more rounds", reason="too short", rounds_needed=900)


@cache
def _made(kind):
    importance = {"feasible": FEASIBLE, "infeasible": SCARCE, "never": FEASIBLE}[kind]
    cohorts = law((0,)) if kind == "never" else law()
    recommendation = {
        "feasible": advise("use memory", "fedavot-steady", "fedavot-online"),
        "infeasible": advise("change the weights", "fedavot-soft", softness=0.1),
        "never": KEEP,
    }[kind]
    softness = 0.1 if kind == "infeasible" else 0.0
    aligned = fa.align(importance, cohorts, softness=softness)
    nearest = fa.align(importance, cohorts).attained
    by_client = shares(importance, cohorts, nearest)
    return Findings(
        source="log.csv",
        clients=CLIENTS,
        groups=GROUPS,
        group_of=GROUP_OF,
        rounds=ROUNDS,
        empty_rounds=2,
        entries=round(ROUNDS * float(cohorts.inclusion().sum())),
        span=(1704672000.0, 1704672000.0 + 1800 * ROUNDS),
        unknown_share=0.0,
        tolerance=0.05,
        by_client=by_client,
        by_group=grouped(by_client, cohorts),
        gap=estimate(float(np.abs(by_client.implied - importance).sum() / 2)),
        reach=reach_of(importance, cohorts),
        behaviour=behaviour(),
        fit=Fit(
            (
                LawScore("explicit", 0.0, estimate(0.04)),
                LawScore("independent", 0.02, estimate(0.06)),
                LawScore("mixture", 0.01, estimate(0.03)),
            ),
            law="mixture",
            parts_of_day=4,
            fitted_rounds=200,
            held_out_rounds=100,
            oracle_gap=0.02,
        ),
        price=price_of(importance, cohorts, softness),
        alignment=replace(aligned, clients=CLIENTS),
        notes=("7 rows are repeated: counted once",),
        in_use="fedavg",
        replay=replay(),
        recommendation=recommendation,
    )


def _changed(kind, changes):
    # The same object where nothing is changed: what is drawn of it can be kept.
    return replace(_made(kind), **changes) if changes else _made(kind)


def findings(**changes):
    """Return findings of a feasible federation, with whatever fields are given instead."""
    return _changed("feasible", changes)


def infeasible(**changes):
    """Return findings of a federation that wants its clinics more than they can be had."""
    return _changed("infeasible", changes)


def never_seen(**changes):
    """Return findings in which a wanted client never took part: the Hall ratio is infinite."""
    return _changed("never", changes)


def unknown_client(**changes):
    """Return findings in which one client is known in no round: its inclusion is NaN."""
    made = _made("feasible")
    one = np.arange(12) == 11
    owed = np.where(one, 0.0, made.by_client.owed)
    held = replace(
        made.by_client,
        owed=owed / owed.sum(),
        inclusion=np.where(one, np.nan, made.by_client.inclusion),
    )
    return replace(made, **{"by_client": held, "unknown_share": 1 / 12, **changes})


def without_groups(**changes):
    """Return findings of clients without groups."""
    made = _made("feasible")
    alone = {"groups_by_hour": None, "group_after_presence": None, "group_after_absence": None}
    calm = replace(made.behaviour, **alone)
    fields = {"groups": (), "group_of": None, "by_group": None, "behaviour": calm}
    return replace(made, **{**fields, **changes})


def without_times(**changes):
    """Return findings of a log without times."""
    made = _made("feasible")
    timeless = replace(
        made.behaviour,
        by_hour=None,
        by_weekday=None,
        groups_by_hour=None,
        dated=False,
        of_available=False,
    )
    fit = replace(
        made.fit,
        scores=tuple(score for score in made.fit.scores if score.law != "mixture"),
        law="explicit",
        parts_of_day=0,
    )
    return replace(made, **{"span": None, "behaviour": timeless, "fit": fit, **changes})


def with_choice(**changes):
    """Return findings of a server that could choose, and that tells which weights it applied."""
    made = _made("feasible")
    rows = [
        Standing("fedavot-select", 0.03, 3.2, Estimate(0.04, 0.01, 0.07), 3.1, 1.0),
        Standing("as-applied", 0.21, 3.3, Estimate(0.22, 0.18, 0.27), 3.3, 1.0),
    ]
    price = replace(made.price, standings=(*made.price.standings, *rows))
    rules = {**LOSSES, "fedavot-select": 0.5, "as-applied": 1.1}
    runs = tuple(trained(rule, loss, in_use=1.1) for rule, loss in rules.items())
    fields = {
        "price": price,
        "in_use": "as-applied",
        "replay": replay(trained=runs),
        "recommendation": advise("change selection", "fedavot-select", "fedavot-online"),
    }
    return replace(made, **{**fields, **changes})


def too_large(**changes):
    """Return findings of a log too large to prove that exact alignment is possible."""
    made = _made("feasible")
    reach = replace(made.reach, proven=False, sure=False, deficiency=Estimate(0.0, 0.0, 0.02))
    return replace(made, **{"reach": reach, **changes})


def one_round(**changes):
    """Return findings of the first round alone: nothing is held out, and there are no halves."""
    made = _made("feasible")
    rows = tuple(
        Standing(one.rule, 0.7, 1.0, Estimate(0.7, 0.0, 1.0), 1.0, 1.0)
        for one in made.price.standings
    )
    fields = {
        "rounds": 1,
        "entries": 1,
        "empty_rounds": 0,
        "span": (made.span[0], made.span[0]),
        "reach": replace(made.reach, sure=False, deficiency=Estimate(0.0, 0.0, 1.0)),
        "fit": replace(made.fit, fitted_rounds=1, held_out_rounds=1),
        "price": replace(made.price, standings=rows),
        "replay": replay(
            trained=tuple(
                replace(one, low=one.low[:1], middle=one.middle[:1], high=one.high[:1])
                for one in replay().trained
            ),
            recorded=np.array([1]),
            fitted_rounds=1,
            held_out_rounds=0,
        ),
        "recommendation": replace(SHORT, rounds_needed=768),
    }
    return replace(made, **{**fields, **changes})


VARIANTS = (
    *(findings, infeasible, never_seen, unknown_client, without_groups, without_times),
    *(with_choice, too_large),
)
