"""Rounds of a rule in which clients say what they are told to."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from points import N, choose

from fedavot.rules import Report
from fedavot.rules._history import trust

EVERYBODY = list(range(N))
STEP, LOCAL_STEPS = 0.15, 2

compiled = functools.cache(jax.jit)
"""A rule's function, compiled once for all rules that share it."""


def words(seed):
    """Return what each client says, shape (n_clients, 3)."""
    return np.random.default_rng(seed).normal(size=(N, 3))


class Player:
    """A rule with memory, its model and its state, from round to round."""

    def __init__(self, rule, n_features=3):
        self.rule, self.model, self.cohorts = rule, jnp.zeros(n_features), []
        self.state, self.weights = rule.init(self.model, rule.n_clients), None
        """Weights of the last round, by client."""

    def change(self, cohort, said):
        """Play a round; return the change of the model, all per unit of step."""
        self.cohorts.append(cohort)
        asked = choose(self.rule, *self.cohorts)[-1]
        self.weights = np.zeros(self.rule.n_clients)
        self.weights[asked.members] = asked.weights
        span = LOCAL_STEPS * STEP
        rows = [span * (jnp.asarray(said[i]) - self.correction(i)) for i in asked.members.tolist()]
        # As in the engine, a place that nobody takes.
        members = jnp.asarray([*asked.members, self.rule.n_clients])
        updates = jnp.stack([*rows, jnp.zeros_like(self.model)])
        weights = jnp.asarray([*asked.weights, 0.0])
        report = Report(members, weights, updates, None, STEP, LOCAL_STEPS)
        before = self.model
        self.model, self.state = compiled(self.rule.aggregate)(before, self.state, report)
        return np.asarray(self.model - before) / span

    def correction(self, client):
        if self.rule.correct is None:
            return 0.0
        return compiled(self.rule.correct)(self.model, self.state, client)

    @property
    def trust(self):
        return float(trust(self.state.history))
