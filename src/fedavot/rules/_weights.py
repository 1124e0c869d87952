"""Weights of a cohort by itself, and the rules that choose by nothing else."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedavot._checks import Floats, Integers
from fedavot.rules._rule import Aggregate, Asked, Choose, Rule, State, add_updates, no_state
from fedavot.rules._trees import Params

ON_CLIENTS = "one model per client, on the client"
"""What some of these rules store."""

REMEMBERED = 1 << 20
"""Number of entries of cohorts whose weights a rule caches, if all are as large as the last."""


def by_cohort(weigh: Callable[[Integers], Floats]) -> Choose:
    """Return a choice that asks the members of positive weight, independently of earlier rounds.

    Parameters
    ----------
    weigh : function of a cohort
        Returns its members' weights, in order. Weights of repeated cohorts, also in another run,
        are not recomputed, unless more than `REMEMBERED` came in between.
    """
    asked: dict[bytes, Asked] = {}

    def ask(cohort: Integers) -> Asked:
        key = cohort.tobytes()
        if key not in asked:
            if len(asked) * cohort.size >= REMEMBERED:
                asked.clear()
            asked[key] = trained(cohort, weigh(cohort) if cohort.size else np.zeros(0))
        return asked[key]

    return lambda cohorts, rng: [ask(cohort) for cohort in cohorts]


def equal_weights(cohort: Integers) -> Floats:
    """Return 1/|S| for every member, shape (n_members,)."""
    return np.full(cohort.size, 1.0 / cohort.size)


def scaled_importance(shares: Floats) -> Callable[[Integers], Floats]:
    """Return weights N p_i/|S|: p on average, if clients take part equally often."""
    return lambda cohort: shares.size / cohort.size * shares[cohort]


def trained(members: Integers, weights: Floats) -> Asked:
    """Leave out the members whose weight is zero, as their updates would not be used."""
    counted = weights != 0
    return Asked(members[counted], weights[counted])


def weighing(
    name: str,
    shares: Floats,
    weigh: Callable[[Integers], Floats] | None = None,
    aggregate: Aggregate = add_updates,
    init: Callable[[Params, int], State] = no_state,
    **parts: Any,
) -> Rule:
    """Return a rule that weights every cohort by itself, by the clients' shares by default.

    It knows the importance and stores nothing, unless ``parts`` say otherwise.
    """
    fields = {"knows": "importance", "stores": "nothing", "n_clients": shares.size, **parts}
    choose = by_cohort(weigh or shares.take)
    return Rule(name, choose=choose, aggregate=aggregate, init=init, **fields)
