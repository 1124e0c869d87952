"""FedAVOT with memory: the last updates of absent clients stand in for them.

    θ ← θ + Σ_i p_i η y_i + Σ_{i∈A} Y[i, A] (Δ_i − η y_i),   then y_i ← Δ_i/η for i ∈ A

y_i is client i's last update per unit of step size. The bias of an unattainable importance becomes
Σ (p_i − p̃_i)(Δ_i − η y_i), which vanishes as the memories catch up, and so does most of the
variance. The rule knows the importance and the availability law, both from the alignment, and
stores one model per client. All members of a cohort train, even those of weight zero, to refresh
their memory.

Source: ours. Its memory is that of FedVARP (Jhunjhunwala et al. 2022) and MIFA (Gu et al. 2021);
its weights are aligned.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import as_importance
from fedavot.alignment import Alignment
from fedavot.rules._known import as_converged, as_shares
from fedavot.rules._memory import remembering
from fedavot.rules._rule import Asked, Cohorts, Rule
from fedavot.rules.names import RuleName


def fedavot_memory(
    alignment: Alignment,
    *,
    importance: ArrayLike | Mapping[str, float] | None = None,
    allow_unconverged: bool = False,
) -> Rule:
    """Return FedAVOT with memory.

    Parameters
    ----------
    alignment : Alignment
        The alignment that gives the weights of new updates.
    importance : array-like of shape (n_clients,), or mapping from name to float, optional
        Weights of the memories; the alignment's importance if not given.
    allow_unconverged : bool
        Whether to accept an alignment that missed its tolerance.
    """
    aligned = as_converged(RuleName.MEMORY, alignment, allow_unconverged=allow_unconverged)
    wanted = aligned.importance if importance is None else importance
    shares = as_importance(as_shares(wanted, aligned.clients), aligned.n_clients)

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        return [
            Asked(cohort, aligned.weights(cohort) if cohort.size else np.zeros(0))
            for cohort in cohorts
        ]

    return remembering(RuleName.MEMORY, "importance, availability law", choose, shares)
