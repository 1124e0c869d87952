"""A small training problem, whose runs are checkpointed."""

import numpy as np

from fedavot import rules, training
from fedavot.training.tasks.linear import linear_task

_rng = np.random.default_rng(0)
_IMPORTANCE = [0.5, 0.3, 0.2]
_EXAMPLES = [(_rng.normal(size=(6, 2)), _rng.normal(size=6)) for _ in _IMPORTANCE]


def _sample(rng, rounds):
    return [np.flatnonzero(row) for row in rng.random((rounds, len(_IMPORTANCE))) < 0.6]


PROBLEM = training.Problem(linear_task("three", _EXAMPLES), _IMPORTANCE, _sample)
RULE = rules.mifa(_IMPORTANCE)
OPTIONS = training.Training(12, training.constant(0.05), seeds=(0, 1), record_every=4)
