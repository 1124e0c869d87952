"""FedAVOT with server selection: ask only K of the available clients.

    choose i with probability π_i = min(1, c w_i), w = Y[·, A];   θ ← Σ_{chosen} (w_i/π_i) θ_i

c makes the π_i sum to K. The aggregate is unbiased for Σ_{i∈A} w_i θ_i, and its weights sum to one.
If everyone is available and w = p, every importance is aligned exactly. The rule knows the
importance and the availability law, both from the alignment, sees which clients are available
before it asks, and stores nothing.

Source: docs/theory.md, section 9; systematic sampling (Madow 1949), `fedavot.select`.
"""

import numpy as np

from fedavot._checks import Integers, as_size
from fedavot.alignment import Alignment
from fedavot.rules._known import as_converged
from fedavot.rules._rule import Asked, Cohorts, Rule, add_updates
from fedavot.rules.names import RuleName
from fedavot.selection import select


def fedavot_select(
    alignment: Alignment, cohort_size: int, *, allow_unconverged: bool = False
) -> Rule:
    """Return FedAVOT that asks at most ``cohort_size`` of the available clients.

    Parameters
    ----------
    alignment : Alignment
        Alignment of the importance under the law of *available* clients.
    cohort_size : int
        Number of clients to ask per round, at most ``n_clients``.
    allow_unconverged : bool
        Whether to accept an alignment that missed its tolerance.
    """
    aligned = as_converged(RuleName.SELECT, alignment, allow_unconverged=allow_unconverged)
    as_size(cohort_size, what="cohort_size", low=1, high=aligned.n_clients)

    def ask(cohort: Integers, rng: np.random.Generator) -> Asked:
        if not cohort.size:
            return Asked(cohort, np.zeros(0))
        places, weights = select(aligned.weights(cohort), cohort_size, rng)
        return Asked(cohort[places], weights)

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        return [ask(cohort, rng) for cohort in cohorts]

    knows = "importance, availability law, who is available"
    return Rule(RuleName.SELECT, knows, "nothing", choose, add_updates, n_clients=aligned.n_clients)
