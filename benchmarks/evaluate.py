"""Evaluate answers, by code that neither the library nor any contender uses.

Expected weights straight from their definition: entry by entry with each cohort's largest
potential subtracted, and for independent clients

    m_i = π_i u_i ∫ e^{g(t)} e^{−t u_i} / (1 − π_i + π_i e^{−t u_i}) dt / P(A ≠ ∅),
    g(t) = Σ_k log(1 − π_k + π_k e^{−t u_k}),

by the trapezoid rule in log t, on nodes of its own.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_BLOCK_ENTRIES = 1 << 20
_LOG_STEP = 0.2
"""Half the step at which the trapezoid rule's error reaches rounding."""
_LOG_SMALL = np.log(1e-16)
_LOG_LATE = np.log(42.0)
ROUNDING = 1e-11
"""L1 distance two careful evaluations of one marginal may differ by."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What a contender returns: potentials (with levels), or a plan.

    Attributes
    ----------
    potentials : float array, shape (n_clients,), or None
    levels : int array, shape (n_clients,), or None
        For the library's answers to problems out of reach.
    plan : float array, shape (n_cohorts, size), or None
        Mass given to each member of each cohort.
    note : str
        What the contender has to say about its run.
    """

    potentials: Floats | None = None
    levels: Integers | None = None
    plan: Floats | None = None
    note: str = ""


def marginal_of_cohorts(
    members: Integers,
    probabilities: Floats,
    potentials: Floats,
    levels: Integers | None = None,
) -> Floats:
    """Return expected softmax weights, of each cohort's lowest level only, shape (n_clients,)."""
    total = np.zeros(potentials.size)
    block = max(1, _BLOCK_ENTRIES // members.shape[1])
    for start in range(0, len(members), block):
        rows = members[start : start + block]
        values = potentials[rows]
        if levels is not None:
            depth = levels[rows]
            values[depth > depth.min(axis=1, keepdims=True)] = -np.inf
        values = np.exp(values - values.max(axis=1, keepdims=True))
        values *= (probabilities[start : start + block] / values.sum(axis=1))[:, None]
        total += np.bincount(rows.ravel(), values.ravel(), minlength=total.size)
    return total


def marginal_of_plan(members: Integers, plan: Floats, n_clients: int) -> Floats:
    """Return the mass a plan gives each client, shape (n_clients,)."""
    return np.bincount(members.ravel(), plan.ravel(), minlength=n_clients)


def marginal_of_independent(probabilities: Floats, potentials: Floats) -> Floats:
    """Return expected softmax weights of independent clients, shape (n_clients,)."""
    scale = np.exp(potentials - potentials.max())
    first = _LOG_SMALL - np.log(max(probabilities @ scale, 1.0))
    log_times = np.arange(first, _LOG_LATE - np.log(scale.min()) + _LOG_STEP, _LOG_STEP)
    times = np.exp(log_times)
    block = max(1, _BLOCK_ENTRIES // times.size)
    slices = [slice(k, k + block) for k in range(0, scale.size, block)]
    logs = np.zeros_like(times)
    for part in slices:
        absent = np.expm1(-np.multiply.outer(scale[part], times))
        logs += np.log1p(probabilities[part, None] * absent).sum(axis=0)
    steps = _LOG_STEP * times * np.exp(logs)
    marginal = np.empty_like(scale)
    for part in slices:
        present = np.exp(-np.multiply.outer(scale[part], times))
        chance = probabilities[part, None]
        marginal[part] = (present / (1.0 - chance + chance * present)) @ steps
    nonempty = -np.expm1(np.log1p(-probabilities).sum())
    return marginal * probabilities * scale / nonempty


def attained_by_levels(
    members: Integers, probabilities: Floats, importance: Floats, levels: Integers
) -> tuple[Floats, bool]:
    """Return the importance that levels would attain, and whether their ratios rise.

    A level gets every cohort whose lowest level it is, so that its ratio is a matter of counting.
    If the ratios rise and some weights do attain this importance, it is the attainable one
    (Fujishige 1980), whoever found the levels.
    """
    lowest = levels[members].min(axis=1)
    mass = np.bincount(levels, importance)
    ratios = np.bincount(lowest, probabilities, minlength=mass.size) / mass
    rising = np.diff(ratios) * np.minimum(mass[1:], mass[:-1]) >= -ROUNDING
    return ratios[levels] * importance, bool(rising.all())
