"""Training over the rounds of a log, with all rules, step sizes and problems side by side.

In a round, the clients of a cohort take local steps from the model, and the rule aggregates what
they return; all rules see the same noise. This is NumPy on hundreds of small models at once, and
nothing is compiled. Arrays of models have the axes (dimension, rule, step size, problem), and
arrays of updates have the clients of the cohort behind these.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedavot._checks import Floats
from fedavot.audit.replay.problems import DIMENSION, Problems
from fedavot.audit.replay.scene import Way
from fedavot.rules._history import (
    begin,
    known_share,
    learn,
    newest_weight,
    nothing,
    tilt,
    tilt_evidence,
    trust,
)


class Memory:
    """The memory of the steady rule, for every step size and problem.

    Updates are not divided by the step: it is constant, and trust is a quotient.
    """

    def __init__(self, importance: Floats, of: Problems) -> None:
        self._importance = importance
        self._history = nothing(np, importance.size, *of.pull.shape[1:3])
        self._last = np.zeros_like(of.pull)
        self._total, self._usual, self._shift = np.zeros((3, *of.pull.shape[:3]))

    def change(self, cohort: NDArray[np.int32], weights: Floats, updates: Floats) -> Floats:
        """Aggregate a round and return what it adds to the models, in the shape of an update.

        Parameters
        ----------
        cohort : int array, shape (size,)
            The clients that took part.
        weights : float array, shape (size,)
            The weight of each.
        updates : float array, shape (DIMENSION, n_steps, n_problems, size)
            What each of them returned.
        """
        present = np.zeros(self._importance.size, dtype=bool)
        present[cohort] = self._importance[cohort] > 0
        if not present.any():
            return np.zeros_like(self._total)
        alpha = trust(self._history)
        attended = self._history.attended
        turn, history = begin(self._history, present)
        lean = tilt(self._history, known_share(self._importance, present, turn))
        back, expired = turn.returning[cohort], turn.expired
        even = present[cohort] / present.sum()
        used = lean[..., None] * weights + (1.0 - lean[..., None]) * even
        old = self._last[..., cohort] * back
        gone = self._last[..., expired]
        self._total -= gone @ self._importance[expired]
        self._usual -= gone @ attended[expired]
        wanted, usual = (
            total / (amounts @ turn.remembered or 1.0)
            for total, amounts in ((self._total, self._importance), (self._usual, attended))
        )
        mean, before = (
            (table * used * each).sum(axis=-1) for table, each in ((updates, back), (old, 1.0))
        )
        remembered = (used @ back) * (lean * wanted + (1.0 - lean) * usual)
        change: Floats = alpha * (remembered - before) + (updates * used).sum(axis=-1)

        apart = updates @ (weights - even) - alpha * (old @ (weights - even))
        apart += alpha**2 * (wanted - usual)
        level = updates @ even - alpha * (old @ even) + alpha * (even @ back) * usual
        products = [_dot(*pair) for pair in ((mean, before), (before, before), (mean, mean))]
        products += tilt_evidence(level, apart, self._shift, _dot)
        self._history = learn(history, np.stack(products), turn)
        self._shift += newest_weight(history) * (apart - self._shift)
        self._last[..., cohort] = updates
        self._total += (updates - old) @ self._importance[cohort]
        self._usual += (updates - old) @ attended[cohort] + updates @ even
        return change


def _dot(left: Floats, right: Floats) -> Floats:
    """Return the inner products of models."""
    return np.asarray((left * right).sum(axis=0))


def train(
    of: Problems, ways: Sequence[Way], importance: Floats, rng: np.random.Generator
) -> dict[str, Floats]:
    """Train with all ways that share the same cohorts.

    Returns
    -------
    dict from rule to ndarray of shape (n_rounds, n_steps, n_problems)
        The excess loss after every round.
    """
    cohorts = ways[0].cohorts
    ordered = sorted(ways, key=lambda way: way.remembers)
    averages = slice(sum(not way.remembers for way in ways))
    memory = Memory(importance, of) if ordered[-1].remembers else None
    models = np.zeros((DIMENSION, len(ordered), *of.pull.shape[1:3]))
    change = np.zeros_like(models[:, averages])
    kept = np.array([way.momentum for way in ordered[averages]])[:, None, None]
    found = np.empty((cohorts.n_cohorts, *models.shape[1:]))
    for number, (first, last) in enumerate(itertools.pairwise(cohorts.offsets.tolist())):
        cohort = cohorts.members[first:last]
        drawn = rng.standard_normal((DIMENSION, 1, of.n_problems, cohort.size))
        pull = of.pull[..., cohort]
        towards = of.noise[..., cohort] * drawn + pull * of.minimum[..., cohort]
        updates = towards[:, None] - pull[:, None] * models[..., None]
        weights = np.stack([way.weights[first:last] for way in ordered])
        mean = np.einsum("dwspk,wk->dwsp", updates[:, averages], weights[averages])
        change = kept * change + (1.0 - kept) * mean
        models[:, averages] += change
        if memory is not None:
            models[:, -1] += memory.change(cohort, weights[-1], updates[:, -1])
        found[number] = of.excess(models)
    return {way.rule: found[:, place] for place, way in enumerate(ordered)}


def train_all(of: Problems, importance: Floats, n_rounds: int, rng: np.random.Generator) -> Floats:
    """Train with all clients in every round, weighted by importance.

    Returns
    -------
    ndarray of shape (n_rounds, n_steps, n_problems)
        The excess loss after every round.
    """
    kept, target = 1.0 - of.pull @ importance, (of.pull * of.minimum) @ importance
    spread = np.sqrt(of.noise**2 @ importance**2)
    models = np.zeros_like(kept)
    found = np.empty((n_rounds, *kept.shape[1:]))
    for number in range(n_rounds):
        drawn = rng.standard_normal((DIMENSION, 1, of.n_problems))
        models = kept * models + target + spread * drawn
        found[number] = of.excess(models)
    return found
