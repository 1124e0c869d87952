"""FedAVOT without knowing who is available how often.

    θ ← Σ_{i∈A} Y_i θ_i,   Y = softmax of x over A,   x ← x + η (p − Y)

The potentials learn from the cohorts as they come. The realised mean weights approach p for any
sequence of cohorts under which the potentials stay bounded; where p is out of reach they do not.
One absence adds at most ``bound``. It knows the importance alone, and stores one number a client.

Source: docs/theory.md, section 8; `OnlineAligner`.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedavot.online import STEP, OnlineAligner
from fedavot.rules._known import as_shares
from fedavot.rules._rule import Asked, Cohorts, Rule, add_updates, trained


def fedavot_online(
    importance: ArrayLike,
    *,
    step: float = STEP,
    potentials: ArrayLike | None = None,
    bound: float | None = 3.0,
) -> Rule:
    """Return FedAVOT that learns the potentials on the way.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    step, potentials, bound
        As in `OnlineAligner`, of which every seed gets its own.
    """
    shares = as_shares(importance)

    def fresh() -> OnlineAligner:
        return OnlineAligner(shares, step=step, potentials=potentials, bound=bound)

    fresh()  # bad options are refused here, not when training starts

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        aligner = fresh()
        return [
            trained(cohort, aligner.observe(cohort) if cohort.size else np.zeros(0))
            for cohort in cohorts
        ]

    return Rule(
        "fedavot-online",
        "importance",
        "one number a client",
        choose,
        add_updates,
        n_clients=shares.size,
    )
