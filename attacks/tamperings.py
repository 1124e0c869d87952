"""Ways to falsify a certificate, field by field and in combination.

Each takes a certificate with its problem, and returns it changed, or None where it does not apply.
What is changed by an amount is changed by ten times the tolerance of `verify` or more. Some
results are true all the same: a reference decides.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from attacks.certificate_problems import Problem
from attacks.references import Reference
from fedavot.certificate import Certificate


class Case(NamedTuple):
    """A certificate, the problem it was made for, the truth about it, and a source of chance."""

    name: str
    certificate: Certificate
    problem: Problem
    reference: Reference
    rng: np.random.Generator


Tampering = Callable[[Case], Certificate | None]

EMPTY = np.empty(0, dtype=np.int64)


def field(name: str, value: Callable[[Any, np.random.Generator], Any]) -> Tampering:
    """Return the tampering that puts a function of a field's value in its place."""

    def tamper(case: Case) -> Certificate | None:
        before = getattr(case.certificate, name)
        after = None if before is None else value(before, case.rng)
        return None if after is None else replace(case.certificate, **{name: after})

    return tamper


def array(name: str, change: Callable[[Any, np.random.Generator], None]) -> Tampering:
    """Return the tampering that changes a copy of an array in place."""

    def value(before: Any, rng: np.random.Generator) -> Any:
        after = before.copy()
        change(after, rng)
        return after

    return field(name, value)


def amount(rng: np.random.Generator) -> float:
    """Return how much to change a number by."""
    return float(10.0 ** rng.uniform(-8, 0))


def some(rng: np.random.Generator, count: int) -> int:
    """Return one of so many."""
    return int(rng.integers(count)) if count else 0


def swap(values: Any, rng: np.random.Generator) -> None:
    """Exchange two entries."""
    first, second = rng.integers(values.size, size=2)
    values[[first, second]] = values[[second, first]]


def shift(values: Any, rng: np.random.Generator) -> None:
    """Change one entry."""
    values[some(rng, values.size)] += rng.choice([-1, 1]) * 10.0 ** rng.uniform(-6, 2)


def spoil(number: float) -> Callable[[Any, np.random.Generator], None]:
    """Return what puts a number that is none into an array."""

    def change(values: Any, rng: np.random.Generator) -> None:
        values[some(rng, values.size)] = number

    return change


def outside(set_: Any, problem: Problem) -> Any:
    """Return the clients that a set does not have."""
    return np.setdiff1d(np.arange(problem.importance.size), set_)


def added(case: Case) -> Certificate | None:
    """Put another client into the deficient set."""
    rest = outside(case.certificate.deficient, case.problem)
    if not rest.size:
        return None
    return replace(
        case.certificate, deficient=np.append(case.certificate.deficient, case.rng.choice(rest))
    )


def replaced(case: Case) -> Certificate | None:
    """Exchange a client of the deficient set for another."""
    rest = outside(case.certificate.deficient, case.problem)
    if not rest.size or not case.certificate.deficient.size:
        return None
    deficient = case.certificate.deficient.copy()
    deficient[some(case.rng, deficient.size)] = case.rng.choice(rest)
    return replace(case.certificate, deficient=deficient)


def other(value: Callable[[int], Any]) -> Tampering:
    """Return the tampering that puts another set, by the number of clients, in its place."""

    def tamper(case: Case) -> Certificate | None:
        return replace(case.certificate, deficient=value(case.problem.importance.size))

    return tamper


def told(case: Case, clients: Any) -> Certificate:
    """Claim infeasible by a set, with its own violation and ratio."""
    importance = float(case.problem.importance[clients].sum())
    coverage = case.problem.setting.law.coverage(clients)
    ratio = importance / coverage if coverage > 0 else np.inf
    return replace(
        case.certificate,
        feasible=False,
        deficient=clients,
        deficiency=max(importance - coverage, 1e-15),
        hall_ratio=max(ratio, 1.0),
    )


def random_set(case: Case) -> Certificate | None:
    """Claim that a random set is the worst, and tell the truth about it."""
    clients = np.flatnonzero(case.rng.random(case.problem.importance.size) < case.rng.random())
    return told(case, clients) if clients.size else None


def kept_ratio(tamper: Tampering) -> Tampering:
    """Return a tampering that leaves the Hall ratio as it was."""

    def result(case: Case) -> Certificate | None:
        changed = tamper(case)
        return None if changed is None else replace(changed, hall_ratio=case.certificate.hall_ratio)

    return result


def smaller_set(case: Case) -> Certificate | None:
    """Drop a client, and tell the truth about the rest."""
    if case.certificate.deficient.size < 2:
        return None
    rest = np.delete(case.certificate.deficient, some(case.rng, case.certificate.deficient.size))
    return told(case, rest)


def larger_set(case: Case) -> Certificate | None:
    """Add a client, and tell the truth about all of them."""
    changed = added(case)
    return None if changed is None else told(case, changed.deficient)


def a_level(case: Case) -> Certificate | None:
    """Claim that the first levels up to any are the worst set."""
    if case.certificate.levels is None:
        return None
    last = case.rng.choice(case.certificate.levels)
    return told(case, np.flatnonzero(case.certificate.levels <= last))


def merged_and_adjusted(case: Case) -> Certificate | None:
    """Merge the first levels, and adjust the Hall ratio to match."""
    if case.certificate.levels is None or case.certificate.feasible:
        return None
    last = case.rng.choice(case.certificate.levels)
    levels = np.maximum(case.certificate.levels, last)
    first = np.flatnonzero(levels == last)
    return replace(case.certificate, levels=levels, hall_ratio=told(case, first).hall_ratio)


def split_and_adjusted(case: Case) -> Certificate | None:
    """Split the first level, and adjust the Hall ratio to match."""
    if case.certificate.levels is None or case.certificate.feasible:
        return None
    first = case.certificate.levels == case.certificate.levels.min()
    chosen = np.flatnonzero(first & (case.rng.random(first.size) < 0.5))
    if not chosen.size:
        return None
    levels = case.certificate.levels + 1
    levels[chosen] = case.certificate.levels.min()
    return replace(case.certificate, levels=levels, hall_ratio=told(case, chosen).hall_ratio)


def attainable(case: Case) -> Certificate | None:
    """Claim feasible, with the evidence that there is."""
    return replace(case.certificate, feasible=True, deficient=EMPTY, deficiency=0.0, hall_ratio=1.0)


def attainable_by(potentials: Callable[[int, np.random.Generator], Any]) -> Tampering:
    """Return the tampering that claims feasible with evidence made up."""

    def tamper(case: Case) -> Certificate | None:
        count = case.problem.importance.size
        made_up = {
            "potentials": potentials(count, case.rng),
            "levels": case.rng.integers(0, 3, count),
        }
        return Certificate(True, EMPTY, 0.0, 1.0, **made_up)

    return tamper


def without(*names: str) -> Tampering:
    """Return the tampering that removes fields of the evidence."""

    def tamper(case: Case) -> Certificate | None:
        return replace(case.certificate, **dict.fromkeys(names))

    return tamper


def scaled(case: Case) -> Certificate | None:
    """Enlarge deficiency and Hall ratio alike."""
    factor = 1.0 + amount(case.rng)
    return replace(
        case.certificate,
        deficiency=case.certificate.deficiency * factor + 1e-8,
        hall_ratio=case.certificate.hall_ratio * factor,
    )


FIELDS: dict[str, list[Tampering]] = {
    "feasible": [
        field("feasible", lambda before, rng: not before),
        field("feasible", lambda before, rng: ["yes", 2, np.nan, np.array([True])][some(rng, 4)]),
        attainable,
        attainable_by(lambda count, rng: rng.normal(size=count)),
    ],
    "deficiency": [
        field("deficiency", lambda before, rng: before + amount(rng)),
        field("deficiency", lambda before, rng: before - amount(rng)),
        field("deficiency", lambda before, rng: before * 2 + 1e-8),
        field("deficiency", lambda before, rng: [np.nan, np.inf, -np.inf][some(rng, 3)]),
        field("deficiency", lambda before, rng: ["1", 10**400, 1j, np.ones(2)][some(rng, 4)]),
        field("deficiency", lambda before, rng: -before - 1e-8),
    ],
    "hall_ratio": [
        field("hall_ratio", lambda before, rng: before * 2),
        field("hall_ratio", lambda before, rng: before / 2),
        field("hall_ratio", lambda before, rng: before * (1 + rng.choice([-1, 1]) * 1e-6)),
        field("hall_ratio", lambda before, rng: float(10.0 ** rng.uniform(9, 200))),
        field("hall_ratio", lambda before, rng: np.inf),
        field("hall_ratio", lambda before, rng: -before),
        field("hall_ratio", lambda before, rng: [np.nan, 0.0, 0.999, -np.inf][some(rng, 4)]),
        field("hall_ratio", lambda before, rng: ["2", 10**400, 2j, np.ones(2)][some(rng, 4)]),
    ],
    "deficient": [
        field("deficient", lambda before, rng: np.delete(before, 0) if before.size else None),
        field("deficient", lambda before, rng: np.repeat(before, 2) if before.size else None),
        field("deficient", lambda before, rng: before.astype(float) if before.size else None),
        field("deficient", lambda before, rng: before[None, :]),
        field("deficient", lambda before, rng: before - 10**6 if before.size else None),
        added,
        replaced,
        other(np.arange),
        other(lambda count: np.array([0, count + 3])),
        other(lambda count: np.array([-1])),
        other(lambda count: [[0], [0, 0]]),
        other(lambda count: np.array([10**30])),
        other(lambda count: None),
    ],
    "potentials": [
        array("potentials", swap),
        array("potentials", shift),
        array("potentials", spoil(np.nan)),
        array("potentials", spoil(np.inf)),
        array("potentials", spoil(1e308)),
        field("potentials", lambda before, rng: rng.normal(size=before.size)),
        field("potentials", lambda before, rng: before[1:]),
        field("potentials", lambda before, rng: np.append(before, 0.0)),
        field("potentials", lambda before, rng: before[:, None]),
        field("potentials", lambda before, rng: before.astype(str)),
        field("potentials", lambda before, rng: -before),
    ],
    "levels": [
        field("levels", lambda before, rng: np.zeros_like(before)),
        field("levels", lambda before, rng: np.arange(before.size)),
        field("levels", lambda before, rng: before.max() - before),
        field("levels", lambda before, rng: rng.integers(-3, 3, before.size)),
        field("levels", lambda before, rng: np.maximum(before, rng.choice(before))),
        field("levels", lambda before, rng: 2 * before + rng.integers(0, 2, before.size)),
        field("levels", lambda before, rng: before.astype(float)),
        field("levels", lambda before, rng: before[1:]),
        field("levels", lambda before, rng: before * (2**62)),
        array("levels", swap),
    ],
    "evidence": [
        without("potentials", "levels"),
        without("potentials"),
        without("levels"),
        attainable_by(lambda count, rng: np.zeros(count)),
        attainable_by(lambda count, rng: rng.normal(size=count) * 1e307),
    ],
    "combination": [
        random_set,
        kept_ratio(random_set),
        smaller_set,
        kept_ratio(smaller_set),
        larger_set,
        kept_ratio(larger_set),
        a_level,
        kept_ratio(a_level),
        merged_and_adjusted,
        split_and_adjusted,
        scaled,
    ],
}
