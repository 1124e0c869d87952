"""What the library computes, computed again from a table of all cohorts, without the library.

A table is a dict from frozensets of clients to probabilities. Everything is summed over it in
extended precision, set by set, so that a comparison measures the library's rounding alone.
"""

from typing import NamedTuple

import numpy as np

TIE = 1e-11
"""Relative slack within which two sets have the same ratio; planted ratios differ by far more."""


class Table(NamedTuple):
    """Cohorts as a boolean matrix (n_cohorts, n_clients), and their probabilities."""

    members: np.ndarray
    chances: np.ndarray


class Hall(NamedTuple):
    """The largest p(I) − f(I) over all sets, the empty one included, and the largest p(I)/f(I)."""

    deficiency: float
    ratio: float


class Base(NamedTuple):
    """The lexicographically optimal base, and its levels as pairs (clients, ratio)."""

    attained: np.ndarray
    levels: list


def as_table(cohorts, n_clients):
    members = np.zeros((len(cohorts), n_clients), dtype=bool)
    for row, cohort in enumerate(cohorts):
        members[row, list(cohort)] = True
    return Table(members, np.array(list(cohorts.values()), dtype=np.longdouble))


def cohort_weights(members, potentials, levels=None):
    """Return the lexicographic softmax over each row, shape (n_cohorts, n_clients)."""
    x = np.asarray(potentials, dtype=np.longdouble)
    kept = members
    if levels is not None:
        level = np.where(members, np.asarray(levels), np.iinfo(np.int64).max)
        kept = members & (level == level.min(axis=1, keepdims=True))
    values = np.where(kept, x, -np.inf)
    values = np.exp(values - values.max(axis=1, keepdims=True))
    return values / values.sum(axis=1, keepdims=True)


def expected_weights(cohorts, potentials, levels=None):
    table = as_table(cohorts, len(potentials))
    weights = cohort_weights(table.members, potentials, levels)
    return (table.chances @ weights).astype(np.float64)


def expected_squares(cohorts, potentials, levels=None):
    table = as_table(cohorts, len(potentials))
    weights = cohort_weights(table.members, potentials, levels)
    return (table.chances @ weights**2).astype(np.float64)


def hessian(cohorts, potentials, levels=None):
    """Return E[diag(Y) − Y Yᵀ]."""
    table = as_table(cohorts, len(potentials))
    weights = cohort_weights(table.members, potentials, levels)
    joint = (weights * table.chances[:, None]).T @ weights
    return (np.diag(table.chances @ weights) - joint).astype(np.float64)


def coverage(cohorts, clients):
    wanted = frozenset(int(client) for client in clients)
    return float(sum((chance for cohort, chance in cohorts.items() if cohort & wanted), 0.0))


def inclusion(cohorts, n_clients):
    return np.array([coverage(cohorts, [client]) for client in range(n_clients)])


def all_sets(n_clients):
    """Return every set of clients, the empty one first, shape (2^n_clients, n_clients)."""
    return (np.arange(2**n_clients)[:, None] >> np.arange(n_clients)) & 1 == 1


def all_coverages(cohorts, n_clients):
    """Return the coverage of every set, in the order of `all_sets`."""
    table = as_table(cohorts, n_clients)
    touched = all_sets(n_clients).astype(np.int64) @ table.members.T.astype(np.int64) > 0
    return touched @ table.chances


def hall(importance, cohorts):
    wanted = all_sets(len(importance)) @ np.asarray(importance, dtype=np.longdouble)
    covered = all_coverages(cohorts, len(importance))
    some = wanted > 0
    with np.errstate(divide="ignore"):
        ratio = np.max(wanted[some] / covered[some])
    return Hall(float(np.max(wanted - covered)), float(ratio))


def lexicographic_base(importance, cohorts):
    """Take the largest set of least coverage per importance, contract it, and repeat."""
    p = np.asarray(importance, dtype=np.longdouble)
    sets, covered = all_sets(p.size), all_coverages(cohorts, p.size)
    places = 1 << np.arange(p.size)
    attained, levels = np.zeros(p.size, dtype=np.longdouble), []
    left = p > 0
    while left.any():
        inside = ~(sets & ~left).any(axis=1) & sets.any(axis=1)
        done = int(places @ ((p > 0) & ~left))
        gain = covered[np.flatnonzero(inside) + done] - covered[done]
        ratios = gain / (sets[inside] @ p)
        least = ratios.min()
        level = sets[inside][ratios <= least * (1 + TIE) + 1e-300].any(axis=0)
        attained[level] = least * p[level]
        levels.append((frozenset(np.flatnonzero(level).tolist()), float(least)))
        left &= ~level
    idle = frozenset(np.flatnonzero(p == 0).tolist())
    for cohort, chance in cohorts.items():
        if cohort <= idle:
            attained[list(cohort)] += chance / len(cohort)
    return Base(attained.astype(np.float64), levels)
