"""Ways to falsify a certificate, field by field and in combination.

Each takes a `Case` and returns its certificate changed, or None where it does not apply. What is
changed by an amount is changed by ten times the tolerance of `verify` or more. Some results are
true all the same: a reference decides.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedavot.certificate import Certificate

EMPTY = np.empty(0, dtype=np.int64)


class Case(NamedTuple):
    """A certificate, the problem it was made for, the truth about it, and a source of chance."""

    name: str
    certificate: Any
    problem: Any
    reference: Any
    rng: np.random.Generator


def put(name, value):
    """Return the tampering that puts a function of a field's value and chance in its place."""

    def tamper(case):
        before = getattr(case.certificate, name)
        after = None if before is None else value(before, case.rng)
        return None if after is None else replace(case.certificate, **{name: after})

    return tamper


def entry(name, change):
    """Return the tampering that puts a function of an array's entry in its place."""

    def value(before, rng):
        after, at = before.copy(), int(rng.integers(before.size))
        after[at] = change(after, rng, at)
        return after

    return put(name, value)


def one_of(values):
    """Return a function that puts one of some values in the place of any."""
    return lambda before, rng: values[int(rng.integers(len(values)))]


def amount(rng):
    """Return how much to change a number by."""
    return float(10.0 ** rng.uniform(-8, 0)) * rng.choice([-1, 1])


def added(case):
    """Put another client into the deficient set."""
    rest = np.setdiff1d(np.arange(case.problem.importance.size), case.certificate.deficient)
    deficient = np.append(case.certificate.deficient, case.rng.permutation(rest)[:1])
    return replace(case.certificate, deficient=deficient) if rest.size else None


def told(case, clients, *, ratio_too=True):
    """Claim infeasible by a set, with its own violation and, perhaps, its own ratio."""
    importance = float(case.problem.importance[clients].sum())
    coverage = case.problem.setting.law.coverage(clients)
    ratio = importance / coverage if coverage > 0 else np.inf
    return replace(
        case.certificate,
        feasible=False,
        deficient=clients,
        deficiency=max(importance - coverage, 1e-15),
        hall_ratio=max(ratio, 1.0) if ratio_too else case.certificate.hall_ratio,
    )


def another_set(clients_of):
    """Return the tampering that claims another set to be the worst, and tells the truth about it.

    Half of the time the Hall ratio stays as it was.
    """

    def tamper(case):
        clients = clients_of(case)
        if clients is None or not clients.size:
            return None
        return told(case, clients, ratio_too=case.rng.random() < 0.5)

    return tamper


def any_set(case):
    """Return a random set."""
    return np.flatnonzero(case.rng.random(case.problem.importance.size) < case.rng.random())


def smaller_set(case):
    """Return the deficient set without one client."""
    return case.rng.permutation(case.certificate.deficient)[1:]


def larger_set(case):
    """Return the deficient set with another client."""
    changed = added(case)
    return None if changed is None else changed.deficient


def first_levels(case):
    """Return the clients of the first levels up to any."""
    levels = case.certificate.levels
    return None if levels is None else np.flatnonzero(levels <= case.rng.choice(levels))


def levels_and_ratio(case):
    """Merge or split the first levels, and adjust the Hall ratio to match."""
    levels = case.certificate.levels
    if levels is None or case.certificate.feasible:
        return None
    chosen = first_levels(case)
    if case.rng.random() < 0.5:
        first = levels == levels.min()
        chosen = np.flatnonzero(first & (case.rng.random(first.size) < 0.5))
    if not chosen.size:
        return None
    after = levels + 1
    after[chosen] = levels.min()
    return replace(case.certificate, levels=after, hall_ratio=told(case, chosen).hall_ratio)


def attainable(potentials):
    """Return the tampering that claims feasible, with evidence made up if there are potentials."""

    def tamper(case):
        claim = replace(
            case.certificate, feasible=True, deficient=EMPTY, deficiency=0.0, hall_ratio=1.0
        )
        if potentials is None:
            return claim
        count = case.problem.importance.size
        levels = case.rng.integers(0, 3, count)
        return Certificate(
            True, EMPTY, 0.0, 1.0, potentials=potentials(case.rng, count), levels=levels
        )

    return tamper


def without(*names):
    """Return the tampering that removes fields of the evidence."""
    return lambda case: replace(case.certificate, **dict.fromkeys(names))


def scaled(case):
    """Enlarge deficiency and Hall ratio alike."""
    factor, certificate = 1.0 + abs(amount(case.rng)), case.certificate
    return replace(
        certificate,
        deficiency=certificate.deficiency * factor + 1e-8,
        hall_ratio=certificate.hall_ratio * factor,
    )


FIELDS = {
    "feasible": [
        put("feasible", lambda before, rng: not before),
        attainable(None),
        attainable(lambda rng, count: rng.normal(size=count)),
    ],
    "deficiency": [
        put("deficiency", lambda before, rng: before + amount(rng)),
        put("deficiency", lambda before, rng: before * 2 + 1e-8),
        put("deficiency", lambda before, rng: -before - 1e-8),
        put("deficiency", one_of([np.nan, np.inf, -np.inf])),
    ],
    "hall_ratio": [
        put("hall_ratio", lambda before, rng: before * 2.0 ** rng.choice([-1, 1])),
        put("hall_ratio", lambda before, rng: before * (1 + rng.choice([-1, 1]) * 1e-6)),
        put("hall_ratio", lambda before, rng: float(10.0 ** rng.uniform(9, 200))),
        put("hall_ratio", one_of([np.nan, 0.0, 0.999, -np.inf, np.inf])),
    ],
    "deficient": [
        put("deficient", lambda before, rng: np.delete(before, 0) if before.size else None),
        put("deficient", lambda before, rng: np.repeat(before, 2) if before.size else None),
        put("deficient", lambda before, rng: before - 10**6 if before.size else None),
        put("deficient", one_of([np.array([-1]), np.array([0, 10**6]), np.array([0, 0])])),
        added,
        lambda case: replace(case.certificate, deficient=np.arange(case.problem.importance.size)),
    ],
    "potentials": [
        put("potentials", lambda before, rng: rng.permutation(before)),
        put("potentials", lambda before, rng: rng.normal(size=before.size)),
        put("potentials", lambda before, rng: np.append(before, 0.0)),
        put("potentials", lambda before, rng: -before),
        entry("potentials", lambda values, rng, at: values[at] + 1e6 * amount(rng)),
        entry("potentials", lambda values, rng, at: rng.choice([np.nan, np.inf, 1e308])),
    ],
    "levels": [
        put("levels", lambda before, rng: np.zeros_like(before)),
        put("levels", lambda before, rng: np.arange(before.size)),
        put("levels", lambda before, rng: before.max() - before),
        put("levels", lambda before, rng: rng.integers(-3, 3, before.size)),
        put("levels", lambda before, rng: np.maximum(before, rng.choice(before))),
        put("levels", lambda before, rng: before[1:]),
        entry("levels", lambda values, rng, at: rng.choice(values)),
    ],
    "evidence": [
        without("potentials", "levels"),
        without("potentials"),
        without("levels"),
        attainable(lambda rng, count: np.zeros(count)),
        attainable(lambda rng, count: rng.normal(size=count) * 1e307),
    ],
    "combination": [
        *map(another_set, (any_set, smaller_set, larger_set, first_levels)),
        levels_and_ratio,
        scaled,
    ],
}
