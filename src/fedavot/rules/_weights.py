"""Weights of a cohort by itself, the rules that choose by nothing else, and their checks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, Integers, as_amount, as_distribution
from fedavot._clients import in_client_order
from fedavot.errors import ImportanceError, OptionError
from fedavot.rules._rule import Asked, Choose, Rule, Weigh, add_updates

REMEMBERED = 1 << 20
"""Number of entries of cohorts whose weights a rule caches, if all are as large as the last."""


def by_cohort(weigh: Weigh) -> Choose:
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


def evenly() -> Choose:
    """Return a choice with the weights 1/|S|."""
    return by_cohort(lambda cohort: np.full(cohort.size, 1.0 / cohort.size))


def scaled_importance(shares: Floats) -> Weigh:
    """Return weights N p_i/|S|: p on average, if clients take part equally often."""
    return lambda cohort: shares.size / cohort.size * shares[cohort]


def trained(members: Integers, weights: Floats) -> Asked:
    """Leave out the members whose weight is zero, as their updates would not be used."""
    counted = weights != 0
    return Asked(members[counted], weights[counted])


def weighing(name: str, shares: Floats, weigh: Weigh | None = None, /, **parts: Any) -> Rule:
    """Return a rule that weights every cohort by itself, by the clients' shares by default.

    It knows the importance, adds up the updates and stores nothing, unless ``parts`` say otherwise.
    """
    usual: dict[str, Any] = {"aggregate": add_updates, "choose": by_cohort(weigh or shares.take)}
    usual |= {"knows": "importance", "stores": "nothing", "n_clients": shares.size}
    return Rule(name, **usual | parts)


def as_shares(
    importance: ArrayLike | Mapping[str, float], names: Sequence[str] | None = None
) -> Floats:
    """Return an importance, shape (n_clients,); by client name only if there are names."""
    if isinstance(importance, Mapping) and names is None:
        raise ImportanceError(
            "importance is given by client name, but the names' order is not known here; pass an "
            "array in client order, such as fedavot.importance.from_mapping(importance, clients)"
        )
    ordered = in_client_order(importance, names)
    return as_distribution(ordered, what="importance", item="client", error=ImportanceError)


def as_part(value: float, *, what: str, below_one: bool = False) -> float:
    """Return a number from 0 to 1, or below 1."""
    part = as_amount(value, what=what)
    if part > 1.0 or (below_one and part == 1.0):
        raise OptionError(
            f"{what} is {part}; it must be {'at least 0 and below' if below_one else 'from 0 to'} 1"
        )
    return part
