"""Full participation: every client answers every round.

    θ ← Σ_i p_i θ_i

The reference the others are measured against: it optimises the objective itself, at N answers a
round. It knows the importance and stores nothing; who is available does not matter to it.

Source: McMahan et al., *Communication-efficient learning of deep networks from decentralized
data*, AISTATS 2017, with all clients; FedAvg(full) in the FedAVOT paper.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedavot.rules._known import as_shares
from fedavot.rules._rule import Asked, Cohorts, Rule, add_updates, trained


def full(importance: ArrayLike) -> Rule:
    """Return full participation.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients; those of importance zero are not asked.
    """
    shares = as_shares(importance)
    everyone = trained(np.arange(shares.size), shares)

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        return [everyone] * len(cohorts)

    return Rule(
        "full", "importance; asks everyone", "nothing", choose, add_updates, n_clients=shares.size
    )
