"""Training over the rounds of a log, with all rules, step sizes and problems side by side.

In a round, the clients of a cohort take local steps from the model, and the rule aggregates what
they return; all rules see the same noise. For rules that are weights this is NumPy on hundreds of
small models at once, and nothing is compiled; rules that remember are in `memory`. Arrays of models
have the axes (dimension, rule, step size, problem), and arrays of updates have the clients of the
cohort behind these.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from fedavot._checks import Floats
from fedavot.audit.replay.memory import Memory
from fedavot.audit.replay.problems import DIMENSION, Problems
from fedavot.audit.replay.ways import Way


def train(
    of: Problems, ways: Sequence[Way], importance: Floats, rng: np.random.Generator
) -> dict[str, Floats]:
    """Train with ways over the same cohorts.

    Returns
    -------
    dict from rule to ndarray of shape (n_rounds, n_steps, n_problems)
        The excess loss after every round.
    """
    cohorts = ways[0].cohorts
    ordered = sorted(ways, key=lambda way: way.remembers)
    averages = [way for way in ordered if not way.remembers]
    memory = Memory(importance, of) if len(averages) < len(ordered) else None
    models = np.zeros((DIMENSION, len(ordered), of.span.size, of.n_problems))
    change = np.zeros_like(models[:, : len(averages)])
    kept = np.array([way.momentum for way in averages])[:, None, None]
    found = np.empty((cohorts.n_cohorts, *models.shape[1:]))
    for number, (first, last) in enumerate(itertools.pairwise(cohorts.offsets.tolist())):
        cohort = cohorts.members[first:last]
        drawn = rng.standard_normal((DIMENSION, 1, of.n_problems, cohort.size))
        pull = of.pull[..., cohort]
        towards = of.noise[..., cohort] * drawn + pull * of.minimum[..., cohort]
        updates = towards[:, None] - pull[:, None] * models[..., None]
        weights = np.stack([way.weights[first:last] for way in averages])
        mean = np.einsum("dwspk,wk->dwsp", updates[:, : len(averages)], weights)
        change = kept * change + (1.0 - kept) * mean
        models[:, : len(averages)] += change
        if memory is not None:
            models[:, -1] = memory.round(cohort, updates[:, -1])
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
