"""Full participation: every client answers every round.

    θ ← Σ_i p_i θ_i

The reference for all other rules: it optimises the objective itself, at the cost of N replies per
round. It knows the importance and stores nothing, and ignores availability.

Source: McMahan et al., *Communication-efficient learning of deep networks from decentralized
data*, AISTATS 2017, with all clients; FedAvg(full) in the FedAVOT paper.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedavot.rules._known import as_shares
from fedavot.rules._rule import Asked, Cohorts, Rule, add_updates, trained
from fedavot.rules.names import RuleName


def full(importance: ArrayLike) -> Rule:
    """Return full participation.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients; clients of importance zero are not asked.
    """
    shares = as_shares(importance)
    everyone = trained(np.arange(shares.size), shares)

    def choose(cohorts: Cohorts, rng: np.random.Generator) -> list[Asked]:
        return [everyone] * len(cohorts)

    return Rule(
        RuleName.FULL,
        "importance; asks everyone",
        "nothing",
        choose,
        add_updates,
        n_clients=shares.size,
    )
