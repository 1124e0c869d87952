"""FedAVOT without a known availability law.

    θ ← Σ_{i∈A} Y_i θ_i,   Y = softmax of x over A,   x ← x + η (p − Y)

The potentials are learned from the cohorts as they come. The realised mean weights approach p for
any sequence of cohorts under which the potentials stay bounded; if p is not attainable, they do
not. One absence adds at most ``bound``. The rule knows only the importance, and stores one number
per client.

Source: docs/theory.md, section 8; `OnlineAligner`.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedavot.online import EXACT_STEP, OnlineAligner
from fedavot.rules._known import as_shares
from fedavot.rules._rule import Asked, Cohorts, Rule, add_updates, trained
from fedavot.rules.names import RuleName


def fedavot_online(
    importance: ArrayLike,
    *,
    step: float = EXACT_STEP,
    potentials: ArrayLike | None = None,
    bound: float | None = 3.0,
) -> Rule:
    """Return FedAVOT with potentials learned during training.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients.
    step, potentials, bound
        As in `OnlineAligner`; every seed has its own aligner.
    """
    shares = as_shares(importance)

    def fresh() -> OnlineAligner:
        return OnlineAligner(
            shares, softness=0, step=step, around="equal", potentials=potentials, bound=bound
        )

    fresh()  # bad options are refused here, not when training starts

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        aligner = fresh()
        return [
            trained(cohort, aligner.observe(cohort) if cohort.size else np.zeros(0))
            for cohort in cohorts
        ]

    return Rule(
        RuleName.ONLINE,
        "importance",
        "one number per client",
        choose,
        add_updates,
        n_clients=shares.size,
    )
