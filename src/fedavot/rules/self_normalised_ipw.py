"""Self-normalised inverse-probability weights.

    θ ← Σ_{i∈S} w_i θ_i,   w_i = (p_i/π_i) / Σ_{k∈S} p_k/π_k

Weights sum to one in every round, at the price of a bias: E w_i is not p_i. For cohorts of equal
size they are the first iterate, from equal weights, of the scaling that FedAVOT iterates. A cohort
whose clients all have importance zero gets equal weights. The rule knows the importance and the
inclusion probabilities, and stores nothing.

Source: Hájek, comment on Basu, in *Foundations of Statistical Inference*, 1971.
"""

from numpy.typing import ArrayLike

from fedavot.rules._known import inverse_inclusion
from fedavot.rules._rule import Rule, add_updates, by_cohort
from fedavot.rules.importance_average import normalised
from fedavot.rules.names import RuleName


def self_normalised_ipw(importance: ArrayLike, inclusion: ArrayLike | None) -> Rule:
    """Return self-normalised inverse-probability weighting.

    Parameters
    ----------
    importance, inclusion : array-like of shape (n_clients,)
        Importance of each client, and the probability that it takes part.
    """
    ratios = inverse_inclusion(RuleName.SELF_NORMALISED_IPW, importance, inclusion)
    choose = by_cohort(lambda cohort: normalised(ratios[cohort]))
    return Rule(
        RuleName.SELF_NORMALISED_IPW,
        "importance, inclusion probabilities",
        "nothing",
        choose,
        add_updates,
        n_clients=ratios.size,
    )
