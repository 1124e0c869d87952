"""FedAVOT with server selection: ask only K of those available.

    choose i with probability π_i = min(1, c w_i), w = Y[·, A];   θ ← Σ_{chosen} (w_i/π_i) θ_i

c makes the π_i sum to K. The aggregate is unbiased for Σ_{i∈A} w_i θ_i, and its weights sum to one.
With everyone available and w = p any importance at all is aligned exactly. It knows the importance
and the law of availability (by way of the alignment), sees who is available before asking, and
stores nothing.

Source: docs/theory.md, section 9; systematic sampling (Madow 1949), `fedavot.select`.
"""

import numpy as np

from fedavot._checks import Integers, as_size
from fedavot.alignment import Alignment
from fedavot.rules._known import as_converged
from fedavot.rules._rule import Asked, Cohorts, Rule, add_updates
from fedavot.selection import select


def fedavot_select(alignment: Alignment, size: int, *, allow_unconverged: bool = False) -> Rule:
    """Return FedAVOT that asks at most ``size`` of each cohort.

    Parameters
    ----------
    alignment : Alignment
        Of the importance and the law of who is *available*.
    size : int
        How many to ask.
    allow_unconverged : bool
        Whether to accept an alignment that missed its tolerance.
    """
    aligned = as_converged("fedavot-select", alignment, allow_unconverged=allow_unconverged)
    as_size(size, what="size", low=1)

    def ask(cohort: Integers, rng: np.random.Generator) -> Asked:
        if not cohort.size:
            return Asked(cohort, np.zeros(0))
        places, weights = select(aligned.weights(cohort), size, rng)
        return Asked(cohort[places], weights)

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        return [ask(cohort, rng) for cohort in cohorts]

    knows = "importance, availability law, who is available"
    return Rule(
        "fedavot-select", knows, "nothing", choose, add_updates, n_clients=aligned.n_clients
    )
