"""The average weighted by importance: p, normalised over the cohort.

    θ ← Σ_{i∈S} p_i θ_i / Σ_{k∈S} p_k

FedAvg weighted by example counts is this rule with p_i ∝ n_i. It knows the importance and stores
nothing; how often a client reports still decides how much it counts.

Source: McMahan et al., *Communication-efficient learning of deep networks from decentralized
data*, AISTATS 2017, Algorithm 1.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats
from fedavot.rules._known import as_shares
from fedavot.rules._rule import Rule, add_updates, by_cohort
from fedavot.rules.names import RuleName


def importance_average(importance: ArrayLike) -> Rule:
    """Return the average weighted by importance.

    Parameters
    ----------
    importance : array-like of shape (n_clients,)
        A distribution over the clients. A cohort whose members all have importance zero gets
        equal weights.
    """
    shares = as_shares(importance)
    choose = by_cohort(lambda cohort: normalised(shares[cohort]))
    return Rule(
        RuleName.IMPORTANCE_AVERAGE,
        "importance",
        "nothing",
        choose,
        add_updates,
        n_clients=shares.size,
    )


def normalised(values: Floats) -> Floats:
    """Return the values divided by their sum; equal shares if all are zero."""
    total = values.sum()
    return values / total if total > 0 else np.full(values.size, 1.0 / values.size)
