"""Self-normalised inverse-probability weights.

    θ ← Σ_{i∈S} w_i θ_i,   w_i = (p_i/π_i) / Σ_{k∈S} p_k/π_k

Weights sum to one in every round, at the price of a bias: E w_i is not p_i. For cohorts of one size
they are what the first step of the scaling that FedAVOT iterates makes of equal weights. A cohort
of clients without importance is averaged plainly. It knows the importance and the inclusion
probabilities, and stores nothing.

Source: Hájek, comment on Basu, in *Foundations of Statistical Inference*, 1971.
"""

from numpy.typing import ArrayLike

from fedavot.rules._known import inverse_inclusion
from fedavot.rules._rule import Rule, add_updates, by_cohort
from fedavot.rules.p_normalised import normalised


def snipw(importance: ArrayLike, inclusion: ArrayLike | None) -> Rule:
    """Return self-normalised inverse-probability weighting.

    Parameters
    ----------
    importance, inclusion : array-like of shape (n_clients,)
        What clients should count, and the probability that they take part.
    """
    ratios = inverse_inclusion("snipw", importance, inclusion)
    choose = by_cohort(lambda cohort: normalised(ratios[cohort]))
    return Rule(
        "snipw",
        "importance, inclusion probabilities",
        "nothing",
        choose,
        add_updates,
        n_clients=ratios.size,
    )
