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
from fedavot.rules._history import PAIRS, Constants, decide, learn, nothing


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
        members = np.where(self._importance[cohort] > 0, cohort, self._importance.size)
        before = self._history
        turn, history = decide(before, self._importance, members, weights, Constants())
        old, gone = self._last[..., cohort] * turn.returning, self._last[..., turn.expired]
        self._total -= gone @ self._importance[turn.expired]
        self._usual -= gone @ before.attended[turn.expired]
        sums = np.stack([self._total, self._usual, self._shift], axis=-1)
        rows = np.concatenate([updates, old, sums], axis=-1)
        matrix, table = turn.matrix.transpose(1, 2, 0, 3), rows.transpose(1, 2, 3, 0)
        found = [*(matrix @ table).transpose(2, 3, 0, 1), self._shift]
        change, self._total, self._usual, self._shift = found[:4]
        products = np.stack([(found[i] * found[j]).sum(axis=0) for i, j in PAIRS])
        self._history = learn(history, products, turn)
        self._last[..., cohort] = updates
        return np.asarray(change)


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
